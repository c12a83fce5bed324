"""The interface of all families of kernels."""

from __future__ import annotations

from typing import Callable, Optional, Tuple

import torch

from ._batch import Batch
from ._config import Config
from ._forms import Encoded, Forms
from ._philox import keys
from ._source import Source


class Kernel:
    """A compressor on the device. It keeps no state; the memory keeps arrays."""

    # Whether ``start`` finds the maxima of a source without residual.
    FINDS_MAXIMA = False

    def __init__(self, config: Config) -> None:
        self.config = config

    def start(self, batch: Batch, source: Source, step: int) -> Callable[[], Encoded]:
        """Launches the compression of a batch, without waiting. The returned function is called
        once, in another thread, and may wait for the device.

        A tensor with an element that is not finite keeps its residual.
        """
        raise NotImplementedError

    def clear_sent(self, batch: Batch, forms: Forms, source: Source) -> None:
        """Subtracts this rank's own messages from the residual, if ``start`` could not."""

    def add(self, batch: Batch, forms: Forms, out: torch.Tensor, weight: float, step: int, rank: int) -> None:
        """Adds ``weight`` times the messages that ``rank`` sent to ``out``, a bucket of float32.

        Dense kernels add all messages of ``forms``, in the order of ranks; ``rank`` sent the first,
        unless ``forms.senders`` tells.
        """
        raise NotImplementedError

    def aggregate(self, batch: Batch, out: torch.Tensor) -> None:
        """Turns the weighted means of all messages into the gradients of the step, in place."""

    def draws(self, batch: Batch, step: int, rank: Optional[int] = None) -> Tuple[torch.Tensor, int, int]:
        """The arguments of a kernel that draws random numbers: keys, rank and step. The rank is
        this one, or the sender of a message."""
        return keys(batch, self.config.seed, step), self.config.rank if rank is None else rank, step


class Dense(Kernel):
    """A compressor whose forms have lengths that depend only on the numbers of elements."""

    def form_bytes(self, elements: int) -> int:
        """The length of the form of a tensor."""
        raise NotImplementedError

    def encode(self, batch: Batch, source: Source, forms: Forms, step: int) -> None:
        """Writes the forms."""
        raise NotImplementedError

    def start(self, batch: Batch, source: Source, step: int) -> Callable[[], Encoded]:
        encoded = Encoded.empty(batch, [self.form_bytes(slot.elements) for slot in batch.slots])
        self.encode(batch, source, encoded.forms, step)
        return lambda: encoded
