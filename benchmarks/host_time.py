"""Time that the host spends on one bucket in device transport, beside PyTorch's fp16_compress_hook.
Needs a C compiler, but no GPU.

Triton compiles and launches kernels as for an H100, with a CUDA driver whose functions do nothing.
Each collective is an all-reduce of PyTorch's fake process group, which does nothing either.
PyTorch's operations run on a small bucket on the CPU. So the times leave out the driver's part of
launches, and streams and events.

The time of a step is the host's time at the end of a step, without the time of the buckets. With
--ordinary, Triton makes every launch.
"""

import argparse
import ctypes
import os
import subprocess
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

# A driver for Triton to link and to call.
DRIVER = """
typedef unsigned long long word;
int cuCtxGetCurrent(void **c) { *c = (void *)1; return 0; }
int cuCtxSetCurrent() { return 0; }
int cuDeviceGet(int *d) { *d = 0; return 0; }
int cuDeviceGetAttribute(int *v) { *v = 227 * 1024; return 0; }
int cuDevicePrimaryCtxRetain(void **c) { *c = (void *)1; return 0; }
int cuFuncGetAttribute(int *v) { *v = 1024; return 0; }
int cuFuncSetAttribute() { return 0; }
int cuFuncSetCacheConfig() { return 0; }
int cuGetErrorString(int e, const char **s) { *s = "error"; return 0; }
int launches = 0;
int cuLaunchKernelEx() { launches++; return 0; }
int cuModuleGetFunction(void **f) { *f = (void *)1; return 0; }
int cuModuleLoadData(void **m) { *m = (void *)1; return 0; }
int cuModuleUnload() { return 0; }
int cuPointerGetAttribute(word *d, int a, word p) { *d = p; return 0; }
"""
# Functions that are linked, but not called.
UNUSED = ["cuCtxGetDevice", "cuCtxGetLimit", "cuCtxSetLimit", "cuDriverGetVersion", "cuStreamIsCapturing"]
UNUSED += ["cuOccupancyMaxActiveClusters", "cuTensorMapEncodeIm2col", "cuTensorMapEncodeTiled"]


def load_driver():
    """Compiles and loads the driver. Its ``launches`` counts launches."""
    folder = Path(tempfile.mkdtemp())
    source, library = folder / "driver.c", folder / "libcuda.so.1"
    source.write_text(DRIVER + "".join(f"int {name}() {{ return 0; }}\n" for name in UNUSED))
    subprocess.run(["cc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{library.name}", "-o", library, source], check=True)
    os.environ["TRITON_LIBCUDA_PATH"] = str(folder)
    return ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


LAUNCHES = ctypes.c_int.in_dll(load_driver(), "launches")

import torch
import torch.distributed as dist
import triton
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.distributed_c10d import AllreduceOptions
from torch.testing._internal.distributed.fake_pg import FakeStore
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import CudaDriver

from gradwire.torch.cuda import _repeated, _slices
from gradwire.torch.cuda._transport import DeviceTransport, Values

# Two matrices that are cut into slices, and a vector: so small that PyTorch's operations on a CPU
# take no longer than their launches on a GPU.
SHAPES = {"a": (32, 16), "b": (32, 16), "bias": (32,)}
_slices.SLICE = 16


class Driver(CudaDriver):
    """Triton's driver for an H100 that is not there."""

    def __init__(self):
        super().__init__()
        self.get_current_device = lambda: 0
        self.get_current_stream = lambda device: 0

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--ranks", type=int, default=8)
    arguments.add_argument("--ordinary", action="store_true")
    arguments.add_argument("specs", nargs="*", default=["int8", "3lc", "onebit", "eden"])
    given = arguments.parse_args()
    triton.runtime.driver.set_active(Driver())
    if given.ordinary:
        _repeated.KNOWN = False
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=given.ranks)
    bucket = torch.randn(sum(torch.Size(shape).numel() for shape in SHAPES.values()))
    print(f"{'microseconds of host time':<32}{'a bucket':>10}{'launches':>10}{'a step':>10}")
    print(f"{'fp16_compress_hook':<32}{shortest(fp16_hook(bucket)):>10.0f}")
    for spec in given.specs:
        for exchange in ("scatter-reduce", "all-gather"):
            average, end = transport(spec, exchange, bucket)
            for step in range(3):
                average(step)
                end()
            LAUNCHES.value = 0
            average(step)
            count, of_bucket = LAUNCHES.value, shortest(lambda: average(step))
            steps = iter(range(3, 1 << 60))
            of_step = shortest(lambda: (average(next(steps)), end())) - of_bucket
            print(f"{spec + ', ' + exchange:<32}{of_bucket:>10.0f}{count:>10}{of_step:>10.0f}")


def fp16_hook(bucket):
    """A function that averages a bucket by PyTorch's hook."""
    # The future of a fake collective has no value.
    future = torch.futures.Future()
    future.set_result([bucket.half()])
    sent = SimpleNamespace(get_future=lambda: future)
    send = dist.all_reduce

    def all_reduce(tensor, **options):
        send(tensor, **options).wait()
        return sent

    dist.all_reduce = all_reduce
    hook = SimpleNamespace(buffer=lambda: bucket)
    return lambda: fp16_compress_hook(None, hook).wait()


class Group:
    """The fake process group. Its own all-gather and all-to-all copy all bytes, by many operations
    of PyTorch."""

    def __init__(self, group):
        self.rank, self.size, self.allreduce = group.rank, group.size, group.allreduce
        self.options = AllreduceOptions()
        self.options.asyncOp = False

    def _allgather_base(self, received, sent, options):
        return self.allreduce([received], self.options)

    def alltoall_base(self, received, sent, own, lengths, options):
        return self.allreduce([received], self.options)


def transport(spec, exchange, bucket):
    """Functions that average a bucket in a step, and end the step."""
    specs = [spec, spec, "none"]
    reducer = SimpleNamespace(
        exchange_at=lambda step: exchange,
        deadline=300.0,
        stages=[(0, 1)],
        specs=lambda step: specs,
        message_specs=lambda step: specs,
        nonfinite_remedy="",
    )
    values, group = Values(bucket.device, True, False), Group(dist.group.WORLD)
    averaging = DeviceTransport(reducer, list(SHAPES.items()), values, group, 0)
    names = list(SHAPES)
    return lambda step: averaging.average(0, step, names, bucket, 1.0), averaging.end_step


def shortest(work, calls=2, repetitions=1000):
    """Microseconds of a call in this thread: the least mean of several repetitions."""
    found = []
    for _ in range(repetitions):
        start = time.thread_time()
        for _ in range(calls):
            work()
        found.append((time.thread_time() - start) / calls)
    return 1e6 * min(found)


main()
