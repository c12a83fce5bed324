"""Tests the results of local steps: means, outer optimizers, sparse updates, 16-bit weights."""

import copy
from functools import partial

import numpy
import pytest
import torch
from torch import nn

import gradwire.torch
from gradwire.torch import _messages
from models import VOTING, Net, data, flat, local, one_layer
from world import in_turn, ranks


def voted(rank, size, compressor):
    layer, steps = one_layer(compressor, every=1, outer=partial(torch.optim.SGD, lr=1e-3))
    before = layer.weight.detach().clone()
    layer.weight.grad.normal_(generator=torch.Generator().manual_seed(0))
    steps.step()
    return before - layer.weight.detach(), layer.weight.grad


def test_an_outer_optimizer_applies_votes_with_its_rate():
    for compressor, found in zip(VOTING, in_turn(2, *((voted, compressor) for compressor in VOTING))):
        for moved, gradient in found:
            assert 0 < moved.abs().max() < 1.001e-3, compressor
            assert (moved * gradient).sum() > 0, compressor


def by_hand(size, rounds, every, outer):
    """The parameters after rounds of plain averaging, with PyTorch's optimizer as the outer one."""
    torch.manual_seed(0)
    common = Net()
    inners, nets = [], [copy.deepcopy(common) for _ in range(size)]
    for net in nets:
        inners.append(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
    if isinstance(outer, gradwire.torch.Nesterov):
        # Its defaults.
        outer = partial(torch.optim.SGD, lr=0.7, momentum=0.5, nesterov=True)
    outer = outer and outer(common.parameters())
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


OUTER = [
    None,
    gradwire.torch.Nesterov(),
    partial(torch.optim.SGD, lr=0.5),
    partial(torch.optim.Adam, lr=0.01),
]


def test_none_equals_averaging_by_hand():
    options = {"every": 4, "compressor": "none"}
    for outer, found in zip(OUTER, in_turn(2, *((local, range(12), {**options, "outer": outer}) for outer in OUTER))):
        expected = by_hand(2, 3, 4, outer)
        for parameters, *_ in found:
            numpy.testing.assert_allclose(parameters, expected, rtol=1e-4, atol=1e-5, err_msg=str(outer))
        assert (found[0][0] == found[1][0]).all(), outer


@pytest.mark.parametrize("options, optimizer", [
    ({"every": 5, "compressor": "sbc:p=0.05"}, "adam"),
    ({"compressor": "sbc:p=0.05,every=5", "sync_until": 10}, "sgd"),
    ({"every": 5, "compressor": "topk:ratio=0.05,ef=ef21", "outer": partial(torch.optim.Adam, lr=0.01)}, "adam"),
    ({"every": 5, "compressor": "chunk-topk", "outer": partial(torch.optim.SGD, lr=0.9), "median_clip": True}, "adam"),
])
def test_sparse_updates_train_and_resume(options, optimizer):
    whole, half = in_turn(2, *((local, range(end), options, optimizer) for end in (40, 23)))
    assert (whole[0][0] == whole[1][0]).all()
    assert numpy.mean(whole[0][1][-5:]) < 0.6 * numpy.mean(whole[0][1][:3])
    assert whole[0][3]["ratio"] > 5
    resumed = ranks(2, local, range(23, 40), options, optimizer, [one[2] for one in half])
    assert (resumed[0][0] == whole[0][0]).all()


def in_short_messages(rank, size, most, options):
    _messages.MOST_ELEMENTS = most
    parameters, _, _, stats = local(rank, size, range(10), options)
    return parameters, stats["messages_up"], stats["elements"]


def test_a_round_of_a_large_model_has_several_messages():
    cases = [
        {"every": 4, "compressor": "none"},
        {"every": 4, "compressor": "topk:ratio=0.1", "median_clip": True},
        {"every": 6, "compressor": "eden", "fragments": 2, "fragment_sync_delay": 1},
    ]
    runs = in_turn(2, *((in_short_messages, most, options) for options in cases for most in (1 << 28, 1000)))
    for options, whole, parts in zip(cases, runs[::2], runs[1::2]):
        for (expected, messages, elements), (found, more, same) in zip(whole, parts):
            assert more > messages and same == elements and (found == expected).all(), options


def clipped(rank, size, median_clip):
    net = Net()
    steps = gradwire.torch.LocalSteps(
        net, torch.optim.SGD(net.parameters(), lr=1.0), every=1, compressor="none", median_clip=median_clip
    )
    before = flat(net)
    for parameter in net.parameters():
        parameter.grad = torch.full_like(parameter, [0.001, 0.002, 0.006][rank])
    steps.step()
    return before - flat(net)


def test_long_changes_are_scaled_to_the_median():
    for found, mean in zip(in_turn(3, (clipped, False), (clipped, True)), (0.003, 0.005 / 3)):
        for change in found:
            numpy.testing.assert_allclose(change, mean, rtol=1e-3)


def pushed_once(rank, size, dtype, compressor, rounds):
    layer, steps = one_layer(compressor, dtype, every=1)
    start = layer.weight.detach().float()
    layer.weight.grad.normal_(generator=torch.Generator().manual_seed(rank))
    seen = []
    for _ in range(rounds):
        steps.step()
        seen.append(layer.weight.detach().float())
        layer.weight.grad.zero_()
    return start, seen


@pytest.mark.parametrize("size", [1, 2])
def test_16_bit_weights_without_gradient_do_not_change(size):
    dtypes = [torch.bfloat16, torch.float16]
    for dtype, found in zip(dtypes, in_turn(size, *((pushed_once, dtype, "sbc:p=0.05", 250) for dtype in dtypes))):
        start, seen = found[0]
        # Weights are at most 1/8, so their unit in the last place is below eps / 8; local steps and
        # common weights are rounded to it.
        place = torch.finfo(dtype).eps / 8
        moved = [torch.randn(32, 64, dtype=dtype, generator=torch.Generator().manual_seed(rank)) for rank in range(size)]
        expected = start - 1e-3 * sum(gradient.float() for gradient in moved) / size
        assert (seen[-1] - expected).abs().max() < place, dtype
        assert all(torch.equal(weights, seen[-1]) for weights in seen[-20:]), dtype
        assert all(torch.equal(seen[-1], others[-1]) for _, others in found), dtype
