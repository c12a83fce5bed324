"""Tensors of one bucket that a kernel processes together, in one launch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Callable, Dict, Generic, Optional, Sequence, Tuple, TypeVar
from weakref import WeakKeyDictionary

import torch
import triton
import triton.language as tl

from ._repeated import permanent

_T = TypeVar("_T")


@dataclass(frozen=True)
class Slot:
    """Where the elements of a tensor are."""

    name: str
    shape: Tuple[int, ...]
    # The index of its first element in the bucket.
    start: int
    # The index of its first element in the kept arrays.
    kept: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


class Batch:
    """The tensors of a bucket that have the same compressor.

    ``starts``, ``kept`` and ``lengths`` are int64 vectors on the device. For each tensor they have
    ``Slot.start``, ``Slot.kept`` and the number of elements.
    """

    def __init__(self, slots: Sequence[Slot], device: torch.device) -> None:
        self.slots = list(slots)
        self.device = device
        self._vectors: Dict[Tuple[Tuple[int, ...], torch.dtype], torch.Tensor] = {}
        self.starts = self.vector([slot.start for slot in slots])
        self.kept = self.vector([slot.kept for slot in slots])
        self.lengths = self.vector([slot.elements for slot in slots])
        self._tables: Dict[Tuple[int, Optional[Callable[[int], int]]], torch.Tensor] = {}

    def vector(self, values: Sequence[int], dtype: torch.dtype = torch.int64, keep: bool = True) -> torch.Tensor:
        """A vector on the device with a number for each tensor; does not wait for the device. It is
        kept for later steps. Use ``keep=False`` for numbers that differ from step to step."""
        key = (tuple(values), dtype)
        found = self._vectors.get(key)
        if found is None:
            found = self.moved(torch.tensor(key[0], dtype=dtype, device="cpu"))
            if keep:
                self._vectors[key] = permanent(found)
        return found

    def firsts(self, counts: Sequence[int]) -> torch.Tensor:
        """The index of each tensor's first unit in an array that stores the tensors one after the
        other, with ``counts`` units each."""
        return self.vector([end - count for end, count in zip(accumulate(counts), counts)])

    def moved(self, host: torch.Tensor) -> torch.Tensor:
        """A copy on the device of numbers in main memory; does not wait for the device."""
        return moved(host, self.device)

    def table(self, block: int, units: Optional[Callable[[int], int]] = None) -> torch.Tensor:
        """The grid of a kernel whose programs process ``block`` units of a tensor each.

        A unit is an element, unless ``units`` turns a number of elements into a number of units.
        The table is kept under ``units``, so this must be the same function at every step. Row p
        has the tensor of program p and the number of its block. If there are no units, there are no
        rows.
        """
        table = self._tables.get((block, units))
        if table is None:
            counts = [(units or int)(slot.elements) for slot in self.slots]
            blocks = torch.tensor([triton.cdiv(count, block) for count in counts], dtype=torch.int64, device="cpu")
            tensors = torch.repeat_interleave(torch.arange(len(counts), device="cpu"), blocks)
            first = torch.cumsum(blocks, 0) - blocks
            rows = torch.stack([tensors, torch.arange(len(tensors), device="cpu") - first[tensors]], 1).to(torch.int32)
            table = self._tables[block, units] = permanent(self.moved(rows))
        return table


def at_least_one(elements: int) -> int:
    """Units for a table that has a row for a tensor without elements, too."""
    return max(elements, 1)


def moved(host: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy on a device of numbers in main memory; does not wait for the device."""
    pinned = host.pin_memory() if device.type == "cuda" else host
    return pinned.to(device, non_blocking=True)


class PerBatch(Generic[_T]):
    """A value that depends only on a batch, and is created once for each batch."""

    def __init__(self, make: Callable[[Batch], _T]) -> None:
        self._make = make
        self._made: WeakKeyDictionary[Batch, _T] = WeakKeyDictionary()

    def __call__(self, batch: Batch) -> _T:
        found = self._made.get(batch)
        if found is None:
            found = self._made[batch] = self._make(batch)
        return found


@triton.jit
def place(table, BLOCK: tl.constexpr):
    """The tensor of this program, and the indices of its block's units in the tensor."""
    program = tl.program_id(0).to(tl.int64)
    tensor = tl.load(table + 2 * program)
    block = tl.load(table + 2 * program + 1).to(tl.int64)
    return tensor, block * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def has_first(table):
    """Whether this program has the first block of its tensor."""
    return tl.load(table + 2 * tl.program_id(0).to(tl.int64) + 1) == 0
