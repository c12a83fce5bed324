"""``int8`` and ``qsgd``: evenly spaced levels.

The form of ``int8`` is the message: the step as float32 and a signed byte for each element. The
form of ``qsgd`` is the step of each bucket as float32, then level + s of each element; see
``gradwire::device``.

Messages equal the host's, byte for byte, unless ``qsgd`` has the Euclidean norm. That norm is the
root of a sum in float64, which the host adds in another order. So the last bit of a step may
differ, and so may the level of an element whose distance from it equals its random draw. Messages
decode to the same bits as on the host.
"""

from __future__ import annotations

from typing import Optional, Tuple

import torch
import triton
import triton.language as tl

from ._batch import Batch, PerBatch, at_least_one, place
from ._config import Config
from ._forms import Forms, before, floats, form_of, put_first
from ._kernel import Dense
from ._launch import BLOCK, FEW_WARPS, launch, over
from ._philox import rounding
from ._repeated import permanent
from ._source import LARGEST, Source, corrected, is_finite, keep, largest
from ._symbols import bytes_of, put_block, take, width_of
from ._tensors import block_of, in_bucket, store

# The longest bucket whose norm one program computes.
LONGEST = 1 << 16


class Int8(Dense):
    """Levels from −127 to 127."""

    def form_bytes(self, elements: int) -> int:
        return 4 + elements

    def encode(self, batch: Batch, source: Source, forms: Forms, step: int) -> None:
        over(batch, _int8, source, forms, units=at_least_one)

    def add(self, batch: Batch, forms: Forms, out: torch.Tensor, weight: float, step: int, rank: int) -> None:
        over(batch, _int8_add, forms, in_bucket(batch, out), weight)


def qsgd(config: Config) -> Optional[Qsgd]:
    """The kernels for buckets that one program can read."""
    return Qsgd(config) if 0 < config.whole("bucket") <= LONGEST else None


class Qsgd(Dense):
    """QSGD without its Elias and Huffman codes, which the host applies."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._s = config.whole("s")
        self._bucket = config.whole("bucket")
        self._width = width_of(2 * self._s + 1)
        self._starts = PerBatch(self._starts_of)

    def form_bytes(self, elements: int) -> int:
        return 4 * self._buckets_of(elements) + bytes_of(elements, self._width)

    def encode(self, batch: Batch, source: Source, forms: Forms, step: int) -> None:
        columns = min(triton.next_power_of_2(self._bucket), BLOCK)
        rows = BLOCK // columns
        starts, inverses = self._starts(batch)
        launch(
            _qsgd_steps,
            batch.table(rows, self._buckets_of),
            source,
            self._s,
            forms,
            inverses,
            starts,
            BUCKET=self._bucket,
            EUCLIDEAN=self.config.word("norm") == "2",
            ROWS=rows,
            COLUMNS=columns,
            warps=4,
        )
        over(
            batch,
            _qsgd,
            *self.draws(batch, step),
            source,
            self._s,
            forms,
            inverses,
            starts,
            BUCKET=self._bucket,
            WIDTH=self._width,
            warps=FEW_WARPS,
        )

    def add(self, batch: Batch, forms: Forms, out: torch.Tensor, weight: float, step: int, rank: int) -> None:
        sums = in_bucket(batch, out)
        over(batch, _qsgd_add, forms, sums, weight, self._s, BUCKET=self._bucket, WIDTH=self._width)

    def _buckets_of(self, elements: int) -> int:
        return triton.cdiv(elements, self._bucket)

    def _starts_of(self, batch: Batch) -> Tuple[torch.Tensor, torch.Tensor]:
        """The first bucket of each tensor among the buckets of a batch, and room for the inverse of
        each bucket's step. Reading it is faster than a division for each element."""
        counts = [self._buckets_of(slot.elements) for slot in batch.slots]
        return batch.firsts(counts), permanent(torch.empty(sum(counts), dtype=torch.float32, device=batch.device))


@triton.jit
def invertible(value):
    """A number and its inverse; both 0 if the inverse would overflow."""
    inverse = tl.div_rn(1.0, value)
    finite = inverse <= LARGEST
    return tl.where(finite, value, 0.0), tl.where(finite, inverse, 0.0)


@triton.jit
def step_to(most, levels):
    """The step at which ``levels`` steps reach ``most`` without overflowing, and its inverse."""
    step = tl.div_rn(most, levels)
    # The next number towards zero; a step that overflows is not 0.
    less = (step.to(tl.int32, bitcast=True) - 1).to(tl.float32, bitcast=True)
    return invertible(tl.where(step * levels <= LARGEST, step, less))


