"""Tests the buffers of models that take local steps."""

import pytest
import torch
from torch import nn

import gradwire.torch
from device import DEVICE
from world import in_turn, outcomes, ranks


class Statistics(nn.Module):
    """Has buffers that training changes in many ways, and a table that it does not change."""

    def __init__(self, rank):
        super().__init__()
        self.layer, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.register_buffer("table", torch.ones(256, 256))
        self.register_buffer("codes", torch.zeros(8, dtype=torch.float64), persistent=False)
        self.register_buffer("phase", torch.zeros(3, dtype=torch.complex64).conj())
        self.register_buffer("replaced", torch.zeros(2, dtype=torch.bfloat16))
        self.register_buffer("flags", torch.zeros(5, dtype=torch.bool))
        self.register_buffer("without_values", torch.ones(3, device="meta"))
        self._rank = rank

    def forward(self, x):
        # As codebooks do, which does not change the version of the tensor.
        self.codes.data.copy_(0.9 * self.codes + x.mean(0))
        self.phase.add_(1j * (self._rank + 1))
        self.replaced = self.replaced + self._rank
        self.flags[self._rank] = True
        return self.norm(self.layer(x))


def trained(rank, size, options, steps_taken):
    """The buffers before and after the last step, and the cost of its round."""
    torch.manual_seed(0)
    model = Statistics(rank)
    steps = gradwire.torch.LocalSteps(model, torch.optim.SGD(model.parameters(), lr=0.1), **options)
    copies = lambda: {name: one.clone() for name, one in model.named_buffers() if one.device.type != "meta"}
    for at in range(steps_taken):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * at + rank), device="cpu").to(DEVICE)
        steps.zero_grad()
        model(x).sum().backward()
        before = copies()
        steps.step()
    # An exchange may be under way, whose bytes would not be counted yet.
    steps._reducer.wait()
    return before, copies(), steps.stats()


CHANGED = ["codes", "phase", "replaced", "flags", "norm.running_mean", "norm.running_var"]
INTEGERS = ["flags", "norm.num_batches_tracked"]


def double(values):
    return values.to(torch.complex128 if values.is_complex() else torch.float64)


@pytest.mark.parametrize("options, at", [
    ({"every": 3}, 6),
    # The last fragment is exchanged at the end of a round.
    ({"every": 4, "fragments": 2, "fragment_sync_delay": 1}, 8),
])
def test_buffers_are_equal_after_a_round(options, at):
    costs, kinds = {}, ("first", "mean", "own")
    for kind, results in zip(kinds, in_turn(3, *((trained, {"compressor": "none", "buffers": kind, **options}, at) for kind in kinds))):
        starts, ends, stats = zip(*results)
        costs[kind] = [(one["bytes_up"], one["bytes_down"]) for one in stats]
        for name in ends[0]:
            values = [one[name] for one in starts]
            changed = name in CHANGED
            assert changed == any(not torch.equal(one, values[0]) for one in values), name
            if kind == "own":
                assert all(torch.equal(one[name], own) for one, own in zip(ends, values)), name
                continue
            expected = values[0]
            if kind == "mean" and changed and name not in INTEGERS:
                expected = (sum(map(double, values)) / 3).to(values[0].dtype)
            assert all(torch.equal(one[name], expected) for one in ends), (kind, name)
    # By hand: 8 buffers with values and their forms have digests of 16 bytes. 8 doubles, 3 complex
    # numbers, 2 bfloat16, 5 booleans and 2 times 8 floats differ; booleans are sent by the first
    # rank alone. The table is sent by nobody.
    digests, floats, booleans = 16 * 9, 8 * 8 + 3 * 8 + 2 * 2 + 2 * 8 * 4, 5
    extra = lambda kind, rank: [sent - own for sent, own in zip(costs[kind][rank], costs["own"][rank])]
    header = extra("first", 1)[0] // 2 - digests
    # Of the one or two messages more to each rank, with what else they say.
    assert 0 <= header < 100
    assert extra("first", 0) == [2 * (digests + header + floats + booleans), 2 * (digests + header)]
    assert extra("mean", 0) == [2 * (digests + header + floats + booleans), 2 * (digests + header + floats)]
    assert extra("mean", 1) == [2 * (digests + header + floats), 2 * (digests + header + floats) + booleans]


def of_other_shapes(rank, size, kind):
    model = nn.Linear(3, 2)
    model.register_buffer("queue", torch.zeros(4))
    steps = gradwire.torch.LocalSteps(model, torch.optim.SGD(model.parameters(), lr=0.1), buffers=kind)
    model.queue = torch.zeros(4 + rank)
    steps.synchronize()


def test_buffers_that_differ_in_shape_are_named():
    for result in outcomes(2, of_other_shapes, "mean"):
        assert result[1] == "ConfigError" and "rank 0 has the buffer 'queue' of type torch.float32 and shape (4,)" in result[2], result
        assert "buffers='own'" in result[2]
    ranks(2, of_other_shapes, "own")


def test_an_unknown_kind_of_buffers_is_refused():
    model = nn.Linear(3, 2)
    with pytest.raises(gradwire.ConfigError, match="buffers='rank0' is unknown; use 'first', 'mean' or 'own'"):
        gradwire.torch.LocalSteps(model, torch.optim.SGD(model.parameters(), lr=0.1), buffers="rank0")
