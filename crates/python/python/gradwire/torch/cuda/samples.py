"""Samples of tensors, from which thresholds are estimated: runs of neighbours, the same as on the
host."""

from __future__ import annotations

from typing import Optional, Tuple

import torch
import triton
import triton.language as tl

from ._batch import Batch, place
from ._launch import BLOCK, launch
from ._philox import draw
from ._tensors import Tensors, block_of, load, store
from .selection import COUNTED

RUN = tl.constexpr(16)
# A sample has one in this many elements, but at least the number that its user requires.
_SAMPLED = 256


def size(elements: int, least: int) -> int:
    """The number of elements of a sample; all elements if the tensor has no more."""
    wanted = max(elements // _SAMPLED, least)
    return elements if elements <= wanted else triton.cdiv(wanted, RUN.value) * RUN.value


class Sampler:
    """Takes samples of at least ``least`` elements."""

    def __init__(self, batch: Batch, least: int) -> None:
        sizes = [size(slot.elements, least) for slot in batch.slots]
        self.table = batch.table(BLOCK, lambda elements: size(elements, least))
        # The same in the blocks of ``kth_largest``.
        self.counted = batch.table(COUNTED, lambda elements: size(elements, least))
        self.sizes = batch.vector(sizes)
        self._starts = batch.firsts(sizes)
        self._whole = batch.vector([slot.elements == size for slot, size in zip(batch.slots, sizes)])
        self._all = sum(sizes)

    def take(self, values: Tensors, draws: Optional[Tuple[torch.Tensor, int, int]] = None) -> Tensors:
        """A sample of each tensor; empty if an element of the tensor is not finite. With ``draws``
        (``Kernel.draws``), runs are at random positions; otherwise they are evenly spaced."""
        lengths = torch.where(values.lengths > 0, self.sizes, 0)
        found = Tensors(torch.empty(self._all, dtype=torch.float32, device=lengths.device), self._starts, lengths)
        launch(_take, self.table, *(draws or (None, 0, 0)), values, found, self._whole, BLOCK=BLOCK)
        return found


@triton.jit(do_not_specialize=["rank", "step"])
def _take(table, keys, rank, step, values, sample, whole, BLOCK: tl.constexpr):
    tensor, at = place(table, BLOCK)
    taken = tl.load(sample.lengths + tensor)
    # The number of places in the tensor where a run may begin.
    places = tl.load(values.lengths + tensor) // RUN
    run = at // RUN
    if keys is not None:
        low, high, _, _ = draw(tl.load(keys + tensor), 0, rank, step, run)
        # The upper half of a product of 64 by 64 bits; there are less than 2³² places.
        bound = places.to(tl.uint64)
        first = ((high.to(tl.uint64) * bound + ((low.to(tl.uint64) * bound) >> 32)) >> 32).to(tl.int64)
    else:
        first = run * places // tl.maximum(taken // RUN, 1)
    element = tl.where(tl.load(whole + tensor) != 0, at, first * RUN + at % RUN)
    mask = at < taken
    store(sample, tensor, at, mask, load(values, tensor, element, mask))


def count_signs(table: torch.Tensor, values: Tensors) -> torch.Tensor:
    """The numbers of elements at or above 0, below 0, and above 0, as int64 of the shape (tensors,
    3)."""
    counts = torch.zeros((len(values.lengths), 3), dtype=torch.int64, device=values.lengths.device)
    launch(_count_signs, table, values, counts, BLOCK=BLOCK)
    return counts


@triton.jit
def _count_signs(table, values, counts, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, values.lengths, BLOCK)
    value = load(values, tensor, at, mask)
    tl.atomic_add(counts + 3 * tensor, tl.sum((mask & (value >= 0)).to(tl.int64), 0))
    tl.atomic_add(counts + 3 * tensor + 1, tl.sum((mask & (value < 0)).to(tl.int64), 0))
    tl.atomic_add(counts + 3 * tensor + 2, tl.sum((mask & (value > 0)).to(tl.int64), 0))
