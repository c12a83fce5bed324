"""Measures the link between the ranks of a process group, with gradwire's messages and with
PyTorch's all-reduce."""

from __future__ import annotations

import json
import os
import socket
import statistics
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, List, Optional, Sequence

import torch

from .._arrays import buffer
from ._channel import connect, release
from ._options import Options

# Exponents of the elements of the messages: from 64 KiB to 512 KiB at least, and to 16 MiB at most.
_EXPONENTS = 14, 17, 22
# Elements of a message that carries almost nothing.
_SMALL = 64
# The longest time of a message, in seconds.
_LONG = 1.0


@dataclass(frozen=True)
class Speed:
    """The seconds of a message that carries almost nothing, the additional start-up seconds of a
    long one, its bandwidth, and the median absolute deviation of the first."""

    overhead: float
    start: float
    bits_per_second: float
    noise: float = 0.0


def deviation(times: Sequence[float]) -> float:
    """The median absolute deviation of some times."""
    median = statistics.median(times)
    return statistics.median(abs(one - median) for one in times)


class MeasuredLink:
    """The cost of messages between these ranks.

    All ranks must create it at the same time, and get the same figures. The longest messages have
    up to ``elements``, the elements of the model. TCP is slower with shorter messages, and on some
    links with much longer ones.
    """

    def __init__(self, process_group: Optional[Any], elements: int, deadline: float) -> None:
        least, medium, most = _EXPONENTS
        last = min(max(elements.bit_length() - 1, medium), most)
        self._sizes = [1 << exponent for exponent in range(least, last + 1)]
        # On a very slow link the smallest size is compared with half of it.
        sizes = [_SMALL, self._sizes[0] // 2, *self._sizes]
        self._values = {size: torch.zeros(size, dtype=torch.float32, device="cpu") for size in sizes}
        tensors = [(str(size), values) for size, values in self._values.items()]
        options = Options("none", exchange="all-gather", deadline=deadline)
        self._reducer, self._groups = connect(process_group, partial(options.reducer, tensors), deadline, "gradwire.torch.advise")
        self._step = 0
        self.rank: int = self._reducer.rank
        self.ranks: int = self._reducer.size
        try:
            self.messages = self._speed(self._exchange, self.ranks - 1.0)
            self.plain = self._speed(self._all_reduce, 2.0 - 2.0 / self.ranks)
            hosts = self._reducer.gather(self._next(), socket.gethostname().encode())
            self._reducer.wait()
            self.local_ranks = hosts.count(socket.gethostname().encode())
        except BaseException:
            self.close()
            raise
        self._values = {_SMALL: self._values[_SMALL]}

    @property
    def bits_per_second(self) -> float:
        """The bandwidth of the link: the most that either kind of message reaches."""
        return max(self.messages.bits_per_second, self.plain.bits_per_second)

    def broadcast(self, text: str) -> str:
        """The text of rank 0."""
        first: bytes = self._reducer.gather(self._next(), text.encode())[0]
        self._reducer.wait()
        return first.decode()

    def barrier(self) -> None:
        """Waits for all ranks."""
        self._groups[0].barrier().wait()

    def slowest(self, seconds: Sequence[float]) -> List[float]:
        """For each time, its maximum over all ranks."""
        ranks = self._reducer.gather(self._next(), json.dumps(list(seconds)).encode())
        self._reducer.wait()
        return [max(times) for times in zip(*map(json.loads, ranks))]

    def post(self, bucket: Sequence[int]) -> None:
        """Sends a message that carries almost nothing, in the background, in place of a bucket."""
        self._reducer.average(self._reducer.tensor_group([str(_SMALL)]), self._next(), buffer(self._values[_SMALL]))

    def wait(self) -> None:
        """Waits until all such messages are exchanged."""
        self._reducer.wait()

    def close(self) -> None:
        """Ends the connections."""
        release(self._reducer, self._groups)

    def _speed(self, send: Callable[[int], None], copies: float) -> Speed:
        """The speed of ``send(elements)``, which sends ``copies`` times this number of elements
        from each rank."""
        # The first exchange compares configurations.
        send(_SMALL)
        overheads = [self._slowest(lambda: send(_SMALL)) for _ in range(15)]
        overhead = statistics.median(overheads)
        for size in self._sizes:
            send(size)
            seconds = self._slowest(lambda: send(size))
            if seconds > _LONG:
                break
        short = max(size // 8, self._sizes[0]) if size > self._sizes[0] else size // 2
        long, part = (statistics.median(self._slowest(lambda: send(at)) for _ in range(5)) for at in (size, short))
        # On a link that is too fast to measure, such as within one machine, the difference is
        # noise.
        bits_per_second = 32.0 * copies * (size - short) / max(long - part, 0.1 * long)
        start = part - overhead - 32.0 * copies * short / bits_per_second
        return Speed(overhead, max(start, 0.0), bits_per_second, deviation(overheads))

    def _next(self) -> int:
        self._step += 1
        return self._step

    def _exchange(self, size: int) -> None:
        tensor_group = self._reducer.tensor_group([str(size)])
        # `int` does nothing: the values live as long as this object.
        self._reducer.average(tensor_group, self._next(), buffer(self._values[size]), int)
        self._reducer.wait()

    def _all_reduce(self, size: int) -> None:
        self._groups[0].allreduce([self._values[size]]).wait()

    def _slowest(self, action: Callable[[], Any]) -> float:
        """The seconds of an action on the rank where it takes longest."""
        self.barrier()
        start = time.perf_counter()
        action()
        return self.slowest([time.perf_counter() - start])[0]


def cores() -> int:
    """The number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
