"""Streams and memory of a device that the buckets of a model share."""

from __future__ import annotations

from typing import Callable, List, Sequence, Tuple

import torch

from ... import _core
from .._staging import Pinned, Stream, nothing
from ._config import Config
from ._kept import Kept


class Inboxes:
    """Pinned memory for received forms: one piece is filled while the other is copied to the
    device."""

    def __init__(self, device: torch.device) -> None:
        self._pinned = [Pinned(device), Pinned(device)]
        self._copied: List[Callable[[], None]] = [nothing, nothing]
        self._turn = 0

    def next(self, length: int) -> torch.Tensor:
        """The other piece, with room for this many bytes."""
        self._turn = 1 - self._turn
        self._copied[self._turn]()
        return self._pinned[self._turn].of(length)

    def copy(self, received: torch.Tensor, stream: Stream, device: torch.device) -> torch.Tensor:
        """Starts to copy the piece that ``next`` returned last to the device, in the entered
        stream."""
        copy = received.to(device, non_blocking=True)
        self._copied[self._turn] = stream.waiter()
        return copy


class Resources:
    """The streams, the memory for received forms, and the kept arrays of a model."""

    def __init__(
        self,
        reducer: _core.Reducer,
        tensors: Sequence[Tuple[str, Tuple[int, ...]]],
        device: torch.device,
        seed: int,
        skip: bool,
    ) -> None:
        self.reducer = reducer
        self.device = device
        self.compress, self.up, self.down = Stream(device), Stream(device), Stream(device)
        self.inboxes = Inboxes(device)
        self.kept = Kept(reducer, tensors, device)
        self._seed, self.skip = seed, skip

    def config(self, spec: str) -> Config:
        """A compressor in this run."""
        return Config.of(spec, self._seed, self.reducer.rank, self.reducer.size)

    def begin(self, step: int) -> None:
        """Prepares the kept arrays for the first bucket of a step."""
        if self.skip:
            self.kept.remember(step)

    def roll_back(self) -> None:
        """Restores the kept arrays from before the step in progress."""
        self.compress.wait_stream(self.down)
        self.kept.roll_back()
