"""Selection of the elements of sparse messages, on the device and without waiting for it.

A method marks elements; ``marks`` makes forms of them. The k-th largest absolute value comes from
radix selection on bit patterns, which have the same order as the values: four passes count digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import Optional

import torch
import triton
import triton.language as tl

from ._batch import Batch
from ._launch import BLOCK, FEW_WARPS, launch, over, run
from ._source import FINITE, Source, corrected
from ._tensors import Tensors, block_of, in_kept, load, scratch, store
from .marks import Marks, put_marks

# The shift and the highest value of each digit of a pattern: 8, 8, 8 and 7 bits. The first digit is
# the exponent, which has few common values: programs that count many different digits wait for each
# other's atomic additions.
_DIGITS = ((23, 255), (15, 255), (7, 255), (0, 127))
_COUNTERS = tl.constexpr(256)
# The number of blocks that a program counts before it adds its counts to the shared ones, and the
# elements of these blocks.
_COUNTED_BLOCKS = tl.constexpr(4)
COUNTED = _COUNTED_BLOCKS.value * BLOCK
# Up to this many elements of a block are counted one by one.
_FEW = 32


def correct(batch: Batch, source: Source) -> Tensors:
    """The corrected values in float32. If an element of a tensor is not finite, its length is 0:
    nothing of it is sent, and its residual does not change.

    The result takes the place of the residual, if there is one. Without a residual, values in
    float32 are not copied.
    """
    lengths = torch.where(source.maxima <= FINITE.value, batch.lengths, 0)
    if source.residual is None and source.data.dtype == torch.float32:
        return Tensors(source.data, source.starts, lengths)
    found = scratch(batch) if source.residual is None else in_kept(batch, source.residual)
    found = found._replace(lengths=lengths)
    over(batch, _correct, source, found)
    return found


@triton.jit
def _correct(table, source, to, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, to.lengths, BLOCK)
    store(to, tensor, at, mask, corrected(source, tensor, at, mask))


@triton.jit
def patterns(values, tensor, at, mask):
    """The bit patterns of elements of a tensor, and the patterns of their absolute values; 0 where
    ``mask`` is false."""
    bits = load(values, tensor, at, mask).to(tl.int32, bitcast=True)
    return bits, bits & 0x7FFFFFFF


def how_many(ratio: float, elements: int) -> int:
    """The number of elements that a ratio keeps: rounded to nearest, but at least 1 unless the
    tensor is empty."""
    exact = ratio * elements
    whole = floor(exact)
    return min(max(whole + (exact - whole >= 0.5), min(elements, 1)), elements)


@dataclass
class Ranked:
    """The limits of the k largest elements of each tensor, or of either sign."""

    # The patterns of the k-th largest absolute values, as int32 of the shape (tensors, sides).
    patterns: torch.Tensor
    # The number of elements that equal the limit and are among the k largest.
    ties: torch.Tensor
    # 1, or 2: the elements above 0 and the elements below 0.
    sides: int


def kth_largest(table: torch.Tensor, values: Tensors, ranks: torch.Tensor) -> Ranked:
    """The k-th largest absolute values; ``ranks`` has a k ≥ 1 for each tensor and side. If there
    are fewer elements, it finds the smallest.

    The rows of ``table`` cover the tensors in blocks of ``COUNTED``.
    """
    (tensors, sides), device = ranks.shape, ranks.device
    found = Ranked(torch.zeros((tensors, sides), dtype=torch.int32, device=device), ranks.clone(), sides)
    all_counts = torch.zeros((len(_DIGITS), tensors, sides, _COUNTERS.value), dtype=torch.int64, device=device)
    for (shift, highest), counts in zip(_DIGITS, all_counts):
        launch(
            _count_digits,
            table,
            values,
            found.patterns,
            counts,
            SHIFT=shift,
            HIGHEST=highest,
            SIDES=sides,
            FEW=_FEW,
            BLOCK=BLOCK,
            warps=FEW_WARPS,
        )
        run(_refine, (tensors * sides,), counts, found.patterns, found.ties, SHIFT=shift)
    return found


@triton.jit
def _count_digits(
    table,
    values,
    prefixes,
    counts,
    SHIFT: tl.constexpr,
    HIGHEST: tl.constexpr,
    SIDES: tl.constexpr,
    FEW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    tensor = tl.load(table + 2 * program).to(tl.int64)
    elements = tl.load(values.lengths + tensor)
    first = tl.load(table + 2 * program + 1).to(tl.int64) * (_COUNTED_BLOCKS * BLOCK)
    end = tl.minimum(first + _COUNTED_BLOCKS * BLOCK, elements)
    prefix = tl.load(prefixes + tensor * SIDES)
    row = counts + tensor * (_COUNTERS * SIDES)
    found = tl.zeros([_COUNTERS * SIDES], dtype=tl.int32)
    while first < end:
        at = first + tl.arange(0, BLOCK)
        mask = at < end
        bits, pattern = patterns(values, tensor, at, mask)
        digit = (pattern >> SHIFT) & HIGHEST
        if SIDES == 2:
            below = bits < 0
            own = tl.where(below, tl.load(prefixes + tensor * 2 + 1), prefix)
            counted = mask & (((pattern ^ own) >> SHIFT) <= HIGHEST) & (pattern > 0)
            digit += tl.where(below, _COUNTERS, 0)
        else:
            counted = mask & (((pattern ^ prefix) >> SHIFT) <= HIGHEST)
        # Few elements have the digits found so far, unless many are equal.
        if tl.sum(counted.to(tl.int32), 0) > FEW:
            found += tl.histogram(tl.where(counted, digit, 0), _COUNTERS * SIDES, mask=counted)
        else:
            tl.atomic_add(row + digit, counted.to(tl.int64), mask=counted)
        first += BLOCK
    counters = tl.arange(0, _COUNTERS * SIDES)
    tl.atomic_add(row + counters, found.to(tl.int64), mask=found > 0)


@triton.jit
def _refine(counts, prefixes, ranks, SHIFT: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    counters = tl.arange(0, _COUNTERS)
    count = tl.load(counts + row * _COUNTERS + counters)
    total = tl.sum(count, 0)
    rank = tl.minimum(tl.load(ranks + row), total)
    above = total - tl.cumsum(count, 0)
    here = (above < rank) & (rank <= above + count)
    digit = tl.sum(tl.where(here, counters, 0), 0)
    tl.store(prefixes + row, tl.load(prefixes + row) | (digit << SHIFT))
    tl.store(ranks + row, rank - tl.sum(tl.where(here, above, 0), 0))


def mark_largest(batch: Batch, values: Tensors, ranked: Ranked) -> Marks:
    """Marks the k largest elements; ties go to the lowest positions."""
    marks = Marks(batch, ranked.ties)
    launch(
        _mark_largest, marks.table, values, ranked.patterns, marks.marks, marks.counts, SIDES=ranked.sides, BLOCK=BLOCK
    )
    return marks


@triton.jit
def _mark_largest(table, values, limits, marks, counts, SIDES: tl.constexpr, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, values.lengths, BLOCK)
    bits, pattern = patterns(values, tensor, at, mask)
    if SIDES == 2:
        mask = mask & (pattern > 0)
        side = (bits < 0).to(tl.int32)
        limit = tl.where(side == 1, tl.load(limits + 2 * tensor + 1), tl.load(limits + 2 * tensor))
    else:
        side = bits * 0
        limit = tl.load(limits + tensor)
    mark = tl.where(pattern > limit, 1, tl.where(pattern == limit, 2 + side, 0))
    put_marks(marks, counts, tl.where(mask, mark, 0), SIDES, BLOCK)


def mark_reaching(batch: Batch, values: Tensors, limits: torch.Tensor, quotas: Optional[torch.Tensor] = None) -> Marks:
    """Marks the elements whose patterns reach the limit of their tensor and sign, but no zeros. A
    quota limits the number of a tensor's elements. ``limits`` has the shape (tensors, 2): above 0
    and below 0."""
    marks, mark = Marks(batch, quotas), 1 if quotas is None else 2
    launch(_mark_reaching, marks.table, values, limits, marks.marks, marks.counts, MARK=mark, BLOCK=BLOCK)
    return marks


@triton.jit
def _mark_reaching(table, values, limits, marks, counts, MARK: tl.constexpr, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, values.lengths, BLOCK)
    bits, pattern = patterns(values, tensor, at, mask)
    limit = tl.where(bits < 0, tl.load(limits + 2 * tensor + 1), tl.load(limits + 2 * tensor))
    put_marks(marks, counts, tl.where(mask & (pattern > 0) & (pattern >= limit), MARK, 0), MARK - 1, BLOCK)


def mark_above(batch: Batch, values: Tensors, limit: float) -> Marks:
    """Marks the elements whose absolute values are above a limit."""
    marks = Marks(batch)
    launch(_mark_above, marks.table, values, limit, marks.marks, marks.counts, BLOCK=BLOCK)
    return marks


@triton.jit
def _mark_above(table, values, limit, marks, counts, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, values.lengths, BLOCK)
    value = load(values, tensor, at, mask)
    put_marks(marks, counts, (mask & (tl.abs(value) > limit)).to(tl.int32), 0, BLOCK)
