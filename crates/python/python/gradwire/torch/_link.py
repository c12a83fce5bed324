"""Measures the link between the ranks of a process group, with gradwire's own messages."""

from __future__ import annotations

import os
import socket
import statistics
import time
from typing import Any, Callable, List, Optional

import torch
import torch.distributed as dist

from .._arrays import buffer
from . import _setup
from ._channel import connect, release

# Elements of the messages, from 64 KiB to 64 MiB.
_SIZES = [1 << exponent for exponent in range(14, 25)]
# Elements of a message that carries almost nothing.
_SMALL = 64
# The seconds that a message should take, so that its bandwidth is known to a few per cent.
_LONG = 0.2


class MeasuredLink:
    """What messages between these ranks take.

    All ranks must create it at the same time, and get the same figures.
    """

    def __init__(self, process_group: Optional[Any], deadline: float) -> None:
        tensors = [(str(size), torch.zeros(size)) for size in [_SMALL, *_SIZES]]
        self._reducer, self._groups = connect(
            process_group, lambda channel: _setup.reducer(tensors, "none", channel, exchange="all-gather", deadline=deadline)
        )
        self._step = 0
        self.rank: int = self._reducer.rank
        self.ranks: int = self._reducer.size
        try:
            # The first exchange compares configurations.
            self._exchange(tensors[0])
            self.overhead = statistics.median(self._slowest(lambda: self._exchange(tensors[0])) for _ in range(15))
            self.plain_overhead = statistics.median(self._slowest(lambda: self._all_reduce(tensors[0][1])) for _ in range(15))
            self.bits_per_second = self._bandwidth(tensors[1:])
            hosts = self._reducer.gather(self._next(), socket.gethostname().encode())
            self._reducer.wait()
            self.local_ranks = hosts.count(socket.gethostname().encode())
        except BaseException:
            self.close()
            raise

    def broadcast(self, text: str) -> str:
        """The text of rank 0."""
        first: bytes = self._reducer.gather(self._next(), text.encode())[0]
        self._reducer.wait()
        return first.decode()

    def barrier(self) -> None:
        """Waits for all ranks."""
        dist.barrier(self._groups[0])

    def close(self) -> None:
        """Ends the connections."""
        release(self._reducer, self._groups)

    def _bandwidth(self, tensors: List[Any]) -> float:
        for tensor in tensors:
            self._exchange(tensor)
            seconds = self._slowest(lambda: self._exchange(tensor))
            if seconds > _LONG:
                break
        bits = 32.0 * (self.ranks - 1) * tensor[1].numel()
        return bits / max(seconds - self.overhead, 1e-9)

    def _next(self) -> int:
        self._step += 1
        return self._step

    def _exchange(self, tensor: Any) -> None:
        name, values = tensor
        group = self._reducer.group([name])
        self._reducer.average(group, self._next(), buffer(values), int)
        self._reducer.wait()

    def _all_reduce(self, values: torch.Tensor) -> None:
        dist.all_reduce(values, group=self._groups[0])

    def _slowest(self, action: Callable[[], Any]) -> float:
        """The seconds of an action on the rank where it takes longest."""
        self.barrier()
        start = time.perf_counter()
        action()
        own = time.perf_counter() - start
        all_ranks = self._reducer.gather(self._next(), repr(own).encode())
        self._reducer.wait()
        return max(float(seconds) for seconds in all_ranks)


def cores() -> int:
    """The number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
