"""The input of a compressor: the gradient, or what a memory makes of it, corrected by the residual. What is left of it, and the
sums of decoded values.

Products and sums are rounded one by one, as on the host; see ``_launch``. Divisions are ``tl.div_rn`` and roots ``tl.sqrt_rn``, the others are
approximate. Subnormal numbers are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Tuple

import torch
import triton
import triton.language as tl

from ._batch import Batch, place
from ._launch import over

# The largest finite number, and its bits.
LARGEST = tl.constexpr(3.4028234663852886e38)
FINITE = tl.constexpr(0x7F7FFFFF)


@dataclass
class Source:
    """The values that are compressed: β·residual + γ·values, or the values alone without error feedback."""

    # Of any float type, with the tensors at ``starts``.
    values: torch.Tensor
    starts: torch.Tensor
    # float32, with the tensors at ``Batch.kept``; ``None`` without error feedback.
    residual: Optional[torch.Tensor]
    # β and γ.
    weights: Tuple[float, float] = (1.0, 1.0)

    @property
    def arguments(self) -> Tuple[Any, ...]:
        """What ``corrected`` takes, as the arguments of a launch."""
        # Without error feedback kernels do not use the second pointer.
        residual = self.residual if self.residual is not None else self.values
        return self.values, self.starts, residual, *self.weights

    def of(self, batch: Batch) -> Tuple[Any, ...]:
        """The same, with the places of a batch in what is kept, and its lengths."""
        return *self.arguments, batch.kept, batch.lengths

    @property
    def feedback(self) -> bool:
        return self.residual is not None


@triton.jit
def corrected(values, starts, residual, beta, gamma, kept, tensor, at, mask, FEEDBACK: tl.constexpr):
    """The corrected elements ``at`` of a tensor, 0 where not ``mask``."""
    value = tl.load(values + tl.load(starts + tensor) + at, mask=mask, other=0.0).to(tl.float32)
    return feed_back(value, residual, beta, gamma, kept, tensor, at, mask, FEEDBACK)


@triton.jit
def feed_back(value, residual, beta, gamma, kept, tensor, at, mask, FEEDBACK: tl.constexpr):
    """Adds the residual to values for the elements ``at`` of a tensor."""
    if FEEDBACK:
        left = tl.load(residual + tl.load(kept + tensor) + at, mask=mask, other=0.0)
        value = left * beta + value * gamma
    return value


@triton.jit
def keep(residual, kept, tensor, at, mask, maxima, elements, left, FEEDBACK: tl.constexpr):
    """Stores what a message leaves out of the elements ``at`` of a tensor of ``elements``, unless some element is not finite."""
    if FEEDBACK:
        good = at < replaceable(maxima, tensor, elements)
        tl.store(residual + tl.load(kept + tensor) + at, left, mask=mask & good)


@triton.jit
def add_at(out, starts, tensor, at, mask, value):
    """Adds values to the elements ``at`` of a tensor, which begins at ``starts``."""
    place_of = out + tl.load(starts + tensor) + at
    tl.store(place_of, tl.load(place_of, mask=mask, other=0.0) + value, mask=mask)


@triton.jit
def _maxima(table, values, starts, residual, beta, gamma, kept, lengths, maxima, FEEDBACK: tl.constexpr, BLOCK: tl.constexpr):
    tensor, at = place(table, BLOCK)
    mask = at < tl.load(lengths + tensor)
    value = corrected(values, starts, residual, beta, gamma, kept, tensor, at, mask, FEEDBACK)
    put_maximum(maxima, tensor, value)


@triton.jit
def put_maximum(maxima, tensor, value):
    """Raises the maximum of a tensor to the largest absolute value of this program's block."""
    # Bits of absolute values have the order of the values; those of infinity and NaN are the largest.
    bits = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    tl.atomic_max(maxima + tensor, tl.max(bits, 0))


def maxima(batch: Batch, source: Source) -> torch.Tensor:
    """The bits of the largest absolute value of each tensor, as int32. Above ``FINITE`` some element is not finite."""
    found = torch.zeros(len(batch.slots), dtype=torch.int32, device=batch.device)
    over(batch, _maxima, *source.of(batch), found, FEEDBACK=source.feedback, warps=4)
    return found


@triton.jit
def replaceable(maxima, tensor, elements):
    """How many elements of a tensor's residual may be replaced: all, or none where some element is not finite."""
    return tl.where(tl.load(maxima + tensor) <= FINITE, elements, 0)


@triton.jit
def largest(maxima, tensor):
    """The largest absolute value of a tensor, 0 if some element is not finite."""
    bits = tl.load(maxima + tensor)
    return tl.where(bits <= FINITE, bits, 0).to(tl.float32, bitcast=True)
