"""``8bit``: the nearest of 256 numbers, relative to the largest absolute value.

A form is that value as float32 and a byte for each element; see ``gradwire::device``. Messages
equal the host's, byte for byte.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ... import _core
from ..._arrays import buffer
from ._batch import Batch, PerBatch, at_least_one
from ._config import Config
from ._forms import Forms, before, floats, form_of, put_first
from ._kernel import Dense
from ._launch import MANY_WARPS, over
from ._repeated import permanent
from ._source import Source, corrected, keep, largest
from ._tensors import block_of, in_bucket, store
from .levels import invertible


def _numbers() -> torch.Tensor:
    """The number that each byte stands for, as the host decodes a message with the scale 1 and all
    bytes."""
    numbers = torch.zeros(256, dtype=torch.float32, device="cpu")
    message = struct.pack("<f", 1.0) + bytes(range(256))
    _core.Codec("8bit", 0, 0, 1).decode_add("", (256,), 0, 0, message, 1.0, buffer(numbers))
    return numbers


@dataclass
class Tables:
    """The tables from which kernels find the byte of a magnitude: the number of limits that it
    reaches.

    At a limit the next number becomes the nearer one. Limits ascend; the last one is between the
    bytes 127 and 128. Magnitudes with equal bits above ``shift`` form a cell. A cell is so small
    that it has at most one limit.
    """

    # The number that each byte stands for.
    numbers: torch.Tensor
    # The limits, and infinity.
    limits: torch.Tensor
    # For each cell the number of limits at or below its least magnitude. All smaller magnitudes are
    # in the first cell, all greater ones in the last.
    reached: torch.Tensor
    # The bits of the first cell above ``shift``.
    first: int
    shift: int


def _tables(batch: Batch) -> Tables:
    numbers = _numbers()
    magnitudes = numbers[:129].double()
    limits = torch.cat([((magnitudes[:-1] + magnitudes[1:]) / 2).float(), torch.full((1,), math.inf, dtype=torch.float32, device="cpu")])
    patterns = limits[:-1].view(torch.int32).long()
    for shift in range(22, 0, -1):
        cells = patterns >> shift
        if len(cells.unique()) == len(cells):
            break
    first, last = int(cells[0]), int(cells[-1]) + 1
    edges = torch.arange(first, last + 1, device="cpu") << shift
    reached = torch.searchsorted(patterns, edges, right=True)
    reached[0] = 0
    on_device = [permanent(batch.moved(table)) for table in (numbers, limits, reached.to(torch.int32))]
    return Tables(on_device[0], on_device[1], on_device[2], first, shift)


class DynamicTree(Dense):
    """The dynamic tree without its Huffman code, which the host applies."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._tables = PerBatch(_tables)

    def form_bytes(self, elements: int) -> int:
        return 4 + elements

    def encode(self, batch: Batch, source: Source, forms: Forms, step: int) -> None:
        tables = self._tables(batch)
        over(
            batch,
            _encode,
            source,
            tables.numbers,
            tables.limits,
            tables.reached,
            forms,
            units=at_least_one,
            FIRST=tables.first,
            CELLS=len(tables.reached),
            SHIFT=tables.shift,
            warps=MANY_WARPS,
        )

    def add(self, batch: Batch, forms: Forms, out: torch.Tensor, weight: float, step: int, rank: int) -> None:
        over(batch, _add, forms, self._tables(batch).numbers, in_bucket(batch, out), weight)


@triton.jit
def _encode(
    table,
    source,
    numbers,
    limits,
    reached,
    forms,
    FIRST: tl.constexpr,
    CELLS: tl.constexpr,
    SHIFT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tensor, at, mask = block_of(table, source.lengths, BLOCK)
    scale, inverse = invertible(largest(source, tensor))
    put_first(forms, tensor, table, scale)
    value = corrected(source, tensor, at, mask)
    scaled = value * inverse
    magnitude = tl.abs(scaled)
    cell = (magnitude.to(tl.int32, bitcast=True) >> SHIFT) - FIRST
    count = tl.load(reached + tl.minimum(tl.maximum(cell, 0), CELLS - 1))
    count += (magnitude >= tl.load(limits + count)).to(tl.int32)
    negative = scaled.to(tl.int32, bitcast=True) < 0
    # Neither 0 nor the last number, 128, has a negative.
    byte = tl.where(negative & (count > 0), tl.minimum(count, 127) + 128, tl.where(negative, 0, count))
    keep(source, tensor, at, mask, value - scale * tl.load(numbers + byte))
    tl.store(form_of(forms, tensor) + 4 + at, byte.to(tl.uint8), mask=mask)


@triton.jit
def _add(table, forms, numbers, out, weight, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, out.lengths, BLOCK)
    form, total = form_of(forms, tensor), before(forms, out, tensor, at, mask)
    for _ in range(forms.messages):
        scale = tl.load(floats(form)) * weight
        byte = tl.load(form + 4 + at, mask=mask, other=0).to(tl.int32)
        total += scale * tl.load(numbers + byte)
        form += forms.stride
    store(out, tensor, at, mask, total)
