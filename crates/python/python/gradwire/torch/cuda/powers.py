"""``natural``: stochastic rounding to powers of two.

A form is a sign bit for each element, 1 at or above zero, then a byte with the biased exponent of
each; see ``gradwire::device``. Messages equal the host's, byte for byte.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ._batch import Batch
from ._forms import Forms, before, form_of
from ._kernel import Dense
from ._launch import FEW_WARPS, MANY_WARPS, over
from ._philox import rounding
from ._source import Source, corrected, keep, put_maximum
from ._symbols import bytes_of, put_block, take
from ._tensors import block_of, in_bucket, store


class Natural(Dense):
    """Natural compression without its Huffman code, which the host applies."""

    FINDS_MAXIMA = True

    def form_bytes(self, elements: int) -> int:
        return bytes_of(elements, 1) + elements

    def encode(self, batch: Batch, source: Source, forms: Forms, step: int) -> None:
        over(batch, _encode, *self.draws(batch, step), source, forms, warps=FEW_WARPS)

    def add(self, batch: Batch, forms: Forms, out: torch.Tensor, weight: float, step: int, rank: int) -> None:
        over(batch, _add, forms, in_bucket(batch, out), weight, warps=MANY_WARPS)


@triton.jit(do_not_specialize=["rank", "step"])
def _encode(table, keys, rank, step, source, forms, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, source.lengths, BLOCK)
    elements = tl.load(source.lengths + tensor)
    value = corrected(source, tensor, at, mask)
    if source.residual is None:
        put_maximum(source.maxima, tensor, value)
    bits = value.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    words = rounding(tl.load(keys + tensor), rank, step, table, BLOCK)
    chance = (words >> 9).to(tl.int32)
    # The mantissa is the probability of the greater power.
    power = (magnitude >> 23) + (chance < (magnitude & 0x7FFFFF)).to(tl.int32)
    # The greatest power is finite, and zeros are positive.
    power = tl.minimum(power, 254)
    negative = (bits < 0) & (power > 0)
    rounded = (power << 23).to(tl.float32, bitcast=True)
    keep(source, tensor, at, mask, value - tl.where(negative, -rounded, rounded))
    form = form_of(forms, tensor)
    put_block(form, table, (mask & (negative == 0)).to(tl.int32), elements, 1, BLOCK)
    tl.store(form + (elements + 7) // 8 + at, power.to(tl.uint8), mask=mask)


@triton.jit
def _add(table, forms, out, weight, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, out.lengths, BLOCK)
    form, total = form_of(forms, tensor), before(forms, out, tensor, at, mask)
    signs = (tl.load(out.lengths + tensor) + 7) // 8
    for _ in range(forms.messages):
        positive = take(form, at, mask, 1)
        power = take(form + signs, at, mask, 8)
        rounded = (power << 23).to(tl.float32, bitcast=True)
        total += tl.where(positive == 1, rounded, -rounded) * weight
        form += forms.stride
    store(out, tensor, at, mask, total)
