"""The device forms of a batch in one buffer; see ``gradwire::device``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, NamedTuple, Optional, Tuple

import torch
import triton
import triton.language as tl

from ._batch import Batch, has_first
from ._tensors import load


class Forms(NamedTuple):
    """Forms on the device. A kernel takes them as one argument."""

    bytes: torch.Tensor
    # The first byte of each tensor's form, a multiple of four.
    starts: torch.Tensor
    # For kernels that add: the number of messages of each tensor, from consecutive ranks, and the
    # number of bytes from the form of one to the form of the next.
    messages: int = 1
    stride: int = 0
    # The first of these ranks for each tensor as int32, if tensors differ in it.
    senders: Optional[torch.Tensor] = None
    # 1 if the values to which messages are added count as 0.
    fresh: int = 0


@dataclass
class Encoded:
    """The forms that a kernel has written."""

    forms: Forms
    # The byte range of each tensor's form, with the end excluded, as Python numbers on the host.
    ranges: List[Tuple[int, int]]

    @classmethod
    def empty(cls, batch: Batch, lengths: List[int], keep: bool = True) -> Encoded:
        """Room for forms of these lengths; ``keep`` if they are the same at every step."""
        ranges, start = [], 0
        for length in lengths:
            ranges.append((start, start + length))
            start += length + -length % 4
        room = torch.empty(start, dtype=torch.uint8, device=batch.device)
        return cls(Forms(room, batch.vector([first for first, _ in ranges], keep=keep)), ranges)


@triton.jit
def form_of(forms, tensor):
    """The address of the first byte of a tensor's form."""
    return forms.bytes + tl.load(forms.starts + tensor)


@triton.jit
def before(forms, out, tensor, at, mask):
    """The elements ``at`` of a tensor to which messages are added."""
    if forms.fresh == 1:
        values = tl.zeros_like(at).to(tl.float32)
    else:
        values = load(out, tensor, at, mask)
    return values


@triton.jit
def put_first(forms, tensor, table, number):
    """Stores the float32 with which a tensor's form begins, if this program has the tensor's first
    block; see ``Batch.table``."""
    tl.store(floats(form_of(forms, tensor)), number, mask=has_first(table))


@triton.jit
def floats(address):
    """An address of bytes as an address of float32."""
    return address.to(tl.pointer_type(tl.float32))


@triton.jit
def words(address):
    """An address of bytes as an address of int32."""
    return address.to(tl.pointer_type(tl.int32))
