"""The long-term momentum of ``sgc``."""

from __future__ import annotations

from typing import Tuple

import torch
import triton
import triton.language as tl

from ._batch import Batch, place
from ._config import Config, rounded
from ._kernel import Forms
from ._memory import Arrays, Memory
from ._launch import BLOCK, over
from ._source import Source, corrected, maxima, replaceable
from .pairs import clear_pairs


class LongTerm(Memory):
    """u ← u + ε·g. The compressor gets α·u_before + u; u, which is kept as the residual, becomes 0 where elements were
    sent."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._alpha = rounded(config.real("alpha"))
        # Of the sum before and of the gradient.
        self.weights = (rounded(1.0 + self._alpha), rounded(config.real("epsilon")))

    def source(self, batch: Batch, values: torch.Tensor, arrays: Arrays) -> Tuple[Source, torch.Tensor]:
        whole, found = super().source(batch, values, arrays)
        elements = sum(slot.elements for slot in batch.slots)
        scratch = torch.empty(elements, dtype=torch.float32, device=batch.device)
        source = Source(scratch, batch.lengths.cumsum(0) - batch.lengths, None)
        over(batch, _add_to_sum, *whole.of(batch), found, self._alpha, source.values, source.starts)
        return source, found

    def clear_sent(self, batch: Batch, forms: Forms, at: torch.Tensor, arrays: Arrays) -> None:
        clear_pairs(batch, forms, at, arrays["residual"])


@triton.jit
def _add_to_sum(table, values, starts, sums, beta, gamma, kept, lengths, maxima, alpha, to, to_starts, BLOCK: tl.constexpr):
    """Stores the values to compress, and what they are without α·u_before as the new u."""
    tensor, at = place(table, BLOCK)
    elements = tl.load(lengths + tensor)
    mask = at < elements
    value = corrected(values, starts, sums, beta, gamma, kept, tensor, at, mask, True)
    tl.store(to + tl.load(to_starts + tensor) + at, value, mask=mask)
    place_of = sums + tl.load(kept + tensor) + at
    before = tl.load(place_of, mask=mask, other=0.0)
    tl.store(place_of, value - before * alpha, mask=mask & (at < replaceable(maxima, tensor, elements)))
