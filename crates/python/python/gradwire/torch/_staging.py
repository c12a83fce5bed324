"""Copies of CUDA buckets through pinned memory, on a separate stream.

A kernel that compresses on the device would replace ``stage``: it would write the message instead of the values to
pinned memory.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import torch
from torch.futures import Future


class Staging:
    """Copies buckets from a device to main memory and back."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = torch.cuda.Stream(device)
        self._pinned: Dict[int, torch.Tensor] = {}

    def stage(
        self, group: int, tensor: torch.Tensor
    ) -> Tuple[Future, torch.Tensor, Callable[[], None], Callable[[], None]]:
        """Starts to copy a bucket to main memory.

        Returns the bucket's future, its pinned values, a function to call when they have been averaged, and a function
        to call before they are read.
        """
        pinned = self._pinned.get(group)
        if pinned is None or pinned.numel() != tensor.numel():
            pinned = torch.empty(tensor.numel(), dtype=tensor.dtype, pin_memory=True)
            self._pinned[group] = pinned
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        tensor.record_stream(self._stream)
        with torch.cuda.stream(self._stream):
            pinned.copy_(tensor, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record(self._stream)
        future: Future = Future(devices=[self._device])

        def done() -> None:
            # The future records the current stream, so that waiting for it also waits for this copy.
            with torch.cuda.stream(self._stream):
                tensor.copy_(pinned, non_blocking=True)
                future.set_result(tensor)

        return future, pinned, done, copied.synchronize