@triton.jit
def _int8(table, source, forms, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, source.lengths, BLOCK)
    step, inverse = step_to(largest(source, tensor), 127.0)
    put_first(forms, tensor, table, step)
    value = corrected(source, tensor, at, mask)
    scaled = tl.minimum(tl.maximum(value * inverse, -127.0), 127.0)
    # The sum is a whole number, rounded to even, in units of its last bit.
    rounded = scaled + 12582912.0
    keep(source, tensor, at, mask, value - (rounded - 12582912.0) * step)
    tl.store(form_of(forms, tensor) + 4 + at, rounded.to(tl.int32, bitcast=True).to(tl.uint8), mask=mask)


@triton.jit
def _int8_add(table, forms, out, weight, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, out.lengths, BLOCK)
    form, total = form_of(forms, tensor), before(forms, out, tensor, at, mask)
    for _ in range(forms.messages):
        step = tl.load(floats(form)) * weight
        level = tl.load(form + 4 + at, mask=mask, other=0).to(tl.int8, bitcast=True).to(tl.float32)
        total += step * level
        form += forms.stride
    store(out, tensor, at, mask, total)


@triton.jit(do_not_specialize=["s"])
def _qsgd_steps(
    table,
    source,
    s,
    forms,
    inverses,
    first,
    BUCKET: tl.constexpr,
    EUCLIDEAN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    tensor, bucket = place(table, ROWS)
    elements = tl.load(source.lengths + tensor)
    squares = tl.zeros([ROWS], dtype=tl.float64)
    most = tl.zeros([ROWS], dtype=tl.float32)
    for column_start in range(0, BUCKET, COLUMNS):
        column = column_start + tl.arange(0, COLUMNS)
        at = bucket[:, None] * BUCKET + column[None, :]
        mask = (column[None, :] < BUCKET) & (at < elements)
        value = corrected(source, tensor, at, mask)
        if EUCLIDEAN:
            wide = value.to(tl.float64)
            squares += tl.sum(wide * wide, 1)
        else:
            most = tl.maximum(most, tl.max(tl.abs(value), 1))
    if EUCLIDEAN:
        most = tl.minimum(tl.sqrt(squares), LARGEST).to(tl.float32)
    step, inverse = step_to(tl.where(is_finite(source, tensor), most, 0.0), s.to(tl.float32))
    mask = bucket < (elements + BUCKET - 1) // BUCKET
    tl.store(floats(form_of(forms, tensor)) + bucket, step, mask=mask)
    tl.store(inverses + tl.load(first + tensor) + bucket, inverse, mask=mask)


@triton.jit(do_not_specialize=["rank", "step", "s"])
def _qsgd(
    table,
    keys,
    rank,
    step,
    source,
    s,
    forms,
    inverses,
    first,
    BUCKET: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tensor, at, mask = block_of(table, source.lengths, BLOCK)
    elements = tl.load(source.lengths + tensor)
    form = form_of(forms, tensor)
    bucket = at // BUCKET
    length = tl.load(floats(form) + bucket, mask=mask, other=0.0)
    inverse = tl.load(inverses + tl.load(first + tensor) + bucket, mask=mask, other=0.0)
    value = corrected(source, tensor, at, mask)
    most = s.to(tl.float32)
    scaled = tl.minimum(tl.maximum(value * inverse, -most), most)
    words = rounding(tl.load(keys + tensor), rank, step, table, BLOCK) >> 8
    # In units of 2⁻²⁴, counted from the level -128: whole numbers, as on the host.
    fixed = (tl.minimum(tl.maximum(scaled, -128.0), 127.0) * 16777216.0).to(tl.int32).to(tl.int64)
    few = ((fixed + (128 << 24) + 0xFFFFFF - words.to(tl.int64)) >> 24).to(tl.int32).to(tl.float32) - 128.0
    nearest = (scaled + 12582912.0) - 12582912.0
    below = tl.where(nearest > scaled, nearest - 1.0, nearest)
    chance = words.to(tl.int32).to(tl.float32) * 5.9604644775390625e-08
    many = tl.where(chance < scaled - below, below + 1.0, below)
    level = tl.where(s <= 127, few, many)
    keep(source, tensor, at, mask, value - level * length)
    symbols = tl.where(mask, (level + most).to(tl.int32), 0)
    # An element that is not finite may have no level.
    symbols = tl.minimum(tl.maximum(symbols, 0), 2 * s)
    buckets = (elements + BUCKET - 1) // BUCKET
    put_block(form + 4 * buckets, table, symbols, elements, WIDTH, BLOCK)


@triton.jit(do_not_specialize=["s"])
def _qsgd_add(table, forms, out, weight, s, BUCKET: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, out.lengths, BLOCK)
    form, total = form_of(forms, tensor), before(forms, out, tensor, at, mask)
    buckets = (tl.load(out.lengths + tensor) + BUCKET - 1) // BUCKET
    for _ in range(forms.messages):
        step = tl.load(floats(form) + at // BUCKET, mask=mask, other=0.0) * weight
        level = take(form + 4 * buckets, at, mask, WIDTH).to(tl.float32) - s.to(tl.float32)
        total += step * level
        form += forms.stride
    store(out, tensor, at, mask, total)
