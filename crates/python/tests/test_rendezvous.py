"""Tests of ranks that do not all create an exchange."""

import os
import socket
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn

import gradwire.torch
from gradwire.torch import _rendezvous
from models import Net, flat, train
from world import outcomes, ranks


def not_reached(rank, size):
    """Ranks 1 and 3 come late: what the others raise at the deadline, and what all raise that meet
    then with another call."""
    model, group = nn.parallel.DistributedDataParallel(Net()), dist.new_group([0, 1])
    messages = []
    if rank in (0, 2):
        start = time.monotonic()
        with pytest.raises(gradwire.DeadlineError) as refused:
            gradwire.torch.register(model, "eden", deadline=1.0)
        assert time.monotonic() - start < 60
        messages.append(str(refused.value))
    dist.barrier()
    if rank < 2:
        net, wrapped = Net(), nn.parallel.DistributedDataParallel(Net(), process_group=group)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        creates = [
            lambda: gradwire.torch.register(wrapped, "eden"),
            lambda: gradwire.torch.LocalSteps(net, optimizer, process_group=group),
        ]
        with pytest.raises(gradwire.ConfigError) as refused:
            creates[rank]()
        messages.append(str(refused.value))
    dist.barrier()
    # Afterwards all of them can meet, in the whole group and in a part of it.
    handle = gradwire.torch.register(model, "eden")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(2))
    handle.close()
    return messages, flat(model).tobytes()


def test_ranks_that_are_missing_are_named_at_the_deadline():
    results = ranks(4, not_reached)
    for rank in (0, 2):
        message = results[rank][0][0]
        assert "ranks 1, 3 did not call gradwire.torch.register within 1 s, but ranks 0, 2 did" in message, message
    assert "rank 1 called gradwire.torch.LocalSteps" in results[0][0][1], results[0][0]
    assert "rank 0 called gradwire.torch.register" in results[1][0][0], results[1][0]
    assert len({weights for _, weights in results}) == 1


def again(rank, size, folder):
    """Meets twice, ends the process group, and meets again in a new one, in which rank 1 is another
    process: it has met nobody."""
    handles = [gradwire.torch.register(nn.parallel.DistributedDataParallel(Net()), "eden") for _ in range(2)]
    for handle in handles:
        handle.close()
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"file://{folder}/again", rank=rank, world_size=size)
    if rank == 1:
        _rendezvous._met.clear()
    handle = gradwire.torch.register(nn.parallel.DistributedDataParallel(Net()), "eden", deadline=60.0)
    handle.close()
    return True


def test_a_new_process_group_begins_to_count_anew(tmp_path):
    assert ranks(2, again, str(tmp_path)) == [True, True]


def without_store(rank, size, port):
    """Rank 0, which has the store, ends before it registers."""
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    model = nn.parallel.DistributedDataParallel(Net())
    if rank == 0:
        os._exit(9)
    gradwire.torch.register(model, "eden", deadline=60.0)


def test_a_store_that_is_gone_is_an_error_of_gradwire():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    gone, lost = outcomes(2, without_store, port)
    assert gone == ("gone",)
    assert lost[1] == "PeerLostError" and "store of the process group" in lost[2], lost
