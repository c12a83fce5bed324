"""Sparse messages: the sent elements, as pairs of positions and values.

A form has levels as float32, the number n of elements as uint32, n increasing positions as uint32
and n values as float32; see ``gradwire::device``. The host codes positions, and for some methods
replaces values by means and signs. So the residual is first the whole corrected tensor, and then
the unpacked message is subtracted from it.
"""

from __future__ import annotations

from typing import Callable, Optional, Tuple

import torch

from ... import _core
from ._batch import Batch, PerBatch, Slot
from ._config import Config, rounded
from ._forms import Encoded, Forms
from ._kernel import Kernel
from ._source import Source
from ._tensors import Tensors, in_bucket, in_kept
from .marks import Marks
from .pairs import add_pairs, fill_pairs
from .samples import Sampler, count_signs, size
from .selection import COUNTED, correct, how_many, kth_largest, mark_above, mark_largest, mark_reaching


class Sparse(Kernel):
    """A compressor that sends some elements."""

    # The number of levels that a form begins with.
    levels = 0

    def mark(self, batch: Batch, source: Source, values: Tensors, step: int) -> Tuple[Marks, Optional[torch.Tensor]]:
        """Marks the elements to send, and returns the level of each tensor, if forms have one."""
        raise NotImplementedError

    def start(self, batch: Batch, source: Source, step: int) -> Callable[[], Encoded]:
        values = correct(batch, source)
        marks, levels = self.mark(batch, source, values, step)
        plan = marks.plan()
        return lambda: plan.forms(values, levels)

    def clear_sent(self, batch: Batch, forms: Forms, source: Source) -> None:
        if source.residual is not None:
            add_pairs(forms, self.levels, in_kept(batch, source.residual), -1.0)

    def add(self, batch: Batch, forms: Forms, out: torch.Tensor, weight: float, step: int, rank: int) -> None:
        add_pairs(forms, self.levels, in_bucket(batch, out), weight)


class Above(Sparse):
    """``threshold`` and ``strom``: the elements above a fixed absolute value. The message equals
    the host's."""

    def __init__(self, config: Config, parameter: str) -> None:
        super().__init__(config)
        self._limit = rounded(config.real(parameter))

    def mark(self, batch: Batch, source: Source, values: Tensors, step: int) -> Tuple[Marks, Optional[torch.Tensor]]:
        return mark_above(batch, values, self._limit), None


class Largest(Sparse):
    """The k largest elements, ties to the first: ``topk`` and ``gradient-dropping`` with exact
    selection. With two sides, the k largest above 0 and the k smallest below 0: ``sbc`` with exact
    selection and a mean in float32. The message equals the host's: for ``sbc``, the host computes
    the means from the same elements in the same order, and chooses the side to send."""

    def __init__(self, config: Config, parameter: str, sides: int) -> None:
        super().__init__(config)
        ratio = config.real(parameter)
        self._ranks: PerBatch[torch.Tensor] = PerBatch(lambda batch: _kept(batch, ratio)[:, None].repeat(1, sides))

    def mark(self, batch: Batch, source: Source, values: Tensors, step: int) -> Tuple[Marks, Optional[torch.Tensor]]:
        return mark_largest(batch, values, kth_largest(batch.table(COUNTED), values, self._ranks(batch))), None


