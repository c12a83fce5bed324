"""Step of DistributedDataParallel over a process group that compresses, beside one with the hook of
``register``: both in the same two ranks on a core each, in turns, step by step.

--empty replaces both by a group and a hook that exchange nothing, but are called the same way: what
is left is the cost of a group that is written in Python, and of gradients that
DistributedDataParallel divides, not copies, into buckets.
"""

import argparse
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch

TENSORS = 16
RANKS = 2
# Steps that are not measured.
WARM_UP = 10


class Model(torch.nn.Module):
    """Tensors of ``megabytes`` each, with a gradient that costs little."""

    def __init__(self, megabytes):
        super().__init__()
        shape = 512, int(megabytes * 2**20) // 4 // 512
        self.tensors = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(shape)) for _ in range(TENSORS)])

    def forward(self, factor):
        return sum((tensor * factor).sum() for tensor in self.tensors)


class Done(Work):
    """The work of a collective that has ended."""

    def __init__(self, tensors):
        super().__init__()
        self._future = done(tensors)

    def get_future(self):
        return self._future

    def wait(self, timeout=None):
        return True


class EmptyGroup(dist.ProcessGroup):
    """A group that leaves sums as they are."""

    def __init__(self, inner):
        super().__init__(inner.rank(), inner.size())
        self._inner = inner

    def allreduce(self, tensors, options=None):
        return Done(list(tensors))

    def allgather(self, *arguments):
        return self._inner.allgather(*arguments)

    def broadcast(self, *arguments):
        return self._inner.broadcast(*arguments)


def done(value):
    future = Future()
    future.set_result(value)
    return future


def empty_hook(state, bucket):
    return done(bucket.buffer())


def models(arguments):
    """The model with a hook, and the one with a group."""
    wrap = EmptyGroup if arguments.empty else lambda group: gradwire.torch.wrap(group, arguments.compressor)
    # Smaller than a tensor, so each tensor is a bucket.
    options = {"bucket_cap_mb": 0.9 * arguments.megabytes}
    hook = DistributedDataParallel(Model(arguments.megabytes), **options)
    if arguments.empty:
        hook.register_comm_hook(None, empty_hook)
    else:
        gradwire.torch.register(hook, arguments.compressor)
    return hook, DistributedDataParallel(Model(arguments.megabytes), process_group=wrap(dist.new_group()), **options)


def run(rank, store, arguments, results):
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    pair = [(model, torch.optim.SGD(model.parameters(), lr=1e-3)) for model in models(arguments)]
    times = [[], []]
    for step in range(WARM_UP + arguments.steps):
        for of_model, (model, optimizer) in zip(times, pair):
            clocks = time.perf_counter, time.process_time
            before = [clock() for clock in clocks]
            optimizer.zero_grad()
            model(torch.tensor(step + 1.0)).backward()
            optimizer.step()
            of_model.append([clock() - start for clock, start in zip(clocks, before)])
    if rank == 0:
        results.put([of_model[WARM_UP:] for of_model in times])
    dist.barrier()
    # Without waiting for what ends groups.
    os._exit(0)


def measure(arguments):
    """The seconds and the processor's seconds of each step, with the hook and with the group."""
    with tempfile.TemporaryDirectory() as folder:
        results = torch.multiprocessing.get_context("spawn").SimpleQueue()
        ranks = torch.multiprocessing.spawn(run, (f"{folder}/store", arguments, results), RANKS, join=False)
        found = results.get()
        ranks.join()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compressor", default="eden")
    parser.add_argument("--megabytes", type=float, default=0.5, help="of a bucket")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--empty", action="store_true", help="exchange nothing")
    arguments = parser.parse_args()
    print("| turn | hook, ms | group, ms | group / hook | CPU: hook, ms | group, ms | group / hook |\n|---:|---:|---:|---:|---:|---:|---:|")
    for turn in range(arguments.turns):
        cells = []
        for hook, group in zip(*(zip(*of_model) for of_model in measure(arguments))):
            cells += [f"{1e3 * statistics.median(times):.2f}" for times in (hook, group)]
            cells.append(f"{statistics.median(one / other for one, other in zip(group, hook)):.3f}")
        print("|", " | ".join([str(turn + 1), *cells]), "|", flush=True)


if __name__ == "__main__":
    main()
