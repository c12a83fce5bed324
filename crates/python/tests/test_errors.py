"""Tests that every rank reports an error and none hangs."""

import os
import threading
import time
from datetime import timedelta

import torch
from torch import nn

import gradwire
from gradwire.torch._failures import _explained
from models import build, data, train
from world import outcomes, ranks, seconds_until_interrupted


def killed(rank, size):
    model, _ = build("3lc", deadline=300.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(3))
    if rank == 1:
        os._exit(9)
    train(model, optimizer, rank, range(3, 6))


def test_a_killed_rank_ends_the_others():
    for size in (2, 4):
        start = time.monotonic()
        results = outcomes(size, killed)
        assert results[1] == ("gone",)
        for rank, result in enumerate(results):
            if rank != 1:
                assert result[1] == "PeerLostError", result
                assert "rank 1 is gone" in result[2], result[2]
        # The other ranks did not wait for the deadline.
        assert time.monotonic() - start < 150


def silent(rank, size):
    model, _ = build("3lc", deadline=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(2))
    if rank == 1:
        time.sleep(4)
    train(model, optimizer, rank, range(2, 4))


def test_a_silent_rank_ends_the_others():
    results = outcomes(2, silent)
    assert results[0][1] == "DeadlineError" and "no answer from rank 1" in results[0][2], results[0]
    assert results[1][0] == "error"


def interrupted(rank, size):
    """The seconds after which Ctrl-C leaves the block, though the other rank does not answer."""
    model, handle = build("3lc", deadline=120.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(2))
    return seconds_until_interrupted(rank, handle, lambda: train(model, optimizer, rank, [2]))


def test_ctrl_c_leaves_a_block_before_the_deadline():
    assert ranks(2, interrupted)[0] < 60


def failing(rank, size):
    """An error of the script itself on one rank, whose process lives on until the other has
    noticed."""
    model, handle = build("3lc", deadline=30.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(2))
    try:
        with handle:
            if rank == 1:
                raise ValueError("of the script")
            train(model, optimizer, rank, [2])
    except ValueError:
        torch.distributed.recv(torch.zeros(1), 0)
    except gradwire.PeerLostError as error:
        torch.distributed.send(torch.zeros(1), 1)
        return str(error)


def test_an_error_of_the_script_in_a_block_ends_the_other_ranks():
    assert "rank 1 is gone" in ranks(2, failing)[0]


def poisoned(rank, size):
    model, _ = build("3lc")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(2))
    x, labels = data(rank, 2)
    loss = nn.functional.cross_entropy(model(x), labels)
    if rank == 1:
        loss = loss + float("nan") * model.module.second.weight[0, 0]
    loss.backward()


def test_nan_is_an_error_that_names_the_parameter():
    results = outcomes(2, poisoned)
    assert results[1][1] == "NonFiniteError" and "'second.weight' has NaN" in results[1][2], results[1]
    assert 'pass on_nonfinite="skip" and scaler=, the GradScaler' in results[1][2], results[1]
    assert results[0][1] == "PeerLostError" and "rank 1" in results[0][2], results[0]


def errors_of_gloo(rank, size, folder):
    """How an error of a rank that is late, and one of a closed connection, are explained."""
    store, groups, found = torch.distributed.FileStore(f"{folder}/store", 2), {}, []
    make = lambda rank: groups.update({rank: torch.distributed.ProcessGroupGloo(store, rank, 2, timedelta(seconds=60))})
    threads = [threading.Thread(target=make, args=(rank,)) for rank in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    waiting = groups[1].recv([torch.zeros(1)], 0, 0)
    for work, seconds in ((groups[0].recv([torch.zeros(1)], 1, 0), 0.05), (waiting, 60)):
        try:
            work.wait(timedelta(seconds=seconds))
        except RuntimeError as error:
            explained = _explained(error)
            found.append((type(explained).__name__, str(explained)))
    return found


def test_only_an_error_of_a_connection_says_that_a_rank_is_lost(tmp_path):
    # In a process of its own: processes that are forked later must not inherit the groups.
    ((late, closed),) = ranks(1, errors_of_gloo, str(tmp_path))
    assert late[0] == "DeadlineError" and "Timed out" in late[1], late
    assert closed[0] == "PeerLostError" and "ranks lost their connection" in closed[1], closed
    of_nccl = "NCCL error in: ProcessGroupNCCL.cpp:3763, {}: A call failed possibly due to a network error"
    assert type(_explained(RuntimeError(of_nccl.format("ncclRemoteError")))) is gradwire.PeerLostError
    for other in (
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"),
        RuntimeError(of_nccl.format("ncclInvalidUsage")),
        gradwire.NonFiniteError("NaN"),
        ValueError("gloo/transport/"),
    ):
        assert _explained(other) is other
