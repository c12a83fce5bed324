"""Memories: rules that compute the values to compress from the gradient and from arrays kept from
step to step.

They are the memories of ``gradwire::memories``, and give the same bits.
"""

from __future__ import annotations

from typing import Mapping, Optional, Tuple

import torch

from ._batch import Batch
from ._config import Config
from ._forms import Forms
from ._source import Source, find_maxima
from ._tensors import Tensors, in_bucket

# The kept arrays of a model, by their names in a saved state. They are float32, with the tensors at
# ``Batch.kept``.
Arrays = Mapping[str, torch.Tensor]


class Memory:
    """The plain residual: the part of the values that a message does not carry. Without error
    feedback nothing is kept."""

    def __init__(self, config: Config) -> None:
        # The weights of the residual and the gradient; ``None`` without error feedback.
        self.weights = config.weights
        # Whether ``source`` finds the maxima of a source without residual, or the kernel does.
        self.finds_maxima = True

    @property
    def kept(self) -> Tuple[str, ...]:
        """The names of the arrays that are kept."""
        return () if self.weights is None else ("residual",)

    def source(self, batch: Batch, values: torch.Tensor, arrays: Arrays, maxima: Optional[torch.Tensor] = None) -> Source:
        """The input of the compressor for the gradients ``values``; launches without waiting.
        ``maxima`` is room for those of the source and has zeros; by default it is created.

        The arrays of a tensor do not change if one of its values to compress is not finite.
        """
        source = self._corrected(batch, in_bucket(batch, values), arrays, maxima)
        if self.finds_maxima or self.weights is not None:
            find_maxima(batch, source)
        return source

    def clear_sent(self, batch: Batch, forms: Forms, arrays: Arrays) -> None:
        """Updates the arrays, apart from the residual, by this rank's own messages."""

    def corrected(self, batch: Batch, tensor: int, values: torch.Tensor, arrays: Arrays) -> torch.Tensor:
        """The values to compress of a tensor that ``source`` did not change, because one of them is
        not finite."""
        slot, value = batch.slots[tensor], self._value(batch, tensor, values, arrays)
        if self.weights is None:
            return value
        beta, gamma = self.weights
        return arrays["residual"][slot.kept : slot.kept + slot.elements] * beta + value * gamma

    def _value(self, batch: Batch, tensor: int, values: torch.Tensor, arrays: Arrays) -> torch.Tensor:
        """The values of one tensor before the residual is added."""
        slot = batch.slots[tensor]
        return values[slot.start : slot.start + slot.elements].float()

    def _corrected(self, batch: Batch, values: Tensors, arrays: Arrays, maxima: Optional[torch.Tensor]) -> Source:
        """The values, corrected by the residual if there is one. The maxima are 0."""
        if maxima is None:
            maxima = torch.zeros(len(batch.slots), dtype=torch.int32, device=batch.device)
        residual = None if self.weights is None else arrays["residual"]
        beta, gamma = self.weights or (1.0, 1.0)
        return Source(values.data, values.starts, residual, beta, gamma, batch.kept, batch.lengths, maxima)
