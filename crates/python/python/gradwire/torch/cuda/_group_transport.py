"""Exchanges the tensors of a process group by messages that stay on the device; see
``_transport``."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Sequence, Set, Tuple

from torch.futures import Future

from ... import _core
from .._group_call import Call
from .._staging import future_of
from ._transport import DeviceTransport, Values, Work


class GroupTransport(DeviceTransport):
    """Exchanges tensors that become known one after the other. Each is a bucket of its own."""

    def __init__(self, reducer: _core.Reducer, values: Values, group: Any, seed: int) -> None:
        super().__init__(reducer, [], values, group, seed)
        # The tensors for which something may be kept.
        self._keeping: Set[str] = set()
        # The numbers of tensor groups, by tensor.
        self._tensor_groups: Dict[str, int] = {}

    @property
    def device(self) -> Any:
        """The device of all tensors."""
        return self._device

    def knows(self, name: str) -> bool:
        """Whether ``add`` was called for a tensor."""
        return name in self.shapes

    def add(self, name: str, elements: int, tensor_group: int) -> None:
        """Makes room for a tensor that the reducer has. It has one dimension."""
        self.shapes[name], self._tensor_groups[name] = (elements,), tensor_group
        place = self.reducer.names.index(name)
        with self._between_steps():
            self._stages.add(name, place, self._skip)

    def load(self, states: Sequence[bytes]) -> None:
        """Continues from the states of ranks; see ``Exchange.load``."""
        super().load(states)
        self._keeping = set(self.shapes)

    def forget(self, name: str) -> bool:
        """Forgets a tensor, and what is kept for it, between two steps; if it comes again, it is
        added again. Returns whether something may have been kept."""
        if name not in self._keeping:
            return False
        self._keeping.discard(name)
        with self._between_steps():
            self._stages.forget(name)
        number = self._tensor_groups.pop(name)
        del self.shapes[name]
        self._buckets = {key: bucket for key, bucket in self._buckets.items() if key[0] != number}
        return any(kept.arrays for kept in self.kept)

    def average_call(self, step: int, place: str, call: Call) -> Future:
        """Starts a collective; see ``average``."""
        future = future_of(self._device)
        try:
            turn = self._next(self._tensor_groups[place], step, [place], call.values)
            self._keeping.add(place)
            self._packing.wait_current(call.values)
            for tensor in (call.values, call.result):
                self._sending.record_stream(tensor)
            output = None if call.output is None else call.output.tensor
            work = Work(call.values, call.values, 1.0, call.factor, output)
            self._run(turn, work, done=lambda _: future.set_result(call.tensors))
        except Exception as error:
            self._fail(error)
            raise
        return future

    def finish(self) -> None:
        """Waits until the device has done all work, but not longer than the deadline: the process
        group may end next."""
        event, until = self._sending.record_event(), time.monotonic() + self.reducer.deadline
        while event is not None and not event.query() and time.monotonic() < until:
            time.sleep(0.001)

    def is_skipped(self, step: int) -> bool:
        """Whether a step, the last one or a later one, has had an element that is not finite, on
        some rank. Waits for the device. All ranks find the same."""
        if self._step != step:
            return False
        with self._sending.entered():
            reading = self._non_finite.reading(self._sending)
        return reading.found() is not None

    def plan(self, step: int) -> List[Tuple[str, int, str, float, int]]:
        """How tensors are sent, among them those through the host; see ``DeviceTransport.plan``."""
        stage, here = self._stages.at(step), self._sent()
        rows = []
        for name, elements, spec, expected, sent in self.reducer.plan(step):
            if name in stage.specs:
                expected, sent = float(self._length(name, stage)), here.get(name, 0)
            rows.append((name, elements, spec, expected, sent))
        return rows

    def _drop_buckets(self, step: int) -> None:
        """Buckets stay, because a place may come again."""
