"""One bucket on its way through a node, to the other nodes and back."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Tuple

import torch
from torch.futures import Future

from .. import _core
from ._buckets import Part
from ._failures import Failures, Flags, Pending
from ._inside import NodeExchange
from ._staging import Stream, future_of, use

# Averages the slices of this rank between nodes, in place. The function, if any, must be called
# before the slices are read; it returns NaN if the step is not finite, otherwise None.
Between = Callable[[Part, torch.Tensor, Optional[Callable[[], Optional[float]]]], Future]

_NAN = float("nan")


class Unfinished:
    """The buckets of a step that have begun, and that this rank has not put together again."""

    def __init__(self) -> None:
        # In main memory, the last one, whose averages travel inside the node.
        self._last: Optional[HostAverage] = None
        # On devices, in the order in which they began.
        self._on_devices: List[DeviceAverage] = []

    def follow(self, average: HostAverage) -> None:
        """Finishes the last bucket; ``average`` is the next one."""
        self.finish_last()
        self._last = average

    def finish_last(self) -> None:
        """Finishes the last bucket in main memory."""
        last, self._last = self._last, None
        if last is not None:
            last.finish()

    def add(self, average: DeviceAverage) -> None:
        """Adds a bucket on a device."""
        self._on_devices.append(average)

    def finish_on_devices(self) -> None:
        """Finishes the buckets on devices."""
        averages, self._on_devices = self._on_devices, []
        for average in averages:
            average.finish()


@dataclass(frozen=True)
class Links:
    """What the averages of a device's buckets use."""

    # Averages between nodes.
    column: _core.Reducer
    failures: Failures
    pending: Pending
    # Runs these averages while the device computes.
    stream: Stream
    unfinished: Unfinished


class NodeAverage:
    """The average of the values of a bucket, in place.

    Whatever fails, its future gets a result. If this rank cannot average its slices with the other
    nodes, it still takes part in the collectives of the node, so no other rank waits in vain; only
    if these fail, too, the others notice it by their deadline.
    """

    def __init__(self, links: Links, exchange: NodeExchange) -> None:
        self._links, self._exchange, self._bucket = links, exchange, exchange.bucket
        self._future = future_of(exchange.values.device)

    def start(self, part: Part, between: Between) -> Future:
        """Begins the average; ``part`` are the slices that this rank owns."""
        self._links.pending.begin()
        try:
            self._start(part, between)
        except BaseException:
            self._links.pending.end()
            raise
        return self._future

    def _start(self, part: Part, between: Between) -> None:
        raise NotImplementedError

    def _gather(self) -> Any:
        """Begins to send the averages of this rank's slices to the ranks of the node."""
        if not self._links.column.failed:
            return self._exchange.gather()
        mean = self._exchange.mean.fill_(_NAN)
        return self._exchange.gather(torch.full((1,), _NAN, device=mean.device))

    def _end(self) -> None:
        self._links.pending.end()
        self._future.set_result(self._exchange.values)


class HostAverage(NodeAverage):
    """The average of a bucket in main memory. All waiting is done in the thread of the column's
    reducer."""

    def _start(self, part: Part, between: Between) -> None:
        self._swap = self._exchange.scatter()
        between(part, self._exchange.mean, self._ready).add_done_callback(self._averaged)

    def _ready(self) -> Optional[float]:
        """Waits for the chunks of the node, and adds them up. Returns NaN if one is not finite,
        because the slices of this rank may be finite, or none."""
        with self._links.failures.noted():
            self._swap.wait()
            if self._links.failures.check_finite(self._exchange.add(), self._exchange.not_finite):
                return None
            self._exchange.mean.fill_(_NAN)
            return _NAN

    def _averaged(self, _: Future) -> None:
        """Begins to gather the averages, and finishes the bucket before, whose averages have
        travelled meanwhile."""
        self._exchange.free_chunks()
        try:
            with self._links.failures.noted():
                self._swap = self._gather()
        except Exception:
            self._end()
        else:
            self._links.unfinished.follow(self)

    def finish(self) -> None:
        """Waits for the averages of the node, and puts them together."""
        try:
            with self._links.failures.noted():
                self._swap.wait()
                self._links.failures.check(self._exchange.unpack())
        except Exception:
            # Noted; the end of the step raises it.
            pass
        finally:
            self._end()


class DeviceAverage(NodeAverage):
    """The average of a bucket on a device. Everything is enqueued on streams, and the host waits
    only for the slices that it sends.

    The thread of the backward pass enqueues all collectives: first those that send gradients, in
    the order of buckets, and at the end of the step those that send averages. So all ranks of a
    node enqueue them in the same order, as NCCL requires.
    """

    def _start(self, part: Part, between: Between) -> None:
        stream = self._links.stream
        stream.wait_current(self._exchange.values)
        with stream.entered():
            flags, not_finite = reduced_on_device(self._exchange)
            self._links.failures.note_scattered(Flags(flags, stream.record_event()), self._bucket.parameters)
            if self._bucket.elements:
                self._averaged = between(part, self._exchange.mean, None)
            else:
                self._averaged = between(part, torch.empty(0, dtype=torch.float32, device="cpu"), _reader(not_finite, stream))
        self._links.unfinished.add(self)

    def finish(self) -> None:
        """Gathers the averages of the node, and puts them together, in the current stream."""
        values = self._exchange.values
        device = values.device
        try:
            with self._links.failures.noted(), torch.cuda.device(device) if device.type == "cuda" else nullcontext():
                # The current stream waits for the averages.
                self._averaged.wait()
                current = torch.cuda.current_stream() if device.type == "cuda" else None
                if current is not None:
                    self._exchange.mean.record_stream(current)
                    values.record_stream(current)
                self._gather().wait()
                flags = self._exchange.unpack()
                self._links.failures.check_later(Flags(flags, None if current is None else current.record_event()))
                self._end()
        except Exception:
            self._end()


def reduced_on_device(exchange: NodeExchange) -> Tuple[torch.Tensor, torch.Tensor]:
    """Swaps the chunks of a bucket on a device, and adds them up, in the current stream.

    Returns the flags of the node's ranks, and their sum. If a value of the node is not finite, the
    sum is not, and the slices become NaN, so the exchange between nodes finds it.
    """
    exchange.scatter().wait()
    flags = exchange.add()
    not_finite = flags.sum().float()
    exchange.mean.add_(not_finite)
    exchange.free_chunks()
    return flags, not_finite


def _reader(value: torch.Tensor, stream: Stream) -> Callable[[], Optional[float]]:
    """A function that waits for a value of the stream, and returns it if it is NaN."""
    copy = value.to("cpu", non_blocking=True)
    copied = stream.waiter()

    def read() -> Optional[float]:
        use(value.device)
        copied()
        return _NAN if bool(copy.isnan()) else None

    return read
