"""Tests that every rank reports an error and none hangs."""

import os
import time

import torch
from torch import nn

import gradwire
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
