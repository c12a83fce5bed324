"""``eden``: a random rotation, and the nearest levels for normally distributed values.

A form is the scale of each piece as float32, then the levels of all pieces in 1, 2, 4 or 8 bits each; see
``gradwire::device``. A scale is a quotient of sums in float64, which the host adds in another order. So it may differ in its
last bit from the scale that the host finds for the same tensor, and a level where a value lies at the limit of two. Messages
decode to the same bits as on the host.

One program rotates a piece of up to 4096 elements, with additions in the order of ``gradwire_bits::kernels::hadamard``.
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
from ._kernel import Dense
from ._philox import keys, word
from ._launch import launch
from ._source import LARGEST, Source, add_at, corrected, keep, largest
from ._symbols import bytes_of, put, take, width_of
from .levels import invertible

PIECE = 4096
# The tensor of a piece, its first element, elements, elements with padding, number, and the number of pieces of the tensor.
_FIELDS = 6


def pieces(elements: int) -> List[Tuple[int, int, int]]:
    """The first element of each piece, the number of its elements, and that number with padding, a power of two; see
    ``gradwire::numeric::rotation``."""
    found, start = [], 0
    while start < elements:
        left = elements - start
        padded = 1 << (left - 1).bit_length()
        if left >= PIECE:
            length = size = PIECE
        elif left < 64 or 8 * (padded - left) <= padded:
            length, size = left, padded
        else:
            length = size = padded // 2
        found.append((start, length, size))
        start += length
    return found


@lru_cache(maxsize=None)
def _levels(bits: int) -> Tuple[float, ...]:
    """The positive levels of the quantizer. The host's decoder tells them: a message of one element with the scale 1 decodes
    to a level, with a random sign."""
    one, codec = struct.pack("<f", 1.0), _core.Codec(f"eden:bits={bits}", 0, 0, 1)
    levels = torch.zeros(1 << (bits - 1), 1, dtype=torch.float32, device="cpu")
    for symbol, out in enumerate(levels):
        codec.decode_add("", (1,), 0, 0, one + bytes([symbol]), 1.0, buffer(out))
    return tuple(levels.flatten().abs().tolist())


def eden(config: Config) -> Optional[Eden]:
    """The kernels for whole numbers of bits from 1 to 8."""
    return Eden(config) if config.real("bits") in range(1, 9) else None


class Eden(Dense):
    """EDEN without its Huffman code, which is the host's."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._bits = int(config.real("bits"))
        self._width = width_of(1 << self._bits)
        self._tables = PerBatch(partial(_tables, self._bits))

    def form_bytes(self, elements: int) -> int:
        # A loop over the pieces of every tensor would take long at every step.
        last = pieces(elements % PIECE)
        sizes = elements // PIECE * PIECE + sum(size for _, _, size in last)
        return 4 * (elements // PIECE + len(last)) + bytes_of(sizes, self._width)

    def encode(
        self, batch: Batch, source: Source, maxima: torch.Tensor, forms: torch.Tensor, at: torch.Tensor, step: int
    ) -> None:
        rows, limits, numbers = self._tables(batch)
        launch(
            _encode,
            rows,
            keys(batch, self.config.seed, step, 0),
            0,
            self.config.rank,
            step,
            *source.of(batch),
            maxima,
            limits,
            numbers,
            forms,
            at,
            FEEDBACK=source.feedback,
            BITS=self._bits,
            WIDTH=self._width,
            FIELDS=_FIELDS,
            PIECE=PIECE,
            # A rotation exchanges elements between threads twelve times.
            warps=4,
        )

    def add(
        self, batch: Batch, forms: torch.Tensor, at: torch.Tensor, out: torch.Tensor, weight: float, step: int, rank: int
    ) -> None:
        rows, _, numbers = self._tables(batch)
        launch(
            _add,
            rows,
            keys(batch, self.config.seed, step, 0),
            0,
            rank,
            step,
            batch.starts,
            numbers,
            forms,
            at,
            out,
            weight,
            WIDTH=self._width,
            FIELDS=_FIELDS,
            PIECE=PIECE,
            # A rotation exchanges elements between threads twelve times.
            warps=4,
        )


def _tables(bits: int, batch: Batch) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The pieces of all tensors, the limits between levels, and what each symbol stands for."""
    levels = torch.tensor(_levels(bits), dtype=torch.float32, device="cpu")
    doubles = levels.double()
    # One number, so that the table of one bit is not empty.
    limits = torch.cat([((doubles[:-1] + doubles[1:]) / 2).float(), torch.zeros(1, device="cpu")])
    return _rows(batch), batch.moved(limits), batch.moved(torch.cat([levels, -levels]))


def _rows(batch: Batch) -> torch.Tensor:
    rows: List[Tuple[int, ...]] = []
    for tensor, slot in enumerate(batch.slots):
        found = pieces(slot.elements)
        rows.extend((tensor, *piece, number, len(found)) for number, piece in enumerate(found))
    return batch.moved(torch.tensor(rows, dtype=torch.int64, device="cpu").reshape(-1, _FIELDS))


@triton.jit(do_not_specialize=["stream", "rank", "step"])
def _encode(
    rows,
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
    limits,
    numbers,
    forms,
    at,
    FEEDBACK: tl.constexpr,
    BITS: tl.constexpr,
    WIDTH: tl.constexpr,
    FIELDS: tl.constexpr,
    PIECE: tl.constexpr,
):
    tensor, first, length, size, number, count = _piece(rows, FIELDS)
    place = tl.arange(0, PIECE)
    mask, inside = place < length, place < size
    element = first + place
    value = corrected(values, starts, residual, beta, gamma, kept, tensor, element, mask, FEEDBACK)
    unit, inverse = invertible(largest(maxima, tensor))
    rotated = value * inverse
    square = _inner_product(rotated, rotated)
    norm, over_norm = invertible(tl.sqrt(square).to(tl.float32))
    unit = tl.where(norm == 0.0, 0.0, unit)
    signs = _signs(tl.load(keys + tensor), stream, rank, step, first, PIECE)
    rotated = _hadamard(_flip(rotated, signs), size, PIECE)

    symbols = _quantize(rotated, over_norm, limits, BITS)
    symbols = tl.where(inside, symbols, 0)
    decoded = tl.where(inside, tl.load(numbers + symbols), 0.0)
    along = _inner_product(decoded, rotated)
    if FEEDBACK:
        least = along / (size.to(tl.float64) * _inner_product(decoded, decoded))
        decoded = _flip(_hadamard(decoded, size, PIECE), signs)
        # What is left of an element is finite, too.
        room = tl.div_rn(LARGEST - largest(maxima, tensor), tl.max(tl.abs(decoded), 0))
        scale = tl.minimum(_enlarged(least, unit), room)
        left = value - _scaled(decoded, scale)
        keep(residual, kept, tensor, element, mask, maxima, tl.load(lengths + tensor), left, FEEDBACK)
    else:
        scale = _enlarged(square / along, unit)
    start = tl.load(at + tensor)
    tl.store((forms + start).to(tl.pointer_type(tl.float32)) + number, scale)
    # Padding follows the last piece alone, so that symbol i of a tensor is that of element i.
    put(forms, start + 4 * count + first * WIDTH // 8, symbols, size, WIDTH, PIECE)


@triton.jit(do_not_specialize=["stream", "rank", "step"])
def _add(
    rows,
    keys,
    stream,
    rank,
    step,
    starts,
    numbers,
    forms,
    at,
    out,
    weight,
    WIDTH: tl.constexpr,
    FIELDS: tl.constexpr,
    PIECE: tl.constexpr,
):
    tensor, first, length, size, number, count = _piece(rows, FIELDS)
    place = tl.arange(0, PIECE)
    mask, inside = place < length, place < size
    start = tl.load(at + tensor)
    scale = tl.load((forms + start).to(tl.pointer_type(tl.float32)) + number)
    symbols = take(forms, start + 4 * count, first + place, inside, WIDTH)
    decoded = tl.where(inside, tl.load(numbers + symbols), 0.0)
    signs = _signs(tl.load(keys + tensor), stream, rank, step, first, PIECE)
    decoded = _scaled(_flip(_hadamard(decoded, size, PIECE), signs), scale)
    add_at(out, starts, tensor, first + place, mask, decoded * weight)


@triton.jit
def _piece(rows, FIELDS: tl.constexpr):
    """The piece of this program."""
    row = rows + FIELDS * tl.program_id(0).to(tl.int64)
    return tl.load(row), tl.load(row + 1), tl.load(row + 2), tl.load(row + 3), tl.load(row + 4), tl.load(row + 5)


@triton.jit
def _inner_product(a, b):
    return tl.sum(a.to(tl.float64) * b.to(tl.float64), 0)


@triton.jit
def _enlarged(scale, unit):
    """The scale of a piece whose elements were divided by ``unit``; 0 where all are 0 and there is none."""
    scale = tl.where(tl.abs(scale) <= 1.7976931348623157e308, scale * unit.to(tl.float64), 0.0)
    return tl.minimum(scale, LARGEST).to(tl.float32)


@triton.jit
def _scaled(level, scale):
    """What an element decodes to."""
    return tl.minimum(tl.maximum(level * scale, -LARGEST), LARGEST)


@triton.jit
def _signs(key, stream, rank, step, first, PIECE: tl.constexpr):
    """The bit of each element of a piece; 1 flips its sign."""
    words = word(key, stream, rank, step, first // 32 + tl.arange(0, PIECE // 32))
    shift = tl.arange(0, 32).to(tl.uint32)
    return tl.reshape((words[:, None] >> shift[None, :]) & 1, [PIECE])


@triton.jit
def _flip(values, signs):
    return (values.to(tl.uint32, bitcast=True) ^ (signs.to(tl.uint32) << 31)).to(tl.float32, bitcast=True)


@triton.jit
def _hadamard(values, size, PIECE: tl.constexpr):
    """The Walsh–Hadamard transform of the first ``size`` elements."""
    values = _butterflies(values, size, 1, PIECE)
    values = _butterflies(values, size, 2, PIECE)
    values = _butterflies(values, size, 4, PIECE)
    values = _butterflies(values, size, 8, PIECE)
    values = _butterflies(values, size, 16, PIECE)
    values = _butterflies(values, size, 32, PIECE)
    values = _butterflies(values, size, 64, PIECE)
    values = _butterflies(values, size, 128, PIECE)
    values = _butterflies(values, size, 256, PIECE)
    values = _butterflies(values, size, 512, PIECE)
    values = _butterflies(values, size, 1024, PIECE)
    return _butterflies(values, size, 2048, PIECE)


@triton.jit
def _butterflies(values, size, HALF: tl.constexpr, PIECE: tl.constexpr):
    """Sums and differences of the elements that are ``HALF`` apart, in transforms of more elements than that."""
    pairs = tl.permute(tl.reshape(values, [PIECE // (2 * HALF), 2, HALF]), [0, 2, 1])
    low, high = tl.split(pairs)
    both = tl.permute(tl.join(low + high, low - high), [0, 2, 1])
    return tl.where(HALF < size, tl.reshape(both, [PIECE]), values)


@triton.jit
def _quantize(values, inverse, limits, BITS: tl.constexpr):
    """How many limits the absolute value times ``inverse`` reaches, plus the number of positive levels if it is negative."""
    magnitude = tl.abs(values * inverse)
    reached = tl.zeros_like(magnitude).to(tl.int32)
    for bit in tl.static_range(BITS - 1):
        # A binary search: limits are one fewer than a power of two.
        stride = 1 << (BITS - 2 - bit)
        reached += tl.where(magnitude >= tl.load(limits + reached + stride - 1), stride, 0)
    return reached + ((values.to(tl.uint32, bitcast=True) >> 31).to(tl.int32) << (BITS - 1))
