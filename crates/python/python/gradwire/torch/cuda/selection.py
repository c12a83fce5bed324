"""Selection of the elements of sparse messages, on the device and without waiting for it.

A method marks elements, and ``Marks`` makes forms of the marked ones. Thresholds at a rank come from radix selection on the
bit patterns of absolute values, whose order is that of the values: three passes count digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import Optional

import torch
import triton
import triton.language as tl

from ._batch import Batch, place
from ._kernel import Forms
from ._launch import BLOCK, run, launch, over
from ._source import FINITE, Source, corrected

# The shift and the highest value of each digit of a pattern: 11, 10 and 10 bits.
_DIGITS = ((20, 2047), (10, 1023), (0, 1023))
# Counters of a digit. No finite number has 2047 as its first digit, so that this one is free.
_COUNTERS = tl.constexpr(2048)


@dataclass
class Corrected:
    """The corrected values of a batch in float32."""

    values: torch.Tensor
    # The first element of each tensor.
    starts: torch.Tensor
    # The number of elements of each tensor, 0 if some element is not finite: then nothing of it is sent.
    lengths: torch.Tensor


def correct(batch: Batch, source: Source, maxima: torch.Tensor) -> Corrected:
    """Adds the gradient to the residual; the result takes the residual's place, if there is one. A residual stays as it is
    where some element of the tensor is not finite. Without a residual, values in float32 are not copied."""
    lengths = torch.where(maxima <= FINITE.value, batch.lengths, 0)
    if source.residual is None and source.values.dtype == torch.float32:
        return Corrected(source.values, source.starts, lengths)
    if source.residual is not None:
        found = Corrected(source.residual, batch.kept, lengths)
    else:
        elements = sum(slot.elements for slot in batch.slots)
        scratch = torch.empty(elements, dtype=torch.float32, device=batch.device)
        found = Corrected(scratch, batch.lengths.cumsum(0) - batch.lengths, lengths)
    over(batch, _correct, *source.arguments, batch.kept, lengths, found.values, found.starts, FEEDBACK=source.feedback)
    return found


@triton.jit
def _correct(
    table, values, starts, residual, beta, gamma, kept, lengths, to, to_starts, FEEDBACK: tl.constexpr, BLOCK: tl.constexpr
):
    tensor, at = place(table, BLOCK)
    mask = at < tl.load(lengths + tensor)
    value = corrected(values, starts, residual, beta, gamma, kept, tensor, at, mask, FEEDBACK)
    tl.store(to + tl.load(to_starts + tensor) + at, value, mask=mask)


@triton.jit
def patterns(values, starts, tensor, at, mask):
    """The bit patterns of elements of a tensor, and those of their absolute values; 0 where not ``mask``."""
    bits = tl.load(values + tl.load(starts + tensor) + at, mask=mask, other=0.0).to(tl.int32, bitcast=True)
    return bits, bits & 0x7FFFFFFF


def how_many(ratio: float, elements: int) -> int:
    """The number of elements that a ratio keeps: rounded to nearest, but at least 1 unless the tensor is empty."""
    exact = ratio * elements
    whole = floor(exact)
    return min(max(whole + (exact - whole >= 0.5), min(elements, 1)), elements)


@dataclass
class Ranked:
    """What separates the k largest elements of each tensor, or those of either sign, from the rest."""

    # The patterns of the k-th largest absolute values, as int32 of the shape (tensors, sides).
    patterns: torch.Tensor
    # How many of the elements that equal it are among the k largest.
    ties: torch.Tensor
    # 1, or 2 for the elements above 0 and those below 0.
    sides: int


def kth_largest(table: torch.Tensor, values: Corrected, ranks: torch.Tensor) -> Ranked:
    """The k-th largest absolute values; ``ranks`` has a k ≥ 1 for each tensor and side. Of fewer elements it finds the
    smallest.

    The rows of ``table`` cover the tensors in blocks of ``BLOCK``.
    """
    (tensors, sides), device = ranks.shape, ranks.device
    found = Ranked(torch.zeros((tensors, sides), dtype=torch.int32, device=device), ranks.clone(), sides)
    for shift, highest in _DIGITS:
        counts = torch.zeros((tensors, sides, _COUNTERS.value), dtype=torch.int64, device=device)
        launch(
            _count_digits,
            table,
            values.values,
            values.starts,
            values.lengths,
            found.patterns,
            counts,
            SHIFT=shift,
            HIGHEST=highest,
            SIDES=sides,
            BLOCK=BLOCK,
        )
        run(_refine, (tensors * sides,), counts, found.patterns, found.ties, SHIFT=shift)
    return found


@triton.jit
def _count_digits(
    table,
    values,
    starts,
    lengths,
    prefixes,
    counts,
    SHIFT: tl.constexpr,
    HIGHEST: tl.constexpr,
    SIDES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tensor, at = place(table, BLOCK)
    mask = at < tl.load(lengths + tensor)
    bits, pattern = patterns(values, starts, tensor, at, mask)
    counters = tl.arange(0, _COUNTERS)
    for side in tl.static_range(SIDES):
        row = tensor.to(tl.int64) * SIDES + side
        prefix = tl.load(prefixes + row)
        counted = mask & (((pattern ^ prefix) >> SHIFT) <= HIGHEST)
        if SIDES == 2:
            counted = counted & (pattern > 0) & ((bits < 0) == (side == 1))
        found = tl.histogram(tl.where(counted, (pattern >> SHIFT) & HIGHEST, _COUNTERS - 1), _COUNTERS)
        counted_here = (found > 0) & (counters < _COUNTERS - 1)
        tl.atomic_add(counts + row * _COUNTERS + counters, found.to(tl.int64), mask=counted_here)


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


class Marks:
    """A byte for each element of a batch, in whole blocks: 0 if it is not sent and 1 if it is. Of those marked with 2 the
    first ``quotas[tensor, 0]`` are sent, and of those marked with 3 the first ``quotas[tensor, 1]``."""

    def __init__(self, batch: Batch, quotas: Optional[torch.Tensor] = None) -> None:
        self.batch = batch
        self.table = batch.table(BLOCK)
        self.marks = torch.empty(len(self.table) * BLOCK, dtype=torch.uint8, device=batch.device)
        # The numbers of elements with each mark, by block.
        self.counts = torch.empty((len(self.table), 3), dtype=torch.int64, device=batch.device)
        self.quotas = torch.zeros((len(batch.slots), 2), dtype=torch.int64, device=batch.device)
        if quotas is not None:
            self.quotas[:, : quotas.shape[1]] = quotas

    def plan(self) -> Plan:
        """Finds the places of the marked elements in the forms."""
        tensors = self.table[:, 0].long()
        blocks = (self.batch.lengths + (BLOCK - 1)) // BLOCK
        # The first block of the tensor of each block.
        first = (blocks.cumsum(0) - blocks)[tensors]
        before = self.counts.cumsum(0) - self.counts
        rooms = (self.quotas[tensors] - (before - before[first])[:, 1:]).clamp_(min=0)
        sent = self.counts[:, 0] + torch.minimum(self.counts[:, 1:], rooms).sum(1)
        places = sent.cumsum(0) - sent
        totals = torch.zeros(len(self.batch.slots), dtype=torch.int64, device=self.batch.device)
        return Plan(self, rooms, places - places[first], totals.index_add_(0, tensors, sent))


@dataclass
class Plan:
    """Where marked elements go."""

    marks: Marks
    # How much is left of the quotas before each block.
    rooms: torch.Tensor
    # The index in the form of the first element that a block sends.
    places: torch.Tensor
    # The number of elements that each tensor sends.
    totals: torch.Tensor

    def forms(self, values: Corrected, levels: Optional[torch.Tensor] = None) -> Forms:
        """Pairs of the elements to send, after one level for each tensor, if there are levels. Waits for the device."""
        batch, table = self.marks.batch, self.marks.table
        head = 1 if levels is None else 2
        forms = Forms.empty([4 * head + 8 * total for total in self.totals.tolist()], batch.device)
        at = batch.vector([start for start, _ in forms.ranges], keep=False)
        words = forms.bytes.view(torch.int32)
        if levels is not None:
            words[at // 4] = levels.view(torch.int32)
        words[at // 4 + (head - 1)] = self.totals.to(torch.int32)
        launch(
            _compact,
            table,
            self.marks.marks,
            self.rooms,
            self.places,
            self.totals,
            values.values,
            values.starts,
            words,
            at,
            HEAD=head,
            BLOCK=BLOCK,
        )
        return forms


@triton.jit
def put_marks(marks, counts, mark, BLOCK: tl.constexpr):
    """Stores the marks of this program's block, and counts them."""
    program = tl.program_id(0).to(tl.int64)
    tl.store(marks + program * BLOCK + tl.arange(0, BLOCK), mark.to(tl.uint8))
    for kind in tl.static_range(3):
        tl.store(counts + 3 * program + kind, tl.sum((mark == kind + 1).to(tl.int32), 0).to(tl.int64))


