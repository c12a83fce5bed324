"""Averages buckets over two levels by messages that stay on the device.

The ranks of a node reduce a bucket and gather its averages; in between, a ``DeviceTransport``
averages the slices of this rank's column, and does not know that there are two levels.

The thread of the backward pass enqueues everything, in an order that is the same on all ranks. With
the next bucket it enqueues

1. in the stream of the node: the swap of its chunks, and their sum;
2. in the streams of the transport: the exchange of its slices between nodes;
3. in the stream of the node: the gather of the bucket before.

So the next bucket is reduced, and the one before is gathered, while one travels between nodes.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch.futures import Future

from ... import _core
from .._failures import Flags, Scattered
from .._inside import NodeExchange
from .._node_averages import reduced_on_device
from .._staging import Scale, Stream, future_of
from .._two_levels import TwoLevels
from ._nonfinite import NonFinite
from ._slices import Shape
from ._transport import DeviceTransport, Values


class _Unfinished(NamedTuple):
    """A bucket whose averages have not been gathered."""

    exchange: NodeExchange
    # The averages of this rank's slices.
    averaged: Future
    # The averages of the bucket.
    future: Future


class NodeTransport:
    """Averages the buckets of a model over the ranks of equal nodes. It has the methods of
    ``DeviceTransport`` that hooks use.

    ``tensors`` are the names and shapes of the slices that this rank owns. Means and states equal
    those of ``TwoLevels`` through the host. If an element is not finite, the averages of the step
    are NaN from that bucket on, on all ranks.
    """

    def __init__(self, levels: TwoLevels, tensors: Sequence[Tuple[str, Shape]], values: Values, seed: int) -> None:
        self._levels = levels
        self._column = DeviceTransport(levels.column, tensors, values, levels.column_group(), seed, peer="node")
        self.peers = self._column.peers
        # Other streams give way to it, as to those of the column.
        self._stream = Stream(values.device, first=True)
        # What some column of the node found in this step.
        self._non_finite = NonFinite(values.device)
        self._step = -1
        self._last: Optional[_Unfinished] = None
        # The flags of gradients in the last two steps, since errors are one step late.
        self._scattered: Deque[List[Scattered]] = deque(maxlen=2)

    def average(self, tensor_group: int, step: int, names: Sequence[str], tensor: torch.Tensor, scale: Scale) -> Future:
        """Averages a bucket over all ranks, in place and in the background; see
        ``DeviceTransport.average``."""
        exchange, part = self._levels.exchange_of(tensor_group, step, tensor)
        future = future_of(tensor.device)
        with self._levels.finding_cause():
            if step > self._step:
                self._begin(step)
            self._stream.wait_current(tensor)
            with self._stream.entered():
                flags, _ = reduced_on_device(exchange)
                self._scattered[-1].append((Flags(flags, self._stream.record_event()), exchange.bucket.parameters))
                averaged = self._average_slices(part.tensor_group, part.names, exchange.mean, scale)
                self._finish_last()
        self._last = _Unfinished(exchange, averaged, future)
        return future

    def _begin(self, step: int) -> None:
        self._column.begin(step)
        self._step = step
        self._scattered.append([])
        with self._stream.entered():
            self._non_finite.begin()

    def _average_slices(self, tensor_group: int, names: Sequence[str], mean: torch.Tensor, scale: Scale) -> Future:
        try:
            return self._column.average(tensor_group, self._step, names, mean, scale)
        except _core.GradwireError as error:
            raise self._levels.failures.of_column(error) from error

    def _finish_last(self) -> None:
        """Gathers the averages of the last bucket, in the current stream."""
        last, self._last = self._last, None
        if last is None:
            return
        exchange = last.exchange
        # The current stream waits for them.
        last.averaged.wait()
        # All are NaN, or none.
        mean = exchange.mean[:1]
        exchange.gather(torch.where(mean.isnan(), mean, 0.0) if len(mean) else None).wait()
        flags = exchange.unpack()
        self._non_finite.note_elsewhere(flags.isnan().any())
        self._non_finite.spoil(exchange.values)
        last.future.set_result(exchange.values)

    def end_step(self) -> None:
        """Ends a step, as ``DeviceTransport.end_step``. All ranks raise the same error."""
        if self._step < 0:
            return
        with self._levels.finding_cause():
            with self._stream.entered():
                self._finish_last()
                # The slices of this rank may be finite, or none.
                self._column.note(self._non_finite.skips())
            try:
                self._column.end_step()
            except _core.NonFiniteError as error:
                raise self._named(error) from error

    def _named(self, error: Exception) -> Exception:
        """The error about an element of this node that is not finite, or ``error`` if other nodes
        know more."""
        return self._levels.failures.not_finite(one for step in self._scattered for one in step) or error

    def plan(self, step: int) -> List[Tuple[str, int, str, float, int]]:
        """How the slices of this rank are sent, as ``Reducer.plan``."""
        return self._column.plan(step)

    def message_bytes(self, step: int) -> float:
        """The length of this rank's messages of a step, each counted once."""
        return self._column.message_bytes(step)

    def described(self, step: int) -> str:
        """See ``Description.transport``."""
        return self._column.described(step)

    def stats(self) -> Dict[str, Any]:
        """The cost of the last step, as ``TwoLevels.stats``; waits and warns as
        ``DeviceTransport.stats``."""
        return {**self._column.stats(), **self._levels.inside_bytes()}

    def release(self) -> None:
        """Frees the memory on the device. No step may follow."""
        self._last = None
        self._column.release()

    def save_unless_kept(self) -> Optional[bytes]:
        """See ``DeviceTransport.save_unless_kept``."""
        return self._column.save_unless_kept()

    def save(self) -> bytes:
        """This rank's state, as ``Reducer.save`` returns it; warns as ``stats``."""
        return self._column.save()

    def save_all(self) -> List[bytes]:
        """The states of all ranks, which all must call at the same time; raises as
        ``end_step``."""
        with self._levels.finding_cause():
            try:
                self._column.check()
            except _core.NonFiniteError as error:
                raise self._named(error) from error
        return self._levels.gather_states(self.save())

    def load(self, states: Sequence[bytes]) -> None:
        """Restores this rank's state, as ``Reducer.load`` does."""
        self._column.load(states)
        self._step = -1
