"""Models that ``fully_shard`` has sharded, and their training."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

import gradwire.torch
from device import DEVICE
from models import Net, data


class Branches(nn.Module):
    """Two nets of which a step may use one, and a head with fewer rows than there are ranks, of
    which some are empty."""

    def __init__(self):
        super().__init__()
        # 33 rows cannot be divided by two or four ranks.
        self.nets = nn.ModuleList([Net(outputs=33), Net(outputs=33)])
        self.gate = nn.Linear(33, 1)
        self.head = nn.Linear(33, 10)

    def forward(self, x, which=0):
        hidden = torch.relu(self.nets[which](x))
        return self.head(hidden * torch.sigmoid(self.gate(hidden)))


def shard(mesh, **options):
    """A model of three units: a layer, the rest of a net, and the rest."""
    torch.manual_seed(0)
    model = Branches()
    for module in (model.nets[0].first, model.nets[0], model):
        fully_shard(module, mesh=mesh, **options)
    return model


def train(model, optimizer, rank, steps, unused=False):
    losses = []
    for step in steps:
        x, labels = data(rank, step)
        optimizer.zero_grad()
        scores = model(x, step % 2) if unused else model(x)
        loss = nn.functional.cross_entropy(scores.float(), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def whole(model):
    return torch.cat([p.full_tensor().detach().float().reshape(-1).cpu() for p in model.parameters()]).numpy()


def adam(model):
    # Fused it dispatches one operation of DTensors, not one for each parameter and line of the
    # algorithm, which takes most of a test.
    return torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)


def run(rank, size, compressor, options, fsdp, unused):
    model = shard(init_device_mesh(DEVICE.type, (size,)), **fsdp)
    handle = gradwire.torch.fsdp.register(model, compressor, **options) if compressor else None
    losses = train(model, adam(model), rank, range(8), unused)
    return whole(model), losses, handle and (handle.step, handle.stats())


class Look(torch.autograd.Function):
    """Calls a function in the backward pass."""

    @staticmethod
    def forward(ctx, x, look):
        ctx.look = look
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.look()
        return gradient, None


class Layer(nn.Module):
    """Keeps its weight as the forward pass and the backward pass see it."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64))
        self.seen = []

    def forward(self, x):
        self.look()
        return Look.apply(x @ self.weight, self.look)

    def look(self):
        self.seen.append(self.weight.detach().clone())


FILLS_IN = pytest.mark.skipif(
    not hasattr(FSDPModule, "set_reduce_scatter_unused_params"), reason="this version of PyTorch does not fill in zeros"
)