@triton.jit
def _compact(table, marks, rooms, places, totals, values, starts, words, at, HEAD: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    tensor, element = place(table, BLOCK)
    mark = tl.load(marks + program * BLOCK + tl.arange(0, BLOCK)).to(tl.int32)
    sent = mark == 1
    for kind in tl.static_range(2):
        limited = mark == kind + 2
        sent = sent | (limited & (tl.cumsum(limited.to(tl.int32), 0) <= tl.load(rooms + 2 * program + kind)))
    position = words + tl.load(at + tensor) // 4 + HEAD + tl.load(places + program) + tl.cumsum(sent.to(tl.int32), 0) - 1
    value = tl.load(values + tl.load(starts + tensor) + element, mask=sent, other=0.0)
    tl.store(position, element.to(tl.int32), mask=sent)
    tl.store(position + tl.load(totals + tensor), value.to(tl.int32, bitcast=True), mask=sent)


def mark_largest(batch: Batch, values: Corrected, ranked: Ranked) -> Marks:
    """Marks the elements that a rank selects; of equal ones those with the lowest positions."""
    marks = Marks(batch, ranked.ties)
    launch(
        _mark_largest,
        marks.table,
        values.values,
        values.starts,
        values.lengths,
        ranked.patterns,
        marks.marks,
        marks.counts,
        SIDES=ranked.sides,
        BLOCK=BLOCK,
    )
    return marks


@triton.jit
def _mark_largest(table, values, starts, lengths, limits, marks, counts, SIDES: tl.constexpr, BLOCK: tl.constexpr):
    tensor, at = place(table, BLOCK)
    mask = at < tl.load(lengths + tensor)
    bits, pattern = patterns(values, starts, tensor, at, mask)
    if SIDES == 2:
        mask = mask & (pattern > 0)
        side = (bits < 0).to(tl.int32)
        limit = tl.where(side == 1, tl.load(limits + 2 * tensor + 1), tl.load(limits + 2 * tensor))
    else:
        side = bits * 0
        limit = tl.load(limits + tensor)
    mark = tl.where(pattern > limit, 1, tl.where(pattern == limit, 2 + side, 0))
    put_marks(marks, counts, tl.where(mask, mark, 0), BLOCK)


def mark_reaching(batch: Batch, values: Corrected, limits: torch.Tensor, quotas: Optional[torch.Tensor] = None) -> Marks:
    """Marks the elements whose patterns reach the limit of their tensor and sign, but no zeros; of each tensor no more than
    its quota, if there are quotas. ``limits`` has the shape (tensors, 2): above 0 and below 0."""
    marks = Marks(batch, quotas)
    launch(
        _mark_reaching,
        marks.table,
        values.values,
        values.starts,
        values.lengths,
        limits,
        marks.marks,
        marks.counts,
        MARK=1 if quotas is None else 2,
        BLOCK=BLOCK,
    )
    return marks


@triton.jit
def _mark_reaching(table, values, starts, lengths, limits, marks, counts, MARK: tl.constexpr, BLOCK: tl.constexpr):
    tensor, at = place(table, BLOCK)
    mask = at < tl.load(lengths + tensor)
    bits, pattern = patterns(values, starts, tensor, at, mask)
    limit = tl.where(bits < 0, tl.load(limits + 2 * tensor + 1), tl.load(limits + 2 * tensor))
    put_marks(marks, counts, tl.where(mask & (pattern > 0) & (pattern >= limit), MARK, 0), BLOCK)


def mark_above(batch: Batch, values: Corrected, limit: float) -> Marks:
    """Marks the elements whose absolute values are above a limit."""
    marks = Marks(batch)
    launch(
        _mark_above, marks.table, values.values, values.starts, values.lengths, limit, marks.marks, marks.counts, BLOCK=BLOCK
    )
    return marks


@triton.jit
def _mark_above(table, values, starts, lengths, limit, marks, counts, BLOCK: tl.constexpr):
    tensor, at = place(table, BLOCK)
    mask = at < tl.load(lengths + tensor)
    value = tl.load(values + tl.load(starts + tensor) + at, mask=mask, other=0.0)
    put_marks(marks, counts, (mask & (tl.abs(value) > limit)).to(tl.int32), BLOCK)
