"""Tests that a resumed run equals the uninterrupted one, and the rule for another number of ranks."""

import copy
import io
import json

import numpy
import pytest
import torch

from models import build, exchange_bytes, flat, train
from world import ranks


def part(rank, size, compressor, options, steps, saved):
    model, handle = build(compressor, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if saved is not None:
        checkpoint = torch.load(io.BytesIO(saved[rank % len(saved)]), weights_only=True)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        everyone = [torch.load(io.BytesIO(one), weights_only=True)["gradwire"] for one in saved]
        handle.load_state_dict(checkpoint["gradwire"] if len(saved) == size else everyone)
    loaded = residuals(handle)
    train(model, optimizer, rank, steps)
    file = io.BytesIO()
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "gradwire": handle.state_dict()}, file
    )
    return flat(model), file.getvalue(), loaded, residuals(handle)


def residuals(handle):
    """Reads the residuals of a state, which is a safetensors file."""
    data = exchange_bytes(handle.state_dict())
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    found = {}
    for name, entry in header.items():
        if "/residual/" in name:
            start, end = entry["data_offsets"]
            found[name] = numpy.frombuffer(data[8 + length + start : 8 + length + end], "float32")
    return found


CASES = [
    ("3lc", {}),
    ("topk:ratio=0.05", {"exchange": "scatter-reduce"}),
    ("powersgd:rank=1", {}),
    ("none until 4 then topk:ratio=0.05", {}),
    ("qsgd", {"rules": {"second.*": "3lc"}}),
]


@pytest.mark.parametrize("compressor, options", CASES)
def test_a_resumed_run_is_bit_identical(compressor, options):
    whole = ranks(2, part, compressor, options, range(10), None)
    half = ranks(2, part, compressor, options, range(6), None)
    resumed = ranks(2, part, compressor, options, range(6, 10), [one[1] for one in half])
    for (expected, *_), (found, *_) in zip(whole, resumed):
        assert (expected == found).all()
    assert not (half[0][0] == whole[0][0]).all()


@pytest.mark.parametrize("before, after", [(4, 2), (2, 4)])
def test_another_number_of_ranks_keeps_the_mean_residual(before, after):
    first = ranks(before, part, "topk:ratio=0.05", {}, range(6), None)
    second = ranks(after, part, "topk:ratio=0.05", {}, range(6, 9), [one[1] for one in first])
    for name in first[0][3]:
        owed = numpy.mean([one[3][name] for one in first], axis=0)
        zero = numpy.zeros_like(owed)
        found = numpy.mean([one[2].get(name, zero) for one in second], axis=0)
        numpy.testing.assert_allclose(found, owed, rtol=1e-5, atol=1e-7)
        assert numpy.abs(owed).max() > 0
    assert all((one[0] == second[0][0]).all() for one in second)


def gathered(rank, size):
    model, handle = build("3lc")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(3))
    kept, weights = handle.state_dict(all_ranks=True), copy.deepcopy(model.state_dict())
    train(model, optimizer, rank, range(3, 6))
    expected = flat(model)
    model.load_state_dict(weights)
    handle.load_state_dict(kept)
    train(model, optimizer, rank, range(3, 6))
    return (flat(model) == expected).all(), len(kept["exchange"])


def test_one_state_can_hold_all_ranks():
    assert ranks(2, gathered) == [(True, 2), (True, 2)]
