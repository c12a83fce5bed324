"""Tests pipeline parallelism with data parallelism: the schedules of
``torch.distributed.pipelining`` call reductions by hand."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from device import DEVICE
from world import ranks

pipelining = pytest.importorskip("torch.distributed.pipelining")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return x + self.second(torch.relu(self.first(x)))


def stages_of(mesh, count):
    """This rank's stages of ``count``, by number."""
    torch.manual_seed(0)
    stages = [nn.Sequential(Block(), Block()) for _ in range(count)]
    place, ranks = mesh["stages"].get_local_rank(), mesh["stages"].size()
    return {str(at): stages[at] for at in range(place, count, ranks)}


def sharded(mesh, stages):
    for stage in stages.values():
        for block in (*stage, stage):
            fully_shard(block, mesh=mesh["shards"], reshard_after_forward=False)
    return nn.ModuleDict(stages)


def replicated(mesh, stages):
    group = mesh["shards"].get_group()
    return nn.ModuleDict({at: DistributedDataParallel(stage, process_group=group) for at, stage in stages.items()})


def losses(mesh, schedule, model, count):
    """Trains for three steps of four micro-batches."""
    group = mesh["stages"].get_group()
    stages = [pipelining.PipelineStage(stage, int(at), count, DEVICE, group=group) for at, stage in model.items()]
    single = issubclass(schedule, pipelining.schedules.PipelineScheduleSingle)
    pipeline = schedule(stages[0] if single else stages, 4, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        generator = torch.Generator().manual_seed(10 * step + mesh["shards"].get_local_rank())
        x, target = (torch.randn(8, 16, generator=generator).to(DEVICE) for _ in range(2))
        optimizer.zero_grad()
        pipeline.step(*([x] if mesh["stages"].get_local_rank() == 0 else []), target=target)
        optimizer.step()
        yield step


SCHEDULES = [(pipelining.ScheduleGPipe, 2), (pipelining.Schedule1F1B, 2), (pipelining.ScheduleInterleaved1F1B, 4)]


def with_shards(rank, size):
    mesh = init_device_mesh(DEVICE.type, (2, 2), mesh_dim_names=("stages", "shards"))
    found = []
    for schedule, count in SCHEDULES:
        counts, trained = [], []
        for registered in (False, True):
            model = sharded(mesh, stages_of(mesh, count))
            handle = gradwire.torch.fsdp.register(model, "none") if registered else None
            for _ in losses(mesh, schedule, model, count):
                counts += [handle.step] if registered else []
            trained.append([parameter.full_tensor() for parameter in model.parameters()])
        found.append((counts, all(torch.equal(one, other) for one, other in zip(*trained))))
    return found


def test_a_schedule_over_shards_is_one_step():
    for found in ranks(4, with_shards):
        assert found == [([1, 2, 3], True)] * len(SCHEDULES)


def with_replicas(rank, size):
    mesh = init_device_mesh(DEVICE.type, (2, 2), mesh_dim_names=("stages", "shards"))
    trained = []
    for registered in (False, True):
        model = replicated(mesh, stages_of(mesh, 2))
        handles = [gradwire.torch.register(stage, "none") for stage in model.values()] if registered else []
        counts = [[handle.step for handle in handles] for _ in losses(mesh, pipelining.Schedule1F1B, model, 2)]
        trained.append([parameter.detach() for parameter in model.parameters()])
    return counts, all(torch.equal(one, other) for one, other in zip(*trained))


def test_a_schedule_over_replicas_is_one_step():
    for counts, same in ranks(4, with_replicas):
        # PyTorch's first call finds the shapes of activations with a backward pass, whose gradients
        # it averages, too.
        assert counts == [[2], [3], [4]] and same
