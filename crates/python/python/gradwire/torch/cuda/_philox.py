"""The host's counter-based random numbers: Philox 4x32-10, keyed by (seed, tensor, rank, step).

Word i of a tensor's stream is word i mod 4 of block i // 4, as in ``gradwire::Rng``.
"""

from __future__ import annotations

from typing import Dict, Tuple

import torch
import triton
import triton.language as tl

from ._batch import Batch, PerBatch, place

# The stream of the bits that elements share.
_SHARED_BITS = tl.constexpr(0x80000000)

_64 = (1 << 64) - 1


def keys(batch: Batch, seed: int, step: int) -> torch.Tensor:
    """The key of each tensor, as int64 on the device."""
    known, key = _keys(batch), (seed, step >> 32)
    found = known.get(key)
    if found is None:
        found = known[key] = batch.vector([_key(seed, slot.name, step >> 32) for slot in batch.slots])
    return found


def _nothing(batch: Batch) -> Dict[Tuple[int, int], torch.Tensor]:
    return {}


# For each batch the keys by seed and the upper 32 bits of the step.
_keys = PerBatch(_nothing)


def _key(seed: int, name: str, high: int) -> int:
    """The key of a tensor for steps with these upper 32 bits."""
    return _signed(_mix(seed ^ _mix(fnv1a(name.encode()) ^ _mix(high))))


def _mix(x: int) -> int:
    """The finaliser of SplitMix64."""
    x = (x + 0x9E3779B97F4A7C15) & _64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _64
    return x ^ (x >> 31)


def fnv1a(text: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in text:
        value = ((value ^ byte) * 0x100000001B3) & _64
    return value


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


@triton.jit
def draw(key, stream, rank, step, block):
    """The four words of blocks of a stream; ``block`` is below 2³²."""
    first = block.to(tl.uint32)
    zero = first * 0
    stream, rank, step = zero + tl.cast(stream, tl.uint32), zero + rank.to(tl.uint32), zero + step.to(tl.uint32)
    return tl.philox(key.to(tl.uint64), first, stream, rank, step)


@triton.jit
def word(key, stream, rank, step, at):
    """Word ``at`` of a stream, at any place in a block. For consecutive words, ``draw`` costs a
    quarter."""
    a, b, c, d = draw(key, stream, rank, step, at // 4)
    lane = at % 4
    return tl.where(lane == 0, a, tl.where(lane == 1, b, tl.where(lane == 2, c, d)))


@triton.jit
def interleave(a, b, c, d):
    """a[0], b[0], c[0], d[0], a[1], …"""
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), [4 * a.shape[0]])


@triton.jit
def rounding(key, rank, step, table, BLOCK: tl.constexpr):
    """The words that round the elements of a block: each element has its own upper 8 bits, and 16
    elements share the next 16 bits. See ``gradwire::Rng::fill_rounding``."""
    _, sixteens = place(table, BLOCK // 16)
    a, b, c, d = draw(key, 0, rank, step, sixteens)
    own = interleave(a, b, c, d)
    own = interleave(own & 0xFF, (own >> 8) & 0xFF, (own >> 16) & 0xFF, own >> 24)
    _, rows = place(table, BLOCK // 128)
    a, b, c, d = draw(key, _SHARED_BITS, rank, step, rows)
    pairs = interleave(a, b, c, d)
    halves = tl.reshape(tl.join(pairs & 0xFFFF, pairs >> 16), [BLOCK // 16])
    shared = tl.reshape(tl.broadcast_to(halves[:, None], [BLOCK // 16, 16]), [BLOCK])
    return (own << 24) | (shared << 8)
