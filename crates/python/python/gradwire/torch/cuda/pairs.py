"""Pairs of positions and values in forms: the number n of pairs, n positions and n values."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ._batch import Batch
from ._forms import Forms, form_of, words
from ._launch import run
from ._source import LARGEST
from ._tensors import Tensors, add_at, in_kept, load, store

# The pairs that a program processes at once, and the most programs for a tensor: the host does not
# know the numbers of pairs.
_PAIRS, _PROGRAMS = 1024, 256


def add_pairs(forms: Forms, levels: int, to: Tensors, weight: float) -> None:
    """Adds ``weight`` times the values of pairs, which follow ``levels`` numbers in a form. The
    positions in a form are distinct, so sums need not be atomic."""
    _run(_add_pairs, forms, to, weight, LEVELS=levels)


def clear_pairs(batch: Batch, forms: Forms, kept: torch.Tensor) -> None:
    """In a kept array, sets the elements at the positions of pairs to 0. Forms have no levels."""
    _run(_clear_pairs, forms, in_kept(batch, kept))


def fill_pairs(forms: Forms, values: Tensors, factors: torch.Tensor) -> None:
    """Writes the values of pairs that have only positions: elements times their tensor's factor,
    limited to finite numbers. Elements beyond the end of a tensor are 0."""
    _run(_fill_pairs, forms, values, factors)


def _run(kernel: Any, forms: Forms, *arguments: Any, **constants: Any) -> None:
    programs = min(triton.cdiv(forms.bytes.numel(), 8 * _PAIRS), _PROGRAMS)
    run(kernel, (len(forms.starts), programs), forms, *arguments, BLOCK=_PAIRS, **constants)


@triton.jit
def _pairs(forms, tensor, LEVELS: tl.constexpr, BLOCK: tl.constexpr):
    """The address of the first position of a form, the number of pairs, and the first pair of this
    program and the distance to its next one."""
    count = words(form_of(forms, tensor)) + LEVELS
    first, stride = tl.program_id(1).to(tl.int64) * BLOCK, tl.num_programs(1).to(tl.int64) * BLOCK
    return count + 1, _unsigned(tl.load(count)), first, stride


@triton.jit
def _unsigned(word):
    return word.to(tl.int64) & 0xFFFFFFFF


@triton.jit
def _add_pairs(forms, to, weight, LEVELS: tl.constexpr, BLOCK: tl.constexpr):
    tensor = tl.program_id(0)
    positions, total, first, stride = _pairs(forms, tensor, LEVELS, BLOCK)
    while first < total:
        pair = first + tl.arange(0, BLOCK)
        mask = pair < total
        at = _unsigned(tl.load(positions + pair, mask=mask, other=0))
        value = tl.load(positions + total + pair, mask=mask, other=0).to(tl.float32, bitcast=True)
        add_at(to, tensor, at, mask, value * weight)
        first += stride


@triton.jit
def _clear_pairs(forms, to, BLOCK: tl.constexpr):
    tensor = tl.program_id(0)
    positions, total, first, stride = _pairs(forms, tensor, 0, BLOCK)
    while first < total:
        pair = first + tl.arange(0, BLOCK)
        mask = pair < total
        store(to, tensor, _unsigned(tl.load(positions + pair, mask=mask, other=0)), mask, 0.0)
        first += stride


@triton.jit
def _fill_pairs(forms, values, factors, BLOCK: tl.constexpr):
    tensor = tl.program_id(0)
    positions, total, first, stride = _pairs(forms, tensor, 0, BLOCK)
    elements, factor = tl.load(values.lengths + tensor), tl.load(factors + tensor)
    while first < total:
        pair = first + tl.arange(0, BLOCK)
        mask = pair < total
        at = _unsigned(tl.load(positions + pair, mask=mask, other=0))
        value = load(values, tensor, at, mask & (at < elements)) * factor
        value = tl.minimum(tl.maximum(value, -LARGEST), LARGEST)
        tl.store(positions + total + pair, value.to(tl.int32, bitcast=True), mask=mask)
        first += stride
