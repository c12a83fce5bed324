"""``adacomp`` and ``local-selection``: the elements near the largest of their bin, or only the
largest.

A form has the scale, which is the mean of the bins' largest absolute values, and pairs for the sent
elements; see ``gradwire::device``. Positions and signs equal the host's. The scale is summed in
float64, but in another order than on the host, so in rare cases its last bit differs. Then the
message decodes to the same values as its form, but differs from the host's message.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
import triton
import triton.language as tl

from ._batch import Batch, PerBatch, place
from ._config import Config, rounded
from ._launch import BLOCK, for_tensors, launch
from ._source import Source
from ._tensors import Tensors, block_of, load
from .marks import Marks, put_marks
from .selection import patterns
from .sparse import Sparse


class _Bins(NamedTuple):
    """For each tensor the index of its first bin in the batch, and the number of elements of a
    bin."""

    starts: torch.Tensor
    lengths: torch.Tensor


class Grid:
    """The bins of a batch, and the grids of kernels that process bins of one length.

    A row of a program's block is a part of a bin: the whole bin, or 4096 elements of a longer bin.
    """

    def __init__(self, batch: Batch, conv: int, fc: int) -> None:
        lengths = [conv if len(slot.shape) > 2 else fc for slot in batch.slots]
        counts = [triton.cdiv(slot.elements, length) for slot, length in zip(batch.slots, lengths)]
        # For each tensor the number of bins.
        self.counts = batch.vector(counts)
        self.bins = _Bins(batch.firsts(counts), batch.vector(lengths))
        self.all = sum(counts)
        # Whether the place of an element in a bin, plus a block, fits in 32 bits.
        self.narrow = max(lengths, default=1) < 1 << 30
        # By the length of bins.
        self.tables: Dict[int, torch.Tensor] = {}
        for length in sorted(set(lengths)):
            width, parts = _parts(length)
            rows: List[Tuple[int, int]] = []
            for tensor, count in enumerate(counts):
                if lengths[tensor] == length:
                    rows.extend((tensor, block) for block in range(triton.cdiv(count * parts, BLOCK // width)))
            if rows:
                self.tables[length] = batch.moved(torch.tensor(rows, dtype=torch.int32, device="cpu"))


def _parts(length: int) -> Tuple[int, int]:
    """The width of a row, and the number of rows for a bin."""
    width = min(triton.next_power_of_2(length), BLOCK)
    return width, triton.cdiv(length, width)


class Bins(Sparse):
    """A compressor that selects elements by bin."""

    levels = 1

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        conv, fc = config.whole("conv"), config.whole("fc")
        self._grids: PerBatch[Grid] = PerBatch(lambda batch: Grid(batch, conv, fc))

    def mark(self, batch: Batch, source: Source, values: Tensors, step: int) -> Tuple[Marks, Optional[torch.Tensor]]:
        grid = self._grids(batch)
        largest = torch.zeros(grid.all, dtype=torch.int32, device=batch.device)
        _for_bins(_largest, grid, values, largest)
        scales = torch.empty(len(batch.slots), dtype=torch.float32, device=batch.device)
        for_tensors(batch, _means, largest, grid.bins, grid.counts, scales, BLOCK=BLOCK)
        marks = Marks(batch)
        if len(marks.table):
            self.choose(source, values, grid, largest, marks)
        return marks, scales

    def choose(self, source: Source, values: Tensors, grid: Grid, largest: torch.Tensor, marks: Marks) -> None:
        """Marks elements. ``largest`` has the pattern of the largest absolute value of each bin."""
        raise NotImplementedError


class AdaComp(Bins):
    """Sends the elements whose absolute value, after adding a multiple of the gradient, reaches the
    largest of the bin."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._factor = torch.tensor(config.real("factor"), dtype=torch.float32, device="cpu")

    def choose(self, source: Source, values: Tensors, grid: Grid, largest: torch.Tensor, marks: Marks) -> None:
        weight = float((self._factor - 1) * rounded(source.gamma))
        out = marks.marks, marks.counts
        launch(_mark_near, marks.table, source, weight, values, grid.bins, largest, *out, NARROW=grid.narrow, BLOCK=BLOCK)


class LocalSelection(Bins):
    """Sends the first of the largest elements of each bin."""

    def choose(self, source: Source, values: Tensors, grid: Grid, largest: torch.Tensor, marks: Marks) -> None:
        firsts = torch.full_like(largest, 0x7FFFFFFF)
        _for_bins(_firsts, grid, values, largest, firsts)
        out = marks.marks, marks.counts
        launch(_mark_firsts, marks.table, values.lengths, grid.bins, firsts, *out, NARROW=grid.narrow, BLOCK=BLOCK)


