"""``mxfp8``, ``mxfp4`` and ``nvfp4``: floats of 8 or 4 bits, times the scale of their block.

A form is the message: for ``nvfp4`` the tensor's scale as float32, then a byte for the scale of
each block, then the elements. Messages equal the host's, byte for byte.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Dict

import torch
import triton
import triton.language as tl

from ._batch import Batch, at_least_one, place
from ._config import Config
from ._forms import Forms, before, floats, form_of, put_first
from ._kernel import Dense
from ._launch import BLOCK, FEW_WARPS, launch, over
from ._source import LARGEST, Source, corrected, keep, largest
from ._symbols import bytes_of, put_block, take
from ._tensors import block_of, in_bucket, store


@dataclass(frozen=True)
class Element:
    """A format of floats. Kernels take the fields as constants."""

    # Bits of a code, and of its mantissa.
    BITS: int
    MANTISSA: int
    # The bits of the least normal number, as float32.
    LEAST: int
    # The largest finite number, and its exponent.
    MOST: float
    EXPONENT: int


_E4M3 = Element(8, 3, 121 << 23, 448.0, 8)
_E5M2 = Element(8, 2, 113 << 23, 57344.0, 15)
_E2M1 = Element(4, 1, 127 << 23, 6.0, 2)


class BlockScaled(Dense):
    """Elements in blocks, each with the byte of a scale."""

    # The bytes of the tensor's scale, and the elements of a block.
    HEADER = 0
    LENGTH = 32

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if config.id == "mxfp8":
            self._element = {"e4m3": _E4M3, "e5m2": _E5M2}[config.word("element")]
        else:
            self._element = _E2M1

    def form_bytes(self, elements: int) -> int:
        return self.HEADER + self._blocks_of(elements) + bytes_of(elements, self._element.BITS)

    def encode(self, batch: Batch, source: Source, forms: Forms, step: int) -> None:
        rows = BLOCK // self.LENGTH
        # The first program of a tensor stores its scale.
        table = batch.table(rows, self._blocks_or_one)
        layout, element = self._layout(), asdict(self._element)
        launch(_encode, table, source, forms, ROWS=rows, warps=FEW_WARPS, **layout, **element)

    def add(self, batch: Batch, forms: Forms, out: torch.Tensor, weight: float, step: int, rank: int) -> None:
        element = self._element
        over(
            batch,
            _add,
            forms,
            in_bucket(batch, out),
            weight,
            BITS=element.BITS,
            MANTISSA=element.MANTISSA,
            LEAST=element.LEAST,
            **self._layout(),
        )

    def _layout(self) -> Dict[str, int]:
        return {"HEADER": self.HEADER, "LENGTH": self.LENGTH}

    def _blocks_of(self, elements: int) -> int:
        return triton.cdiv(elements, self.LENGTH)

    def _blocks_or_one(self, elements: int) -> int:
        return at_least_one(self._blocks_of(elements))


class Nvfp4(BlockScaled):
    """Blocks whose scales are multiples of the tensor's scale."""

    HEADER = 4
    LENGTH = 16


@triton.jit
def _bits(value):
    return value.to(tl.int32, bitcast=True)


@triton.jit
def _float(bits):
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _nearest(value, factor, BITS: tl.constexpr, MANTISSA: tl.constexpr, LEAST: tl.constexpr, MOST: tl.constexpr):
    """The code of the number nearest to ``value * factor``, and this number, with the sign of
    ``value``. Halves go to the even code, and greater numbers become the largest."""
    magnitude = tl.abs(value) * factor
    magnitude = tl.where(magnitude < MOST, magnitude, MOST)
    power = tl.maximum(_bits(magnitude) & 0x7F800000, LEAST)
    # The last bit of `unit` is the distance between two numbers, so the sum is rounded to a number.
    shift: tl.constexpr = 23 - MANTISSA
    unit = _float(power + (shift << 23))
    total = magnitude + unit
    code = _bits(total) - _bits(unit) + (power >> shift) - (LEAST >> shift)
    # A negative integer; the shift repeats its highest bit.
    sign = _bits(value) & -0x80000000
    code |= (sign >> (32 - BITS)) & (1 << (BITS - 1))
    return code, _float(_bits(total - unit) | sign)


