"""Tests of warnings about choices that cost traffic or residuals."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from models import Net, build, data
from world import ranks


def warned(create):
    """What a rank is told by `create()`, whose result is closed."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        create().close()
    return [str(one.message) for one in told if "gradwire" in one.filename or "all-reduce" in str(one.message)]


CHOICES = {
    "none until 100 then eden": {"exchange": "all-gather"},
    "topk:ratio=0.9": {"exchange": "all-gather"},
    "topk:ratio=0.25": {"exchange": "all-gather"},
    "eden until 10 then none until 20 then eden": {"exchange": "all-gather"},
    # These save traffic, or may.
    "eden": {},
    "int8:ef=off": {},
    "threshold:v=0.1": {"exchange": "all-gather"},
    "none": {},
    "none until 5 then eden": {"exchange": "scatter-reduce"},
}


def of_choices(rank, size):
    found = {spec: warned(lambda: build(spec, **options)[1]) for spec, options in CHOICES.items()}
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    found["local"] = warned(lambda: gradwire.torch.LocalSteps(net, optimizer, compressor="none", exchange="all-gather"))
    return found


def test_a_choice_that_sends_more_than_an_all_reduce_is_told_once_with_the_remedy():
    first, *others = ranks(8, of_choices)
    assert not any(told for found in others for told in found.values())
    # An all-gather over 8 ranks sends 8 / 2 times as much of each message.
    (message,) = first["none until 100 then eden"]
    assert "over 8 ranks sends about 4 times the bytes" in message and "in its steps 0 to 99" in message, message
    assert "exchange='scatter-reduce' sends 1 times as many" in message, message
    (message,) = first["topk:ratio=0.9"]
    assert "about 3.7 times" in message and "exchange='scatter-reduce' sends 0.93 times" in message, message
    # A quarter of the values, each with about three bits for its position, times 8 / 2, and vectors
    # as they are.
    (message,) = first["topk:ratio=0.25"]
    assert "about 1.2 times" in message, message
    (message,) = first["eden until 10 then none until 20 then eden"]
    assert "in its steps 10 to 19" in message, message
    (message,) = first["local"]
    assert "about 4 times" in message, message
    for spec in list(CHOICES)[4:]:
        assert first[spec] == [], (spec, first[spec])


def toggled(rank, size, spec):
    """Alternates between two parts of a model, as a GAN does."""
    model = DistributedDataParallel(Net(), find_unused_parameters=True)
    gradwire.torch.register(model, spec)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(4):
            for at, part in enumerate((model.module.first, model.module.second)):
                part.requires_grad_(at == step % 2)
            x, labels = data(rank, step)
            nn.functional.cross_entropy(model(x), labels).backward()
    return [str(one.message) for one in told if "residual" in str(one.message)]


def test_toggled_parameters_lose_residuals_with_one_warning():
    for (message,) in ranks(2, toggled, "3lc"):
        assert "does not require gradients in this step" in message and "such as eden" in message
    assert ranks(2, toggled, "eden") == [[], []]


def mixed(rank, size):
    model = DistributedDataParallel(Net())
    # What the argument sets; it needs a GPU.
    model.mixed_precision = object()
    with pytest.raises(gradwire.ConfigError) as refused:
        gradwire.torch.register(model)
    # The remedy works.
    model = DistributedDataParallel(Net())
    handle = gradwire.torch.register(model)
    x, labels = data(rank, 0)
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x), labels)
    loss.backward()
    return str(refused.value), handle.stats()["step"]


def test_mixed_precision_of_ddp_is_refused_with_a_remedy_that_works():
    ((message, step),) = ranks(1, mixed)
    assert "leave the argument out" in message and "torch.autocast" in message and step == 0