def _for_bins(kernel: Any, grid: Grid, values: Tensors, *by_bin: torch.Tensor) -> None:
    """Runs a kernel over the bins of each length; ``by_bin`` are arrays with a number for each
    bin."""
    for length, table in grid.tables.items():
        width, parts = _parts(length)
        launch(kernel, table, values, grid.bins, *by_bin, length, parts, WIDTH=width, ROWS=BLOCK // width, warps=4)


@triton.jit
def _rows(table, values, length, parts, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """The tensor of this program; the bin of each row and whether there is one; and for each
    element its index in the bin, whether there is one, and the pattern of its absolute value."""
    tensor, row = place(table, ROWS)
    own_bin = row // parts
    index = ((row % parts) * WIDTH)[:, None] + tl.arange(0, WIDTH)[None, :]
    element = (own_bin * length)[:, None] + index
    elements = tl.load(values.lengths + tensor)
    mask = (index < length) & (element < elements)
    _, pattern = patterns(values, tensor, element, mask)
    return tensor, own_bin, own_bin * length < elements, index, mask, pattern


@triton.jit
def _largest(table, values, bins, largest, length, parts, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    tensor, own_bin, exists, _, _, pattern = _rows(table, values, length, parts, WIDTH, ROWS)
    tl.atomic_max(largest + tl.load(bins.starts + tensor) + own_bin, tl.max(pattern, 1), mask=exists)


@triton.jit
def _firsts(table, values, bins, largest, firsts, length, parts, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    tensor, own_bin, exists, index, mask, pattern = _rows(table, values, length, parts, WIDTH, ROWS)
    at = tl.load(bins.starts + tensor) + own_bin
    limit = tl.load(largest + at, mask=exists, other=0)[:, None]
    reaching = mask & (pattern > 0) & (pattern == limit)
    first = tl.min(tl.where(reaching, index, 0x7FFFFFFF), 1).to(tl.int32)
    tl.atomic_min(firsts + at, first, mask=exists)


@triton.jit
def _means(largest, bins, counts, scales, BLOCK: tl.constexpr):
    tensor = tl.program_id(0)
    start, count = tl.load(bins.starts + tensor), tl.load(counts + tensor)
    # The order is fixed, so a step can be repeated.
    sums = tl.zeros([BLOCK], dtype=tl.float64)
    at = start * 0
    while at < count:
        lane = at + tl.arange(0, BLOCK)
        bits = tl.load(largest + start + lane, mask=lane < count, other=0)
        sums += bits.to(tl.float32, bitcast=True).to(tl.float64)
        at += BLOCK
    tl.store(scales + tensor, (tl.sum(sums, 0) / tl.maximum(count, 1).to(tl.float64)).to(tl.float32))


@triton.jit
def _bin_of(table, tensor, mask, bins, NARROW: tl.constexpr, BLOCK: tl.constexpr):
    """The bin of each element of this program's block, and the index of the element in the bin."""
    length = tl.load(bins.lengths + tensor)
    start = tl.load(table + 2 * tl.program_id(0).to(tl.int64) + 1).to(tl.int64) * BLOCK
    first = tl.load(bins.starts + tensor) + start // length
    # Elements from the beginning of the first bin. Divisions of 64 bits are slow.
    at = start % length + tl.arange(0, BLOCK)
    if NARROW:
        at = at.to(tl.int32)
        length = length.to(tl.int32)
    return first + tl.where(mask, at // length, 0), at % length


@triton.jit
def _mark_near(
    table, source, weight, values, bins, largest, marks, counts, NARROW: tl.constexpr, BLOCK: tl.constexpr
):
    tensor, at, mask = block_of(table, values.lengths, BLOCK)
    own_bin, _ = _bin_of(table, tensor, mask, bins, NARROW, BLOCK)
    limit = tl.load(largest + own_bin, mask=mask, other=0).to(tl.float32, bitcast=True)
    value = load(values, tensor, at, mask)
    latest = load(source, tensor, at, mask).to(tl.float32)
    near = (value != 0.0) & (tl.abs(value + latest * weight) >= limit)
    put_marks(marks, counts, (mask & near).to(tl.int32), 0, BLOCK)


@triton.jit
def _mark_firsts(table, lengths, bins, firsts, marks, counts, NARROW: tl.constexpr, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, lengths, BLOCK)
    own_bin, index = _bin_of(table, tensor, mask, bins, NARROW, BLOCK)
    put_marks(marks, counts, (mask & (tl.load(firsts + own_bin, mask=mask, other=-1) == index)).to(tl.int32), 0, BLOCK)
