"""Compares repeated launches with Triton's, without a GPU. This is a script, because Triton's
interpreter, which runs the kernels in other tests, must be off.

Triton looks up kernels and binds arguments as for an H100, but compiles nothing: each kernel that
it would compile gets a number in place of code. The driver records what its launcher is given.
"""

import itertools
import os
import random
import sys
from functools import partial
from types import SimpleNamespace

assert "TRITON_INTERPRET" not in os.environ, "launches must be compiled"

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch.testing._internal.distributed.fake_pg import FakeStore
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import CudaLauncher
from triton.compiler import CompiledKernel, compiler

from gradwire.torch.cuda import _launch, _repeated, _slices
from gradwire.torch.cuda._repeated import Repeated, permanent
from gradwire.torch.cuda._source import Source
from gradwire.torch.cuda._transport import DeviceTransport, Values

now = SimpleNamespace(device=0, stream=77)
launched = []


class Compiled(CompiledKernel):
    """A kernel with a number in place of code. Its source, and the driver, are of no use."""

    numbers = itertools.count(1)

    def __init__(self, source, target, options):
        self.src, self.name, self.metadata = source, source.fn.__name__, None
        self.function, self.packed_metadata = next(self.numbers), (options["num_warps"], 1, 0)
        # As if it were loaded.
        self.module, self._module_pid, self._run = object(), None, launcher(f"signature {self.function}")

    def __del__(self):
        pass


def launcher(signature):
    """Triton's launcher, with a driver that records."""
    found = CudaLauncher.__new__(CudaLauncher)
    found.launch = lambda *given: launched.append(given)
    found.gsan_enabled, found.num_ctas, found.arg_annotations, found.kernel_signature = False, 1, "annotations", signature
    found.launch_cooperative_grid = found.launch_pdl = False
    for which in ("global", "profile"):
        setattr(found, f"{which}_scratch_size", 0)
        setattr(found, f"{which}_scratch_align", 1)
    return found


triton.compiler.compile = compiler.compile = lambda source, target, options, **_: Compiled(source, target, options)
triton.runtime.driver.set_active(
    SimpleNamespace(
        get_current_device=lambda: now.device,
        get_current_stream=lambda device: now.stream,
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
    )
)


def plain(given):
    """What the driver is given, with addresses in place of tensors, and without the objects that
    hooks get."""
    return [addresses(one) if isinstance(one, (int, float, str, tuple, torch.Tensor)) else None for one in given]


def addresses(one):
    if isinstance(one, tuple):
        return [addresses(part) for part in one]
    return one.data_ptr() if isinstance(one, torch.Tensor) else one


class Counts:
    repeated = 0
    ordinary = 0


call = Repeated.__call__


def both(self, *inputs):
    """Repeats the launches, if a function suits the inputs, and compares them with Triton's."""
    assert not launched
    suited = any(function(*inputs) for function in self._functions)
    repeated = list(map(plain, launched))
    launched.clear()
    (self._work if suited else partial(call, self))(*inputs)
    assert not suited or repeated == list(map(plain, launched)), repeated
    launched.clear()
    Counts.repeated += suited
    Counts.ordinary += not suited


Repeated.__call__ = both


@triton.jit(do_not_specialize=["free"])
def _mixed(data, free, source, number, weight, optional, FLAG: tl.constexpr, BLOCK: tl.constexpr):
    pass


LASTING = permanent(torch.zeros(5))
room = torch.zeros(64, dtype=torch.uint8)


def tensors():
    """Tensors of several types. Some begin at multiples of 16 bytes."""
    return [room[start : start + 32].view(dtype) for start in (0, 4, 16) for dtype in (torch.float32, torch.bfloat16, torch.int32)]


def mixed(data, other, free):
    """Two launches whose other arguments are of every kind."""
    for number in (1, 16, 17, 2**40):
        source = Source(data, LASTING, other, 0.5, 1.0, LASTING, LASTING, LASTING)
        _launch.run(_mixed, (3, 2), data, free, source, number, 0.5, None, FLAG="x", BLOCK=number, warps=8)
        _launch.run(_mixed, (5,), LASTING, free, source, number, 1.0, other, FLAG=True, BLOCK=1)


def check_conditions(rounds=500):
    """Calls work with random inputs: a function must suit only those for which Triton chooses the
    same code."""
    draw, work = random.Random(0), Repeated(mixed, ["free"])
    data, other = tensors(), [None, *tensors()]
    _repeated._MOST = len(data) * len(other)
    for _ in range(rounds):
        now.stream = draw.randrange(1 << 48)
        work(draw.choice(data), draw.choice(other), draw.choice([0, 1, 2, 16, 17, 2**31 - 1]))
    assert Counts.repeated > rounds / 2 and Counts.ordinary > 40, (Counts.repeated, Counts.ordinary)
    Counts.repeated = 0
    hooks = triton.knobs.runtime.launch_enter_hook
    hooks.add(print_nothing := lambda metadata: None)
    work(data[0], None, 1)
    hooks.remove(print_nothing)
    for free in (2**31, 2**40, -1, True):
        work(data[0], None, free)
    now.device = 1
    work(data[0], None, 1)
    now.device = 0
    assert Counts.repeated == 0


def check_what_is_not_repeated():
    """Work is done each time if its launches use new tensors, or one tensor for two inputs."""
    data = torch.zeros(5)
    for work in (lambda data, other, free: mixed(data + 0, other, free), lambda data, other, free: mixed(data, data[1:], free)):
        repeated = Repeated(work, ["free"])
        for free in range(3):
            repeated(data, None, free)
        assert not repeated._functions
    repeated = Repeated(mixed, ["free"])
    repeated(data, data, 0)
    assert not repeated._functions


def check_transport(spec, exchange):
    """Averages a bucket in some steps. All launches after the first step are repeated."""
    shapes = {"a": (32, 16), "b": (32, 16), "bias": (32,)}
    specs = [spec, spec, "none"]
    reducer = SimpleNamespace(
        exchange_at=lambda step: exchange,
        deadline=300.0,
        stages=[(0, 1)],
        specs=lambda step: specs,
        message_specs=lambda step: specs,
        nonfinite_remedy="",
    )
    bucket = torch.zeros(2 * 32 * 16 + 32)
    averaging = DeviceTransport(reducer, list(shapes.items()), Values(bucket.device, True, False), dist.group.WORLD, 0)
    for step in range(5):
        if step == 1:
            Counts.repeated = Counts.ordinary = 0
        averaging.average(0, step, list(shapes), bucket, 1.0)
        averaging.end_step()
    # In each step one kind of work, or three, before and after collectives.
    expected = 4 * {"all-gather": 2, "scatter-reduce": 4}[exchange]
    assert (Counts.repeated, Counts.ordinary) == (expected, 0), (spec, exchange, Counts.repeated, Counts.ordinary)


check_conditions()
check_what_is_not_repeated()
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
_slices.SLICE = 16
for spec in sys.argv[1:]:
    for exchange in ("scatter-reduce", "all-gather"):
        check_transport(spec, exchange)
