"""Compares local steps of sites whose replicas fully_shard has sharded with local steps of plain
workers: the loss after the same batches, and the bytes.

    GRADWIRE_DATA=… python benchmarks/sites.py

It starts its own ranks, two sites of two and then two plain workers, for each seed. A site trains
on the batch of the worker with the same number, half of it on each rank.
"""

import argparse
import os
import statistics
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import gradwire.torch
from tasks import MOST_STEPS, TASKS

EVERY, SITES = 10, 2


class Part:
    """A part of each batch of windows, for a rank of a site."""

    def __init__(self, model, part, parts):
        self.model, self.part, self.parts = model, part, parts

    def __call__(self, windows):
        return self.model(windows.chunk(self.parts)[self.part])


def run(rank, size, store, seed, steps, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    task = TASKS["gpt"]()
    torch.manual_seed(seed)
    model, shards = task.model(), size // SITES
    mesh = init_device_mesh("cpu", (SITES, shards), mesh_dim_names=("sites", "shards"))
    if shards > 1:
        for block in model.blocks:
            fully_shard(block, mesh=mesh["shards"])
        fully_shard(model, mesh=mesh["shards"])
    local = gradwire.torch.LocalSteps(
        model,
        task.optimizer(model),
        EVERY,
        outer=gradwire.torch.Nesterov(lr=0.7, momentum=0.5),
        process_group=mesh["sites"],
        seed=seed,
    )
    own = Part(model, mesh["shards"].get_local_rank(), shards)
    site = mesh["sites"].get_local_rank()
    for number in range(steps):
        local.zero_grad()
        task.loss(own, site, MOST_STEPS * seed + number).backward()
        local.step()
    with torch.no_grad():
        loss = task.test_loss(model)
    plan = sum(one.expected_bytes for one in local.describe().tensors)
    results.put((rank, loss, local.stats()["bytes_up"], plan, local._replica.common.numel()))
    dist.barrier()
    local.close()
    dist.destroy_process_group()


def measure(size, seed, steps):
    """For each rank, in order: its test loss, the bytes that it sent in the last round, the
    expected bytes of its message, and its number of parameters."""
    results = multiprocessing.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        arguments = size, os.path.join(folder, "store"), seed, steps, results
        multiprocessing.spawn(run, arguments, size)
    return [one[1:] for one in sorted(results.get() for _ in range(size))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400, help="a multiple of 10")
    options = parser.parse_args()
    print("| seed | ranks | test loss | bytes that a rank sends in a round | its message, expected | parameters of a rank |")
    print("|---:|---|---:|---:|---:|---:|")
    losses = {}
    for seed in range(options.seeds):
        for size in (SITES, 2 * SITES):
            found = measure(size, seed, options.steps)
            losses.setdefault(size, []).append(found[0][0])
            what = "two workers" if size == SITES else "two sites of two"
            numbers = [", ".join(dict.fromkeys(str(round(one[at])) for one in found)) for at in (1, 2, 3)]
            print(f"| {seed} | {what} | {found[0][0]:.4f} | {' | '.join(numbers)} |", flush=True)
    for size, found in losses.items():
        spread = statistics.stdev(found) if len(found) > 1 else 0.0
        print(f"\n{size} ranks: mean {statistics.mean(found):.4f}, standard deviation {spread:.4f}")


if __name__ == "__main__":
    main()
