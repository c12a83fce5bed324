"""Sums over each tensor in float64. The order does not depend on the launch."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ._batch import Batch, PerBatch
from ._launch import BLOCK, over, run


class Sums(NamedTuple):
    """Some sums of each block of each tensor. A kernel takes them as one argument."""

    # A row of sums for each block.
    sums: torch.Tensor
    # For each tensor the row of its first block, and the number of its elements.
    firsts: torch.Tensor
    lengths: torch.Tensor


def room_for(batch: Batch, columns: int) -> Sums:
    """Room for sums, one in each column. A program of a kernel stores the sums of its block in its
    row."""
    rows = batch.table(BLOCK).size(0)
    return Sums(torch.empty(rows, columns, dtype=torch.float64, device=batch.device), _firsts(batch), batch.lengths)


def totals(batch: Batch, columns: int, kernel: Any, *arguments: Any, **options: Any) -> torch.Tensor:
    """Some sums of each tensor, one in each column; 0 for an empty tensor.

    A program of the kernel stores the sums of its block in a row of the kernel's last argument.
    """
    sums = room_for(batch, columns)
    over(batch, kernel, *arguments, sums.sums, **options)
    found = torch.empty(len(batch.slots), columns, dtype=torch.float64, device=batch.device)
    run(_totals, (len(batch.slots), columns), sums, found, COLUMNS=columns, BLOCK=BLOCK)
    return found


# For each tensor of a batch the number of its first block.
_firsts = PerBatch(lambda batch: batch.firsts([triton.cdiv(slot.elements, BLOCK) for slot in batch.slots]))


@triton.jit
def _totals(sums, found, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    tensor, column = tl.program_id(0), tl.program_id(1)
    tl.store(found + tensor * COLUMNS + column, total(sums, tensor, column, COLUMNS, BLOCK))


@triton.jit
def total(sums, tensor, column, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    """A sum of a tensor: the sum over its blocks."""
    CHUNK: tl.constexpr = 1024
    count = (tl.load(sums.lengths + tensor) + BLOCK - 1) // BLOCK
    first = tl.load(sums.firsts + tensor)
    lanes = tl.zeros([CHUNK], dtype=tl.float64)
    for start in range(0, count, CHUNK):
        block = start + tl.arange(0, CHUNK)
        lanes += tl.load(sums.sums + (first + block) * COLUMNS + column, mask=block < count, other=0.0)
    return tl.sum(lanes, 0)
