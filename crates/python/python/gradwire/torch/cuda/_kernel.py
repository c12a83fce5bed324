"""What every family of kernels offers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, List, Tuple

import torch

from ._batch import Batch
from ._config import Config
from ._source import Source


@dataclass
class Forms:
    """The device forms of a batch, in one buffer; see ``gradwire::device``."""

    # Bytes on the device. Forms begin at multiples of four.
    bytes: torch.Tensor
    # The first byte of each tensor's form, and the one behind its last.
    ranges: List[Tuple[int, int]]

    @classmethod
    def empty(cls, lengths: List[int], device: torch.device) -> Forms:
        """Room for forms of these lengths."""
        ranges, start = [], 0
        for length in lengths:
            ranges.append((start, start + length))
            start += length + -length % 4
        return cls(torch.empty(start, dtype=torch.uint8, device=device), ranges)


class Kernel:
    """A compressor on the device. What is kept from step to step is in the memory's arrays."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def start(self, batch: Batch, source: Source, maxima: torch.Tensor, step: int) -> Callable[[], Forms]:
        """Launches the compression of a batch, without waiting. What it returns is called once, in another thread, where it
        may wait for the device.

        ``maxima`` has the bits of the largest absolute values, as ``_source.maxima`` finds them. A tensor with an element that
        is not finite leaves its residual as it was.
        """
        raise NotImplementedError

    def clear_sent(self, batch: Batch, forms: Forms, at: torch.Tensor, source: Source) -> None:
        """Updates the residual by this rank's own messages, given as forms, where ``start`` could not."""

    def add(
        self, batch: Batch, forms: torch.Tensor, at: torch.Tensor, out: torch.Tensor, weight: float, step: int, rank: int
    ) -> None:
        """Adds ``weight`` times the messages that ``rank`` sent to the float32 tensors in ``out``.

        ``forms`` has their forms, that of tensor t from byte ``at[t]`` on, which is a multiple of four.
        """
        raise NotImplementedError

    def aggregate(self, batch: Batch, out: torch.Tensor) -> None:
        """Turns the weighted means of all messages into the gradients of the step, in place."""


class Dense(Kernel):
    """A compressor whose forms have a length that depends on the number of elements alone."""

    def form_bytes(self, elements: int) -> int:
        """The length of the form of a tensor."""
        raise NotImplementedError

    def encode(
        self, batch: Batch, source: Source, maxima: torch.Tensor, forms: torch.Tensor, at: torch.Tensor, step: int
    ) -> None:
        """Writes the form of tensor t to the bytes from ``at[t]`` on."""
        raise NotImplementedError

    def start(self, batch: Batch, source: Source, maxima: torch.Tensor, step: int) -> Callable[[], Forms]:
        forms = Forms.empty([self.form_bytes(slot.elements) for slot in batch.slots], batch.device)
        at = batch.vector([start for start, _ in forms.ranges])
        self.encode(batch, source, maxima, forms.bytes, at, step)
        return lambda: forms
