"""Tests that ranks of a sharded model do not wait longer than the deadline for a rank that does
something alone between two steps."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn

import gradwire.torch.fsdp
from gradwire.torch._timed_gather import TimedAllGather
from world import ranks


def alone(rank, size):
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    gradwire.torch.fsdp.register(model, "topk", deadline=3.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    store = dist.distributed_c10d._get_default_store()
    for step in range(3):
        if rank == 1 and step == 2:
            # Something that takes until the others have given up.
            store.wait(["0 has raised", "2 has raised"])
            return None
        try:
            model(torch.ones(2, 16)).sum().backward()
        except gradwire.DeadlineError as error:
            store.set(f"{rank} has raised", "")
            return step, str(error)
        optimizer.step()
        optimizer.zero_grad()
    return "no error"


def test_a_rank_that_does_something_alone_is_named_after_the_deadline():
    first, second, third = ranks(3, alone)
    assert second is None and first == third
    step, message = first
    assert step == 2 and "rank 1 did not gather the parameters of FSDPLinear '0' within 3 s" in message, message


class Slow:
    """A gather that is not over when it is first waited for, ``waits`` times."""

    def __init__(self, waits, failure=None):
        self.waits, self.failure = waits, failure

    def __call__(self, *arguments, async_op):
        return self

    def is_completed(self):
        return self.waits == 0

    def wait(self, timeout=None):
        if self.waits:
            self.waits -= 1
            raise RuntimeError("Operation timed out!")
        if self.failure is not None:
            raise RuntimeError(self.failure)


def slow(rank, size):
    unit, handle = SimpleNamespace(names=["weight"]), SimpleNamespace(deadline=0.01)
    group, values = dist.group.WORLD, torch.zeros(2)
    for waits in (0, 1, 5):
        assert TimedAllGather(handle, unit, Slow(waits))(values, values, group) is None
    late = Slow(0)
    assert TimedAllGather(handle, unit, late)(values, values, group, async_op=True) is late
    for waits in (0, 1, 3):
        with pytest.raises(RuntimeError, match="Connection closed"):
            TimedAllGather(handle, unit, Slow(waits, "Connection closed by peer"))(values, values, group)
    return True


def test_a_slow_link_is_no_missing_rank():
    assert ranks(1, slow) == [True]
