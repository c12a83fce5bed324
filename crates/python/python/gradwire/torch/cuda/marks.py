"""Marked elements of a batch, and the forms that send them. The device finds the places in the
forms; the host does not wait for this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

import torch
import triton
import triton.language as tl

from ._batch import Batch, PerBatch, place
from ._forms import Encoded, form_of, words
from ._launch import BLOCK, FEW_WARPS, for_tensors, launch
from ._tensors import Tensors, load

# The number of blocks whose places a program plans at once.
_PLANNED = 1024


# The number of blocks of each tensor, and the first of them in a batch.
_blocks: PerBatch[Tuple[torch.Tensor, torch.Tensor]] = PerBatch(lambda batch: _blocks_of(batch))


def _blocks_of(batch: Batch) -> Tuple[torch.Tensor, torch.Tensor]:
    counts = [triton.cdiv(slot.elements, BLOCK) for slot in batch.slots]
    return batch.vector(counts), batch.firsts(counts)


class Marks:
    """A byte for each element of a batch, in whole blocks: 0 if it is not sent, 1 if it is sent.
    With mark 2, the first ``quotas[tensor, 0]`` elements are sent; with mark 3, the first
    ``quotas[tensor, 1]``."""

    def __init__(self, batch: Batch, quotas: Optional[torch.Tensor] = None) -> None:
        self.batch = batch
        self.table = batch.table(BLOCK)
        self.marks = torch.empty(len(self.table) * BLOCK, dtype=torch.uint8, device=batch.device)
        # The numbers of elements with each mark, by block.
        self.counts = torch.empty((len(self.table), 3), dtype=torch.int32, device=batch.device)
        # The number of marks with quotas: none, mark 2, or marks 2 and 3.
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
    """The places of the marked elements in the forms."""

    marks: Marks
    # The rest of the quotas before each block, limited to the block's elements.
    rooms: torch.Tensor
    # The index in the form of the first element that a block sends.
    places: torch.Tensor
    # The number of elements that each tensor sends.
    totals: torch.Tensor

    def forms(self, values: Tensors, levels: Optional[torch.Tensor] = None) -> Encoded:
        """Pairs of the elements to send, after one level for each tensor, if there are levels.
        Waits for the device."""
        marks, batch = self.marks, self.marks.batch
        head = 1 if levels is None else 2
        encoded = Encoded.empty(batch, [4 * head + 8 * total for total in self.totals.tolist()], keep=False)
        for_tensors(batch, _put_heads, self.totals, levels, encoded.forms)
        launch(
            _compact,
            marks.table,
            marks.marks,
            marks.counts,
            self.rooms,
            self.places,
            self.totals,
            values,
            encoded.forms,
            HEAD=head,
            LIMITED=marks.limited,
            BLOCK=BLOCK,
            warps=FEW_WARPS,
        )
        return encoded


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
    """Plans one tensor. A block sends the elements that are marked with 1, and as many with other
    marks as its rooms allow."""
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
    """The number of marked elements that each block may send, if all together may send ``left``."""
    before = tl.cumsum(count, 0) - count
    return tl.minimum(tl.maximum(left - before, 0), MOST).to(tl.int32)


@triton.jit
def _put_heads(totals, levels, forms):
    tensor = tl.program_id(0)
    head = words(form_of(forms, tensor))
    if levels is not None:
        tl.store(head, tl.load(levels + tensor).to(tl.int32, bitcast=True))
        head += 1
    tl.store(head, tl.load(totals + tensor).to(tl.int32))


@triton.jit
def _compact(
    table,
    marks,
    counts,
    rooms,
    places,
    totals,
    values,
    forms,
    HEAD: tl.constexpr,
    LIMITED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    tensor, at = place(table, BLOCK)
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
    first = words(form_of(forms, tensor)) + HEAD + tl.load(places + program)
    position = first + tl.cumsum(sent.to(tl.int32), 0) - 1
    value = load(values, tensor, at, sent)
    tl.store(position, at.to(tl.int32), mask=sent)
    tl.store(position + tl.load(totals + tensor), value.to(tl.int32, bitcast=True), mask=sent)
