"""Messages that stay on the device and travel by the process group, beside the exchange through the
host. Kernels run under Triton's interpreter, and collectives over gloo."""

import json
import os
import struct
import time

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

pytest.importorskip("triton", reason="PyTorch came without Triton")

import gradwire
from gradwire import _core
from gradwire.torch.cuda._config import Config
from gradwire.torch.cuda._kernel import Dense
from gradwire.torch.cuda.kernels import KERNELS, kernel_and_memory
from models import build, exchange_bytes, train
from world import outcomes, ranks

# Every compressor whose messages have a fixed length there; parameters that use other kernels or
# another memory.
FIXED = [name for name in KERNELS if isinstance(kernel_and_memory(Config.of(name))[0], Dense)]
SPECS = [*FIXED, "3lc:beta=0.5,gamma=0.25", "int8:momentum=0.9", "eden:bits=3,ef=on", "terngrad:clip=0,ef=on", "qsgd:s=7,bucket=100,norm=max"]


class Given(torch.nn.Module):
    """Parameters with given numbers of elements, whose gradients are given, too."""

    def __init__(self, sizes, dtype=torch.float32):
        super().__init__()
        self.all = torch.nn.ParameterList([torch.zeros(size, 1, dtype=dtype) for size in sizes])

    def forward(self, gradients):
        return sum((parameter * gradient).sum() for parameter, gradient in zip(self.all, gradients))


class Run:
    """Steps of a model whose parameter i has the compressor ``specs[i]``."""

    def __init__(self, rank, specs, sizes, dtype=torch.float32, **options):
        self.rank, self.sizes, self.dtype = rank, sizes, dtype
        # One megabyte holds all: many buckets would take many collectives.
        self.model = DistributedDataParallel(Given(sizes, dtype))
        rules = {f"all.{at}": spec for at, spec in enumerate(specs)}
        self.handle = gradwire.torch.register(self.model, "none", rules=rules, seed=7, **options)

    def step(self, step):
        """The means of a step, as bits."""
        generator = torch.Generator().manual_seed(100 * step + self.rank)
        gradients = [torch.randn(size, 1, generator=generator).to(self.dtype) for size in self.sizes]
        self.model.zero_grad()
        self.model(gradients).backward()
        return torch.cat([parameter.grad.float().flatten() for parameter in self.model.parameters()]).view(torch.int32)


def compare(rank, size, specs, exchange, dtype=torch.float32):
    """Runs both transports side by side, then continues each with the other's state."""
    # In turn a tensor that is cut into slices with a rest, a small one, one of fewer elements than
    # ranks, and an empty one.
    sizes = [[size * 4096 + 5, 300, 1, 0][at % 4] for at in range(len(specs))]
    host, device = (Run(rank, specs, sizes, dtype, exchange=exchange, transport=name) for name in ("host", "device"))
    for step in range(3):
        check(specs, sizes, host.step(step), device.step(step), step)
    states = [run.handle.state_dict() for run in (host, device)]
    assert entries(states[0]) == entries(states[1])
    host.handle.load_state_dict(states[1])
    device.handle.load_state_dict(states[0])
    check(specs, sizes, host.step(3), device.step(3), 3)
    stats = [run.handle.stats() for run in (host, device)]
    assert stats[0]["elements"] == stats[1]["elements"] == sum(sizes) and stats[1]["total_steps"] == 4
    return device.handle.state_dict(), stats[1], str(device.handle.describe())


def entries(state):
    """The settings and arrays of a saved state, without empty arrays."""
    data = exchange_bytes(state)
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    settings = header.pop("__metadata__")["gradwire"].splitlines()
    found = {name: body[slice(*one["data_offsets"])] for name, one in header.items()}
    return [one for one in settings if not one.startswith("checksum")], {name: values for name, values in found.items() if values}


def check(specs, sizes, host, device, step):
    for spec, expected, found in zip(specs, host.split(sizes), device.split(sizes)):
        assert (expected == found).all(), (spec, step, int((expected != found).sum()))


def rotated(specs, by):
    """So that each compressor has tensors of each size in some test."""
    return specs[by:] + specs[:by]


@pytest.mark.parametrize("size, exchange", [(1, "scatter-reduce"), (2, "scatter-reduce"), (3, "scatter-reduce"), (2, "all-gather"), (3, "all-gather")])
def test_means_residuals_and_states_are_the_hosts(size, exchange):
    found = ranks(size, compare, SPECS * 2 if size < 3 else SPECS, exchange)
    assert "messages travel through the device" in found[0][2]
