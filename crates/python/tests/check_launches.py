"""Compares prepared launches with Triton's, without a GPU. This is a script, because Triton's
interpreter, which runs the kernels in other tests, must be off.

Triton looks up kernels and binds arguments as for an H100, but compiles nothing: each kernel that
it would compile gets a number in place of code. The driver records what its launcher is given.
"""

import itertools
import os
import random
import sys
from types import SimpleNamespace

assert "TRITON_INTERPRET" not in os.environ, "launches must be compiled"

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch.testing._internal.distributed.fake_pg import FakeStore
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel, compiler

from gradwire.torch.cuda import _launch, _prepared, _slices
from gradwire.torch.cuda._prepared import Prepared
from gradwire.torch.cuda._source import Source
from gradwire.torch.cuda._transport import DeviceTransport, Values

STREAM = 77
launched = []


class Compiled(CompiledKernel):
    """A kernel with a number in place of code. Its source, and the driver, are of no use."""

    numbers = itertools.count(1)

    def __init__(self, source, target, options):
        self.src, self.name, self.metadata = source, source.fn.__name__, None
        self.function, self.packed_metadata = next(self.numbers), (options["num_warps"], 1, 0)
        # As if it were loaded.
        self.module, self._module_pid, self._run = object(), None, lambda *given: launched.append(given)

    def __del__(self):
        pass


triton.compiler.compile = compiler.compile = lambda source, target, options, **_: Compiled(source, target, options)
triton.runtime.driver.set_active(
    SimpleNamespace(
        get_current_device=lambda: 0,
        get_current_stream=lambda device: STREAM,
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
    )
)


def plain(given):
    """What a launcher is given, with addresses in place of tensors, and without hooks."""
    *grid, stream, function, metadata, _, _, _ = given[:9]
    return [grid, stream, function, metadata, [addresses(one) for one in given[9:]]]


def addresses(one):
    if isinstance(one, tuple):
        return [addresses(part) for part in one]
    return one.data_ptr() if isinstance(one, torch.Tensor) else one


class Counts:
    prepared = 0
    ordinary = 0


prepare = Prepared.launch


def both(self, grid, arguments):
    """Launches by the prepared function and, in any case, by Triton."""
    assert not launched
    Counts.prepared += prepare(self, grid, arguments)
    return False


learn = Prepared.learn


def compared(self, kernel, compiled, arguments, constants):
    """Compares the two launches. Without a prepared one, prepares the next."""
    expected = plain(launched.pop())
    assert expected[2] == compiled.function
    if launched:
        assert plain(launched.pop()) == expected, kernel
    else:
        Counts.ordinary += 1
        learn(self, kernel, compiled, arguments, constants)


Prepared.launch, Prepared.learn = both, compared


@triton.jit(do_not_specialize=["free"])
def _mixed(table, free, source, number, weight, optional, FLAG: tl.constexpr, BLOCK: tl.constexpr):
    pass


def check_conditions(rounds=3000):
    """Launches with random arguments: the prepared function must take only those for which Triton
    chooses the same code."""
    draw = random.Random(0)
    room = torch.zeros(64, dtype=torch.uint8)
    places = [room[start : start + 32] for start in (0, 4, 16, 20)]
    tensors = [place.view(dtype) for place in places for dtype in (torch.float32, torch.bfloat16, torch.int32)]
    integers = [0, 1, 2, 15, 16, 17, 32, -1, -16, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**40, 2**63]
    tensor, integer = (lambda: draw.choice(tensors)), (lambda: draw.choice(integers))
    few = tensors[0]
    _prepared._MOST = 1000
    for _ in range(rounds):
        rare = draw.random() < 0.2
        maxima = tensor() if rare else few
        source = Source(tensor(), few, draw.choice([None, few]), draw.choice([0.5, 1.0]), 2.0, few, few, maxima)
        optional = draw.choice([None, few, 3, True, 1.5]) if rare else None
        constants = {"BLOCK": draw.choice([1, 16]), "FLAG": draw.choice([True, "x"])}
        _launch.run(_mixed, (3, 2), tensor() if rare else few, integer(), source, integer(), draw.choice([0.0, 1.0]), optional, **constants)
    assert Counts.prepared > rounds / 4 and Counts.ordinary > rounds / 10, (Counts.prepared, Counts.ordinary)


def check_transport(spec, exchange):
    """Averages a bucket in some steps. All launches but those of the first two are prepared: the
    messages of a step may begin at any address, and two buffers take turns."""
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
        if step == 2:
            Counts.prepared = Counts.ordinary = 0
        averaging.average(0, step, list(shapes), bucket, 1.0)
        averaging.end_step()
    assert Counts.prepared >= 3 * 5 and Counts.ordinary == 0, (spec, exchange, Counts.prepared, Counts.ordinary)


check_conditions()
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
_slices.SLICE = 16
for spec in sys.argv[1:]:
    for exchange in ("scatter-reduce", "all-gather"):
        check_transport(spec, exchange)
