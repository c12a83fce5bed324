"""Selection of the elements of sparse messages, on the device and without waiting for it.

A method marks elements, and ``Marks`` makes forms of the marked ones. Thresholds at a rank come from radix selection on the
bit patterns of absolute values, whose order is that of the values: four passes count digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import Optional, Tuple

import torch
import triton
import triton.language as tl

from ._batch import Batch, PerBatch, place
from ._kernel import Forms
from ._launch import BLOCK, FEW_WARPS, for_tensors, launch, over, run
from ._source import FINITE, Source, corrected

# The shift and the highest value of each digit of a pattern: 8, 8, 8 and 7 bits. The first is the exponent, of which few are
# common: programs that count many different digits wait for each other's atomic additions.
_DIGITS = ((23, 255), (15, 255), (7, 255), (0, 127))
_COUNTERS = tl.constexpr(256)
# Blocks that a program counts before it adds its counts to those of others, and the elements of these.
_COUNTED_BLOCKS = tl.constexpr(4)
COUNTED = _COUNTED_BLOCKS.value * BLOCK
# Elements of a block that are rather counted one by one.
_FEW = 32
# Blocks of which a program plans the places at once.
_PLANNED = 1024


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

    The rows of ``table`` cover the tensors in blocks of ``COUNTED``.
    """
    (tensors, sides), device = ranks.shape, ranks.device
    found = Ranked(torch.zeros((tensors, sides), dtype=torch.int32, device=device), ranks.clone(), sides)
    all_counts = torch.zeros((len(_DIGITS), tensors, sides, _COUNTERS.value), dtype=torch.int64, device=device)
    for (shift, highest), counts in zip(_DIGITS, all_counts):
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
    starts,
    lengths,
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
    elements = tl.load(lengths + tensor)
    first = tl.load(table + 2 * program + 1).to(tl.int64) * (_COUNTED_BLOCKS * BLOCK)
    end = tl.minimum(first + _COUNTED_BLOCKS * BLOCK, elements)
    prefix = tl.load(prefixes + tensor * SIDES)
    row = counts + tensor * (_COUNTERS * SIDES)
    found = tl.zeros([_COUNTERS * SIDES], dtype=tl.int32)
    while first < end:
        at = first + tl.arange(0, BLOCK)
        mask = at < end
        bits, pattern = patterns(values, starts, tensor, at, mask)
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


# The number of blocks of each tensor, and the first of them in a batch.
_blocks: PerBatch[Tuple[torch.Tensor, torch.Tensor]] = PerBatch(lambda batch: _blocks_of(batch))


def _blocks_of(batch: Batch) -> Tuple[torch.Tensor, torch.Tensor]:
    counts = [triton.cdiv(slot.elements, BLOCK) for slot in batch.slots]
    return batch.vector(counts), batch.vector([sum(counts[:at]) for at in range(len(counts))])


class Marks:
    """A byte for each element of a batch, in whole blocks: 0 if it is not sent and 1 if it is. Of those marked with 2 the
    first ``quotas[tensor, 0]`` are sent, and of those marked with 3 the first ``quotas[tensor, 1]``."""

    def __init__(self, batch: Batch, quotas: Optional[torch.Tensor] = None) -> None:
        self.batch = batch
        self.table = batch.table(BLOCK)
        self.marks = torch.empty(len(self.table) * BLOCK, dtype=torch.uint8, device=batch.device)
        # The numbers of elements with each mark, by block.
        self.counts = torch.empty((len(self.table), 3), dtype=torch.int32, device=batch.device)
        # The marks that have quotas: none, 2, or 2 and 3.
        self.limited = 0 if quotas is None else quotas.shape[1]
        self.quotas = self.counts if quotas is None else quotas

    def plan(self) -> Plan:
        """Finds the places of the marked elements in the forms."""
        blocks, firsts = _blocks(self.batch)
        plan = Plan(
            self,
            rooms=torch.empty((len(self.table), 2), dtype=torch.int32, device=self.batch.device),
            places=torch.empty(len(self.table), dtype=torch.int64, device=self.batch.device),
            totals=torch.empty(len(self.batch.slots), dtype=torch.int64, device=self.batch.device),
        )
        for_tensors(
            self.batch,
            _plan,
            self.counts,
            self.quotas,
            blocks,
            firsts,
            plan.rooms,
            plan.places,
            plan.totals,
            LIMITED=self.limited,
            MOST=BLOCK,
            CHUNK=_PLANNED,
        )
        return plan


