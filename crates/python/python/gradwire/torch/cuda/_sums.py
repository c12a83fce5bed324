"""Sums over each tensor in float64, in an order that does not depend on the launch.

The programs of a kernel store their sums in rows of an array, one for each row of ``Batch.table(BLOCK)``; ``totals`` adds
those of each tensor.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ._batch import Batch
from ._launch import BLOCK, run


def partial(batch: Batch, columns: int) -> torch.Tensor:
    """Room for ``columns`` sums of each block."""
    return torch.empty(len(batch.table(BLOCK)), columns, dtype=torch.float64, device=batch.device)


def totals(batch: Batch, sums: torch.Tensor) -> torch.Tensor:
    """The sums of each tensor; 0 for an empty one."""
    columns = sums.shape[1]
    found = torch.empty(len(batch.slots), columns, dtype=torch.float64, device=batch.device)
    blocks = (batch.lengths + BLOCK - 1) // BLOCK
    run(_totals, (len(batch.slots), columns), sums, blocks.cumsum(0), blocks, found, COLUMNS=columns, CHUNK=1024)
    return found


@triton.jit
def _totals(sums, ends, blocks, found, COLUMNS: tl.constexpr, CHUNK: tl.constexpr):
    tensor, column = tl.program_id(0), tl.program_id(1)
    count = tl.load(blocks + tensor)
    first = tl.load(ends + tensor) - count
    lanes = tl.zeros([CHUNK], dtype=tl.float64)
    for start in range(0, count, CHUNK):
        block = start + tl.arange(0, CHUNK)
        lanes += tl.load(sums + (first + block) * COLUMNS + column, mask=block < count, other=0.0)
    tl.store(found + tensor * COLUMNS + column, tl.sum(lanes, 0))
