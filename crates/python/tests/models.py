"""A small model, its data and a training loop; ranks differ only in their shard."""

import copy

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from device import DEVICE

# The compressors whose results are votes, not averages.
VOTING = ["signsgd", "signum", "demo"]


class Net(nn.Module):
    def __init__(self, inputs=64, hidden=96, outputs=10):
        super().__init__()
        self.first = nn.Linear(inputs, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.second = nn.Linear(hidden, outputs)

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x))))


def data(rank, step, batch=32, inputs=64):
    """A classification task that a small net learns: which of ten random directions is nearest to
    an input."""
    directions = torch.randn(10, inputs, generator=torch.Generator().manual_seed(5), device="cpu")
    generator = torch.Generator().manual_seed(1000 * step + rank)
    labels = torch.randint(0, 10, (batch,), generator=generator, device="cpu")
    values = directions[labels] + 0.7 * torch.randn(batch, inputs, generator=generator, device="cpu")
    return values.to(DEVICE), labels.to(DEVICE)


def build(compressor=None, seed=0, small_buckets=True, module=None, dtype=None, **options):
    """A DDP model on its rank, with gradwire's hook if a compressor is given."""
    torch.manual_seed(seed)
    net = (module or Net)()
    if dtype is not None:
        net = net.to(dtype)
    # Three buckets, so that buckets are rebuilt and overlap.
    model = DistributedDataParallel(net, bucket_cap_mb=0.001 if small_buckets else 25)
    handle = None if compressor is None else gradwire.torch.register(model, compressor, **options)
    return model, handle


def train(model, optimizer, rank, steps, shards=None):
    """Runs steps and returns the loss of each."""
    losses = []
    for step in steps:
        x, labels = data(rank, step)
        loss = nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def flat(model):
    return torch.cat([p.detach().float().reshape(-1) for p in model.parameters()]).cpu().numpy()


def exchange_bytes(state):
    """The state of the exchange of the one rank in a saved state."""
    ((state, *_),) = state["exchange"].values()
    return state.cpu().numpy().tobytes()


def one_layer(compressor, dtype=torch.float32, **options):
    """Creates local steps for a layer without gradients, the same on all ranks."""
    torch.manual_seed(0)
    layer = nn.Linear(64, 32, bias=False).to(dtype)
    inner = torch.optim.SGD(layer.parameters(), lr=1e-3)
    layer.weight.grad = torch.zeros_like(layer.weight)
    return layer, gradwire.torch.LocalSteps(layer, inner, compressor=compressor, **options)


def local(rank, size, steps, options, optimizer="sgd", resume=None):
    torch.manual_seed(rank)
    net = Net()
    inner = (
        torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        if optimizer == "sgd"
        else torch.optim.Adam(net.parameters(), lr=0.003)
    )
    local = gradwire.torch.LocalSteps(net, inner, **options)
    if resume is not None:
        net.load_state_dict(resume[rank]["model"])
        inner.load_state_dict(resume[rank]["inner"])
        local.load_state_dict(resume[rank]["local"])
    losses = []
    for step in steps:
        x, labels = data(rank, step)
        loss = nn.functional.cross_entropy(net(x), labels)
        local.zero_grad()
        loss.backward()
        local.step()
        losses.append(loss.item())
    saved = {"model": net.state_dict(), "inner": inner.state_dict(), "local": local.state_dict()}
    return flat(net), losses, copy.deepcopy(saved), local.stats()
