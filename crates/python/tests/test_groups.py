"""Tests process groups: of some ranks, of one rank, of two models, and their release."""

import gc
import os

import pytest
import torch
from torch import nn

import gradwire.torch
from models import Net, build, flat, train
from world import ranks


def subgroup(rank, size):
    group = torch.distributed.new_group([1, 2])
    if rank == 0:
        return None
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Net(), process_group=group)
    handle = gradwire.torch.register(model, "3lc")
    losses = train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(10))
    return flat(model), losses, handle.stats()["messages_up"]


def test_a_subgroup_of_ranks_works():
    nothing, one, two = ranks(3, subgroup)
    assert nothing is None and (one[0] == two[0]).all() and one[1][-1] < one[1][0] and one[2] > 0


def groups_after_a_subgroup(rank, size):
    """Some ranks register with a group of theirs, and then all ranks make groups."""
    pair = torch.distributed.new_group([1, 2])
    if rank > 0:
        for _ in range(2):
            model = nn.parallel.DistributedDataParallel(Net(), process_group=pair)
            gradwire.torch.register(model, "3lc", deadline=30.0)
    whole = nn.parallel.DistributedDataParallel(Net())
    gradwire.torch.register(whole, "3lc", deadline=30.0)
    later = torch.distributed.new_group()
    total = torch.tensor([float(rank)])
    torch.distributed.all_reduce(total, group=later)
    return float(total)


def test_groups_can_be_made_after_a_subgroup_registered():
    assert ranks(3, groups_after_a_subgroup) == [3.0, 3.0, 3.0]


def one_rank(rank, size):
    model, _ = build("3lc")
    return train(model, torch.optim.SGD(model.parameters(), lr=0.1), 0, range(10))


def test_a_world_of_one_rank_works():
    (losses,) = ranks(1, one_rank)
    assert losses[-1] < losses[0]


def two_models(rank, size, order):
    models = [build("3lc", seed=seed) for seed in (1, 2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model, _ in models]
    for step in range(6):
        for at in order(step):
            train(models[at][0], optimizers[at], rank, [step])
    return [flat(model) for model, _ in models]


def test_two_models_do_not_disturb_each_other():
    in_turn = ranks(2, two_models, lambda step: (0, 1))
    alone = [ranks(2, two_models, lambda step, at=at: (at,)) for at in (0, 1)]
    for rank in (0, 1):
        for at in (0, 1):
            assert (in_turn[rank][at] == alone[at][rank][at]).all()


def threads():
    """The threads of this process; 0 if the system does not tell, as only Linux does."""
    tasks = "/proc/self/task"
    return len(os.listdir(tasks)) if os.path.isdir(tasks) else 0


def released(rank, size, way):
    groups = torch.distributed.distributed_c10d._world.pg_map
    before, first = len(groups), None
    for _ in range(4):
        model, handle = build("3lc")
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(2))
        if way == "close":
            handle.close()
            handle.close()
        elif way == "with":
            with handle:
                pass
        if way != "delete":
            try:
                train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(1))
            except gradwire.ConfigError as error:
                assert "was closed" in str(error)
            else:
                raise AssertionError("a closed handle went on")
        del model, handle
        gc.collect()
        # The first round starts threads that stay, such as those of autograd.
        first = threads() if first is None else first
    return len(groups) - before, threads() - first


@pytest.mark.parametrize("way", ["close", "with", "delete"])
def test_threads_and_groups_are_released(way):
    assert ranks(2, released, way) == [(0, 0), (0, 0)]
