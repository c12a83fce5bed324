"""Launches of kernels.

No launch fuses a product and a sum into one instruction, so that they are rounded one by one, as on the host.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import Any, Callable, Dict, Optional, Tuple

import torch

from ._batch import Batch

# Elements that a program processes, unless it says otherwise.
BLOCK = 4096

# The options of every launch. Triton's interpreter never fuses, and takes no options of the compiler.
EXACT: Dict[str, Any] = {} if os.environ.get("TRITON_INTERPRET") == "1" else {"enable_fp_fusion": False}


# The hook and the reducer's thread both launch, and a first launch compiles, in which threads may disturb each other.
_LAUNCHES = Lock()


def run(kernel: Any, grid: Tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Runs the programs of a grid; none if one of its lengths is 0."""
    if all(grid):
        with _LAUNCHES:
            kernel[grid](*arguments, **constants, **EXACT)


def launch(kernel: Any, table: torch.Tensor, *arguments: Any, **constants: Any) -> None:
    """Runs a program for each row of a table (``Batch.table``), which is the kernel's first argument."""
    run(kernel, (len(table),), table, *arguments, **constants)


def over(batch: Batch, kernel: Any, *arguments: Any, units: Optional[Callable[[int], int]] = None, **constants: Any) -> None:
    """Runs a program for each ``BLOCK`` of elements of a batch, or of other ``units``."""
    launch(kernel, batch.table(BLOCK, units), *arguments, BLOCK=BLOCK, **constants)


def for_tensors(batch: Batch, kernel: Any, *arguments: Any, **constants: Any) -> None:
    """Runs a program for each tensor of a batch."""
    run(kernel, (len(batch.slots),), *arguments, **constants)
