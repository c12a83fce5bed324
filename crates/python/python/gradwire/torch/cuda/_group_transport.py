"""Exchanges the tensors of a process group by messages that stay on the device; see
``_transport``."""

from __future__ import annotations

from typing import Any, Dict, List, Set, Tuple

from torch.futures import Future

from ... import _core
from .._group_call import Call
from .._staging import future_of
from ._kept import users_of
from ._slices import Slice, cut_rows, cut_tensor
from ._transport import DeviceTransport, Values, Work


class GroupTransport(DeviceTransport):
    """Exchanges tensors that become known one after the other. Each is a bucket of its own."""

    def __init__(self, reducer: _core.Reducer, values: Values, group: Any, seed: int) -> None:
        super().__init__(reducer, [], values, group, seed)
        self._narrow = values.narrow
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
            for kept, slices in zip(self.kept, self._cut(name)):
                users = users_of(self.reducer, {one.name: place for one in slices}, plain=kept is not self.kept[0])
                kept.add([(one.name, one.shape) for one in slices], users, self._skip)
        for first, stage in self._stages.items():
            spec = self.reducer.specs(first)[place]
            stage.specs[name] = self.reducer.message_specs(first)[place] if self._narrow else spec
            if stage.specs[name] != spec:
                stage.keep_scale.add(name)

    def _cut(self, name: str) -> List[List[Slice]]:
        """The slices of a tensor in the arrays of gradients, and in those of means."""
        shape = self.shapes[name]
        if self._exchange == "all-gather":
            return [[Slice(name, shape, 0, 0)]]
        cut_one = cut_tensor if self._exchange == "scatter-reduce" else cut_rows
        slices = self.slices[name] = cut_one(name, shape, self.peers.size)
        return [slices, [one for one in slices if one.owner == self.peers.rank]]

    def forget(self, name: str) -> bool:
        """Forgets what is kept for a tensor, between two steps. Returns whether there was
        anything."""
        if name not in self._keeping:
            return False
        self._keeping.discard(name)
        with self._between_steps():
            for kept, slices in zip(self.kept, self._cut(name)):
                for one in slices:
                    kept.forget(one.name)
        number = self._tensor_groups[name]
        self._buckets = {key: bucket for key, bucket in self._buckets.items() if key[0] != number}
        return any(kept.arrays for kept in self.kept)

    def average_call(self, step: int, call: Call) -> Future:
        """Starts a collective; see ``average``."""
        future = future_of(self._device)
        with self._failing():
            turn = self._next(self._tensor_groups[call.place], step, [call.place], call.values)
            self._keeping.add(call.place)
            self._packing.wait_current(call.values)
            for tensor in (call.values, call.result):
                self._sending.record_stream(tensor)
            output = None if call.output is None else call.output.tensor
            work = Work(call.values, call.values, 1.0, call.factor, output)
            self._run(turn, work, done=lambda _: future.set_result(call.result))
        return future

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
        here = self._stages[self._stage(step)].specs
        rows = []
        for name, elements, spec, expected, sent in self.reducer.plan(step):
            if name in here:
                expected, sent = float(self._length(name, here[name])), self._sent.get(name, 0)
            rows.append((name, elements, spec, expected, sent))
        return rows

    def _drop_buckets(self, step: int) -> None:
        """Buckets stay, because a place may come again."""
