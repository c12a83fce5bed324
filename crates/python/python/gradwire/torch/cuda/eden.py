"""``eden``: a random rotation, and the nearest levels for normally distributed values.

A form is the scale of each piece as float32, then the levels of all pieces in 1, 2, 4 or 8 bits
each; see ``gradwire::device``. A scale is a quotient of sums in float64, which the host adds in
another order and in part in float32. So the last bits of a scale may differ from the host's, and a
value at the limit of two levels may get the other level. Messages decode to the same bits as on the
host.

One program rotates a piece of up to 4096 elements, with additions in the order of
``gradwire_bits::kernels::hadamard``. Levels of one bit are ±1, so the sums of their rotation are
whole numbers, exact in any order: tensor cores compute them.
"""

from __future__ import annotations

import struct
from functools import lru_cache, partial
from typing import List, Optional, Tuple

import torch
import triton
import triton.language as tl

from ... import _core
from ..._arrays import buffer
from ._batch import Batch, PerBatch
from ._config import Config
from ._forms import Forms, before, floats, form_of
from ._kernel import Dense
from ._launch import launch
from ._philox import word
from ._repeated import permanent
from ._source import LARGEST, Source, corrected, keep, largest
from ._symbols import bytes_of, put, take, width_of
from ._tensors import in_bucket, store
from .levels import invertible

PIECE = tl.constexpr(4096)
# The number of fields of a piece: its tensor, first element, elements, elements with padding,
# number, and the number of pieces of the tensor.
_FIELDS = tl.constexpr(6)
# A rotation exchanges elements between threads twelve times.
_WARPS = 4


def pieces(elements: int) -> List[Tuple[int, int, int]]:
    """For each piece: its first element, its number of elements, and this number with padding, a
    power of two; see ``gradwire::numeric::rotation``."""
    found, start = [], 0
    while start < elements:
        left = elements - start
        padded = 1 << (left - 1).bit_length()
        if left >= PIECE.value:
            length = size = PIECE.value
        elif left < 64 or 8 * (padded - left) <= padded:
            length, size = left, padded
        else:
            length = size = padded // 2
        found.append((start, length, size))
        start += length
    return found


@lru_cache(maxsize=None)
def _levels(bits: int) -> Tuple[float, ...]:
    """The positive levels of the quantizer, as the host decodes them: a message of one element with
    the scale 1 is a level with a random sign."""
    one, codec = struct.pack("<f", 1.0), _core.Codec(f"eden:bits={bits}", 0, 0, 1)
    levels = torch.zeros(1 << (bits - 1), 1, dtype=torch.float32, device="cpu")
    for symbol, out in enumerate(levels):
        codec.decode_add("", (1,), 0, 0, one + bytes([symbol]), 1.0, buffer(out))
    return tuple(levels.flatten().abs().tolist())


def eden(config: Config) -> Optional[Eden]:
    """The kernels for whole numbers of bits from 1 to 8."""
    return Eden(config) if config.real("bits") in range(1, 9) else None


class Eden(Dense):
    """EDEN without its Huffman code, which the host applies."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._bits = int(config.real("bits"))
        self._width = width_of(1 << self._bits)
        self._tables = PerBatch(partial(_tables, self._bits))

    def form_bytes(self, elements: int) -> int:
        # A loop over the pieces of every tensor would be slow at every step.
        whole, rest = divmod(elements, PIECE.value)
        last = pieces(rest)
        sizes = whole * PIECE.value + sum(size for _, _, size in last)
        return 4 * (whole + len(last)) + bytes_of(sizes, self._width)

    def encode(self, batch: Batch, source: Source, forms: Forms, step: int) -> None:
        rows, limits, numbers = self._tables(batch)
        draws = self.draws(batch, step)
        launch(_encode, rows, *draws, source, limits, numbers, forms, BITS=self._bits, WIDTH=self._width, warps=_WARPS)

    def add(self, batch: Batch, forms: Forms, out: torch.Tensor, weight: float, step: int, rank: int) -> None:
        rows, _, numbers = self._tables(batch)
        draws, sums = self.draws(batch, step, rank), in_bucket(batch, out)
        launch(_add, rows, *draws, numbers, forms, sums, weight, WIDTH=self._width, warps=_WARPS)


def _tables(bits: int, batch: Batch) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The pieces of all tensors, the limits between levels, and the level of each symbol."""
    levels = torch.tensor(_levels(bits), dtype=torch.float32, device="cpu")
    doubles = levels.double()
    # One number more, so the table for one bit is not empty.
    limits = torch.cat([((doubles[:-1] + doubles[1:]) / 2).float(), torch.zeros(1, dtype=torch.float32, device="cpu")])
    tables = _rows(batch), batch.moved(limits), batch.moved(torch.cat([levels, -levels]))
    for table in tables:
        permanent(table)
    return tables


