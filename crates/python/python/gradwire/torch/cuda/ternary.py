"""``3lc`` and ``terngrad``: three values, five to a byte.

A form is M as float32 and a byte for five elements; see ``gradwire::device``.

Messages equal the host's, byte for byte, unless ``terngrad`` clips. Then M depends on sums in
float64, which the host adds in another order. So the last bit of M may differ, and so may the trit
of an element whose distance from zero equals its random draw. Messages decode to the same bits as
on the host.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ._batch import Batch, PerBatch, at_least_one, place
from ._config import Config
from ._forms import Forms, before, floats, form_of, put_first
from ._kernel import Dense
from ._launch import BLOCK, FEW_WARPS, MANY_WARPS, for_tensors, over
from ._philox import rounding
from ._repeated import permanent
from ._source import LARGEST, Source, corrected, keep, largest
from ._sums import Sums, room_for, total
from ._tensors import Tensors, block_of, in_bucket, scratch, store


def bytes_of(elements: int) -> int:
    """The number of bytes of a tensor. Byte i has element i of each fifth of the tensor."""
    return triton.cdiv(elements, 5)


def _bytes_or_one(elements: int) -> int:
    return at_least_one(bytes_of(elements))


class _Ternary(Dense):
    """M, and five trits to a byte."""

    def form_bytes(self, elements: int) -> int:
        return 4 + bytes_of(elements)

    def add(self, batch: Batch, forms: Forms, out: torch.Tensor, weight: float, step: int, rank: int) -> None:
        over(batch, _add, forms, in_bucket(batch, out), weight, units=bytes_of, warps=MANY_WARPS)


class ThreeLc(_Ternary):
    """3LC without its zero-run code, which the host applies."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._sparsity = config.real("s")

    def encode(self, batch: Batch, source: Source, forms: Forms, step: int) -> None:
        over(batch, _three_lc, source, self._sparsity, forms, units=_bytes_or_one, warps=MANY_WARPS)