@triton.jit
def _number(code, BITS: tl.constexpr, MANTISSA: tl.constexpr, LEAST: tl.constexpr):
    """The number of a code."""
    fields = (code & ((1 << (BITS - 1)) - 1)) << (23 - MANTISSA)
    subnormal = fields < (1 << 23)
    # With the exponent of the least normal number, a subnormal number is too large by it.
    wide = _float(fields + LEAST - tl.where(subnormal, 0, 1 << 23))
    excess = _float(tl.where(subnormal, LEAST, 0))
    sign = (code << (32 - BITS)) & -0x80000000
    return _float(_bits(wide - excess) | sign)


@triton.jit
def _scale_of_tensor(source, tensor):
    """The scale of a tensor for ``nvfp4``."""
    return tl.div_rn(largest(source, tensor), 2688.0)


@triton.jit
def _power(byte):
    """The scale of E8M0: a power of two, of which the least is subnormal."""
    return _float(tl.where(byte == 0, 1 << 22, byte << 23))


@triton.jit
def _scales(most, source, tensor, HEADER: tl.constexpr, EXPONENT: tl.constexpr):
    """The bytes of the scales of blocks with these largest absolute values, the scales, and their
    inverses."""
    if HEADER == 0:
        byte = tl.maximum((_bits(most) >> 23) - EXPONENT, 0)
        scale, inverse = _power(byte), _float((254 - byte) << 23)
    else:
        whole = _scale_of_tensor(source, tensor)
        byte, number = _nearest(tl.div_rn(most, 6.0 * whole), 1.0, 8, 3, 121 << 23, 448.0)
        scale = whole * number
        inverse = tl.div_rn(1.0, scale)
        # A block whose scale has no inverse sends zeros. The quotient of zeros may have any sign.
        finite = tl.abs(inverse) <= LARGEST
        byte, scale, inverse = tl.where(finite, byte, 0), tl.where(finite, scale, 0.0), tl.where(finite, inverse, 0.0)
    return byte, scale, inverse


@triton.jit
def _encode(
    table,
    source,
    forms,
    ROWS: tl.constexpr,
    HEADER: tl.constexpr,
    LENGTH: tl.constexpr,
    BITS: tl.constexpr,
    MANTISSA: tl.constexpr,
    LEAST: tl.constexpr,
    MOST: tl.constexpr,
    EXPONENT: tl.constexpr,
):
    tensor, block = place(table, ROWS)
    elements = tl.load(source.lengths + tensor)
    blocks = (elements + LENGTH - 1) // LENGTH
    at = block[:, None] * LENGTH + tl.arange(0, LENGTH)[None, :]
    mask = at < elements
    value = corrected(source, tensor, at, mask)
    byte, scale, inverse = _scales(tl.max(tl.abs(value), 1), source, tensor, HEADER, EXPONENT)
    code, number = _nearest(value, inverse[:, None], BITS, MANTISSA, LEAST, MOST)
    keep(source, tensor, at, mask, value - number * scale[:, None])
    if HEADER != 0:
        put_first(forms, tensor, table, _scale_of_tensor(source, tensor))
    form = form_of(forms, tensor) + HEADER
    tl.store(form + block, byte.to(tl.uint8), mask=block < blocks)
    if BITS == 8:
        tl.store(form + blocks + at, code.to(tl.uint8), mask=mask)
    else:
        put_block(form + blocks, table, tl.where(mask, code, 0), elements, BITS, ROWS * LENGTH)


@triton.jit
def _add(
    table,
    forms,
    out,
    weight,
    HEADER: tl.constexpr,
    LENGTH: tl.constexpr,
    BITS: tl.constexpr,
    MANTISSA: tl.constexpr,
    LEAST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tensor, at, mask = block_of(table, out.lengths, BLOCK)
    form, total = form_of(forms, tensor), before(forms, out, tensor, at, mask)
    blocks = (tl.load(out.lengths + tensor) + LENGTH - 1) // LENGTH
    for _ in range(forms.messages):
        byte = tl.load(form + HEADER + at // LENGTH, mask=mask, other=0).to(tl.int32)
        code = take(form + HEADER + blocks, at, mask, BITS)
        if HEADER == 0:
            scale = _power(byte)
        else:
            scale = tl.load(floats(form)) * _number(byte, 8, 3, 121 << 23)
        total += _number(code, BITS, MANTISSA, LEAST) * scale * weight
        form += forms.stride
    store(out, tensor, at, mask, total)
