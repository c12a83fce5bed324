"""Methods in rounds of all-reduce. The host computes the values that are equal on all ranks. The
device computes the values that depend on the gradient.

See ``gradwire::device::DeviceRounds``. Between the rounds of a step the residual is the corrected
gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, List, Optional, Tuple

import torch

from ._batch import Batch
from ._forms import Encoded
from ._kernel import Kernel
from ._source import Source
from .selection import correct


@dataclass
class Round:
    """One round of a batch."""

    number: int
    # The host's values and room for the addends, for all tensors: float32 on the device.
    forms: torch.Tensor
    addends: torch.Tensor
    # For each tensor the first and last byte of its form and of its addend; ``None`` if it does not
    # have this round.
    places: List[Optional[Tuple[int, int, int, int]]]

    def form(self, tensor: int) -> torch.Tensor:
        start, end, _, _ = self.places[tensor] or (0, 0, 0, 0)
        return self.forms[start // 4 : end // 4]

    def addend(self, tensor: int) -> torch.Tensor:
        _, _, start, end = self.places[tensor] or (0, 0, 0, 0)
        return self.addends[start // 4 : end // 4]


class Rounds(Kernel):
    """A method in rounds. ``add`` takes the forms of transcripts. There are no messages, so there
    are no forms of messages."""

    def start(self, batch: Batch, source: Source, step: int) -> Callable[[], Encoded]:
        if source.residual is not None:
            correct(batch, source)
        return lambda: Encoded.empty(batch, [0] * len(batch.slots))

    def contribute(self, batch: Batch, source: Source, round: Round) -> None:
        """Computes the addends of the tensors that have this round."""
        raise NotImplementedError

    def take_out(self, batch: Batch, source: Source, round: Round) -> None:
        """Subtracts from the residual the part of the gradient that the addends of a round
        carry."""
        raise NotImplementedError
