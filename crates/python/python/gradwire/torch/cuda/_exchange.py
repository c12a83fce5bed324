"""Averages a model's gradients, which a device compresses.

Three streams work side by side, so neither direction of PCIe waits for the other:

- ``compress`` runs the kernels that read gradients and write forms. It begins a step after ``down``
  has finished the step before, because ``down`` changes residuals.
- ``up`` copies forms to main memory once ``compress`` has written them. The host waits for it, and
  then sends messages.
- ``down`` copies the forms of received messages to the device, and adds them up. The host has
  already waited for this rank's forms, so ``down`` need not wait for ``compress`` or ``up``.
  ``Bucket.add_means`` is an exception.
"""

from __future__ import annotations

from typing import Any, ContextManager, Dict, List, Optional, Sequence, Tuple

import torch
from torch.futures import Future

from ... import _core
from .._staging import Scale, future_of
from .._tensors import element_type
from ._batch import Slot
from ._bucket import Bucket, Failed, Sent
from ._resources import Resources


class DeviceExchange(Resources):
    """Averages the buckets of a model on a device."""

    def __init__(
        self,
        reducer: _core.Reducer,
        tensors: Sequence[Tuple[str, Tuple[int, ...]]],
        device: torch.device,
        seed: int,
        skip: bool,
    ) -> None:
        super().__init__(reducer, tensors, device, seed, skip)
        self._shapes = dict(tensors)
        # How each tensor is sent, by the first step of each stage.
        self._sent = {first: self._sent_at(first) for first, _ in reducer.stages}
        # By tensor group and stage.
        self._buckets: Dict[Tuple[int, int], Bucket] = {}
        self._step = -1

    def average(self, tensor_group: int, step: int, names: Sequence[str], tensor: torch.Tensor, scale: Scale) -> Future:
        """Averages a bucket over ranks, in place and in the background."""
        if step != self._step:
            self._step = step
            self.compress.wait_stream(self.down)
        future = future_of(self.device)
        try:
            bucket: Any = self._bucket(tensor_group, step, names)
            bucket.start(tensor, step, scale)
        except Exception as error:
            bucket = Failed(error, tensor)
        self.reducer.average_device(tensor_group, step, tensor.numel(), element_type(tensor), bucket, lambda: bucket.done(future))
        return future

    def _bucket(self, tensor_group: int, step: int, names: Sequence[str]) -> Bucket:
        """The bucket of a tensor group at the stage of a step."""
        stage = max(first for first, _ in self.reducer.stages if first <= step)
        bucket = self._buckets.get((tensor_group, stage))
        if bucket is None:
            # DistributedDataParallel rebuilds its buckets after the first step, and the old ones
            # hold memory.
            self._buckets = {key: other for key, other in self._buckets.items() if other.step >= step}
            sent = [self._sent[stage][name] for name in names]
            bucket = self._buckets[tensor_group, stage] = Bucket(self, self._slots(names), sent)
        return bucket

    def _sent_at(self, step: int) -> Dict[str, Sent]:
        """How each tensor is sent at a step."""
        specs, of_messages = self.reducer.specs(step), self.reducer.message_specs(step)
        return {name: Sent(sent, keeps_scale=sent != spec) for name, spec, sent in zip(self._shapes, specs, of_messages)}

    def _slots(self, names: Sequence[str]) -> List[Slot]:
        """The places of tensors that follow each other in a bucket."""
        slots: List[Slot] = []
        start = 0
        for name in names:
            slots.append(Slot(name, self._shapes[name], start, self.kept.starts[name]))
            start += slots[-1].elements
        return slots

    def release(self) -> None:
        """Frees the memory on the device. No step may follow."""
        self._buckets.clear()
        self.kept.release()

    def save_unless_kept(self) -> Optional[bytes]:
        """This rank's state, if nothing is kept for the next step, here or in main memory; else
        ``None``."""
        return None if self.kept.arrays else self.reducer.save_unless_kept()

    def save(self) -> bytes:
        """This rank's state, as ``Reducer.save`` returns it."""
        self._give()
        try:
            return self.reducer.save()
        finally:
            self.kept.withdraw()

    def save_all(self) -> List[bytes]:
        """The states of all ranks, which all must call at the same time."""
        self._give()
        try:
            return self.reducer.save_all()
        finally:
            self.kept.withdraw()

    def load(self, states: Sequence[bytes]) -> None:
        """Restores this rank's state, as ``Reducer.load`` does."""
        self.reducer.load(list(states))
        self._step = -1
        with self._between_steps():
            self.kept.take()

    def _give(self) -> None:
        with self._between_steps():
            self.kept.give()

    def _between_steps(self) -> ContextManager[Any]:
        """Lets the caller read or change the kept arrays between two steps."""
        self.compress.wait_stream(self.down)
        return self.compress.entered()