@dataclass
class Plan:
    """Where marked elements go."""

    marks: Marks
    # How much is left of the quotas before each block, no more than its elements.
    rooms: torch.Tensor
    # The index in the form of the first element that a block sends.
    places: torch.Tensor
    # The number of elements that each tensor sends.
    totals: torch.Tensor

    def forms(self, values: Corrected, levels: Optional[torch.Tensor] = None) -> Forms:
        """Pairs of the elements to send, after one level for each tensor, if there are levels. Waits for the device."""
        marks, batch = self.marks, self.marks.batch
        head = 1 if levels is None else 2
        forms = Forms.empty([4 * head + 8 * total for total in self.totals.tolist()], batch.device)
        at = batch.vector([start for start, _ in forms.ranges], keep=False)
        words = forms.bytes.view(torch.int32)
        for_tensors(batch, _put_heads, self.totals, self.totals if levels is None else levels, words, at, HEAD=head)
        launch(
            _compact,
            marks.table,
            marks.marks,
            marks.counts,
            self.rooms,
            self.places,
            self.totals,
            values.values,
            values.starts,
            words,
            at,
            HEAD=head,
            LIMITED=marks.limited,
            BLOCK=BLOCK,
            warps=FEW_WARPS,
        )
        return forms


@triton.jit
def put_marks(marks, counts, mark, LIMITED: tl.constexpr, BLOCK: tl.constexpr):
    """Stores the marks of this program's block, and counts them."""
    program = tl.program_id(0).to(tl.int64)
    tl.store(marks + program * BLOCK + tl.arange(0, BLOCK), mark.to(tl.uint8))
    for kind in tl.static_range(1 + LIMITED):
        tl.store(counts + 3 * program + kind, tl.sum((mark == kind + 1).to(tl.int32), 0))


@triton.jit
def _plan(
    counts,
    quotas,
    blocks,
    firsts,
    rooms,
    places,
    totals,
    LIMITED: tl.constexpr,
    MOST: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Plans one tensor. A block sends what is marked with 1, and of the other marks what its rooms allow."""
    tensor = tl.program_id(0)
    many, first = tl.load(blocks + tensor), tl.load(firsts + tensor)
    total = first * 0
    before_2 = first * 0
    before_3 = first * 0
    for start in range(0, many, CHUNK):
        block = start + tl.arange(0, CHUNK)
        mask = block < many
        row = first + block
        sent = tl.load(counts + 3 * row, mask=mask, other=0)
        if LIMITED >= 1:
            count = tl.load(counts + 3 * row + 1, mask=mask, other=0)
            room = _room(tl.load(quotas + LIMITED * tensor) - before_2, count, MOST)
            tl.store(rooms + 2 * row, room, mask=mask)
            sent += tl.minimum(count, room)
            before_2 += tl.sum(count, 0)
        if LIMITED == 2:
            count = tl.load(counts + 3 * row + 2, mask=mask, other=0)
            room = _room(tl.load(quotas + 2 * tensor + 1) - before_3, count, MOST)
            tl.store(rooms + 2 * row + 1, room, mask=mask)
            sent += tl.minimum(count, room)
            before_3 += tl.sum(count, 0)
        tl.store(places + row, total + tl.cumsum(sent, 0) - sent, mask=mask)
        total += tl.sum(sent, 0)
    tl.store(totals + tensor, total)


@triton.jit
def _room(left, count, MOST: tl.constexpr):
    """How many marked elements each of some blocks may send, of ``left`` that all may send."""
    before = tl.cumsum(count, 0) - count
    return tl.minimum(tl.maximum(left - before, 0), MOST).to(tl.int32)


@triton.jit
def _put_heads(totals, levels, words, at, HEAD: tl.constexpr):
    tensor = tl.program_id(0)
    form = words + tl.load(at + tensor) // 4
    if HEAD == 2:
        tl.store(form, tl.load(levels + tensor).to(tl.int32, bitcast=True))
    tl.store(form + HEAD - 1, tl.load(totals + tensor).to(tl.int32))


@triton.jit
def _compact(
    table,
    marks,
    counts,
    rooms,
    places,
    totals,
    values,
    starts,
    words,
    at,
    HEAD: tl.constexpr,
    LIMITED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    tensor, element = place(table, BLOCK)
    mark = tl.load(marks + program * BLOCK + tl.arange(0, BLOCK)).to(tl.int32)
    sent = mark == 1
    for kind in tl.static_range(LIMITED):
        limited = mark == kind + 2
        room = tl.load(rooms + 2 * program + kind)
        # Mostly all or none of them are sent.
        if room >= tl.load(counts + 3 * program + 1 + kind):
            sent = sent | limited
        elif room > 0:
            sent = sent | (limited & (tl.cumsum(limited.to(tl.int32), 0) <= room))
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
    put_marks(marks, counts, tl.where(mask, mark, 0), SIDES, BLOCK)


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
    put_marks(marks, counts, tl.where(mask & (pattern > 0) & (pattern >= limit), MARK, 0), MARK - 1, BLOCK)


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
    put_marks(marks, counts, (mask & (tl.abs(value) > limit)).to(tl.int32), 0, BLOCK)
