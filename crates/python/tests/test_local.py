"""Local steps and weight updates."""

import copy

import numpy
import pytest
import torch
from torch import nn

import gradwire.torch
from models import Net, data, flat
from world import ranks


def local(rank, size, steps, options, optimizer="sgd", resume=None):
    torch.manual_seed(rank)
    net = Net()
    inner = (
        torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        if optimizer == "sgd"
        else torch.optim.Adam(net.parameters(), lr=0.003)
    )
    local = gradwire.torch.LocalSteps(net, inner, **options)
    if resume is not None:
        net.load_state_dict(resume[rank]["model"])
        inner.load_state_dict(resume[rank]["inner"])
        local.load_state_dict(resume[rank]["local"])
    losses = []
    for step in steps:
        x, labels = data(rank, step)
        loss = nn.functional.cross_entropy(net(x), labels)
        local.zero_grad()
        loss.backward()
        local.step()
        losses.append(loss.item())
    saved = {"model": net.state_dict(), "inner": inner.state_dict(), "local": local.state_dict()}
    return flat(net), losses, copy.deepcopy(saved), local.stats()


def by_hand(size, rounds, every, outer):
    """Parameters after rounds of plain averaging, with the outer optimizer of PyTorch."""
    torch.manual_seed(0)
    common = Net()
    inners, nets = [], [copy.deepcopy(common) for _ in range(size)]
    for net in nets:
        inners.append(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
    outer = outer and torch.optim.SGD(common.parameters(), lr=outer.lr, momentum=outer.momentum, nesterov=True)
    for round_ in range(rounds):
        for rank, net in enumerate(nets):
            for step in range(round_ * every, (round_ + 1) * every):
                x, labels = data(rank, step)
                inners[rank].zero_grad()
                nn.functional.cross_entropy(net(x), labels).backward()
                inners[rank].step()
        with torch.no_grad():
            for at, parameter in enumerate(common.parameters()):
                mean = sum(list(net.parameters())[at] - parameter for net in nets) / size
                if outer:
                    parameter.grad = -mean
                else:
                    parameter.add_(mean)
            if outer:
                outer.step()
            for net in nets:
                for own, parameter in zip(net.parameters(), common.parameters()):
                    own.copy_(parameter)
    return flat(common)


@pytest.mark.parametrize("outer", [None, gradwire.torch.Nesterov(lr=0.7, momentum=0.9)])
def test_none_is_averaging_by_hand(outer):
    found = ranks(2, local, range(12), {"every": 4, "compressor": "none", "outer": outer})
    expected = by_hand(2, 3, 4, outer)
    for parameters, *_ in found:
        numpy.testing.assert_allclose(parameters, expected, rtol=1e-4, atol=1e-5)
    assert (found[0][0] == found[1][0]).all()


@pytest.mark.parametrize("options, optimizer", [
    ({"every": 5, "compressor": "sbc:p=0.05"}, "adam"),
    ({"compressor": "sbc:p=0.05,every=5", "sync_until": 10}, "sgd"),
])
def test_sparse_updates_train_and_resume(options, optimizer):
    whole = ranks(2, local, range(40), options, optimizer)
    assert (whole[0][0] == whole[1][0]).all()
    assert numpy.mean(whole[0][1][-5:]) < 0.6 * numpy.mean(whole[0][1][:3])
    assert whole[0][3]["ratio"] > 5
    half = ranks(2, local, range(23), options, optimizer)
    resumed = ranks(2, local, range(23, 40), options, optimizer, [one[2] for one in half])
    assert (resumed[0][0] == whole[0][0]).all()


def masked(rank, size, mask):
    net = Net()
    inner = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    steps = gradwire.torch.LocalSteps(net, inner, every=2, compressor="topk:ratio=0.1", mask=mask)
    for step in range(2):
        x, labels = data(rank, step)
        nn.functional.cross_entropy(net(x), labels).backward()
        steps.step()
    return (inner.state[net.first.weight]["momentum_buffer"] == 0).sum().item()


def test_momentum_is_forgotten_where_elements_were_sent():
    assert all(found >= 614 for found in ranks(2, masked, True))
    assert all(found < 300 for found in ranks(2, masked, False))