def _rows(batch: Batch) -> torch.Tensor:
    rows: List[Tuple[int, ...]] = []
    for tensor, slot in enumerate(batch.slots):
        found = pieces(slot.elements)
        rows.extend((tensor, *piece, number, len(found)) for number, piece in enumerate(found))
    return batch.moved(torch.tensor(rows, dtype=torch.int64, device="cpu").reshape(-1, _FIELDS.value))


@triton.jit(do_not_specialize=["rank", "step"])
def _encode(rows, keys, rank, step, source, limits, numbers, forms, BITS: tl.constexpr, WIDTH: tl.constexpr):
    tensor, first, length, size, number, count = _piece(rows)
    place = tl.arange(0, PIECE)
    mask, inside = place < length, place < size
    at = first + place
    value = corrected(source, tensor, at, mask)
    unit = _power_of_two(value)
    rotated = value * tl.div_rn(1.0, unit)
    square = _inner_product(rotated, rotated)
    _, over_norm = invertible(tl.sqrt(square).to(tl.float32))
    signs = _signs(tl.load(keys + tensor), rank, step, first)
    rotated = _hadamard(_flip(rotated, signs), size)

    symbols = _quantize(rotated, over_norm, limits, BITS)
    symbols = tl.where(inside, symbols, 0)
    decoded = _level(symbols, inside, numbers, BITS)
    along = _inner_product(decoded, rotated)
    if source.residual is not None:
        least = along / (size.to(tl.float64) * _inner_product(decoded, decoded))
        decoded = _flip(_turned(decoded, size, BITS), signs)
        # The rest of an element is finite, too.
        room = tl.div_rn(LARGEST - largest(source, tensor), tl.max(tl.abs(decoded), 0))
        scale = tl.minimum(_enlarged(least, unit), room)
        keep(source, tensor, at, mask, value - _scaled(decoded, scale))
    else:
        scale = _enlarged(square / along, unit)
    form = form_of(forms, tensor)
    tl.store(floats(form) + number, scale)
    # Only the last piece has padding, so symbol i of a tensor is the symbol of element i.
    put(form + 4 * count + first * WIDTH // 8, symbols, size, WIDTH, PIECE)


@triton.jit(do_not_specialize=["rank", "step"])
def _add(rows, keys, rank, step, numbers, forms, out, weight, WIDTH: tl.constexpr):
    tensor, first, length, size, number, count = _piece(rows)
    place = tl.arange(0, PIECE)
    mask, inside = place < length, place < size
    form, total = form_of(forms, tensor), before(forms, out, tensor, first + place, mask)
    if forms.senders is not None:
        rank = tl.load(forms.senders + tensor)
    for message in range(forms.messages):
        scale = tl.load(floats(form) + number)
        symbols = take(form + 4 * count, first + place, inside, WIDTH)
        # Only levels of one bit have symbols of one bit.
        decoded = _turned(_level(symbols, inside, numbers, WIDTH), size, WIDTH)
        signs = _signs(tl.load(keys + tensor), rank + message, step, first)
        decoded = _scaled(_flip(decoded, signs), scale)
        total += decoded * weight
        form += forms.stride
    store(out, tensor, first + place, mask, total)


@triton.jit
def _piece(rows):
    """The fields of this program's piece."""
    row = rows + _FIELDS * tl.program_id(0).to(tl.int64)
    return tl.load(row), tl.load(row + 1), tl.load(row + 2), tl.load(row + 3), tl.load(row + 4), tl.load(row + 5)


@triton.jit
def _inner_product(a, b):
    return tl.sum(a.to(tl.float64) * b.to(tl.float64), 0)


@triton.jit
def _power_of_two(values):
    """The largest normal power of two up to the largest absolute value, or the least one."""
    exponent = tl.max(values.to(tl.int32, bitcast=True) & 0x7F800000, 0)
    return tl.maximum(exponent, 0x00800000).to(tl.float32, bitcast=True)


@triton.jit
def _enlarged(scale, unit):
    """The scale of a piece whose elements were divided by ``unit``; 0 if all elements are 0, or if
    it would be subnormal."""
    scale *= unit.to(tl.float64)
    return tl.where(scale >= 1.1754943508222875e-38, tl.minimum(scale, LARGEST), 0.0).to(tl.float32)


@triton.jit
def _scaled(level, scale):
    """The value that an element decodes to."""
    return tl.minimum(tl.maximum(level * scale, -LARGEST), LARGEST)


@triton.jit
def _signs(key, rank, step, first):
    """The bit of each element of a piece; 1 flips its sign."""
    words = word(key, 0, rank, step, first // 32 + tl.arange(0, PIECE // 32))
    shift = tl.arange(0, 32).to(tl.uint32)
    return tl.reshape((words[:, None] >> shift[None, :]) & 1, [PIECE])


@triton.jit
def _flip(values, signs):
    return (values.to(tl.uint32, bitcast=True) ^ (signs.to(tl.uint32) << 31)).to(tl.float32, bitcast=True)


@triton.jit
def _level(symbols, inside, numbers, BITS: tl.constexpr):
    """The levels of symbols, 0 for padding of the program's block."""
    if BITS == 1:
        levels = (1 - 2 * symbols).to(tl.float32)
    else:
        levels = tl.load(numbers + symbols)
    return tl.where(inside, levels, 0.0)


@triton.jit
def _turned(levels, size, BITS: tl.constexpr):
    """The transform of the first ``size`` levels, which are ±1 if ``BITS`` is 1; others are 0."""
    return _whole_hadamard(levels, size) if BITS == 1 else _hadamard(levels, size)


@triton.jit
def _whole_hadamard(values, size):
    """The Walsh–Hadamard transform of elements that are 1, −1 or 0, by rows and columns of a square
    of 64. Every sum is exact: float16 holds whole numbers up to 2048, and float32 the results."""
    at = tl.arange(0, 64)
    # The parity of the bits that two indices have in common.
    parity = at[:, None] & at[None, :]
    parity ^= parity >> 4
    parity ^= parity >> 2
    parity ^= parity >> 1
    signs = (1 - 2 * (parity & 1)).to(tl.float16)
    last = tl.maximum(at[:, None], at[None, :])
    of_columns = tl.where(last < size, signs, 0.0)
    of_rows = tl.where(last < (size + 63) // 64, signs, 0.0)
    values = tl.dot(tl.reshape(values, [64, 64]).to(tl.float16), of_columns.to(tl.float16))
    return tl.reshape(tl.dot(of_rows.to(tl.float16), values.to(tl.float16)), [PIECE])


@triton.jit
def _hadamard(values, size):
    """The Walsh–Hadamard transform of the first ``size`` elements."""
    values = _butterflies(values, size, 1)
    values = _butterflies(values, size, 2)
    values = _butterflies(values, size, 4)
    values = _butterflies(values, size, 8)
    values = _butterflies(values, size, 16)
    values = _butterflies(values, size, 32)
    values = _butterflies(values, size, 64)
    values = _butterflies(values, size, 128)
    values = _butterflies(values, size, 256)
    values = _butterflies(values, size, 512)
    values = _butterflies(values, size, 1024)
    return _butterflies(values, size, 2048)


@triton.jit
def _butterflies(values, size, HALF: tl.constexpr):
    """Sums and differences of the elements that are ``HALF`` apart, in transforms of more than
    ``HALF`` elements."""
    pairs = tl.permute(tl.reshape(values, [PIECE // (2 * HALF), 2, HALF]), [0, 2, 1])
    low, high = tl.split(pairs)
    both = tl.permute(tl.join(low + high, low - high), [0, 2, 1])
    return tl.where(HALF < size, tl.reshape(both, [PIECE]), values)


@triton.jit
def _quantize(values, inverse, limits, BITS: tl.constexpr):
    """The number of limits that the absolute value times ``inverse`` reaches, plus the number of
    positive levels if the value is negative."""
    magnitude = tl.abs(values * inverse)
    reached = tl.zeros_like(magnitude).to(tl.int32)
    for bit in tl.static_range(BITS - 1):
        # A binary search: limits are one fewer than a power of two.
        stride = 1 << (BITS - 2 - bit)
        reached += tl.where(magnitude >= tl.load(limits + reached + stride - 1), stride, 0)
    return reached + ((values.to(tl.uint32, bitcast=True) >> 31).to(tl.int32) << (BITS - 1))
