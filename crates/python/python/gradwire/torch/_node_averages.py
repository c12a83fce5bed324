"""One bucket on its way through a node, to the other nodes and back."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch
from torch.futures import Future

from .. import _core
from ._buckets import Part
from ._failures import Failures, Pending
from ._inside import Inside, NodeBucket
from ._staging import Stream, future_of

# Averages the slices of this rank between nodes, in place. The function, if any, must be called
# before the slices are read.
Between = Callable[[Part, torch.Tensor, Optional[Callable[[], None]]], Future]


class Last:
    """The last bucket whose averages travel inside the node."""

    def __init__(self) -> None:
        self._average: Optional[HostAverage] = None

    def follow(self, average: HostAverage) -> None:
        """Finishes the last bucket; ``average`` is the next one."""
        self.finish()
        self._average = average

    def finish(self) -> None:
        """Finishes the last bucket."""
        last, self._average = self._average, None
        if last is not None:
            last.finish()


@dataclass(frozen=True)
class Way:
    """What the averages of a device's buckets share."""

    inside: Inside
    # Averages between nodes.
    column: _core.Reducer
    failures: Failures
    pending: Pending
    # Of the device, beside its computation.
    stream: Stream
    last: Last


class NodeAverage:
    """The average of the values of a bucket, in place.

    Whatever fails, its future gets a result, and it takes part in all collectives of the node, so
    no other rank waits in vain.
    """

    def __init__(self, way: Way, bucket: NodeBucket, values: torch.Tensor, dtype: torch.dtype) -> None:
        self._way, self._bucket, self._values, self._dtype = way, bucket, values, dtype
        self._future = future_of(values.device)
        self._mean = torch.empty(0)

    def start(self, part: Part, between: Between) -> Future:
        """Begins the average; ``part`` are the slices that this rank owns."""
        self._way.pending.begin()
        try:
            self._start(part, between)
        except BaseException:
            self._way.pending.end()
            raise
        return self._future

    def _start(self, part: Part, between: Between) -> None:
        raise NotImplementedError

    def _scatter(self) -> Any:
        """Begins to swap chunks."""
        self._sent = self._bucket.pack(self._values, self._dtype)
        self._received = torch.empty_like(self._sent)
        self._mean = torch.empty(self._bucket.elements, dtype=torch.float32, device=self._values.device)
        return self._way.inside.scatter(self._received, self._sent)

    def _gather(self) -> Any:
        """Begins to send the averages of this rank's slices to the ranks of the node."""
        chunk = self._bucket.chunk(self._mean, self._dtype, self._way.column.failed)
        self._averages = torch.empty(self._bucket.ranks * chunk.numel(), dtype=self._dtype, device=chunk.device)
        return self._way.inside.gather(self._averages, chunk)

    def _end(self) -> None:
        self._way.pending.end()
        self._future.set_result(self._values)


class HostAverage(NodeAverage):
    """The average of a bucket in main memory. All waiting is done in the thread of the column's
    reducer."""

    def _start(self, part: Part, between: Between) -> None:
        self._swap = self._scatter()
        between(part, self._mean, self._ready).add_done_callback(self._averaged)

    def _ready(self) -> None:
        """Waits for the chunks of the node, and adds them up."""
        with self._way.failures.noted():
            self._swap.wait()
            flags = self._bucket.mean_of(self._received, self._mean)
            if not self._way.failures.check_finite(flags, lambda: self._bucket.not_finite(self._sent)):
                self._mean.fill_(float("nan"))

    def _averaged(self, _: Future) -> None:
        """Begins to gather the averages, and finishes the bucket before, whose averages have
        travelled meanwhile."""
        self._sent = self._received = self._mean[:0]
        try:
            with self._way.failures.noted():
                self._swap = self._gather()
        except Exception:
            self._end()
        else:
            self._way.last.follow(self)

    def finish(self) -> None:
        """Waits for the averages of the node, and puts them together."""
        try:
            with self._way.failures.noted():
                self._swap.wait()
                self._way.failures.check(self._bucket.unpack(self._averages, self._values))
        except Exception:
            # Noted; the end of the step raises it.
            pass
        finally:
            self._end()


class DeviceAverage(NodeAverage):
    """The average of a bucket on a device. Everything is enqueued on streams, and the host waits
    only for the slices that it sends."""

    def _start(self, part: Part, between: Between) -> None:
        stream = self._way.stream
        stream.wait_current(self._values)
        with stream.entered():
            self._scatter().wait()
            # The flags make all slices NaN if a value of the node is not finite, so the reducer
            # finds it.
            self._mean.add_(self._bucket.mean_of(self._received, self._mean).sum().float())
            self._sent = self._received = self._mean[:0]
            averaged = between(part, self._mean, None)
        averaged.add_done_callback(self._averaged)

    def _averaged(self, averaged: Future) -> None:
        device = self._values.device
        try:
            with self._way.failures.noted(), torch.cuda.device(device) if device.type == "cuda" else nullcontext():
                # The current stream waits for the averages.
                averaged.wait()
                self._gather().wait()
                self._way.failures.check_later(self._bucket.unpack(self._averages, self._values))
                if device.type == "cuda":
                    self._values.record_stream(torch.cuda.current_stream())
                self._end()
        except Exception:
            self._end()
