"""Time that the host spends on one bucket in a communication hook that leaves messages on the
device, beside PyTorch's fp16_compress_hook. Needs no GPU.

Collectives are those of PyTorch's fake process group, which send nothing. Launches of Triton's
kernels bind their arguments and look up the compiled kernel, as real ones do, but start nothing.
PyTorch's operations run on a small bucket on the CPU. So the times leave out the driver's part of a
launch.
"""

import argparse
import time
from types import SimpleNamespace

import torch
import torch.distributed as dist
import triton
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.testing._internal.distributed.fake_pg import FakeStore
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime import jit

from gradwire.torch.cuda import _slices
from gradwire.torch.cuda._transport import DeviceTransport, Values

# Two matrices that are cut into slices, and a vector: so small that PyTorch's operations on a CPU
# take no longer than their launches on a GPU.
SHAPES = {"a": (32, 16), "b": (32, 16), "bias": (32,)}
_slices.SLICE = 16
BACKEND = make_backend(GPUTarget("cuda", 90, 32))


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--ranks", type=int, default=8)
    arguments.add_argument("specs", nargs="*", default=["int8", "3lc", "onebit", "eden"])
    given = arguments.parse_args()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=given.ranks)
    jit.JITFunction.run = launched
    bucket = torch.randn(sum(torch.Size(shape).numel() for shape in SHAPES.values()))
    hook = SimpleNamespace(buffer=lambda: bucket)
    send = dist.all_reduce
    dist.all_reduce = lambda tensor, **options: Sent(send(tensor, **options), tensor)
    print(f"{'microseconds of host time a bucket':<40}{'launches':>10}")
    print(f"{'fp16_compress_hook':<32}{shortest(lambda: fp16_compress_hook(None, hook).wait()):>8.0f}{'':>10}")
    for spec in given.specs:
        for exchange in ("scatter-reduce", "all-gather"):
            average = transport(spec, exchange, bucket)
            average()
            LAUNCHES.clear()
            average()
            count = len(LAUNCHES)
            print(f"{spec + ', ' + exchange:<32}{shortest(average):>8.0f}{count:>10}")


class Sent:
    """A collective of the fake process group, whose own future has no value."""

    def __init__(self, work, tensor):
        self.work, self.tensor = work, tensor

    def get_future(self):
        self.work.wait()
        future = torch.futures.Future()
        future.set_result([self.tensor])
        return future


def transport(spec, exchange, bucket):
    """A function that averages the bucket in one more step."""
    specs = lambda step: [spec, spec, "none"]
    of_steps = {"exchange_at": lambda step: exchange, "specs": specs, "message_specs": specs}
    reducer = SimpleNamespace(deadline=300.0, stages=[(0, 1)], nonfinite_remedy="", **of_steps)
    values = Values(bucket.device, narrow=True, skip=False)
    averaging = DeviceTransport(reducer, list(SHAPES.items()), values, dist.group.WORLD, 0)
    # The host looks at what messages told once a step, not once a bucket.
    averaging._outcomes.check = lambda all_steps: averaging._outcomes._unread.clear()
    steps = iter(range(1 << 60))

    def average():
        averaging.average(0, next(steps), list(SHAPES), bucket, 1.0)
        averaging.end_step()

    return average


BINDERS, CACHE, LAUNCHES = {}, {}, []


def launched(kernel, *arguments, grid, warmup, **named):
    """Does what ``JITFunction.run`` does before it calls the driver."""
    bind = BINDERS.get(kernel)
    if bind is None:
        bind = BINDERS[kernel] = jit.create_function_from_signature(kernel.signature, kernel.params, BACKEND)
    bound, specialization, options = bind(*arguments, **named)
    key = jit.compute_cache_key(CACHE, specialization, options)
    LAUNCHES.append(key)
    return tuple(bound.values())


def shortest(work, calls=5, repetitions=200):
    """Microseconds of a call in this thread: the least mean of several repetitions."""
    found = []
    for _ in range(repetitions):
        start = time.thread_time()
        for _ in range(calls):
            work()
        found.append((time.thread_time() - start) / calls)
    return 1e6 * min(found)


main()