class SampledTopK(Sparse):
    """``topk`` and ``gradient-dropping`` with a threshold from a random sample. The message equals
    the host's: both take the same sample, and send the first elements that reach the threshold, 2k
    at most."""

    # The least number of elements of a sample.
    _LEAST = 4096

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._samplers: PerBatch[Sampler] = PerBatch(lambda batch: Sampler(batch, self._LEAST))
        self.use(config.real("ratio"))

    def use(self, ratio: float) -> None:
        """Sets the ratio that is sent."""
        self.ratio = ratio
        self._ranks: PerBatch[torch.Tensor] = PerBatch(
            lambda batch: batch.vector([self._rank(one.elements) for one in batch.slots], keep=False)
        )
        # The most elements that are sent.
        self.quotas: PerBatch[torch.Tensor] = PerBatch(
            lambda batch: torch.minimum(2 * _kept(batch, ratio), batch.lengths)[:, None]
        )

    def _rank(self, elements: int) -> int:
        """The rank of the threshold in the sample."""
        taken = size(elements, self._LEAST)
        return max(1, min(how_many(self.ratio, elements) * taken // max(elements, 1), taken))

    def estimate(self, batch: Batch, values: Tensors, step: int) -> torch.Tensor:
        """The patterns of the estimated thresholds, of the shape (tensors, 1)."""
        sampler = self._samplers(batch)
        sample = sampler.take(values, self.draws(batch, step))
        return kth_largest(sampler.counted, sample, self._ranks(batch)[:, None]).patterns

    def mark(self, batch: Batch, source: Source, values: Tensors, step: int) -> Tuple[Marks, Optional[torch.Tensor]]:
        limits = self.estimate(batch, values, step)
        return mark_reaching(batch, values, limits.repeat(1, 2), self.quotas(batch)), None


class Dryden(Sparse):
    """``dryden``. A form has the elements that reach the threshold of their sign. If there are too
    many, the host sends the largest of them. The message equals the host's, because the host
    computes the means."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._ratio = config.real("ratio")
        least = max(int(64 / self._ratio), 1024)
        self._samplers: PerBatch[Sampler] = PerBatch(lambda batch: Sampler(batch, least))

    def mark(self, batch: Batch, source: Source, values: Tensors, step: int) -> Tuple[Marks, Optional[torch.Tensor]]:
        sampler = self._samplers(batch)
        sample = sampler.take(values)
        counts = count_signs(sampler.table, sample)
        # Zeros count as elements above 0, but are not sent.
        sides, sent = counts[:, :2], torch.stack((counts[:, 2], counts[:, 1]), 1)
        ranks = (sides.double() * self._ratio + 0.5).floor().long().clamp(min=1).minimum(sides.clamp(min=1))
        limits = kth_largest(sampler.counted, sample, ranks).patterns
        # The sample may have fewer nonzero elements of a sign than the rank. Then all elements of
        # the sign are sent, but no zeros.
        limits = torch.where(ranks > sent, 0, limits).to(torch.int32)
        return mark_reaching(batch, values, limits), None


class RandomK(Sparse):
    """``randomk``. The host draws positions one by one until k are distinct, and the device takes
    the values. The message equals the host's."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._ratio = config.real("ratio")
        own = ",".join(f"{key}={config.parameters[key]}" for key in ("ratio", "unbiased", "indices"))
        # Only its positions are used, and they do not depend on error feedback.
        self._codec = _core.Codec(f"{config.id}:{own},ef=off", config.seed, config.rank, config.ranks)

    def start(self, batch: Batch, source: Source, step: int) -> Callable[[], Encoded]:
        values = correct(batch, source)
        return lambda: self._forms(batch, values, step)

    def _forms(self, batch: Batch, values: Tensors, step: int) -> Encoded:
        """Pairs at the positions of a step."""
        drawn = [self._positions(slot, step) for slot in batch.slots]
        encoded = Encoded.empty(batch, [len(form) for form in drawn])
        encoded.forms.bytes.copy_(torch.frombuffer(bytearray(b"".join(drawn)), dtype=torch.uint8))
        factors = batch.vector([self._factor(slot.elements) for slot in batch.slots], torch.float32)
        fill_pairs(encoded.forms, values, factors)
        return encoded

    def _positions(self, slot: Slot, step: int) -> bytes:
        """The form of a message of zeros."""
        zeros = bytes(4 * how_many(self._ratio, slot.elements))
        return self._codec.unpack(slot.name, slot.shape, step, self.config.rank, zeros)

    def _factor(self, elements: int) -> float:
        """The factor of the values."""
        return elements / max(how_many(self._ratio, elements), 1) if self.config.word("unbiased") == "on" else 1.0


def _kept(batch: Batch, ratio: float) -> torch.Tensor:
    """The number of elements that a ratio keeps of each tensor."""
    return batch.vector([how_many(ratio, slot.elements) for slot in batch.slots], keep=False)


def threshold(config: Config) -> Kernel:
    return Above(config, "v")


def strom(config: Config) -> Kernel:
    return Above(config, "tau")


def topk(config: Config) -> Kernel:
    return Largest(config, "ratio", 1) if config.word("select") == "exact" else SampledTopK(config)


def sbc(config: Config) -> Optional[Kernel]:
    exact = config.word("select") == "exact" and config.word("mean") == "f32"
    return Largest(config, "p", 2) if exact else None
