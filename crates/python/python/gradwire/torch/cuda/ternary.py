"""``3lc`` and ``terngrad``: three values, five to a byte.

A form is M as float32 and a byte for five elements; see ``gradwire::device``. Messages are the host's, byte for byte, unless
``terngrad`` clips: M then depends on sums in float64, which the host adds in another order, so it may differ in its last bit,
and a trit where an element is as far from zero as its draw. Messages decode to the same bits as on the host.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ._batch import Batch, place
from ._config import Config
from ._kernel import Dense
from ._philox import keys, rounding
from ._launch import FEW_WARPS, MANY_WARPS, for_tensors, over
from ._source import LARGEST, Source, add_at, corrected, keep, largest
from ._sums import partial, totals


def bytes_of(elements: int) -> int:
    """The number of bytes for five elements each; element i of each fifth of a tensor is in byte i."""
    return triton.cdiv(elements, 5)


class _Ternary(Dense):
    """M, and five trits to a byte."""

    def form_bytes(self, elements: int) -> int:
        return 4 + bytes_of(elements)

    def add(
        self, batch: Batch, forms: torch.Tensor, at: torch.Tensor, out: torch.Tensor, weight: float, step: int, rank: int
    ) -> None:
        over(batch, _add, forms, at, batch.starts, batch.lengths, out, weight, units=bytes_of, warps=MANY_WARPS)


class ThreeLc(_Ternary):
    """3LC without its zero-run code, which is the host's."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._sparsity = config.real("s")

    def encode(
        self, batch: Batch, source: Source, maxima: torch.Tensor, forms: torch.Tensor, at: torch.Tensor, step: int
    ) -> None:
        for_tensors(batch, _scale, maxima, self._sparsity, forms.view(torch.float32), at)
        over(
            batch,
            _three_lc,
            *source.of(batch),
            maxima,
            forms,
            at,
            units=bytes_of,
            FEEDBACK=source.feedback,
            warps=MANY_WARPS,
        )


class TernGrad(_Ternary):
    """TernGrad without its zero-run and Huffman codes, which are the host's."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._clip = config.real("clip")

    def encode(
        self, batch: Batch, source: Source, maxima: torch.Tensor, forms: torch.Tensor, at: torch.Tensor, step: int
    ) -> None:
        if self._clip == 0.0:
            for_tensors(batch, _scale, maxima, 1.0, forms.view(torch.float32), at)
        else:
            for_tensors(batch, _clipped_scale, maxima, self._limits(batch, source), forms.view(torch.float32), at)
        # Random words are drawn for neighbours together, but a byte has an element of each fifth of the tensor. So trits are stored first,
        # then packed.
        trits = torch.empty(sum(slot.elements for slot in batch.slots), dtype=torch.uint8, device=batch.device)
        first = batch.lengths.cumsum(0) - batch.lengths
        over(
            batch,
            _terngrad,
            keys(batch, self.config.seed, step, 0),
            0,
            self.config.rank,
            step,
            *source.of(batch),
            maxima,
            forms,
            at,
            trits,
            first,
            FEEDBACK=source.feedback,
            warps=FEW_WARPS,
        )
        over(batch, _pack, trits, first, batch.lengths, forms, at, units=bytes_of, warps=MANY_WARPS)

    def _limits(self, batch: Batch, source: Source) -> torch.Tensor:
        """Where each tensor is clipped; 0 where the deviation cannot be distinguished from rounding errors."""
        sums = partial(batch, 2)
        over(batch, _moments, *source.of(batch), sums, FEEDBACK=source.feedback, warps=4)
        count = batch.lengths.clamp(min=1).double()
        mean, square = (totals(batch, sums) / count[:, None]).unbind(1)
        variance = square - mean * mean
        return (self._clip * torch.where(variance > 1e-12 * square, variance, 0.0).sqrt()).float()


@triton.jit
def _scale(maxima, sparsity, forms, at):
    tensor = tl.program_id(0)
    scale = tl.minimum(largest(maxima, tensor) * sparsity, LARGEST)
    tl.store(forms + tl.load(at + tensor) // 4, scale)


@triton.jit
def _clipped_scale(maxima, limits, forms, at):
    tensor = tl.program_id(0)
    limit, most = tl.load(limits + tensor), largest(maxima, tensor)
    # The deviation of a constant tensor is 0, but its elements are sent all the same.
    tl.store(forms + tl.load(at + tensor) // 4, tl.where(limit > 0.0, tl.minimum(limit, most), most))


@triton.jit
def _moments(table, values, starts, residual, beta, gamma, kept, lengths, sums, FEEDBACK: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of the elements, and that of their squares."""
    tensor, at = place(table, BLOCK)
    mask = at < tl.load(lengths + tensor)
    value = corrected(values, starts, residual, beta, gamma, kept, tensor, at, mask, FEEDBACK).to(tl.float64)
    row = sums + 2 * tl.program_id(0).to(tl.int64)
    tl.store(row, tl.sum(value, 0))
    tl.store(row + 1, tl.sum(value * value, 0))


