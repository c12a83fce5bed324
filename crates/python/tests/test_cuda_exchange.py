"""DistributedDataParallel with gradients that kernels compress, under Triton's interpreter, beside compression on the host."""

import pytest
import torch

pytest.importorskip("triton", reason="PyTorch came without Triton")

import gradwire.torch
from gradwire import _core
from models import build, flat, train
from world import ranks

# A compressor with a residual, one without, and both in one model.
SETTINGS = [("3lc:s=1.75", {}), ("3lc", {"raw_vectors": False, "raw_below": 0}), ("3lc:ef=off", {})]


def run(rank, size, compressor, steps, options, mixed=False, dtype=None):
    if mixed:
        options = {**options, "device": ["host", "gpu"][rank % 2]}
    model, handle = build(compressor, dtype=dtype, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = train(model, optimizer, rank, range(steps))
    return flat(model), losses, handle.stats()["total_bytes_up"]


@pytest.mark.parametrize("compressor, options", SETTINGS)
def test_a_run_on_the_device_has_the_bits_of_one_on_the_host(compressor, options):
    host = ranks(2, run, compressor, 3, {**options, "device": "host"})
    device = ranks(2, run, compressor, 3, {**options, "device": "gpu"})
    for (expected, losses, sent), (found, others, also) in zip(host, device):
        assert (found == expected).all() and others == losses and also == sent


def test_ranks_may_differ_in_where_they_compress():
    host = ranks(2, run, "3lc", 3, {"device": "host"})
    mixed = ranks(2, run, "3lc", 3, {}, True)
    assert all((found == expected).all() for (expected, _, _), (found, _, _) in zip(host, mixed))


def saved(rank, size, before, after, where):
    """The parameters after some steps, a saved and loaded state, and more steps."""
    model, handle = build("3lc:s=1.75", device=where[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(before))
    state, parameters = handle.state_dict(), model.state_dict()
    model, handle = build("3lc:s=1.75", device=where[1])
    model.load_state_dict(parameters)
    handle.load_state_dict(state)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(before, before + after))
    return flat(model)


def test_states_of_device_and_host_are_the_same():
    whole = ranks(2, saved, 2, 2, ("host", "host"))
    for where in [("gpu", "gpu"), ("gpu", "host"), ("host", "gpu")]:
        found = ranks(2, saved, 2, 2, where)
        assert all((a == b).all() for a, b in zip(found, whole)), where


def poisoned(rank, size, on_nonfinite):
    model, handle = build("3lc", device="gpu", on_nonfinite=on_nonfinite)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, [0])
    before = handle._device.residual.clone()
    for parameter in model.parameters():
        if rank == 1:
            parameter.register_hook(lambda gradient: torch.full_like(gradient, float("inf")))
    try:
        loss = model(torch.ones(4, 64)).square().sum()
        optimizer.zero_grad()
        loss.backward()
    except _core.GradwireError as error:
        return type(error).__name__, str(error)
    skipped = all(torch.isnan(parameter.grad).all() for parameter in model.parameters())
    return skipped, bool((handle._device.residual == before).all())


def test_values_that_are_not_finite_are_named_or_skip_the_step():
    first, second = ranks(2, poisoned, "error")
    assert second[0] == "NonFiniteError" and "inf" in second[1], second
    assert first[0] != "NonFiniteError", first
    assert ranks(2, poisoned, "skip") == [(True, True)] * 2


def refused(rank, size):
    messages = []
    for compressor, options in [("atomo", {}), ("3lc", {"exchange": "scatter-reduce"}), ("3lc", {"device": "tpu"})]:
        with pytest.raises(gradwire.ConfigError) as error:
            build(compressor, **{"device": "gpu", **options})
        messages.append(str(error.value))
    _, handle = build("atomo", exchange="all-gather")
    assert handle._device is None
    return messages


def test_what_has_no_kernel_is_refused_with_the_reason():
    for messages in ranks(2, refused):
        assert "no kernel for 'atomo'" in messages[0]
        assert "all-gather only" in messages[1]
        assert "'auto', 'host' or 'gpu'" in messages[2]
