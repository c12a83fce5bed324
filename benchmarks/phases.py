"""What a training step consists of with each compressor, where the link costs nothing.

    python benchmarks/phases.py --out phases.jsonl none eden 3lc
    python benchmarks/phases_table.py phases.jsonl

Two gloo ranks train a GPT of 124 million parameters on 64 tokens a step, each on one core, so there
is little work to hide the exchange behind. Each compressor and plain DistributedDataParallel take
turns in processes of their own. The table has medians over the steps of all turns, of rank 0.
"""

import argparse
import json
import os
import resource
import socket
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from gpt import Gpt
from gradwire.torch._hook import Hook
from phases_table import PLAIN, table

RANKS, TOKENS, VOCABULARY = 2, 64, 50257
# Layers, heads, width and context, as GPT-2's smallest.
SIZES = (12, 12, 768, TOKENS)
# DistributedDataParallel forms its buckets after the first step, and then buffers grow.
WARM_STEPS = 3
TICK = os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the file that gets a JSON line for each turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="timed steps of a turn")
    parser.add_argument("specs", nargs="*", default=["none", "eden", "3lc", "int8", "topk", "powersgd:rank=4"])
    given = parser.parse_args()
    found = []
    for turn in range(given.turns):
        for spec in [PLAIN, *given.specs]:
            found.append({"turn": turn, "spec": spec, "steps": measured(spec, given.steps)})
            if given.out is not None:
                with given.out.open("a") as file:
                    file.write(json.dumps(found[-1]) + "\n")
    print(table(found))


def measured(spec, steps):
    """The steps of rank 0 with this compressor."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    ranks = [context.Process(target=train, args=(rank, port, spec, steps, results)) for rank in range(RANKS)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
        if rank.exitcode != 0:
            raise SystemExit(f"{spec}: a rank ended with {rank.exitcode}")
    return results.get()


def train(rank, port, spec, steps, results):
    """A rank, on a core of its own if there are as many."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    # Untrained embeddings make most probabilities subnormal, with which processors are several times slower.
    torch.set_flush_denormal(True)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    model = DistributedDataParallel(Gpt(*SIZES, symbols=VOCABULARY))
    handle = None if spec == PLAIN else gradwire.torch.register(model, spec)
    in_hook = timed_hook()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    found = []
    for at in range(WARM_STEPS + steps):
        windows = torch.randint(VOCABULARY, (1, TOKENS + 1), generator=torch.Generator().manual_seed(RANKS * at + rank))
        dist.barrier()
        before, start = counters(in_hook), time.perf_counter()
        optimizer.zero_grad()
        model(windows).backward()
        optimizer.step()
        seconds = time.perf_counter() - start
        if at >= WARM_STEPS:
            found.append(phases(seconds, before, counters(in_hook), handle))
    if rank == 0:
        results.put(found)
    if handle is not None:
        handle.close()
    dist.destroy_process_group()


def timed_hook():
    """Times the calls of gradwire's hook in the backward pass; returns the list with their sum."""
    total, average = [0.0], Hook.average

    def timed(hook, bucket):
        start = time.thread_time()
        future = average(hook, bucket)
        total[0] += time.thread_time() - start
        return future

    Hook.average = timed
    return total


def counters(in_hook):
    """Seconds in the hook, processor time of the process and of threads by their names, and new
    pages."""
    threads = {"reducer": 0.0, "gloo": 0.0}
    for task in Path("/proc/self/task").iterdir():
        name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(")")
        user, system = fields.split()[11:13]
        kind = "reducer" if name == "gradwire" else "gloo" if "gloo" in name else None
        if kind is not None:
            threads[kind] += (int(user) + int(system)) / TICK
    return {**threads, "python": in_hook[0], "processor": time.process_time(), "faults": resource.getrusage(resource.RUSAGE_SELF).ru_minflt}


def phases(seconds, before, after, handle):
    """The phases of a step, in ms and MB."""
    spent = {key: after[key] - before[key] for key in after}
    stats = {} if handle is None else handle.stats()
    compress, add = stats.get("compress_seconds", 0.0), stats.get("decompress_seconds", 0.0)
    times = {
        "step": seconds,
        "processor": spent["processor"],
        "compress": compress,
        "add": add,
        "wire": stats.get("wire_seconds", 0.0),
        # The rest of the thread's processor time.
        "reducer": max(spent["reducer"] - compress - add, 0.0),
        "gloo": spent["gloo"],
        "python": spent["python"],
        "waited": stats.get("wait_seconds", 0.0),
    }
    page, peak = os.sysconf("SC_PAGE_SIZE"), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory = {"fresh": spent["faults"] * page / 1e6, "peak": peak * 1024 / 1e6}
    return {**{key: 1e3 * value for key, value in times.items()}, **memory}


if __name__ == "__main__":
    main()
