"""``natural``: stochastic rounding to powers of two.

A form is a bit for the sign of each element, 1 at or above zero, then a byte for the biased exponent of each; see
``gradwire::device``. Messages are the host's, byte for byte.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ._batch import Batch, place
from ._kernel import Dense
from ._philox import keys, rounding
from ._launch import FEW_WARPS, MANY_WARPS, over
from ._source import Source, add_at, corrected, keep
from ._symbols import bytes_of, put_block, take


class Natural(Dense):
    """Natural compression without its Huffman code, which is the host's."""

    def form_bytes(self, elements: int) -> int:
        return bytes_of(elements, 1) + elements

    def encode(
        self, batch: Batch, source: Source, maxima: torch.Tensor, forms: torch.Tensor, at: torch.Tensor, step: int
    ) -> None:
        over(
            batch,
            _encode,
            keys(batch, self.config.seed, step, 0),
            0,
            self.config.rank,
            step,
            *source.of(batch),
            maxima,
            forms,
            at,
            FEEDBACK=source.feedback,
            warps=FEW_WARPS,
        )

    def add(
        self, batch: Batch, forms: torch.Tensor, at: torch.Tensor, out: torch.Tensor, weight: float, step: int, rank: int
    ) -> None:
        over(batch, _add, forms, at, batch.starts, batch.lengths, out, weight, warps=MANY_WARPS)


@triton.jit(do_not_specialize=["stream", "rank", "step"])
def _encode(
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
    FEEDBACK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tensor, element = place(table, BLOCK)
    elements = tl.load(lengths + tensor)
    mask = element < elements
    value = corrected(values, starts, residual, beta, gamma, kept, tensor, element, mask, FEEDBACK)
    bits = value.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    words = rounding(tl.load(keys + tensor), stream, rank, step, table, BLOCK)
    chance = (words >> 9).to(tl.int32)
    # The mantissa is the probability of the greater power.
    power = (magnitude >> 23) + (chance < (magnitude & 0x7FFFFF)).to(tl.int32)
    # The greatest power is finite, and zeros are positive.
    power = tl.minimum(power, 254)
    negative = (bits < 0) & (power > 0)
    rounded = (power << 23).to(tl.float32, bitcast=True)
    left = value - tl.where(negative, -rounded, rounded)
    keep(residual, kept, tensor, element, mask, maxima, elements, left, FEEDBACK)
    start = tl.load(at + tensor)
    put_block(forms, start, table, (mask & (negative == 0)).to(tl.int32), elements, 1, BLOCK)
    tl.store(forms + start + (elements + 7) // 8 + element, power.to(tl.uint8), mask=mask)


@triton.jit
def _add(table, forms, at, starts, lengths, out, weight, BLOCK: tl.constexpr):
    tensor, element = place(table, BLOCK)
    elements = tl.load(lengths + tensor)
    mask = element < elements
    start = tl.load(at + tensor)
    positive = take(forms, start, element, mask, 1)
    power = take(forms, start + (elements + 7) // 8, element, mask, 8)
    rounded = (power << 23).to(tl.float32, bitcast=True)
    rounded = tl.where(positive == 1, rounded, -rounded)
    add_at(out, starts, tensor, element, mask, rounded * weight)
