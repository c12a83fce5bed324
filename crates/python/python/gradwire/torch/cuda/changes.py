"""The elements in which two tensors on a device differ, for deltas of weights.

One kernel counts the changed elements of each block, a prefix sum gives the blocks their places,
and a second kernel writes positions and new values there. So their order is that of the tensor.
"""

from __future__ import annotations

from typing import List, Tuple

import torch
import triton
import triton.language as tl

from ._launch import BLOCK, FEW_WARPS, run
from ._repeated import INTERPRETED

# Elements of a part. Positions count from the start of a part, so 32 bits suffice.
# It is the part of ``gradwire_delta``.
PART = 1 << 20
# Elements are compared as integers: NaN equals itself, and −0 is not 0.
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def runs_on(device: torch.device) -> bool:
    """Whether kernels run on a device: a GPU, or under Triton's interpreter a CPU."""
    return device.type == ("cpu" if INTERPRETED else "cuda")


class Changes:
    """The changed elements of ``new`` compared with ``old``: contiguous tensors with as many
    elements of the same type, at least one, on one device. They are counted at once, without
    waiting for the device."""

    def __init__(self, old: torch.Tensor, new: torch.Tensor) -> None:
        self._old, self._new = _integers(old), _integers(new)
        elements = self._new.numel()
        blocks = triton.cdiv(elements, BLOCK)
        counts = torch.empty(blocks, dtype=torch.int32, device=new.device)
        run(_count, (blocks,), self._old, self._new, elements, counts, BLOCK=BLOCK, warps=FEW_WARPS)
        # The number of changes up to the end of each block.
        self._ends = counts.cumsum(0, dtype=torch.int64)

    @property
    def ends(self) -> torch.Tensor:
        """The number of changed elements up to the end of each part, on the device."""
        every = PART // BLOCK
        last = self._ends[-1:] if len(self._ends) % every else self._ends[:0]
        return torch.cat((self._ends[every - 1 :: every], last))

    def advance(self, total: int) -> Tuple[torch.Tensor, torch.Tensor]:
        """The positions in their parts, as int32, and the new values, as integers, of the changed
        elements; ``total`` is the last of ``ends``. Writes the values over the old ones, too.
        Does not wait for the device."""
        device = self._new.device
        positions = torch.empty(total, dtype=torch.int32, device=device)
        values = torch.empty(total, dtype=self._new.dtype, device=device)
        if total:
            blocks, elements = len(self._ends), self._new.numel()
            arguments = self._old, self._new, elements, self._ends, positions, values
            run(_compact, (blocks,), *arguments, PART=PART, BLOCK=BLOCK, warps=FEW_WARPS)
        return positions, values


def ends_of(all_changes: List[Changes]) -> List[List[int]]:
    """``ends`` of some pairs of tensors on one device. Waits for it once."""
    ends = [changes.ends for changes in all_changes]
    joined = torch.cat(ends).tolist() if ends else []
    found, start = [], 0
    for one in ends:
        found.append(joined[start : start + len(one)])
        start += len(one)
    return found


def _integers(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(_INTEGERS[tensor.element_size()])


@triton.jit
def _load(old, new, elements, BLOCK: tl.constexpr):
    """The indices of this program's block, its elements of both tensors, and whether they
    differ."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < elements
    value = tl.load(new + at, mask=mask, other=0)
    return at, value, tl.load(old + at, mask=mask, other=0) != value


@triton.jit
def _count(old, new, elements, counts, BLOCK: tl.constexpr):
    at, value, changed = _load(old, new, elements, BLOCK)
    tl.store(counts + tl.program_id(0), tl.sum(changed.to(tl.int32), 0))


@triton.jit
def _compact(old, new, elements, ends, positions, values, PART: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    first = tl.load(ends + program - 1, mask=program > 0, other=0)
    # Whole blocks may be unchanged, such as rows of an embedding.
    if tl.load(ends + program) > first:
        at, value, changed = _load(old, new, elements, BLOCK)
        place = first + tl.cumsum(changed.to(tl.int32), 0) - 1
        tl.store(positions + place, (at % PART).to(tl.int32), mask=changed)
        tl.store(values + place, value, mask=changed)
        tl.store(old + at, value, mask=changed)