class TernGrad(_Ternary):
    """TernGrad without its zero-run and Huffman codes, which the host applies."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._clip = config.real("clip")
        self._rooms = PerBatch(self._rooms_of)

    def encode(self, batch: Batch, source: Source, forms: Forms, step: int) -> None:
        rooms, limits = self._rooms(batch), None
        if self._clip != 0.0:
            limits = rooms.limits
            over(batch, _moments, source, rooms.moments.sums, warps=4)
            for_tensors(batch, _limit, rooms.moments, rooms.factors, limits, BLOCK=BLOCK)
        draws = self.draws(batch, step)
        over(batch, _terngrad, *draws, source, limits, forms, rooms.trits, units=at_least_one, warps=FEW_WARPS)
        over(batch, _pack, rooms.trits, forms, units=bytes_of, warps=MANY_WARPS)

    def _rooms_of(self, batch: Batch) -> _Rooms:
        # Arguments of kernels would be rounded to float32.
        factors = batch.moved(torch.tensor([self._clip, 1e-12], dtype=torch.float64, device="cpu"))
        limits = torch.empty(len(batch.slots), dtype=torch.float32, device=batch.device)
        rooms = _Rooms(scratch(batch, torch.uint8), room_for(batch, 2), factors, limits)
        for tensor in (*rooms.trits, rooms.moments.sums, rooms.moments.firsts, factors, limits):
            permanent(tensor)
        return rooms


class _Rooms(NamedTuple):
    """Room for what kernels of one step tell each other, and constants."""

    # A byte for each element. Random words are drawn for neighbours together, but a byte of a form
    # has an element of each fifth of the tensor. So one kernel stores the trits, and another one
    # packs them.
    trits: Tensors
    moments: Sums
    # The number of deviations at which a tensor is clipped, and the part of the mean square below
    # which a variance may be a rounding error.
    factors: torch.Tensor
    # The value at which each tensor is clipped; 0 if its deviation may be a rounding error.
    limits: torch.Tensor


@triton.jit
def _limit(sums, factors, limits, BLOCK: tl.constexpr):
    tensor = tl.program_id(0)
    count = tl.maximum(tl.load(sums.lengths + tensor), 1).to(tl.float64)
    mean, square = total(sums, tensor, 0, 2, BLOCK) / count, total(sums, tensor, 1, 2, BLOCK) / count
    variance = square - mean * mean
    variance = tl.where(variance > tl.load(factors + 1) * square, variance, 0.0)
    tl.store(limits + tensor, (tl.load(factors) * tl.sqrt(variance)).to(tl.float32))


@triton.jit
def _moments(table, source, sums, BLOCK: tl.constexpr):
    """The sum of the elements, and the sum of their squares."""
    tensor, at, mask = block_of(table, source.lengths, BLOCK)
    value = corrected(source, tensor, at, mask).to(tl.float64)
    row = sums + 2 * tl.program_id(0).to(tl.int64)
    tl.store(row, tl.sum(value, 0))
    tl.store(row + 1, tl.sum(value * value, 0))


@triton.jit
def _fifth(byte, part, elements):
    """The elements of some bytes in one fifth of a tensor, and a mask that is false beyond the end
    of the fifth or of the tensor."""
    length = (elements + 4) // 5
    at = part * length + byte
    return at, (byte < length) & (at < elements)


@triton.jit
def _three_lc(table, source, sparsity, forms, BLOCK: tl.constexpr):
    tensor, byte = place(table, BLOCK)
    elements = tl.load(source.lengths + tensor)
    form = form_of(forms, tensor)
    scale = tl.minimum(largest(source, tensor) * sparsity, LARGEST)
    put_first(forms, tensor, table, scale)
    half = scale * 0.5
    digits = tl.zeros([BLOCK], dtype=tl.int32)
    for part in tl.static_range(5):
        at, mask = _fifth(byte, part, elements)
        # Behind the end of the tensor there are zeros.
        value = corrected(source, tensor, at, mask)
        above, below = value > half, value < -half
        left = tl.where(above, value - scale, tl.where(below, value + scale, value))
        keep(source, tensor, at, mask, left)
        digits = 3 * digits + 1 + above.to(tl.int32) - below.to(tl.int32)
    tl.store(form + 4 + byte, digits.to(tl.uint8), mask=byte < (elements + 4) // 5)


@triton.jit(do_not_specialize=["rank", "step"])
def _terngrad(table, keys, rank, step, source, limits, forms, trits, BLOCK: tl.constexpr):
    """Stores each element's trit plus one in a byte."""
    tensor, at, mask = block_of(table, source.lengths, BLOCK)
    scale = largest(source, tensor)
    if limits is not None:
        limit = tl.load(limits + tensor)
        # The deviation of a constant tensor is 0, but its elements are sent all the same.
        scale = tl.where(limit > 0.0, tl.minimum(limit, scale), scale)
    put_first(forms, tensor, table, scale)
    value = corrected(source, tensor, at, mask)
    words = rounding(tl.load(keys + tensor), rank, step, table, BLOCK)
    chance = (words >> 8).to(tl.int32).to(tl.float32) * 5.9604644775390625e-08
    threshold = chance * scale
    trit = (value > threshold).to(tl.int32) - (value < -threshold).to(tl.int32)
    keep(source, tensor, at, mask, value - scale * trit.to(tl.float32))
    store(trits, tensor, at, mask, (trit + 1).to(tl.uint8))


@triton.jit
def _pack(table, trits, forms, BLOCK: tl.constexpr):
    tensor, byte = place(table, BLOCK)
    elements = tl.load(trits.lengths + tensor)
    start = trits.data + tl.load(trits.starts + tensor)
    digits = tl.zeros([BLOCK], dtype=tl.int32)
    for part in tl.static_range(5):
        at, mask = _fifth(byte, part, elements)
        # Behind the end of the tensor there are zeros.
        digits = 3 * digits + tl.load(start + at, mask=mask, other=1).to(tl.int32)
    tl.store(form_of(forms, tensor) + 4 + byte, digits.to(tl.uint8), mask=byte < (elements + 4) // 5)


@triton.jit
def _add(table, forms, out, weight, BLOCK: tl.constexpr):
    tensor, byte = place(table, BLOCK)
    elements = tl.load(out.lengths + tensor)
    power = 81
    for part in tl.static_range(5):
        at, mask = _fifth(byte, part, elements)
        form, total = form_of(forms, tensor), before(forms, out, tensor, at, mask)
        for _ in range(forms.messages):
            scale = tl.load(floats(form)) * weight
            digits = tl.load(form + 4 + byte, mask=byte < (elements + 4) // 5, other=121).to(tl.int32)
            trit = (digits // power) % 3 - 1
            total += trit.to(tl.float32) * scale
            form += forms.stride
        store(out, tensor, at, mask, total)
        power = power // 3
