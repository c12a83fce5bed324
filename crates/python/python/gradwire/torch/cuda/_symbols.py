"""Symbols of 1, 2, 4, 8 or 16 bits each, from the lowest bit of a byte up."""

from __future__ import annotations

import triton
import triton.language as tl


def width_of(symbols: int) -> int:
    """The width of each symbol of an alphabet in a form: 1, 2, 4, 8 or 16 bits."""
    bits = (symbols - 1).bit_length()
    return bits if bits in (1, 2, 4) else 8 if bits <= 8 else 16


def bytes_of(count: int, width: int) -> int:
    """The number of bytes of symbols."""
    return triton.cdiv(count * width, 8)


@triton.jit
def put(address, symbols, count, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Stores the first ``count`` of ``BLOCK`` symbols, given as int32. The others must be 0."""
    if WIDTH == 16:
        at = tl.arange(0, BLOCK)
        tl.store(address.to(tl.pointer_type(tl.uint16)) + at, symbols.to(tl.uint16), mask=at < count)
    else:
        per_byte: tl.constexpr = 8 // WIDTH
        byte = tl.arange(0, BLOCK // per_byte)
        shift = WIDTH * tl.arange(0, per_byte)
        packed = tl.sum(tl.reshape(symbols, [BLOCK // per_byte, per_byte]) << shift[None, :], 1)
        tl.store(address + byte, packed.to(tl.uint8), mask=byte < (count + per_byte - 1) // per_byte)


@triton.jit
def take(address, at, mask, WIDTH: tl.constexpr):
    """The symbols ``at`` of a list, as int32; 0 where ``mask`` is false."""
    if WIDTH == 16:
        symbols = tl.load(address.to(tl.pointer_type(tl.uint16)) + at, mask=mask, other=0).to(tl.int32)
    else:
        byte = tl.load(address + at * WIDTH // 8, mask=mask, other=0).to(tl.int32)
        symbols = (byte >> (at * WIDTH % 8).to(tl.int32)) & ((1 << WIDTH) - 1)
    return symbols


@triton.jit
def put_block(address, table, symbols, elements, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Stores the symbols of this program's block in the list of all ``elements`` symbols of a
    tensor."""
    start = tl.load(table + 2 * tl.program_id(0).to(tl.int64) + 1).to(tl.int64) * BLOCK
    put(address + start * WIDTH // 8, symbols, tl.minimum(elements - start, BLOCK), WIDTH, BLOCK)
