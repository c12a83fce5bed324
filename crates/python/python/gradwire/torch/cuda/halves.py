"""``none``, ``fp16`` and ``bf16``: each element as a float of 32 or 16 bits.

A form is the message. Messages equal the host's, byte for byte: elements are rounded to nearest,
ties to even. An element beyond the largest finite number becomes that number.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ._batch import Batch
from ._forms import Forms, before, floats, form_of
from ._kernel import Dense
from ._launch import over
from ._source import Source, corrected, keep, put_maximum
from ._tensors import block_of, in_bucket, store


class Uncompressed(Dense):
    """Every element as it is."""

    FORMAT = "f32"
    # The type of its elements.
    DTYPE = torch.float32
    FINDS_MAXIMA = True

    def form_bytes(self, elements: int) -> int:
        return (4 if self.FORMAT == "f32" else 2) * elements

    def encode(self, batch: Batch, source: Source, forms: Forms, step: int) -> None:
        over(batch, _encode, source, forms, FORMAT=self.FORMAT)

    def add(self, batch: Batch, forms: Forms, out: torch.Tensor, weight: float, step: int, rank: int) -> None:
        over(batch, _add, forms, in_bucket(batch, out), weight, FORMAT=self.FORMAT)


class Fp16(Uncompressed):
    """IEEE binary16."""

    FORMAT = "f16"
    DTYPE = torch.float16


class Bf16(Uncompressed):
    """bfloat16."""

    FORMAT = "bf16"
    DTYPE = torch.bfloat16


@triton.jit
def _to_f16(value):
    """The pattern of binary16. Uses integers and sums of binary32, which round alike on every
    device."""
    bits = value.to(tl.int32, bitcast=True)
    magnitude = tl.minimum(tl.abs(value), 65504.0)
    wide = magnitude.to(tl.int32, bitcast=True)
    # Below the normal range, adding 0.5 rounds to units of 2⁻²⁴, binary32's spacing there.
    subnormal = (magnitude + 0.5).to(tl.int32, bitcast=True) - 0x3F000000
    normal = (wide + 0x0FFF + ((wide >> 13) & 1) - (112 << 23)) >> 13
    narrow = tl.where(wide < 0x38800000, subnormal, normal)
    return ((bits >> 16) & 0x8000) | narrow


@triton.jit
def _from_f16(pattern):
    exponent, mantissa = pattern & 0x7C00, pattern & 0x3FF
    # Subnormal: the mantissa counts units of 2⁻²⁴.
    subnormal = (mantissa.to(tl.float32) * 5.9604644775390625e-08).to(tl.int32, bitcast=True)
    normal = ((pattern & 0x7FFF) << 13) + (112 << 23)
    special = 0x7F800000 | (mantissa << 13)
    magnitude = tl.where(exponent == 0, subnormal, tl.where(exponent == 0x7C00, special, normal))
    return (((pattern & 0x8000) << 16) | magnitude).to(tl.float32, bitcast=True)


@triton.jit
def _to_bf16(value):
    bits = value.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    # The sum of the largest pattern and the half would be a negative integer, but no finite number
    # has that pattern.
    rounded = (magnitude + 0x7FFF + ((magnitude >> 16) & 1)) >> 16
    return ((bits >> 16) & 0x8000) | tl.minimum(rounded, 0x7F7F)


@triton.jit
def _narrow(value, FORMAT: tl.constexpr):
    if FORMAT == "f16":
        pattern = _to_f16(value)
    else:
        pattern = _to_bf16(value)
    return pattern


@triton.jit
def _widen(pattern, FORMAT: tl.constexpr):
    if FORMAT == "f16":
        value = _from_f16(pattern)
    else:
        value = (pattern << 16).to(tl.float32, bitcast=True)
    return value


@triton.jit
def _encode(table, source, forms, FORMAT: tl.constexpr, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, source.lengths, BLOCK)
    form = form_of(forms, tensor)
    value = corrected(source, tensor, at, mask)
    if source.residual is None:
        put_maximum(source.maxima, tensor, value)
    if FORMAT == "f32":
        tl.store(floats(form) + at, value, mask=mask)
        left = tl.zeros_like(value)
    else:
        pattern = _narrow(value, FORMAT)
        tl.store(form.to(tl.pointer_type(tl.uint16)) + at, pattern.to(tl.uint16), mask=mask)
        left = value - _widen(pattern, FORMAT)
    keep(source, tensor, at, mask, left)


@triton.jit
def _add(table, forms, out, weight, FORMAT: tl.constexpr, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, out.lengths, BLOCK)
    form, total = form_of(forms, tensor), before(forms, out, tensor, at, mask)
    for _ in range(forms.messages):
        if FORMAT == "f32":
            value = tl.load(floats(form) + at, mask=mask, other=0.0)
        else:
            pattern = tl.load(form.to(tl.pointer_type(tl.uint16)) + at, mask=mask, other=0).to(tl.int32)
            value = _widen(pattern, FORMAT)
        total += value * weight
        form += forms.stride
    store(out, tensor, at, mask, total)
