"""``8bit``: the nearest of 256 numbers, relative to the largest absolute value.

A form is that value as float32 and a byte for each element; see ``gradwire::device``. Messages are the host's, byte for byte.
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
from ._batch import Batch, PerBatch, place
from ._config import Config
from ._kernel import Dense
from ._launch import MANY_WARPS, for_tensors, over
from ._source import Source, add_at, corrected, keep, largest
from .levels import invertible


def _numbers() -> torch.Tensor:
    """What each byte stands for. The host's decoder tells it: of a message with the scale 1 and all bytes."""
    numbers = torch.zeros(256, dtype=torch.float32, device="cpu")
    message = struct.pack("<f", 1.0) + bytes(range(256))
    _core.Codec("8bit", 0, 0, 1).decode_add("", (256,), 0, 0, message, 1.0, buffer(numbers))
    return numbers


@dataclass
class Tables:
    """How kernels find the byte of a magnitude: the number of limits that it reaches.

    The limits from which on the next number is nearer ascend; the last one is between the bytes 127 and 128. Magnitudes whose
    bits above ``shift`` are the same are a cell, which is so small that it has one limit at most.
    """

    # What each byte stands for.
    numbers: torch.Tensor
    # The limits, and infinity.
    limits: torch.Tensor
    # How many limits are at or below the least magnitude of each cell. The first cell has all that is less, the last what is more.
    reached: torch.Tensor
    # The bits of the first cell, without those that cells ignore.
    first: int
    shift: int


def _tables(batch: Batch) -> Tables:
    numbers = _numbers()
    magnitudes = numbers[:129].double()
    limits = torch.cat([((magnitudes[:-1] + magnitudes[1:]) / 2).float(), torch.full((1,), math.inf, device="cpu")])
    patterns = limits[:-1].view(torch.int32).long()
    for shift in range(22, 0, -1):
        cells = patterns >> shift
        if len(cells.unique()) == len(cells):
            break
    first, last = int(cells[0]), int(cells[-1]) + 1
    edges = torch.arange(first, last + 1, device="cpu") << shift
    reached = torch.searchsorted(patterns, edges, right=True)
    reached[0] = 0
    return Tables(batch.moved(numbers), batch.moved(limits), batch.moved(reached.to(torch.int32)), first, shift)


class DynamicTree(Dense):
    """The dynamic tree without its Huffman code, which is the host's."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._tables = PerBatch(_tables)

    def form_bytes(self, elements: int) -> int:
        return 4 + elements

    def encode(
        self, batch: Batch, source: Source, maxima: torch.Tensor, forms: torch.Tensor, at: torch.Tensor, step: int
    ) -> None:
        tables = self._tables(batch)
        for_tensors(batch, _scale, maxima, forms.view(torch.float32), at)
        over(
            batch,
            _encode,
            *source.of(batch),
            maxima,
            tables.numbers,
            tables.limits,
            tables.reached,
            forms,
            at,
            FIRST=tables.first,
            CELLS=len(tables.reached),
            SHIFT=tables.shift,
            FEEDBACK=source.feedback,
            warps=MANY_WARPS,
        )

    def add(
        self, batch: Batch, forms: torch.Tensor, at: torch.Tensor, out: torch.Tensor, weight: float, step: int, rank: int
    ) -> None:
        over(batch, _add, forms, at, batch.starts, batch.lengths, self._tables(batch).numbers, out, weight)


@triton.jit
def _scale(maxima, forms, at):
    tensor = tl.program_id(0)
    scale, _ = invertible(largest(maxima, tensor))
    tl.store(forms + tl.load(at + tensor) // 4, scale)


@triton.jit
def _encode(
    table,
    values,
    starts,
    residual,
    beta,
    gamma,
    kept,
    lengths,
    maxima,
    numbers,
    limits,
    reached,
    forms,
    at,
    FIRST: tl.constexpr,
    CELLS: tl.constexpr,
    SHIFT: tl.constexpr,
    FEEDBACK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tensor, element = place(table, BLOCK)
    elements = tl.load(lengths + tensor)
    mask = element < elements
    scale, inverse = invertible(largest(maxima, tensor))
    value = corrected(values, starts, residual, beta, gamma, kept, tensor, element, mask, FEEDBACK)
    scaled = value * inverse
    magnitude = tl.abs(scaled)
    cell = (magnitude.to(tl.int32, bitcast=True) >> SHIFT) - FIRST
    count = tl.load(reached + tl.minimum(tl.maximum(cell, 0), CELLS - 1))
    count += (magnitude >= tl.load(limits + count)).to(tl.int32)
    negative = scaled.to(tl.int32, bitcast=True) < 0
    # Neither 0 nor the last number, 128, has a negative.
    byte = tl.where(negative & (count > 0), tl.minimum(count, 127) + 128, tl.where(negative, 0, count))
    left = value - scale * tl.load(numbers + byte)
    keep(residual, kept, tensor, element, mask, maxima, elements, left, FEEDBACK)
    tl.store(forms + tl.load(at + tensor) + 4 + element, byte.to(tl.uint8), mask=mask)


@triton.jit
def _add(table, forms, at, starts, lengths, numbers, out, weight, BLOCK: tl.constexpr):
    tensor, element = place(table, BLOCK)
    mask = element < tl.load(lengths + tensor)
    start = tl.load(at + tensor)
    scale = tl.load((forms + start).to(tl.pointer_type(tl.float32))) * weight
    byte = tl.load(forms + start + 4 + element, mask=mask, other=0).to(tl.int32)
    add_at(out, starts, tensor, element, mask, scale * tl.load(numbers + byte))
