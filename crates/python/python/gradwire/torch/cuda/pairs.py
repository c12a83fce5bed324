"""Pairs of positions and values in forms."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ._batch import Batch
from ._kernel import Forms
from ._launch import run
from ._source import LARGEST
from .marks import Corrected

# Pairs that a program processes at once, and the most programs for a tensor: the host does not know the numbers of pairs.
_PAIRS, _PROGRAMS = 1024, 256


def add_pairs(
    batch: Batch, forms: torch.Tensor, at: torch.Tensor, levels: int, to: torch.Tensor, starts: torch.Tensor, weight: float
) -> None:
    """Adds ``weight`` times the values of pairs to float32 tensors. Positions of a form differ, so no sum is atomic."""
    programs = min(triton.cdiv(forms.numel(), 8 * _PAIRS), _PROGRAMS)
    run(_add_pairs, (len(batch.slots), programs), forms.view(torch.int32), at, to, starts, weight, LEVELS=levels, BLOCK=_PAIRS)


def clear_pairs(batch: Batch, forms: Forms, at: torch.Tensor, kept: torch.Tensor) -> None:
    """Sets the elements at the positions of pairs to 0 in an array that is kept. Forms have no levels."""
    programs = min(triton.cdiv(forms.bytes.numel(), 8 * _PAIRS), _PROGRAMS)
    run(_clear_pairs, (len(batch.slots), programs), forms.bytes.view(torch.int32), at, kept, batch.kept, BLOCK=_PAIRS)


@triton.jit
def _clear_pairs(words, at, to, starts, BLOCK: tl.constexpr):
    tensor = tl.program_id(0)
    form = words + tl.load(at + tensor) // 4
    total = tl.load(form).to(tl.int64) & 0xFFFFFFFF
    start = to + tl.load(starts + tensor)
    first, step = tl.program_id(1).to(tl.int64) * BLOCK, tl.num_programs(1).to(tl.int64) * BLOCK
    while first < total:
        pair = first + tl.arange(0, BLOCK)
        position = tl.load(form + 1 + pair, mask=pair < total, other=0).to(tl.int64) & 0xFFFFFFFF
        tl.store(start + position, 0.0, mask=pair < total)
        first += step


@triton.jit
def _add_pairs(words, at, to, starts, weight, LEVELS: tl.constexpr, BLOCK: tl.constexpr):
    tensor = tl.program_id(0)
    form = words + tl.load(at + tensor) // 4 + LEVELS
    # Numbers and positions are unsigned.
    total = tl.load(form).to(tl.int64) & 0xFFFFFFFF
    start = to + tl.load(starts + tensor)
    first, step = tl.program_id(1).to(tl.int64) * BLOCK, tl.num_programs(1).to(tl.int64) * BLOCK
    while first < total:
        pair = first + tl.arange(0, BLOCK)
        mask = pair < total
        position = tl.load(form + 1 + pair, mask=mask, other=0).to(tl.int64) & 0xFFFFFFFF
        value = tl.load(form + 1 + total + pair, mask=mask, other=0).to(tl.float32, bitcast=True)
        tl.store(start + position, tl.load(start + position, mask=mask, other=0.0) + value * weight, mask=mask)
        first += step


def fill_pairs(forms: Forms, at: torch.Tensor, values: Corrected, factors: torch.Tensor) -> None:
    """Writes the values to pairs that have only positions: elements times their tensor's factor, limited to finite numbers.
    Those of a tensor with an element that is not finite become 0."""
    most = max((end - start for start, end in forms.ranges), default=0) // 8
    programs = min(triton.cdiv(most, _PAIRS), _PROGRAMS)
    run(
        _fill_pairs,
        (len(forms.ranges), programs),
        forms.bytes.view(torch.int32),
        at,
        values.values,
        values.starts,
        values.lengths,
        factors,
        BLOCK=_PAIRS,
    )


@triton.jit
def _fill_pairs(words, at, values, starts, lengths, factors, BLOCK: tl.constexpr):
    tensor = tl.program_id(0)
    form = words + tl.load(at + tensor) // 4
    total = tl.load(form).to(tl.int64) & 0xFFFFFFFF
    elements, factor = tl.load(lengths + tensor), tl.load(factors + tensor)
    start = values + tl.load(starts + tensor)
    first, step = tl.program_id(1).to(tl.int64) * BLOCK, tl.num_programs(1).to(tl.int64) * BLOCK
    while first < total:
        pair = first + tl.arange(0, BLOCK)
        mask = pair < total
        position = tl.load(form + 1 + pair, mask=mask, other=0).to(tl.int64) & 0xFFFFFFFF
        value = tl.load(start + position, mask=mask & (position < elements), other=0.0) * factor
        value = tl.minimum(tl.maximum(value, -LARGEST), LARGEST)
        tl.store(form + 1 + total + pair, value.to(tl.int32, bitcast=True), mask=mask)
        first += step
