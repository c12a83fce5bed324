"""``signsgd``, ``signum``, ``efsignsgd`` and ``onebit``: the sign of each element.

A form is the message: no number for ``signsgd`` and ``signum``, the mean for ``efsignsgd``, the
means of both signs for ``onebit``, each as float32; then a bit for each element, 1 at or above
zero.

Messages of ``signsgd`` and ``signum`` equal the host's, byte for byte. Means come from sums in
float64, which the host adds in another order, so their last bit may differ from the host's.
Messages decode to the same bits as on the host.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ._batch import Batch, PerBatch
from ._config import Config
from ._forms import Forms, before, floats, form_of
from ._kernel import Dense
from ._launch import BLOCK, for_tensors, over
from ._repeated import permanent
from ._source import Source, corrected, is_finite, keep, largest, put_maximum
from ._sums import Sums, room_for, total
from ._symbols import bytes_of, put_block, take
from ._tensors import block_of, in_bucket, load, store


class _Signs(Dense):
    """A bit for each element."""

    # The number of means in a form.
    MEANS = 0

    def form_bytes(self, elements: int) -> int:
        return 4 * self.MEANS + bytes_of(elements, 1)

    def encode(self, batch: Batch, source: Source, forms: Forms, step: int) -> None:
        self._put_means(batch, source, forms)
        over(batch, _encode, source, forms, MEANS=self.MEANS)

    def add(self, batch: Batch, forms: Forms, out: torch.Tensor, weight: float, step: int, rank: int) -> None:
        over(batch, _add, forms, in_bucket(batch, out), weight, MEANS=self.MEANS)

    def _put_means(self, batch: Batch, source: Source, forms: Forms) -> None:
        """Writes the means of each tensor to its form."""


class SignSgd(_Signs):
    """Signs that stand for 1 and −1, with majority vote."""

    FINDS_MAXIMA = True

    def aggregate(self, batch: Batch, out: torch.Tensor) -> None:
        over(batch, _majority, in_bucket(batch, out))


class EfSignSgd(_Signs):
    """Signs that stand for the mean absolute value and its negative."""

    MEANS = 1

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._sums = PerBatch(_sums)

    def _put_means(self, batch: Batch, source: Source, forms: Forms) -> None:
        sums = self._sums(batch)
        over(batch, _sums_by_sign, source, sums.sums, warps=4)
        for_tensors(batch, _means, sums, source, forms, MEANS=self.MEANS, BLOCK=BLOCK)


class OneBit(EfSignSgd):
    """Signs that stand for the mean of the elements with that sign."""

    MEANS = 2


def _sums(batch: Batch) -> Sums:
    """Room for the sums of ``_sums_by_sign``."""
    sums = room_for(batch, 3)
    permanent(sums.sums)
    return sums


@triton.jit
def _sums_by_sign(table, source, sums, BLOCK: tl.constexpr):
    """The sum of the elements below zero, their number, and the sum of the others."""
    tensor, at, mask = block_of(table, source.lengths, BLOCK)
    value = corrected(source, tensor, at, mask).to(tl.float64)
    below = value < 0.0
    row = sums + 3 * tl.program_id(0).to(tl.int64)
    tl.store(row, tl.sum(tl.where(below, value, 0.0), 0))
    tl.store(row + 1, tl.sum(below.to(tl.int32), 0).to(tl.float64))
    tl.store(row + 2, tl.sum(tl.where(below, 0.0, value), 0))


@triton.jit
def _means(sums, source, forms, MEANS: tl.constexpr, BLOCK: tl.constexpr):
    tensor = tl.program_id(0)
    negative, count, positive = total(sums, tensor, 0, 3, BLOCK), total(sums, tensor, 1, 3, BLOCK), total(sums, tensor, 2, 3, BLOCK)
    elements = tl.load(source.lengths + tensor)
    finite = is_finite(source, tensor)
    means = floats(form_of(forms, tensor))
    if MEANS == 1:
        mean = ((positive - negative) / tl.maximum(elements, 1).to(tl.float64)).to(tl.float32)
        # Rounding must not lift the mean above the largest absolute value.
        tl.store(means, tl.where(finite, tl.minimum(mean, largest(source, tensor)), 0.0))
    else:
        others = elements.to(tl.float64) - count
        negative = tl.where(count == 0.0, 0.0, negative / tl.maximum(count, 1.0))
        positive = tl.where(others == 0.0, 0.0, positive / tl.maximum(others, 1.0))
        tl.store(means, tl.where(finite, negative.to(tl.float32), 0.0))
        tl.store(means + 1, tl.where(finite, positive.to(tl.float32), 0.0))


@triton.jit
def _levels(form, MEANS: tl.constexpr):
    """The values that the bits 0 and 1 of a form stand for."""
    if MEANS == 0:
        negative, positive = -1.0, 1.0
    elif MEANS == 1:
        positive = tl.load(floats(form))
        negative = -positive
    else:
        negative, positive = tl.load(floats(form)), tl.load(floats(form) + 1)
    return negative, positive


@triton.jit
def _encode(table, source, forms, MEANS: tl.constexpr, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, source.lengths, BLOCK)
    form = form_of(forms, tensor)
    negative, positive = _levels(form, MEANS)
    value = corrected(source, tensor, at, mask)
    if MEANS == 0 and source.residual is None:
        put_maximum(source.maxima, tensor, value)
    above = mask & (value >= 0.0)
    keep(source, tensor, at, mask, value - tl.where(above, positive, negative))
    put_block(form + 4 * MEANS, table, above.to(tl.int32), tl.load(source.lengths + tensor), 1, BLOCK)


@triton.jit
def _add(table, forms, out, weight, MEANS: tl.constexpr, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, out.lengths, BLOCK)
    form, total = form_of(forms, tensor), before(forms, out, tensor, at, mask)
    for _ in range(forms.messages):
        negative, positive = _levels(form, MEANS)
        bit = take(form + 4 * MEANS, at, mask, 1)
        total += tl.where(bit == 1, positive * weight, negative * weight)
        form += forms.stride
    store(out, tensor, at, mask, total)


@triton.jit
def _majority(table, out, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, out.lengths, BLOCK)
    mean = load(out, tensor, at, mask)
    # Smaller means are ties, up to rounding.
    vote = tl.where(tl.abs(mean) < 1 / 8192, 0.0, tl.where(mean < 0.0, -1.0, 1.0))
    store(out, tensor, at, mask, vote)
