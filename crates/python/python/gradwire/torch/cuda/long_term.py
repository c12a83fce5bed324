"""The long-term momentum of ``sgc``."""

from __future__ import annotations

from typing import Optional

import torch
import triton
import triton.language as tl

from ._batch import Batch
from ._config import Config, rounded
from ._forms import Forms
from ._launch import over
from ._memory import Arrays, Memory
from ._source import Source, corrected, if_finite
from ._tensors import block_of, scratch, store
from .pairs import clear_pairs


class LongTerm(Memory):
    """u ← u + ε·g. The compressor gets α·u_before + u. The sum u is kept as the residual, and
    becomes 0 for sent elements."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._alpha = rounded(config.real("alpha"))
        # The weights of the sum before and of the gradient.
        self.weights = (rounded(1.0 + self._alpha), rounded(config.real("epsilon")))

    def source(self, batch: Batch, values: torch.Tensor, arrays: Arrays, maxima: Optional[torch.Tensor] = None) -> Source:
        whole, found = super().source(batch, values, arrays, maxima), scratch(batch)
        over(batch, _add_to_sum, whole, self._alpha, found)
        return whole._replace(data=found.data, starts=found.starts, residual=None)

    def clear_sent(self, batch: Batch, forms: Forms, arrays: Arrays) -> None:
        clear_pairs(batch, forms, arrays["residual"])


@triton.jit
def _add_to_sum(table, source, alpha, to, BLOCK: tl.constexpr):
    """Stores the values to compress, and, as the new u, the same values without α·u_before."""
    tensor, at, mask = block_of(table, source.lengths, BLOCK)
    value = corrected(source, tensor, at, mask)
    store(to, tensor, at, mask, value)
    kept = source.residual + tl.load(source.kept + tensor) + at
    before = tl.load(kept, mask=mask, other=0.0)
    tl.store(kept, value - before * alpha, mask=if_finite(source, tensor, at, mask))
