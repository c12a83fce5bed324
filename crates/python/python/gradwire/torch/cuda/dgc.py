"""``dgc`` and ``sgc``: the elements that reach a threshold. The threshold is estimated from a
random sample, and adjusted until about k elements reach it.

A form has pairs for the sent elements; see ``gradwire::device``. The message equals the host's.
Both count the elements that reach the threshold, and the elements that reach the lower thresholds
that may replace it. Both take the exact threshold if more than 5/4·k elements reach the chosen one.
"""

from __future__ import annotations

from math import ceil, floor
from typing import Optional, Tuple

import torch
import triton
import triton.language as tl

from ._batch import Batch, PerBatch
from ._config import Config
from ._launch import BLOCK, for_tensors, launch
from ._source import Source
from ._tensors import Tensors, block_of
from .marks import Marks
from .selection import COUNTED, how_many, kth_largest, mark_reaching, patterns
from .sparse import SampledTopK

# The ratio at the start of a warm-up.
_FIRST = 0.25
# The estimated threshold, and three lower ones, each 4/5 of the one before.
_THRESHOLDS = tl.constexpr(4)


class Dgc(SampledTopK):
    """Adjusted thresholds, and a ratio that falls during a warm-up."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._warmup = config.whole("warmup")
        self._last = config.real("ratio")

    def mark(self, batch: Batch, source: Source, values: Tensors, step: int) -> Tuple[Marks, Optional[torch.Tensor]]:
        ratio = self._ratio_at(step)
        if ratio != self.ratio:
            self.use(ratio)
        limits = self._adjusted(batch, values, self.estimate(batch, values, step))
        return mark_reaching(batch, values, limits.repeat(1, 2), self.quotas(batch)), None

    def use(self, ratio: float) -> None:
        super().use(ratio)
        self._bounds: PerBatch[torch.Tensor] = PerBatch(lambda batch: _bounds(batch, ratio))

    def _ratio_at(self, step: int) -> float:
        if step < self._warmup and self._last < _FIRST:
            return _FIRST * (self._last / _FIRST) ** (step / self._warmup)
        return self._last

    def _adjusted(self, batch: Batch, values: Tensors, limits: torch.Tensor) -> torch.Tensor:
        """Patterns of thresholds that about k elements reach, from the patterns of estimates, of
        the shape (tensors, 1)."""
        table, bounds = batch.table(BLOCK), self._bounds(batch)
        counts = torch.zeros((len(batch.slots), _THRESHOLDS.value), dtype=torch.int64, device=batch.device)
        launch(_count_reaching, table, values, limits, counts, BLOCK=BLOCK)
        # The numbers of elements of the tensors that need exact thresholds. For the others 0, so
        # their programs do nothing.
        lengths = torch.empty_like(values.lengths)
        for_tensors(batch, _choose, counts, bounds, values.lengths, limits, lengths)
        rest = values._replace(lengths=lengths)
        exact = kth_largest(batch.table(COUNTED), rest, bounds[:, :1].contiguous()).patterns
        return torch.where(lengths[:, None] > 0, exact, limits)


def _bounds(batch: Batch, ratio: float) -> torch.Tensor:
    """For each tensor k, the fewest elements that may reach a threshold, and the most."""
    wanted = [how_many(ratio, slot.elements) for slot in batch.slots]
    return batch.moved(torch.tensor([(k, ceil(0.8 * k), floor(1.25 * k)) for k in wanted], dtype=torch.int64, device="cpu"))


@triton.jit
def _count_reaching(table, values, limits, counts, BLOCK: tl.constexpr):
    """Counts the elements that reach each threshold, without zeros."""
    tensor, at, mask = block_of(table, values.lengths, BLOCK)
    _, pattern = patterns(values, tensor, at, mask)
    threshold = tl.load(limits + tensor).to(tl.float32, bitcast=True)
    for lowered in tl.static_range(_THRESHOLDS):
        least = tl.maximum(threshold.to(tl.int32, bitcast=True), 1)
        tl.atomic_add(counts + _THRESHOLDS * tensor + lowered, tl.sum((pattern >= least).to(tl.int64), 0))
        threshold = threshold * 0.8


@triton.jit
def _choose(counts, bounds, lengths, limits, exact):
    """Takes the first threshold that enough elements reach, or the lowest one. ``exact`` becomes
    the length of a tensor if too many elements reach its threshold, else 0."""
    tensor = tl.program_id(0).to(tl.int64)
    few, many = tl.load(bounds + 3 * tensor + 1), tl.load(bounds + 3 * tensor + 2)
    threshold = tl.load(limits + tensor).to(tl.float32, bitcast=True)
    chosen, count = threshold, tl.load(counts + _THRESHOLDS * tensor)
    for lowered in tl.static_range(1, _THRESHOLDS):
        threshold = threshold * 0.8
        enough = count >= few
        chosen = tl.where(enough, chosen, threshold)
        count = tl.where(enough, count, tl.load(counts + _THRESHOLDS * tensor + lowered))
    tl.store(limits + tensor, chosen.to(tl.int32, bitcast=True))
    tl.store(exact + tensor, tl.where(count > many, tl.load(lengths + tensor), 0))