@triton.jit
def _three_lc(
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
    FEEDBACK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tensor, byte = place(table, BLOCK)
    elements = tl.load(lengths + tensor)
    part_len = (elements + 4) // 5
    start = tl.load(at + tensor)
    scale = tl.load((forms + start).to(tl.pointer_type(tl.float32)))
    half = scale * 0.5
    digits = tl.zeros([BLOCK], dtype=tl.int32)
    for part in tl.static_range(5):
        element = part * part_len + byte
        # The fifths behind the end of the tensor are zeros.
        mask = (byte < part_len) & (element < elements)
        value = corrected(values, starts, residual, beta, gamma, kept, tensor, element, mask, FEEDBACK)
        above, below = value > half, value < -half
        left = tl.where(above, value - scale, tl.where(below, value + scale, value))
        keep(residual, kept, tensor, element, mask, maxima, elements, left, FEEDBACK)
        digits = 3 * digits + 1 + above.to(tl.int32) - below.to(tl.int32)
    tl.store(forms + start + 4 + byte, digits.to(tl.uint8), mask=byte < part_len)


@triton.jit(do_not_specialize=["stream", "rank", "step"])
def _terngrad(
    table,
    keys,
    stream,
    rank,
    step,
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
    trits,
    first,
    FEEDBACK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Stores each element's trit plus one in a byte."""
    tensor, element = place(table, BLOCK)
    elements = tl.load(lengths + tensor)
    mask = element < elements
    scale = tl.load((forms + tl.load(at + tensor)).to(tl.pointer_type(tl.float32)))
    value = corrected(values, starts, residual, beta, gamma, kept, tensor, element, mask, FEEDBACK)
    words = rounding(tl.load(keys + tensor), stream, rank, step, table, BLOCK)
    chance = (words >> 8).to(tl.int32).to(tl.float32) * 5.9604644775390625e-08
    threshold = chance * scale
    trit = (value > threshold).to(tl.int32) - (value < -threshold).to(tl.int32)
    left = value - scale * trit.to(tl.float32)
    keep(residual, kept, tensor, element, mask, maxima, elements, left, FEEDBACK)
    tl.store(trits + tl.load(first + tensor) + element, (trit + 1).to(tl.uint8), mask=mask)


@triton.jit
def _pack(table, trits, first, lengths, forms, at, BLOCK: tl.constexpr):
    tensor, byte = place(table, BLOCK)
    elements = tl.load(lengths + tensor)
    part_len = (elements + 4) // 5
    start = trits + tl.load(first + tensor)
    digits = tl.zeros([BLOCK], dtype=tl.int32)
    for part in tl.static_range(5):
        element = part * part_len + byte
        # The fifths behind the end of the tensor are zeros.
        mask = (byte < part_len) & (element < elements)
        digits = 3 * digits + tl.load(start + element, mask=mask, other=1).to(tl.int32)
    tl.store(forms + tl.load(at + tensor) + 4 + byte, digits.to(tl.uint8), mask=byte < part_len)


@triton.jit
def _add(table, forms, at, starts, lengths, out, weight, BLOCK: tl.constexpr):
    tensor, byte = place(table, BLOCK)
    elements = tl.load(lengths + tensor)
    part_len = (elements + 4) // 5
    start = tl.load(at + tensor)
    scale = tl.load((forms + start).to(tl.pointer_type(tl.float32))) * weight
    digits = tl.load(forms + start + 4 + byte, mask=byte < part_len, other=121).to(tl.int32)
    power = 81
    for part in tl.static_range(5):
        element = part * part_len + byte
        mask = (byte < part_len) & (element < elements)
        trit = (digits // power) % 3 - 1
        add_at(out, starts, tensor, element, mask, trit.to(tl.float32) * scale)
        power = power // 3
