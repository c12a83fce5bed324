"""Messages of many tensors in one array of bytes, whose layout all ranks know.

A ``Layout`` gives each form its place. ``Packer`` compresses tensors to such bytes, with one launch
of each kernel for all receivers; ``Unpacker`` adds the tensors of received bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, List, Sequence, Tuple

import torch

from ._batch import Batch, Slot, moved
from ._config import Config
from ._forms import Forms
from ._kernel import Dense
from ._memory import Arrays, Memory
from ._nonfinite import HEAD, Maxima
from ._repeated import Repeated, permanent
from .kernels import kernel_and_memory

# Blocks begin at multiples of this number of bytes, for which kernels are compiled once.
ALIGNMENT = 16


@dataclass(frozen=True)
class Coding:
    """The configuration of compressors in a run."""

    device: torch.device
    seed: int
    # The number of ranks.
    ranks: int

    def compressor(self, spec: str, drawn_as: int = 0, plain: bool = False) -> Tuple[Dense, Memory]:
        """A compressor whose random draws are those of the rank ``drawn_as``, and its memory: with
        ``plain`` the residual with weights 1, which suits values other than gradients."""
        config = Config.of(spec, self.seed, drawn_as, self.ranks)
        found = kernel_and_memory(config, plain)
        assert found is not None, spec
        kernel, memory = found
        assert isinstance(kernel, Dense), spec
        return kernel, memory


@dataclass(frozen=True)
class Sender:
    """The compressors of tensors, the rank in the random draws of their messages, and whether their
    memory is the plain residual."""

    specs: Sequence[str]
    drawn_as: int = 0
    plain: bool = False


class Layout:
    """The places of forms in ``count`` blocks of bytes. Each block begins with ``HEAD`` bytes.

    ``blocks`` has the block of each tensor. The tensors of a block follow each other in order.
    """

    def __init__(self, coding: Coding, elements: Sequence[int], specs: Sequence[str], blocks: Sequence[int], count: int) -> None:
        kernels = {spec: coding.compressor(spec)[0] for spec in dict.fromkeys(specs)}
        # The length of each form in bytes.
        self.forms = [kernels[spec].form_bytes(count) for count, spec in zip(elements, specs)]
        # The first byte of each form in its block.
        self.places: List[int] = []
        # The length of each block in bytes.
        self.lengths = [HEAD] * count
        for block, length in zip(blocks, self.forms):
            self.places.append(self.lengths[block])
            self.lengths[block] += _aligned(length, 4)
        self.lengths = [_aligned(length, ALIGNMENT) for length in self.lengths]
        # The first byte of each block and of each form, if the blocks follow each other.
        self.firsts = [end - length for end, length in zip(accumulate(self.lengths), self.lengths)]
        self.starts = [self.firsts[block] + place for block, place in zip(blocks, self.places)]


def _aligned(length: int, to: int) -> int:
    return length + -length % to


@dataclass
class _Part:
    """The tensors that have the same compressor."""

    kernel: Dense
    memory: Memory
    batch: Batch
    # The first byte of each form.
    starts: torch.Tensor
    # Their places among all tensors.
    places: List[int]


def _parts(coding: Coding, slots: Sequence[Slot], starts: Sequence[int], sender: Sender) -> List[_Part]:
    parts = []
    for spec in dict.fromkeys(sender.specs):
        kernel, memory = coding.compressor(spec, sender.drawn_as, sender.plain)
        places = [place for place, other in enumerate(sender.specs) if other == spec]
        batch = Batch([slots[place] for place in places], coding.device)
        parts.append(_Part(kernel, memory, batch, batch.vector([starts[place] for place in places]), places))
    return parts


class Packer:
    """Compresses tensors of a buffer to bytes with the layout's blocks one after the other."""

    def __init__(self, coding: Coding, slots: Sequence[Slot], layout: Layout, sender: Sender) -> None:
        self._parts = _parts(coding, slots, layout.starts, sender)
        self._device = coding.device
        self._length = sum(layout.lengths)
        self._maxima = Maxima([part.places for part in self._parts], coding.device)
        self._heads = permanent(moved(torch.tensor(layout.firsts, dtype=torch.int64, device="cpu"), coding.device))
        # The names of the arrays that are kept from step to step.
        self.kept = list(dict.fromkeys(kind for part in self._parts for kind in part.memory.kept))
        self._compress = Repeated(self._launch, ["step"])

    def pack(self, values: torch.Tensor, arrays: Arrays, step: int, length: int = 0) -> torch.Tensor:
        """The messages of a step, and unspecified bytes behind them up to ``length``; launches
        without waiting. Residuals and other arrays become those after the step; those of a tensor
        with an element that is not finite stay."""
        bytes = torch.empty(max(self._length, length), dtype=torch.uint8, device=self._device)
        self._compress(values, bytes, *(arrays[kind] for kind in self.kept), step)
        return bytes

    def _launch(self, values: torch.Tensor, bytes: torch.Tensor, *rest: Any) -> None:
        """Compresses the values. ``rest`` are the kept arrays and the step."""
        *arrays, step = rest
        named = dict(zip(self.kept, arrays))
        for part, maxima in zip(self._parts, self._maxima.parts):
            source = part.memory.source(part.batch, values, named, maxima)
            part.kernel.encode(part.batch, source, Forms(bytes, part.starts), step)
        self._maxima.put_heads(self._heads, bytes)


class Unpacker:
    """Adds the tensors of received messages to a buffer, with one launch of each kernel. Values
    that are in the buffer before count as 0.

    ``slots`` has their places in the buffer, ``starts`` the first byte of each form, and
    ``drawn_as`` the rank in the random draws of each message.
    """

    def __init__(self, coding: Coding, slots: Sequence[Slot], starts: Sequence[int], specs: Sequence[str], drawn_as: Sequence[int]) -> None:
        self._parts = _parts(coding, slots, starts, Sender(specs))
        self._senders = [part.batch.vector([drawn_as[place] for place in part.places], torch.int32) for part in self._parts]

    def add(self, received: torch.Tensor, out: torch.Tensor, step: int, messages: int = 1, stride: int = 0, factor: float = 1.0) -> None:
        """Adds the mean of the ``messages`` of each tensor, times ``factor``, to a buffer of
        float32. They come from consecutive ranks, and begin ``stride`` bytes after each other."""
        for part, senders in zip(self._parts, self._senders):
            forms = Forms(received, part.starts, messages, stride, senders, fresh=1)
            part.kernel.add(part.batch, forms, out, factor / messages, step, 0)

    def aggregate(self, out: torch.Tensor) -> None:
        """Turns the weighted means of all ranks into the gradients of the step, in place: the
        results of votes, or the means."""
        for part in self._parts:
            part.kernel.aggregate(part.batch, out)
