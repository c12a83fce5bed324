"""Two ranks train a small model with DistributedDataParallel and a compressor of acme.

python train.py
"""

import os
import tempfile

import acme  # noqa: F401, before gradwire
import gradwire.torch
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def train(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(256, 8))
    handle = gradwire.torch.register(model, "acme/scaled-sign")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    target = torch.randn(256, 8)
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(20):
        inputs = torch.randn(32, 256, generator=generator)
        loss = (model(inputs) - inputs @ target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = [torch.empty_like(model.module.weight) for _ in range(2)]
    dist.all_gather(weights, model.module.weight.detach())
    assert torch.equal(*weights), "the replicas differ"
    assert losses[-1] < losses[0], losses
    if rank == 0:
        print(handle.describe())
        print(f"loss {losses[0]:.0f} -> {losses[-1]:.0f}, {handle.stats()['ratio']:.1f} times fewer bytes")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, args=(os.path.join(folder, "store"),), nprocs=2)
