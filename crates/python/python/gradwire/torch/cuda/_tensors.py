"""Tensors of a batch in one array, as kernels take them.

A kernel takes a named tuple as one argument, and reads its fields by name.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ._batch import Batch, place


class Tensors(NamedTuple):
    """One array with tensors of a batch, float32 by default."""

    data: torch.Tensor
    # For each tensor the index of its first element in ``data``, and the number of its elements.
    starts: torch.Tensor
    lengths: torch.Tensor


def in_bucket(batch: Batch, data: torch.Tensor) -> Tensors:
    """The tensors of a batch in an array with the layout of the bucket."""
    return Tensors(data, batch.starts, batch.lengths)


def in_kept(batch: Batch, data: torch.Tensor) -> Tensors:
    """The tensors of a batch in a kept array."""
    return Tensors(data, batch.kept, batch.lengths)


def scratch(batch: Batch, dtype: torch.dtype = torch.float32) -> Tensors:
    """A new array with room for the tensors of a batch, one after the other."""
    data = torch.empty(sum(slot.elements for slot in batch.slots), dtype=dtype, device=batch.device)
    return Tensors(data, batch.lengths.cumsum(0) - batch.lengths, batch.lengths)


@triton.jit
def block_of(table, lengths, BLOCK: tl.constexpr):
    """The tensor of this program, the indices of its block's elements in the tensor, and a mask
    that is false beyond the tensor's end."""
    tensor, at = place(table, BLOCK)
    return tensor, at, at < tl.load(lengths + tensor)


@triton.jit
def load(tensors, tensor, at, mask):
    """The elements ``at`` of a tensor, 0 where ``mask`` is false."""
    return tl.load(tensors.data + tl.load(tensors.starts + tensor) + at, mask=mask, other=0.0)


@triton.jit
def store(tensors, tensor, at, mask, value):
    """Replaces the elements ``at`` of a tensor."""
    tl.store(tensors.data + tl.load(tensors.starts + tensor) + at, value, mask=mask)


@triton.jit
def add_at(tensors, tensor, at, mask, value):
    """Adds to the elements ``at`` of a tensor."""
    address = tensors.data + tl.load(tensors.starts + tensor) + at
    tl.store(address, tl.load(address, mask=mask, other=0.0) + value, mask=mask)
