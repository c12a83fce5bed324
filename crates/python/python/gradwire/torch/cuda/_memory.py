"""Memories: how a gradient and the arrays that are kept from step to step give the values to compress.

They are those of ``gradwire::memories``, and what they give has the same bits.
"""

from __future__ import annotations

from typing import Mapping, Tuple

import torch

from ._batch import Batch
from ._config import Config
from ._kernel import Forms
from ._source import Source, maxima

# The kept arrays of a model by their name in a saved state. float32, with the tensors at ``Batch.kept``.
Arrays = Mapping[str, torch.Tensor]


class Memory:
    """The plain residual, in which the compressor leaves what a message does not carry. Nothing is kept without error
    feedback."""

    def __init__(self, config: Config) -> None:
        # Those of residual and gradient; ``None`` without error feedback.
        self.weights = config.weights

    @property
    def kept(self) -> Tuple[str, ...]:
        """The names of the arrays that are kept."""
        return () if self.weights is None else ("residual",)

    def source(self, batch: Batch, values: torch.Tensor, arrays: Arrays) -> Tuple[Source, torch.Tensor]:
        """What the compressor gets for the gradients ``values``, and the ``maxima`` of that; launches without waiting.

        Nothing that is kept for a tensor changes if one of these values is not finite.
        """
        source = self._with_residual(values, batch.starts, arrays)
        return source, maxima(batch, source)

    def clear_sent(self, batch: Batch, forms: Forms, at: torch.Tensor, arrays: Arrays) -> None:
        """Updates what is kept, apart from the residual, by this rank's own messages, given as forms."""

    def corrected(self, batch: Batch, tensor: int, values: torch.Tensor, arrays: Arrays) -> torch.Tensor:
        """The values to compress of a tensor for which ``source`` changed nothing, because one of them is not finite."""
        slot, value = batch.slots[tensor], self._value(batch, tensor, values, arrays)
        if self.weights is None:
            return value
        beta, gamma = self.weights
        return arrays["residual"][slot.kept : slot.kept + slot.elements] * beta + value * gamma

    def _value(self, batch: Batch, tensor: int, values: torch.Tensor, arrays: Arrays) -> torch.Tensor:
        """The values of one tensor before the residual is added."""
        slot = batch.slots[tensor]
        return values[slot.start : slot.start + slot.elements].float()

    def _with_residual(self, values: torch.Tensor, starts: torch.Tensor, arrays: Arrays) -> Source:
        if self.weights is None:
            return Source(values, starts, None)
        return Source(values, starts, arrays["residual"], self.weights)
