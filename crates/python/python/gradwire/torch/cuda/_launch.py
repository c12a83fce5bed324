"""Launches of kernels.

No launch fuses a product and a sum into one instruction, so each is rounded, as on the host.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Callable, Optional, Tuple

import torch

from ._batch import Batch
from ._repeated import INTERPRETED, Launch, record

# The default number of elements that a program processes.
BLOCK = 4096

# With Triton's default of 4 warps each thread processes 32 elements of a block and needs up to 255
# registers. Then few warps fit on a multiprocessor, and they cannot hide the latency of memory.
# Measured on an H200: results/gpu.
_WARPS = 16
# For kernels that keep many numbers for each element. An AMD GPU cannot run as many, because its
# warps are twice as long.
MANY_WARPS = 32 if torch.version.hip is None else 16
# For kernels whose threads exchange elements, such as random words.
FEW_WARPS = 8


# The hook and the reducer's thread both launch kernels. The first launch of a kernel compiles it,
# which is not thread-safe.
_LAUNCHES = Lock()


def run(kernel: Any, grid: Tuple[int, ...], *arguments: Any, warps: int = 4, **constants: Any) -> None:
    """Runs the programs of a grid, each on ``warps`` warps of threads; none if a length of the grid
    is 0."""
    # Triton's interpreter never fuses, and takes no options of the compiler.
    options = {} if INTERPRETED else {"enable_fp_fusion": False, "num_warps": warps}
    if all(grid):
        with _LAUNCHES:
            compiled = kernel[grid](*arguments, **constants, **options)
        record(Launch(kernel, compiled, grid, arguments, constants))


def launch(kernel: Any, table: torch.Tensor, *arguments: Any, warps: int = _WARPS, **constants: Any) -> None:
    """Runs a program for each row of a table (``Batch.table``), which is the kernel's first
    argument."""
    run(kernel, (table.size(0),), table, *arguments, warps=warps, **constants)


def over(
    batch: Batch, kernel: Any, *arguments: Any, units: Optional[Callable[[int], int]] = None, warps: int = _WARPS, **constants: Any
) -> None:
    """Runs a program for each ``BLOCK`` of elements of a batch, or of other ``units``."""
    table = batch.table(BLOCK, units)
    run(kernel, (table.size(0),), table, *arguments, warps=warps, BLOCK=BLOCK, **constants)


def for_tensors(batch: Batch, kernel: Any, *arguments: Any, **constants: Any) -> None:
    """Runs a program for each tensor of a batch."""
    run(kernel, (len(batch.slots),), *arguments, **constants)
