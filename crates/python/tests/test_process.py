"""Tests of what a forked process does with the exchanges of its parent."""

import gc
import os
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn

import gradwire.torch
from models import Net, build, one_layer, train
from world import PATIENCE, ranks


def ends(work):
    """Whether a forked process ends that does `work`; it is killed if it hangs."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - the exit code tells
            print(f"the child raised {error!r}", flush=True)
            os._exit(3)
    until = time.monotonic() + PATIENCE / 10
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


def forked(rank, size):
    sub = dist.new_group(list(range(size)))
    some = nn.parallel.DistributedDataParallel(Net(), process_group=sub)
    objects = {"hook": build("3lc"), "group": (some, gradwire.torch.register(some, "topk")), "local": one_layer("topk", every=1)}
    found = {}
    for name, (model, handle) in objects.items():

        def collect():
            nonlocal model, handle
            objects.clear()
            del model, handle
            gc.collect()

        def use():
            handle.close()
            for question in (handle.state_dict, handle.stats, handle.describe):
                with pytest.raises(gradwire.ConfigError, match="fork"):
                    question()

        found[name] = ends(collect), ends(use)
    # The exchanges of the parent go on.
    train(*(lambda model, _: (model, torch.optim.SGD(model.parameters(), lr=0.1)))(*objects["hook"]), rank, range(2))
    objects["local"][1].step()
    return found


def test_a_forked_process_neither_waits_for_threads_of_its_parent_nor_ends_its_exchange():
    for found in ranks(2, forked):
        assert found == {"hook": (True, True), "group": (True, True), "local": (True, True)}
