"""A velocity: a running sum or mean of gradients, which is compressed instead of them.

``dgc`` clips a gradient by its norm. The norm comes from a sum in float64, which the host adds in
another order, so the last bit of the clipping factor may differ from the host's. Without clipping,
all values equal the host's.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple, Optional, Tuple

import torch
import triton
import triton.language as tl

from ._batch import Batch
from ._config import Config, rounded
from ._forms import Forms
from ._launch import over
from ._memory import Arrays, Memory
from ._source import Source, feed_back, if_finite, put_maximum
from ._sums import totals
from ._tensors import block_of, in_bucket, in_kept, load, store
from .pairs import clear_pairs


class _Update(NamedTuple):
    """The gradients of a step, and their update of velocities: u ← momentum·u + factor·g."""

    data: torch.Tensor
    starts: torch.Tensor
    # The factor of each tensor's gradient, as float32.
    factors: torch.Tensor
    momentum: float


class Velocity(Memory):
    """u ← momentum·u + factor·g. The compressor gets u; with error feedback, u corrected by the
    residual."""

    def __init__(self, config: Config, momentum: float) -> None:
        super().__init__(config)
        self.momentum = momentum

    @property
    def kept(self) -> Tuple[str, ...]:
        return (*super().kept, "velocity")

    def factors(self, batch: Batch, values: torch.Tensor) -> torch.Tensor:
        """The factor of each tensor's gradient, as float32."""
        raise NotImplementedError

    def source(self, batch: Batch, values: torch.Tensor, arrays: Arrays, maxima: Optional[torch.Tensor] = None) -> Source:
        source = self._corrected(batch, in_kept(batch, arrays["velocity"]), arrays, maxima)
        update = _Update(values, batch.starts, self.factors(batch, values), self.momentum)
        over(batch, _maxima, update, source)
        over(batch, _accelerate, update, source)
        return source

    def _value(self, batch: Batch, tensor: int, values: torch.Tensor, arrays: Arrays) -> torch.Tensor:
        slot, gradient = batch.slots[tensor], super()._value(batch, tensor, values, arrays)
        before = arrays["velocity"][slot.kept : slot.kept + slot.elements]
        return before * self.momentum + gradient * self.factors(batch, values)[tensor]


class Average(Velocity):
    """The running mean of ``signum``, and of any compressor with the parameter ``momentum``."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, rounded(config.real("momentum")))
        self._factor = rounded(1.0 - self.momentum)

    def factors(self, batch: Batch, values: torch.Tensor) -> torch.Tensor:
        return batch.vector([self._factor] * len(batch.slots), torch.float32)


class Momentum(Velocity):
    """The momentum correction of ``dgc``: the sum of clipped gradients, which becomes 0 for sent
    elements."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, rounded(config.real("momentum")))
        # The largest norm of a tensor's gradient; 0 does not clip.
        self._limit = rounded(config.real("clip")) / sqrt(config.ranks)

    def factors(self, batch: Batch, values: torch.Tensor) -> torch.Tensor:
        if self._limit == 0.0:
            return batch.vector([1.0] * len(batch.slots), torch.float32)
        norms = totals(batch, 1, _squares, in_bucket(batch, values))[:, 0].sqrt()
        return torch.where(norms > self._limit, norms.new_full((), self._limit) / norms, 1.0).float()

    def clear_sent(self, batch: Batch, forms: Forms, arrays: Arrays) -> None:
        clear_pairs(batch, forms, arrays["velocity"])


@triton.jit
def _squares(table, values, sums, BLOCK: tl.constexpr):
    tensor, at, mask = block_of(table, values.lengths, BLOCK)
    value = load(values, tensor, at, mask).to(tl.float64)
    tl.store(sums + tl.program_id(0).to(tl.int64), tl.sum(value * value, 0))


@triton.jit
def _next(update, velocity, tensor, at, mask):
    """The new velocity of the elements ``at`` of a tensor."""
    value = load(update, tensor, at, mask).to(tl.float32)
    before = load(velocity, tensor, at, mask)
    return before * update.momentum + value * tl.load(update.factors + tensor)


@triton.jit
def _maxima(table, update, source, BLOCK: tl.constexpr):
    """The largest absolute values that the compressor gets."""
    tensor, at, mask = block_of(table, source.lengths, BLOCK)
    value = feed_back(source, _next(update, source, tensor, at, mask), tensor, at, mask)
    put_maximum(source.maxima, tensor, value)


@triton.jit
def _accelerate(table, update, source, BLOCK: tl.constexpr):
    """Replaces the velocity, unless a value that the compressor gets is not finite."""
    tensor, at, mask = block_of(table, source.lengths, BLOCK)
    mask = if_finite(source, tensor, at, mask)
    store(source, tensor, at, mask, _next(update, source, tensor, at, mask))
