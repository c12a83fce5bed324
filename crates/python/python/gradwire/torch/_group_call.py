"""The tensors of a compressed collective of a process group."""

from __future__ import annotations

from typing import List, NamedTuple, Optional

import torch

from ._staging import Output


class Call(NamedTuple):
    """The tensors of a collective."""

    # This rank's values, flat. They become the means, unless there is an ``output``.
    values: torch.Tensor
    # What the caller's future gets: the tensors that then have the means.
    tensors: List[torch.Tensor]
    # Multiplies the means: the number of ranks for sums.
    factor: float = 1.0
    # A flat tensor. It may be a part of the values.
    output: Optional[Output] = None

    @property
    def result(self) -> torch.Tensor:
        """The tensor that receives the means."""
        return self.values if self.output is None else self.output.tensor
