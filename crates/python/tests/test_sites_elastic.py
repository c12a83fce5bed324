"""Tests that sites with sharded replicas come and go with all their ranks."""

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

pytest.importorskip("torchft", reason="install torchft to test sites that come and go")

import gradwire.torch  # noqa: E402
from elastic import EVERY, digest, lighthouse, task, workers  # noqa: E402
from models import Net  # noqa: E402
from world import PATIENCE  # noqa: E402

SHARDS = 2


def train(log, address, store, site, rank):
    """Trains until it is killed; logs this rank's common rows after each round."""
    parent = os.getppid()
    dist.init_process_group("gloo", init_method=f"file://{store}{site}", rank=rank, world_size=SHARDS)
    torch.manual_seed(site)
    model = Net(hidden=97)
    model.register_buffer("seen", torch.zeros(3))
    fully_shard(model, mesh=init_device_mesh("cpu", (SHARDS,)))
    steps = gradwire.torch.LocalSteps(
        model,
        torch.optim.AdamW(model.parameters(), lr=0.002),
        EVERY,
        "topk:ratio=0.1",
        outer=gradwire.torch.Nesterov(lr=0.7, momentum=0.5),
        median_clip=True,
        lighthouse=address,
        min_workers=1,
        deadline=60.0,
    )
    log("joined", steps.completed_steps, len(steps.state))
    if rank:
        try:
            steps.state_dict()
        except gradwire.ConfigError as error:
            assert "of a sharded model has no state to save" in str(error)
    while os.getppid() == parent:
        x, labels = task(SHARDS * site + rank, steps.completed_steps)
        steps.zero_grad()
        model.seen += site + rank + 1
        nn.functional.cross_entropy(model(x), labels).backward()
        steps.step()
        time.sleep(0.01)
        if steps.completed_steps % EVERY == 0:
            common = torch.cat([steps._replica.common, model.seen])
            log("round", steps.completed_steps // EVERY, digest(common), steps.stats()["workers"])


def wait_until(done, ranks):
    until = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < until, "\n\n".join(one.text() for one in ranks)
        time.sleep(0.05)


def rounds(rank):
    return {int(number): (found, int(count)) for number, found, count in rank.lines("round")}


def common(one, other):
    """The rounds of two sites that both ranks have seen."""
    known = rounds(one)
    return [number for number, (_, count) in rounds(other).items() if count == 2 and number in known]


def test_a_site_leaves_and_joins_with_all_its_ranks(tmp_path):
    with lighthouse(1) as address, workers() as start:
        begin = lambda site: [start(train, address, str(tmp_path / "store"), site, rank) for rank in range(SHARDS)]
        first, second = begin(0), begin(1)
        wait_until(lambda: all(len(common(*pair)) > 2 for pair in zip(first, second)), first + second)
        second[1].send(signal.SIGKILL)
        # The other rank of its site cannot go on.
        wait_until(lambda: not second[0].alive, first + second)
        assert second[0].lines("error")
        is_only_site = lambda: all(list(rounds(one).values())[-1][1] == 1 for one in first)
        wait_until(is_only_site, first)
        since = max(rounds(first[0]))
        third = begin(2)
        wait_until(lambda: all(len(common(*pair)) > 2 for pair in zip(first, third)), first + third)
        assert all(one.alive for one in first + third)
        for rank in range(SHARDS):
            # It begins with the steps and the moments of the run.
            ((steps, moments),) = third[rank].lines("joined")
            assert int(steps) >= EVERY * since and int(moments) == 6
            for other in (second, third):
                same = common(first[rank], other[rank])
                mine, others = rounds(first[rank]), rounds(other[rank])
                assert len(same) > 2 and all(mine[number] == others[number] for number in same)
