"""``8bit``: the nearest of 256 numbers, relative to the largest absolute value.

A form is that value as float32 and a byte for each element; see ``gradwire::device``. Messages are the host's, byte for byte.
"""

from __future__ import annotations

import struct
from typing import Tuple

import torch
import triton
import triton.language as tl

from ... import _core
from ..._arrays import buffer
from ._batch import Batch, PerBatch, place
from ._config import Config
from ._kernel import Dense
from ._launch import BLOCK, for_tensors, over
from ._source import Source, add_at, corrected, keep, largest
from .levels import invertible


def _numbers() -> torch.Tensor:
    """What each byte stands for. The host's decoder tells it: of a message with the scale 1 and all bytes."""
    numbers = torch.zeros(256, dtype=torch.float32, device="cpu")
    message = struct.pack("<f", 1.0) + bytes(range(256))
    _core.Codec("8bit", 0, 0, 1).decode_add("", (256,), 0, 0, message, 1.0, buffer(numbers))
    return numbers


def _tables(batch: Batch) -> Tuple[torch.Tensor, torch.Tensor]:
    """The numbers, and the limits from which on the next number is nearer; the last is between the bytes 127 and 128."""
    numbers = _numbers()
    magnitudes = numbers[:129].double()
    return batch.moved(numbers), batch.moved(((magnitudes[:-1] + magnitudes[1:]) / 2).float())


class DynamicTree(Dense):
    """The dynamic tree without its Huffman code, which is the host's."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._tables = PerBatch(_tables)

    def form_bytes(self, elements: int) -> int:
        return 4 + elements

    def encode(
        self, batch: Batch, source: Source, maxima: torch.Tensor, forms: torch.Tensor, at: torch.Tensor, step: int
    ) -> None:
        numbers, limits = self._tables(batch)
        for_tensors(batch, _scale, maxima, forms.view(torch.float32), at)
        over(batch, _encode, *source.of(batch), maxima, numbers, limits, forms, at, FEEDBACK=source.feedback)

    def add(
        self, batch: Batch, forms: torch.Tensor, at: torch.Tensor, out: torch.Tensor, weight: float, step: int, rank: int
    ) -> None:
        numbers, _ = self._tables(batch)
        over(batch, _add, forms, at, batch.starts, batch.lengths, numbers, out, weight)


@triton.jit
def _scale(maxima, forms, at):
    tensor = tl.program_id(0)
    scale, _ = invertible(largest(maxima, tensor))
    tl.store(forms + tl.load(at + tensor) // 4, scale)


@triton.jit
def _encode(
    table,
    values,
    starts,
    residual,
    beta,
    gamma,
    kept,
    lengths,
    maxima,
    numbers,
    limits,
    forms,
    at,
    FEEDBACK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tensor, element = place(table, BLOCK)
    elements = tl.load(lengths + tensor)
    mask = element < elements
    scale, inverse = invertible(largest(maxima, tensor))
    value = corrected(values, starts, residual, beta, gamma, kept, tensor, element, mask, FEEDBACK)
    scaled = value * inverse
    magnitude = tl.abs(scaled)
    byte = tl.zeros([BLOCK], dtype=tl.int32)
    for bit in tl.static_range(7):
        # A binary search in the first 127 limits.
        byte += tl.where(magnitude >= tl.load(limits + byte + (64 >> bit) - 1), 64 >> bit, 0)
    negative = scaled.to(tl.int32, bitcast=True) < 0
    # Neither 0 nor the last number, 128, has a negative.
    last = (negative == 0) & (magnitude >= tl.load(limits + 127))
    byte = tl.where(last, 128, tl.where(negative & (byte > 0), byte + 128, byte))
    left = value - scale * tl.load(numbers + byte)
    keep(residual, kept, tensor, element, mask, maxima, elements, left, FEEDBACK)
    tl.store(forms + tl.load(at + tensor) + 4 + element, byte.to(tl.uint8), mask=mask)


@triton.jit
def _add(table, forms, at, starts, lengths, numbers, out, weight, BLOCK: tl.constexpr):
    tensor, element = place(table, BLOCK)
    mask = element < tl.load(lengths + tensor)
    start = tl.load(at + tensor)
    scale = tl.load((forms + start).to(tl.pointer_type(tl.float32))) * weight
    byte = tl.load(forms + start + 4 + element, mask=mask, other=0).to(tl.int32)
    add_at(out, starts, tensor, element, mask, scale * tl.load(numbers + byte))
