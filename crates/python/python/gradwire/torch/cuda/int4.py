"""``int4`` without a transform: 15 evenly spaced levels in blocks.

The form is the message: for each block its step as bf16, then two levels + 8 in each byte. Messages
equal the host's, byte for byte.
"""

from __future__ import annotations

from typing import Optional

import torch
import triton
import triton.language as tl

from ._batch import Batch, place
from ._config import Config
from ._forms import Forms, before, form_of
from ._kernel import Dense
from ._launch import BLOCK, FEW_WARPS, launch, over
from ._source import Source, corrected, is_finite, keep
from ._tensors import block_of, in_bucket, store
from .levels import invertible

# The greatest step as bf16 at which no level overflows.
MOST = tl.constexpr(4.851682184614943e37)


def int4(config: Config) -> Optional[Int4]:
    """The kernels for blocks that are not transformed."""
    return Int4(config) if config.word("hadamard") == "off" else None


class Int4(Dense):
    """Levels from −7 to 7."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._size = config.whole("block")

    def form_bytes(self, elements: int) -> int:
        return 2 * self._blocks_of(elements) + (elements + 1) // 2

    def encode(self, batch: Batch, source: Source, forms: Forms, step: int) -> None:
        rows = BLOCK // self._size
        launch(_encode, batch.table(rows, self._blocks_of), source, forms, SIZE=self._size, ROWS=rows, warps=FEW_WARPS)

    def add(self, batch: Batch, forms: Forms, out: torch.Tensor, weight: float, step: int, rank: int) -> None:
        over(batch, _add, forms, in_bucket(batch, out), weight, SIZE=self._size)

    def _blocks_of(self, elements: int) -> int:
        return triton.cdiv(elements, self._size)


@triton.jit
def _encode(table, source, forms, SIZE: tl.constexpr, ROWS: tl.constexpr):
    tensor, block = place(table, ROWS)
    elements = tl.load(source.lengths + tensor)
    at = block[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    mask = at < elements
    value = corrected(source, tensor, at, mask)
    largest = tl.where(is_finite(source, tensor), tl.max(tl.abs(value), 1), 0.0)
    least = tl.div_rn(largest, 7.0)
    # The next bf16 away from zero.
    raised = ((least.to(tl.int32, bitcast=True) + 0xFFFF) >> 16) << 16
    step, inverse = invertible(tl.minimum(raised.to(tl.float32, bitcast=True), MOST))
    # The sum is a whole number, rounded to even, in units of its last bit. A level of an element
    # that is not finite is unspecified.
    rounded = tl.minimum(tl.maximum(value * inverse[:, None], -7.0), 7.0) + 12582912.0
    keep(source, tensor, at, mask, value - (rounded - 12582912.0) * step[:, None])
    form = form_of(forms, tensor) + block * (2 + SIZE // 2)
    pattern = (step.to(tl.int32, bitcast=True) >> 16).to(tl.uint16)
    tl.store(form.to(tl.pointer_type(tl.uint16)), pattern, mask=block * SIZE < elements)
    level = tl.where(mask, (rounded.to(tl.int32, bitcast=True) + 8) & 15, 8)
    byte = tl.arange(0, SIZE // 2)[None, :]
    packed = tl.sum(tl.reshape(level, [ROWS, SIZE // 2, 2]) << (4 * tl.arange(0, 2))[None, None, :], 2)
    tl.store(form[:, None] + 2 + byte, packed.to(tl.uint8), mask=block[:, None] * SIZE + 2 * byte < elements)


@triton.jit
def _add(table, forms, out, weight, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, out.lengths, BLOCK)
    form, total = form_of(forms, tensor), before(forms, out, tensor, at, mask)
    block, place_in = at // SIZE, at % SIZE
    start = block * (2 + SIZE // 2)
    for _ in range(forms.messages):
        pattern = tl.load((form + start).to(tl.pointer_type(tl.uint16)), mask=mask, other=0).to(tl.int32)
        step = (pattern << 16).to(tl.float32, bitcast=True) * weight
        byte = tl.load(form + start + 2 + place_in // 2, mask=mask, other=0).to(tl.int32)
        level = ((byte >> (4 * (place_in % 2)).to(tl.int32)) & 15) - 8
        total += step * level.to(tl.float32)
        form += forms.stride
    store(out, tensor, at, mask, total)
