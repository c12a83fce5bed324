"""Sums over each tensor in float64. The order does not depend on the launch."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ._batch import Batch
from ._launch import BLOCK, over, run


def totals(batch: Batch, columns: int, kernel: Any, *arguments: Any, **options: Any) -> torch.Tensor:
    """Some sums of each tensor, one in each column; 0 for an empty tensor.

    A program of the kernel stores the sums of its block in a row of the kernel's last argument.
    """
    sums = torch.empty(len(batch.table(BLOCK)), columns, dtype=torch.float64, device=batch.device)
    over(batch, kernel, *arguments, sums, **options)
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
