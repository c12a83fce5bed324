"""Shards of FSDP2 whose messages stay on the device, beside the exchange through the host; and
gathers of changes. Kernels run under Triton's interpreter, and collectives over gloo."""

import json
import struct

import numpy
import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

pytest.importorskip("triton", reason="PyTorch came without Triton")

import gradwire
from device import DEVICE
from gradwire import _core
from models import exchange_bytes
from sharded import Layer
from world import outcomes, ranks

# With 3 ranks: rows with a rest, fewer rows than ranks, and one row a rank.
SHAPES = [(7, 30), (2, 5), (3,), (1, 70)]
SPECS = ["int8", "onebit", "3lc", "eden", "fp16", "none", "signsgd", "qsgd:s=7,bucket=100,norm=max", "3lc:beta=0.5,gamma=0.25"]


class Given(nn.Module):
    """Parameters whose gradients are given."""

    def __init__(self, shapes):
        super().__init__()
        self.all = nn.ParameterList([torch.randn(shape) for shape in shapes])

    def forward(self, gradients):
        return sum((parameter * gradient).sum() for parameter, gradient in zip(self.all, gradients))


class Model(nn.Module):
    """A unit with a parameter of some shape for each compressor and a frozen one, and a unit with
    the first two."""

    def __init__(self, specs):
        super().__init__()
        self.shapes = [SHAPES[at % len(SHAPES)] for at in range(len(specs))]
        self.units = nn.ModuleList([Given([*self.shapes, (4, 4)]), Given(self.shapes[:2])])
        self.units[0].all[-1].requires_grad_(False)

    def forward(self, gradients):
        return sum(unit(one) for unit, one in zip(self.units, gradients))


class Run:
    """Steps of a model whose parameter i of a unit has the compressor ``specs[i]``."""

    def __init__(self, rank, size, specs, fsdp, **options):
        torch.manual_seed(3)
        self.rank, self.model = rank, Model(specs)
        for unit in self.model.units:
            fully_shard(unit, mesh=init_device_mesh(DEVICE.type, (size,)), **fsdp)
        rules = {f"*all.{at}": spec for at, spec in enumerate(specs)}
        self.handle = gradwire.torch.fsdp.register(self.model, "none", rules=rules, seed=7, **options)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, step, passes=1):
        """The bits of this rank's gradients and of the gathered parameters."""
        self.optimizer.zero_grad()
        generator = torch.Generator().manual_seed(100 * step + self.rank)
        for unit in self.model.units[:passes]:
            # Several backward passes are one step.
            gradients = [[torch.randn(shape, generator=generator) for shape in self.model.shapes] for _ in self.model.units]
            (unit(gradients[0]) if passes > 1 else self.model(gradients)).backward()
        found = [p.grad.to_local() for p in self.model.parameters() if p.grad is not None]
        self.optimizer.step()
        for unit in self.model.units:
            unit.unshard()
            found += [p.detach().clone() for p in unit.all]
            unit.reshard()
        return torch.cat([one.float().flatten() for one in found]).view(torch.int32)


def compare(rank, size, fsdp, options):
    """Runs both transports side by side, then continues each with the other's state."""
    host, device = (Run(rank, size, SPECS, fsdp, transport=name, **options) for name in ("host", "device"))
    for step in range(3):
        assert (host.step(step, 1 + step % 2) == device.step(step, 1 + step % 2)).all(), step
    states = [run.handle.state_dict() for run in (host, device)]
    (settings, arrays), (others, found) = map(entries, states)
    assert sorted(set(settings) ^ set(others)) == [] and arrays == found
    host.handle.load_state_dict(states[1])
    device.handle.load_state_dict(states[0])
    assert (host.step(3) == device.step(3)).all()
    stats = [run.handle.stats() for run in (host, device)]
    assert [one["elements"] for one in stats] == [stats[0]["elements"]] * 2 and stats[1]["total_steps"] == 4
    return stats, str(device.handle.describe()), device.handle.describe().tensors


def entries(state):
    """The settings and arrays of a saved state, without empty arrays."""
    data = exchange_bytes(state)
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    settings = header.pop("__metadata__")["gradwire"].splitlines()
    found = {name: body[slice(*one["data_offsets"])] for name, one in header.items()}
    return [one for one in settings if not one.startswith("checksum")], {name: values for name, values in found.items() if values}


HALF = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float16)}


@pytest.mark.parametrize("size, fsdp, options", [(3, {}, {}), (2, HALF, {"parameters": "int8", "raw_vectors": False, "raw_below": 0})])
def test_gradients_parameters_and_states_are_the_hosts(size, fsdp, options):
    for (host, device), text, tensors in ranks(size, compare, fsdp, options):
        assert "messages travel through the device" in text
        assert device["message_bytes"] == sum(one.message_bytes for one in tensors) > 0
