"""``signsgd``, ``signum``, ``efsignsgd`` and ``onebit``: the sign of each element.

A form is the message: no number for ``signsgd`` and ``signum``, the mean for ``efsignsgd``, the means of both signs for
``onebit``, each as float32; then a bit for each element, 1 at or above zero. Messages of the first two are the host's, byte for
byte. Means are sums in float64, which the host adds in another order; so they may differ from the host's in their last bit.
Messages decode to the same bits as on the host.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ._batch import Batch, place
from ._kernel import Dense
from ._launch import BLOCK, for_tensors, over
from ._source import Source, add_at, corrected, keep, largest, replaceable
from ._sums import partial, totals
from ._symbols import bytes_of, put_block, take


class _Signs(Dense):
    """A bit for each element."""

    # The number of means in a form.
    MEANS = 0

    def form_bytes(self, elements: int) -> int:
        return 4 * self.MEANS + bytes_of(elements, 1)

    def encode(
        self, batch: Batch, source: Source, maxima: torch.Tensor, forms: torch.Tensor, at: torch.Tensor, step: int
    ) -> None:
        self._put_means(batch, source, maxima, forms, at)
        over(batch, _encode, *source.of(batch), maxima, forms, at, MEANS=self.MEANS, FEEDBACK=source.feedback)

    def add(
        self, batch: Batch, forms: torch.Tensor, at: torch.Tensor, out: torch.Tensor, weight: float, step: int, rank: int
    ) -> None:
        over(batch, _add, forms, at, batch.starts, batch.lengths, out, weight, MEANS=self.MEANS)

    def _put_means(self, batch: Batch, source: Source, maxima: torch.Tensor, forms: torch.Tensor, at: torch.Tensor) -> None:
        """Writes the means of each tensor to its form."""


class SignSgd(_Signs):
    """Signs that stand for 1 and −1, with majority vote."""

    def aggregate(self, batch: Batch, out: torch.Tensor) -> None:
        over(batch, _majority, batch.starts, batch.lengths, out)


class EfSignSgd(_Signs):
    """Signs that stand for the mean absolute value and its negative."""

    MEANS = 1

    def _put_means(self, batch: Batch, source: Source, maxima: torch.Tensor, forms: torch.Tensor, at: torch.Tensor) -> None:
        sums = partial(batch, 3)
        over(batch, _sums_by_sign, *source.of(batch), sums, FEEDBACK=source.feedback, warps=4)
        for_tensors(batch, _means, totals(batch, sums), batch.lengths, maxima, forms.view(torch.float32), at, MEANS=self.MEANS)


class OneBit(EfSignSgd):
    """Signs that stand for the mean of the elements with that sign."""

    MEANS = 2


@triton.jit
def _sums_by_sign(
    table, values, starts, residual, beta, gamma, kept, lengths, sums, FEEDBACK: tl.constexpr, BLOCK: tl.constexpr
):
    """The sum of the elements below zero, their number, and the sum of the others."""
    tensor, at = place(table, BLOCK)
    mask = at < tl.load(lengths + tensor)
    value = corrected(values, starts, residual, beta, gamma, kept, tensor, at, mask, FEEDBACK).to(tl.float64)
    below = value < 0.0
    row = sums + 3 * tl.program_id(0).to(tl.int64)
    tl.store(row, tl.sum(tl.where(below, value, 0.0), 0))
    tl.store(row + 1, tl.sum(below.to(tl.int32), 0).to(tl.float64))
    tl.store(row + 2, tl.sum(tl.where(below, 0.0, value), 0))


@triton.jit
def _means(sums, lengths, maxima, forms, at, MEANS: tl.constexpr):
    tensor = tl.program_id(0)
    negative, count, positive = tl.load(sums + 3 * tensor), tl.load(sums + 3 * tensor + 1), tl.load(sums + 3 * tensor + 2)
    elements = tl.load(lengths + tensor)
    finite = replaceable(maxima, tensor, 1) == 1
    form = forms + tl.load(at + tensor) // 4
    if MEANS == 1:
        mean = ((positive - negative) / tl.maximum(elements, 1).to(tl.float64)).to(tl.float32)
        # Rounding must not lift the mean above the largest absolute value.
        tl.store(form, tl.where(finite, tl.minimum(mean, largest(maxima, tensor)), 0.0))
    else:
        others = elements.to(tl.float64) - count
        negative = tl.where(count == 0.0, 0.0, negative / tl.maximum(count, 1.0))
        positive = tl.where(others == 0.0, 0.0, positive / tl.maximum(others, 1.0))
        tl.store(form, tl.where(finite, negative.to(tl.float32), 0.0))
        tl.store(form + 1, tl.where(finite, positive.to(tl.float32), 0.0))


@triton.jit
def _levels(forms, start, MEANS: tl.constexpr):
    """What the bits 0 and 1 stand for in a form."""
    if MEANS == 0:
        negative, positive = -1.0, 1.0
    elif MEANS == 1:
        positive = tl.load((forms + start).to(tl.pointer_type(tl.float32)))
        negative = -positive
    else:
        means = (forms + start).to(tl.pointer_type(tl.float32))
        negative, positive = tl.load(means), tl.load(means + 1)
    return negative, positive


@triton.jit
def _encode(
    table,
    values,
    starts,
    residual,
    beta,
    gamma,
    kept,
    lengths,
    maxima,
    forms,
    at,
    MEANS: tl.constexpr,
    FEEDBACK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tensor, element = place(table, BLOCK)
    elements = tl.load(lengths + tensor)
    mask = element < elements
    start = tl.load(at + tensor)
    negative, positive = _levels(forms, start, MEANS)
    value = corrected(values, starts, residual, beta, gamma, kept, tensor, element, mask, FEEDBACK)
    above = mask & (value >= 0.0)
    left = value - tl.where(above, positive, negative)
    keep(residual, kept, tensor, element, mask, maxima, elements, left, FEEDBACK)
    put_block(forms, start + 4 * MEANS, table, above.to(tl.int32), elements, 1, BLOCK)


@triton.jit
def _add(table, forms, at, starts, lengths, out, weight, MEANS: tl.constexpr, BLOCK: tl.constexpr):
    tensor, element = place(table, BLOCK)
    mask = element < tl.load(lengths + tensor)
    start = tl.load(at + tensor)
    negative, positive = _levels(forms, start, MEANS)
    bit = take(forms, start + 4 * MEANS, element, mask, 1)
    level = tl.where(bit == 1, positive * weight, negative * weight)
    add_at(out, starts, tensor, element, mask, level)


@triton.jit
def _majority(table, starts, lengths, out, BLOCK: tl.constexpr):
    tensor, element = place(table, BLOCK)
    mask = element < tl.load(lengths + tensor)
    place_of = out + tl.load(starts + tensor) + element
    mean = tl.load(place_of, mask=mask, other=0.0)
    # Smaller means are ties, up to rounding.
    vote = tl.where(tl.abs(mean) < 1 / 8192, 0.0, tl.where(mean < 0.0, -1.0, 1.0))
    tl.store(place_of, vote, mask=mask)
