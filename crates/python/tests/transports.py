"""Steps of a model with given gradients, for tests that compare transports."""

import json
import struct

import torch
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from models import exchange_bytes


class Given(torch.nn.Module):
    """Parameters with given numbers of elements, whose gradients are given, too."""

    def __init__(self, sizes, dtype=torch.float32):
        super().__init__()
        self.all = torch.nn.ParameterList([torch.zeros(size, 1, dtype=dtype) for size in sizes])

    def forward(self, gradients):
        return sum((parameter * gradient).sum() for parameter, gradient in zip(self.all, gradients))


class Run:
    """Steps of a model whose parameter i has the compressor ``specs[i]``."""

    def __init__(self, rank, specs, sizes, dtype=torch.float32, compressor="none", ddp={}, **options):
        self.rank, self.sizes, self.dtype = rank, sizes, dtype
        # One megabyte holds all: many buckets would take many collectives.
        self.model = DistributedDataParallel(Given(sizes, dtype), **ddp)
        rules = {f"all.{at}": spec for at, spec in enumerate(specs)}
        self.handle = gradwire.torch.register(self.model, compressor, rules=rules, seed=7, **options)

    def step(self, step):
        """The means of a step, as bits."""
        self.model.zero_grad()
        return self.backward(step)

    def gradients(self, step, rank):
        """The gradients of a rank."""
        generator = torch.Generator().manual_seed(100 * step + rank)
        return [torch.randn(size, 1, generator=generator).to(self.dtype) for size in self.sizes]

    def backward(self, step):
        """Adds the gradients of a step, and returns all gradients, as bits."""
        self.model(self.gradients(step, self.rank)).backward()
        return torch.cat([parameter.grad.float().flatten() for parameter in self.model.parameters()]).view(torch.int32)


def entries(state):
    """The settings and arrays of a saved state, without empty arrays."""
    data = exchange_bytes(state)
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    settings = header.pop("__metadata__")["gradwire"].splitlines()
    found = {name: body[slice(*one["data_offsets"])] for name, one in header.items()}
    return [one for one in settings if not one.startswith("checksum")], {name: values for name, values in found.items() if values}


def check(specs, sizes, host, device, step):
    """Compares the means of two runs, each with the compressor of its tensor."""
    for spec, expected, found in zip(specs, host.split(sizes), device.split(sizes)):
        assert (expected == found).all(), (spec, step, int((expected != found).sum()))
