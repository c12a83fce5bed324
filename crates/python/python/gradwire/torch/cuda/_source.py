"""The input of a compressor, and the residual.

The input is the gradient, or the values that a memory computes from it, corrected by the residual.
The part of the input that a message does not carry becomes the residual.

Each product and sum is rounded, as on the host; see ``_launch``. Divisions are ``tl.div_rn`` and
roots ``tl.sqrt_rn``, because Triton's other versions are approximate. Subnormal numbers are kept.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch
import triton
import triton.language as tl

from ._batch import Batch
from ._launch import over
from ._tensors import block_of, load

# The largest finite number, and its bits.
LARGEST = tl.constexpr(3.4028234663852886e38)
FINITE = tl.constexpr(0x7F7FFFFF)


class Source(NamedTuple):
    """The values to compress: β·residual + γ·data, or the data alone without error feedback. A
    kernel takes them as one argument."""

    # Of any float type, and the index of each tensor's first element.
    data: torch.Tensor
    starts: torch.Tensor
    # float32, with the tensors at ``kept``; ``None`` without error feedback.
    residual: Optional[torch.Tensor]
    beta: float
    gamma: float
    kept: torch.Tensor
    # The number of elements of each tensor.
    lengths: torch.Tensor
    # The bits of the largest absolute value of each tensor, as int32. They are above ``FINITE`` if
    # an element is not finite.
    maxima: torch.Tensor


def find_maxima(batch: Batch, source: Source) -> None:
    """Fills in ``maxima``, which must be 0."""
    over(batch, _maxima, source, warps=4)


@triton.jit
def _maxima(table, source, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, source.lengths, BLOCK)
    put_maximum(source.maxima, tensor, corrected(source, tensor, at, mask))


@triton.jit
def put_maximum(maxima, tensor, value):
    """Raises the maximum of a tensor to the largest absolute value of this program's block."""
    # The bits of absolute values have the order of the values; infinity and NaN have the largest
    # bits.
    bits = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    tl.atomic_max(maxima + tensor, tl.max(bits, 0))


@triton.jit
def corrected(source, tensor, at, mask):
    """The corrected elements ``at`` of a tensor, 0 where ``mask`` is false."""
    return feed_back(source, load(source, tensor, at, mask).to(tl.float32), tensor, at, mask)


@triton.jit
def feed_back(source, value, tensor, at, mask):
    """Adds the residual to values for the elements ``at`` of a tensor."""
    if source.residual is not None:
        left = tl.load(source.residual + tl.load(source.kept + tensor) + at, mask=mask, other=0.0)
        value = left * source.beta + value * source.gamma
    return value


@triton.jit
def keep(source, tensor, at, mask, left):
    """Stores the part of the elements ``at`` that a message leaves out, unless an element of the
    tensor is not finite."""
    if source.residual is not None:
        residual = source.residual + tl.load(source.kept + tensor) + at
        tl.store(residual, left, mask=if_finite(source, tensor, at, mask))


@triton.jit
def is_finite(source, tensor):
    """Whether all elements of a tensor are finite."""
    return tl.load(source.maxima + tensor) <= FINITE


@triton.jit
def if_finite(source, tensor, at, mask):
    """The mask of the elements ``at`` of a tensor, or all false if an element of the tensor is not
    finite."""
    # A comparison, because Triton's interpreter fails to combine a scalar with a mask.
    return mask & (at < tl.where(is_finite(source, tensor), 1 << 62, 0))


@triton.jit
def largest(source, tensor):
    """The largest absolute value of a tensor, 0 if an element is not finite."""
    bits = tl.load(source.maxima + tensor)
    return tl.where(bits <= FINITE, bits, 0).to(tl.float32, bitcast=True)
