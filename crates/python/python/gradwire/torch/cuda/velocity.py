"""A velocity: a running sum or mean of gradients, which is compressed in their place.

The norm by which ``dgc`` clips a gradient is a sum in float64, which the host adds in another order; so the factor that clips
may differ from the host's in its last bit. Without clipping all values are the host's.
"""

from __future__ import annotations

from math import sqrt
from typing import Tuple

import torch
import triton
import triton.language as tl

from ._batch import Batch, place
from ._config import Config, rounded
from ._kernel import Forms
from ._memory import Arrays, Memory
from ._launch import over
from ._source import Source, feed_back, put_maximum, replaceable
from ._sums import partial, totals
from .pairs import clear_pairs


class Velocity(Memory):
    """u ← momentum·u + factor·g. The compressor gets u, with error feedback corrected by the residual."""

    def __init__(self, config: Config, momentum: float) -> None:
        super().__init__(config)
        self.momentum = momentum

    @property
    def kept(self) -> Tuple[str, ...]:
        return (*super().kept, "velocity")

    def factors(self, batch: Batch, values: torch.Tensor) -> torch.Tensor:
        """The factor of each tensor's gradient, as float32."""
        raise NotImplementedError

    def source(self, batch: Batch, values: torch.Tensor, arrays: Arrays) -> Tuple[Source, torch.Tensor]:
        source = self._with_residual(arrays["velocity"], batch.kept, arrays)
        found = torch.zeros(len(batch.slots), dtype=torch.int32, device=batch.device)
        gradient = (values, batch.starts, self.momentum, self.factors(batch, values))
        over(batch, _maxima, *gradient, *source.arguments, batch.lengths, found, FEEDBACK=source.feedback)
        over(batch, _accelerate, *gradient, arrays["velocity"], batch.kept, batch.lengths, found)
        return source, found

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
    """The momentum correction of ``dgc``: the sum of clipped gradients, which becomes 0 where elements were sent."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, rounded(config.real("momentum")))
        # The largest norm of a tensor's gradient; 0 does not clip.
        self._limit = rounded(config.real("clip")) / sqrt(config.ranks)

    def factors(self, batch: Batch, values: torch.Tensor) -> torch.Tensor:
        if self._limit == 0.0:
            return batch.vector([1.0] * len(batch.slots), torch.float32)
        norms = _norms(batch, values)
        return torch.where(norms > self._limit, norms.new_full((), self._limit) / norms, 1.0).float()

    def clear_sent(self, batch: Batch, forms: Forms, at: torch.Tensor, arrays: Arrays) -> None:
        clear_pairs(batch, forms, at, arrays["velocity"])


def _norms(batch: Batch, values: torch.Tensor) -> torch.Tensor:
    """The norm of each tensor, as float64."""
    sums = partial(batch, 1)
    over(batch, _squares, values, batch.starts, batch.lengths, sums)
    return totals(batch, sums)[:, 0].sqrt()


@triton.jit
def _squares(table, values, starts, lengths, sums, BLOCK: tl.constexpr):
    tensor, at = place(table, BLOCK)
    value = tl.load(values + tl.load(starts + tensor) + at, mask=at < tl.load(lengths + tensor), other=0.0).to(tl.float64)
    tl.store(sums + tl.program_id(0).to(tl.int64), tl.sum(value * value, 0))


@triton.jit
def _next(values, starts, momentum, factors, velocity, kept, tensor, at, mask):
    """The new velocity of the elements ``at`` of a tensor."""
    value = tl.load(values + tl.load(starts + tensor) + at, mask=mask, other=0.0).to(tl.float32)
    before = tl.load(velocity + tl.load(kept + tensor) + at, mask=mask, other=0.0)
    return before * momentum + value * tl.load(factors + tensor)


@triton.jit
def _maxima(
    table,
    values,
    starts,
    momentum,
    factors,
    velocity,
    kept,
    residual,
    beta,
    gamma,
    lengths,
    maxima,
    FEEDBACK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The largest absolute values that the compressor gets."""
    tensor, at = place(table, BLOCK)
    mask = at < tl.load(lengths + tensor)
    value = _next(values, starts, momentum, factors, velocity, kept, tensor, at, mask)
    value = feed_back(value, residual, beta, gamma, kept, tensor, at, mask, FEEDBACK)
    put_maximum(maxima, tensor, value)


@triton.jit
def _accelerate(table, values, starts, momentum, factors, velocity, kept, lengths, maxima, BLOCK: tl.constexpr):
    tensor, at = place(table, BLOCK)
    mask = at < replaceable(maxima, tensor, tl.load(lengths + tensor))
    value = _next(values, starts, momentum, factors, velocity, kept, tensor, at, mask)
    tl.store(velocity + tl.load(kept + tensor) + at, value, mask=mask)
