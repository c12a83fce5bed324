"""Measures two levels: the time of a step, and the bytes on the link of a node, for plain
DistributedDataParallel, for one level and for two.

scripts/links -k runs it as every rank of every node; rank 0 appends a JSON line for each hook to
--out. The model has 4.2 million parameters and a small batch, so a step is mostly communication.
"""

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from links import provenance

# The first steps, which are not timed, and the timed ones.
WARM_STEPS, STEPS = 3, 10
WIDTH, LAYERS, BATCH = 1024, 4, 8
HOOKS = {
    "no hook": None,
    "eden, one level": {"compressor": "eden"},
    "eden, two levels": {"compressor": "eden", "nodes": "auto"},
    "int8, one level": {"compressor": "int8"},
    "int8, two levels": {"compressor": "int8", "nodes": "auto"},
}


def sent():
    """The bytes that this node has sent over its link."""
    with open("/sys/class/net/wire/statistics/tx_bytes") as file:
        return int(file.read())


def measured(options):
    """The times of steps, and the bytes that the link of this node carried in each."""
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=5)
    handle = None if options is None else gradwire.torch.register(model, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))
    times, before = [], 0
    for step in range(WARM_STEPS + STEPS):
        if step == WARM_STEPS:
            dist.barrier()
            before = sent()
        start = time.perf_counter()
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    dist.barrier()
    bytes_a_step = (sent() - before) / STEPS
    stats = None if handle is None else handle.stats()
    if handle is not None:
        handle.close()
    return times[WARM_STEPS:], bytes_a_step, stats


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", required=True, help="the rate of the link, for the record")
    parser.add_argument("--turns", type=int, default=3, help="how often to measure each hook")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    for turn in range(options.turns):
        for hook, given in HOOKS.items():
            times, link, stats = measured(given)
            record = {
                "nodes": dist.get_world_size() // local,
                "ranks_a_node": local,
                "rate": options.rate,
                "hook": hook,
                "turn": turn,
                "step_ms": 1e3 * statistics.median(times),
                "least_ms": 1e3 * min(times),
                "link_bytes": round(link),
                "inside_bytes": stats.get("inside_bytes_up") if stats else None,
                **provenance(),
            }
            if dist.get_rank() == 0:
                print(f"{record['nodes']} x {local}, {options.rate}, {hook}: {record['step_ms']:.0f} ms, {link / 1e6:.3f} MB", flush=True)
                with open(options.out, "a") as file:
                    file.write(json.dumps(record) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
