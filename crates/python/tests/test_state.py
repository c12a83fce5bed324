"""Tests that a resumed run equals the uninterrupted one, and the rule for another number of
ranks."""

import copy
import io
import json

import numpy
import pytest
import torch
import torch.distributed.checkpoint as dcp

import gradwire
from gradwire.torch import read_checkpoint
from models import build, exchange_bytes, flat, train
from world import in_turn, ranks


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


def test_a_resumed_run_is_bit_identical():
    runs = in_turn(2, *((part, *case, range(steps), None) for case in CASES for steps in (10, 6)))
    wholes, halves = runs[::2], runs[1::2]
    resumed = in_turn(2, *((part, *case, range(6, 10), [one[1] for one in half]) for case, half in zip(CASES, halves)))
    for case, whole, half, after in zip(CASES, wholes, halves, resumed):
        for (expected, *_), (found, *_) in zip(whole, after):
            assert (expected == found).all(), case
        assert not (half[0][0] == whole[0][0]).all(), case


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


class Convolution(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(16, 16, 3)
        self.head = torch.nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.layer(x).mean((2, 3)))


def formatted(rank, size, memory_format, saved):
    """A state after two steps, or why one cannot be loaded."""
    model, handle = build("topk:ratio=0.1", module=lambda: Convolution().to(memory_format=memory_format))
    if saved is not None:
        try:
            handle.load_state_dict(torch.load(io.BytesIO(saved[rank]), weights_only=True))
        except gradwire.StateError as error:
            return str(error)
    for step in range(2):
        images = torch.randn(4, 16, 8, 8, generator=torch.Generator().manual_seed(rank))
        model(images.to(memory_format=memory_format)).square().sum().backward()
    file = io.BytesIO()
    torch.save(handle.state_dict(), file)
    return file.getvalue()


def test_a_state_of_another_memory_format_is_refused():
    formats = torch.contiguous_format, torch.channels_last
    saved = in_turn(2, *((formatted, one, None) for one in formats))
    cases = [(formatted, after, states) for states in saved for after in formats]
    rows, rows_as_channels, channels_as_rows, channels = in_turn(2, *cases)
    assert all(isinstance(one, bytes) for one in rows + channels)
    for message in rows_as_channels + channels_as_rows:
        assert "'layer.weight' was saved in another memory format" in message


class Extended(Convolution):
    """A convolution with one more in front, whose weight the state of a ``Convolution`` lacks."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x):
        return super().forward(self.first(x))


def extended(rank, size):
    """Whether a larger model takes over the residuals of a smaller one."""
    channels_last = torch.channels_last
    model, handle = build("topk:ratio=0.1", module=lambda: Convolution().to(memory_format=channels_last))
    model(torch.randn(4, 16, 8, 8).to(memory_format=channels_last)).square().sum().backward()
    saved, kept = handle.state_dict(), residuals(handle)
    _, larger = build("topk:ratio=0.1", module=lambda: Extended().to(memory_format=channels_last))
    larger.load_state_dict(saved)
    found = residuals(larger)
    return all((found[name] == values).all() for name, values in kept.items())


def test_a_tensor_that_the_state_lacks_may_have_any_memory_format():
    assert ranks(2, extended) == [True, True]


def distributed(rank, size, folder, before):
    """The residuals that a distributed checkpoint gives back, if ``before`` is given, or those that
    it keeps."""
    channels_last = torch.channels_last
    model, handle = build("topk:ratio=0.1", module=lambda: Convolution().to(memory_format=channels_last))
    if before is None:
        model(torch.randn(4, 16, 8, 8).to(memory_format=channels_last)).square().sum().backward()
        dcp.save({"gradwire": handle.state_dict()}, checkpoint_id=folder)
        return residuals(handle)
    state = {"gradwire": handle.state_dict()}
    dcp.load(state, checkpoint_id=folder)
    handle.load_state_dict(state["gradwire"])
    found = residuals(handle)
    handle.load_state_dict(read_checkpoint(folder))
    again = residuals(handle)
    return all((found[name] == again[name]).all() and (found[name] == of).all() for name, of in before[rank].items())


def test_a_distributed_checkpoint_gives_each_rank_its_residuals(tmp_path):
    kept = ranks(2, distributed, str(tmp_path), None)
    assert all(numpy.abs(one).max() > 0 for one in kept[0].values())
    assert ranks(2, distributed, str(tmp_path), kept) == [True, True]


def of_the_first(rank, size, compressor, options):
    """The result of loading the state of rank 0 on all ranks, as a checkpoint of
    DistributedDataParallel is loaded."""
    model, handle = build(compressor, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(2))
    states = [None]
    if rank == 0:
        states = [handle.state_dict()]
    torch.distributed.broadcast_object_list(states, src=0)
    weights = copy.deepcopy(model.state_dict())
    train(model, optimizer, rank, range(2, 4))
    expected = flat(model)
    model.load_state_dict(weights)
    try:
        handle.load_state_dict(states[0])
    except gradwire.GradwireError as error:
        return str(error)
    train(model, optimizer, rank, range(2, 4))
    return bool((flat(model) == expected).all())


def test_the_state_of_the_first_rank_is_enough_where_nothing_is_kept():
    assert in_turn(2, *((of_the_first, "eden", options) for options in ({}, {"exchange": "scatter-reduce"}))) == [(True, True)] * 2


def test_the_state_of_the_first_rank_alone_is_refused_where_ranks_differ():
    told, own = ranks(2, of_the_first, "topk:ratio=0.1", {})
    assert "rank 1 cannot load" in told, told
    assert "the state is of rank 0, but rank 1 needs its own" in own and "use the exchange" not in own, own


def from_other_steps(rank, size):
    """Why the states of two steps are not loaded, and whether that left everything as it was."""
    model, handle = build("topk:ratio=0.1")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    saved = []
    for step in range(3):
        train(model, optimizer, rank, [step])
        saved.append(handle.state_dict())
    before = exchange_bytes(saved[2])
    with pytest.raises(gradwire.StateError) as refused:
        handle.load_state_dict(saved[rank])
    return str(refused.value), handle.step == 3 and exchange_bytes(handle.state_dict()) == before


def test_states_of_different_steps_are_refused():
    for message, unchanged in ranks(2, from_other_steps):
        assert unchanged and "rank 0 loads the state of step 1, but rank 1 loads the state of step 2; give all ranks" in message


def test_a_folder_without_a_checkpoint_is_named(tmp_path):
    with pytest.raises(gradwire.StateError, match="is not a distributed checkpoint"):
        read_checkpoint(str(tmp_path / "nothing"))


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
