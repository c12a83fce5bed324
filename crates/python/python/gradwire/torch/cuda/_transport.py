"""Averages a model's gradients, or gathers its parameters, without the host: messages stay on the
device, and travel by the process group of the model.

Two streams work side by side, so a bucket is compressed while earlier ones travel:

- ``pack`` runs the kernels that read gradients and write messages.
- ``send`` runs the collectives of one bucket after the other, and the kernels that add messages and
  compress means.

The host waits for nothing in a step. It learns one step late whether gradients were finite.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any, Callable, Deque, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch.futures import Future

from ... import _core
from .._staging import Scale, Stream, divided, future_of, is_one, mark_overflow, unscaled, write
from ._collectives import CollectiveError, Peers
from ._nonfinite import NonFinite
from ._outcomes import Outcomes
from ._packed import Coding
from ._replicas import AtAllRanks, ScatterReduce
from ._shards import Cut, GatherShards, ScatterShards
from ._slices import Shape
from ._stages import Stage, Stages


# ``pack`` compresses the values of a bucket. ``results`` exchanges the messages, and returns
# float32 values, times a factor, for ``place``, the part of the bucket that changes.
_Bucket = Union[AtAllRanks, ScatterReduce, ScatterShards, GatherShards]

# The number of buckets whose messages are kept at a time, so that one can be packed while the one
# before it travels.
_BLOCKS = 2


@dataclass
class _Known:
    """A bucket, the length of each tensor's messages, and the last step that used the bucket."""

    bucket: _Bucket
    lengths: Dict[str, int]
    step: int


class _Turn(NamedTuple):
    """A bucket's turn in a step."""

    bucket: _Bucket
    step: int
    # The number of its first exchange in the step.
    exchange: int


class Work(NamedTuple):
    """What a bucket's turn reads and writes."""

    # What is packed: the bucket's values without the factor of a scaler.
    values: torch.Tensor
    bucket: torch.Tensor
    scale: Scale
    # Multiplies the results.
    factor: float = 1.0
    # Receives the results, if the bucket does not.
    output: Optional[torch.Tensor] = None


class Values(NamedTuple):
    """What a model exchanges."""

    # The device of all tensors.
    device: torch.device
    # See ``Request``.
    narrow: bool
    # Whether a step with an element that is not finite is skipped.
    skip: bool
    # What errors call one: "gradient", "parameter" or "change".
    what: str = "gradient"


class DeviceTransport:
    """Exchanges the buckets of a model between devices, by the collectives of a process group.

    The exchanges are the reducer's: replicas average gradients by all-gather, scatter-reduce or, if
    messages are floats, the backend's all-reduce, and for the shards of FSDP2 there are
    reduce-scatter, and gather-shards for parameters. Means, residuals and saved states equal those
    of the host's exchange, except that the backend may round its sums otherwise. ``tensors`` are
    the names and shapes of the model's parameters; ``group`` is the process group.

    In a step with an element that is not finite, averages are NaN from that bucket on. With
    ``skip``, such a step changes no residual. Without it, the end of the next step raises
    ``NonFiniteError``. By then the optimizer has used the NaN, so the parameters are NaN, and
    training continues from a checkpoint. ``transport="host"`` raises the error in the step itself.
    Errors call a rank of the group ``peer``.
    """

    def __init__(
        self,
        reducer: _core.Reducer,
        tensors: Sequence[Tuple[str, Shape]],
        values: Values,
        group: Any,
        seed: int,
        peer: str = "rank",
    ) -> None:
        self.reducer, self.shapes = reducer, dict(tensors)
        self._device, narrow, self._skip, what = values
        device, skip = self._device, self._skip
        self.peers = Peers(group, device, reducer.deadline, peer)
        self.coding = Coding(device, seed, self.peers.size)
        self._packing, self._sending = Stream(device, first=True), Stream(device, first=True)
        # The last messages, which the sending stream reads, and the events of their ends. So at
        # most this memory is in use, however far the host is ahead of the device.
        self._blocks: Deque[Tuple[torch.Tensor, Any]] = deque()
        self._stages = Stages(reducer, self.shapes, device, self.peers, narrow)
        self.kept = self._stages.kept
        # By tensor group and the first step of the stage.
        self._buckets: Dict[Tuple[int, int], _Known] = {}
        self._step = -1
        self._non_finite = NonFinite(device)
        self._outcomes = Outcomes(self.peers, skip, reducer.nonfinite_remedy, what)

    def starts(self, names: Sequence[str]) -> List[int]:
        """The places of tensors that follow each other in a bucket."""
        return [0, *accumulate(prod(self.shapes[name]) for name in names)][:-1]

    def average(self, tensor_group: int, step: int, names: Sequence[str], tensor: torch.Tensor, scale: Scale) -> Future:
        """Averages a bucket over ranks, in place and in the background. The future is one of the
        device: streams that use its value wait for it. An empty bucket is not exchanged."""
        future = future_of(self._device)
        if not tensor.numel():
            self.begin(step)
            future.set_result(tensor)
            return future
        try:
            turn = self._next(tensor_group, step, names, tensor, scale)
            values = unscaled(tensor, scale, self._packing, self._sending)
            # The future records the sending stream.
            self._run(turn, Work(values, tensor, scale), done=future.set_result)
        except Exception as error:
            self._fail(error)
            raise
        return future

    def exchange(self, tensor_group: int, step: int, names: Sequence[str], tensor: torch.Tensor, scale: Scale) -> None:
        """Like ``average``, or gathers a bucket. The current stream waits for it, and must have
        waited before the caller frees ``tensor`` or ``scale``."""
        try:
            turn = self._next(tensor_group, step, names, tensor, scale)
            self._packing.follow_current()
            with self._packing.entered():
                values = divided(tensor, scale)
            self._run(turn, Work(values, tensor, scale))
            self._sending.precede_current()
        except Exception as error:
            self._fail(error)
            raise

    def _next(self, tensor_group: int, step: int, names: Sequence[str], tensor: torch.Tensor, scale: Scale = 1.0) -> _Turn:
        """The turn of the next bucket. A smaller number, of a gather that is repeated, belongs to
        the step in progress, and has its own random draws."""
        self.begin(step)
        bucket = self._bucket(tensor_group, step, names)
        return _Turn(bucket, step, self._outcomes.add(bucket.names, tensor.numel(), bucket.message_bytes, not is_one(scale)))

    def _run(self, turn: _Turn, work: Work, done: Callable[[torch.Tensor], None] = lambda tensor: None) -> None:
        """Packs values, exchanges the messages, writes the results, and calls ``done`` in the
        sending stream."""
        bucket, step, exchange = turn
        values, tensor, scale, factor, output = work
        if len(self._blocks) == _BLOCKS:
            # The block is freed here, and its memory belongs to the packing stream.
            self._packing.wait_event(self._blocks.popleft()[1])
        with self._packing.entered():
            bucket.scaled.keep(values, tensor, scale)
            messages = bucket.pack(values, step)
            packed = self._packing.record_event()
        self._sending.wait_event(packed)
        with self._sending.entered():
            place = bucket.place(tensor) if output is None else output
            results = bucket.results(messages, place, step, self._non_finite, exchange, factor)
            if factor != 1.0 and place.dtype == torch.float16:
                mark_overflow(results)
            write(results, bucket.scaled.multiply(results, scale), place)
            done(tensor)
        self._blocks.append((messages, self._sending.record_event()))

    def begin(self, step: int) -> None:
        """Begins a step, unless it or a later one has begun. Raises ``ConfigError`` after a
        failure."""
        self._outcomes.check_open()
        if step > self._step:
            self._begin(step)

    def note(self, found: torch.Tensor) -> None:
        """Makes the step one with an element that is not finite if ``found`` is true, a truth value
        that the current stream computes: for values that this exchange does not see. Later buckets
        are NaN."""
        self._sending.wait_current(found)
        with self._sending.entered():
            self._non_finite.note_elsewhere(found)

    def _begin(self, step: int) -> None:
        self._outcomes.begin(step)
        if self._skip:
            with self._between_steps():
                self._settle()
        self._step = step
        # Parameters may be gathered in inference mode, but later steps are not.
        with self._sending.entered(), torch.inference_mode(False):
            self._non_finite.begin()

    def _settle(self) -> None:
        """Undoes the last step if it was skipped."""
        for kept in self.kept:
            kept.settle(self._non_finite.skips())

    def _bucket(self, tensor_group: int, step: int, names: Sequence[str]) -> _Bucket:
        """The bucket of a tensor group at the stage of a step."""
        stage = self._stages.at(step)
        known = self._buckets.get((tensor_group, stage.first))
        if known is None:
            self._drop_buckets(step)
            lengths = {name: self._length(name, stage) for name in names}
            known = self._buckets[tensor_group, stage.first] = _Known(self._new_bucket(names, stage), lengths, step)
        known.step = step
        return known.bucket

    def _drop_buckets(self, step: int) -> None:
        """Frees buckets that are not used any more, before a new one."""
        if self._stages.at(step).exchange.name not in ("reduce-scatter", "gather-shards"):
            # DistributedDataParallel rebuilds its buckets after the first step.
            self._buckets = {key: other for key, other in self._buckets.items() if other.step >= step}

    def _new_bucket(self, names: Sequence[str], stage: Stage) -> _Bucket:
        exchange = stage.exchange
        if exchange.name in ("all-gather", "all-reduce"):
            return AtAllRanks(self, names, stage)
        if exchange.name == "scatter-reduce":
            return ScatterReduce(self, names, stage)
        cut = [Cut(stage.specs[name], name in stage.keep_scale, self.shapes[name], exchange.slices[name]) for name in names]
        if exchange.name == "reduce-scatter":
            return ScatterShards(self.coding, self.peers, cut, exchange.kept[0])
        return GatherShards(self.coding, self.peers, cut)

    def end_step(self) -> None:
        """Ends a step once all its buckets were given to ``average``. Does nothing before the first
        step. A step of several backward passes ends with each of them. On a GPU the host waits for
        the step before, so it is at most one step ahead of the device.

        Raises ``NonFiniteError`` if the values of the step before were not finite on some rank. On
        a CPU, of this step.
        """
        if self._step < 0:
            return
        with self._sending.entered():
            self._outcomes.end(self._non_finite.reading(self._sending))
        self._outcomes.check(all_steps=self._device.type == "cpu")

    def check(self) -> None:
        """Raises ``NonFiniteError`` if the values of a step were not finite, even of the last one.
        Waits for the device. All ranks must call it."""
        self._outcomes.check(all_steps=True)
        # Nothing is under way.
        self._blocks.clear()

    def plan(self, step: int) -> List[Tuple[str, int, str, float, int]]:
        """How tensors are sent, as ``Reducer.plan``. The expected length of a message is its fixed
        length."""
        rows = []
        stage, sent = self._stages.at(step), self._sent()
        for name, elements, spec, _, _ in self.reducer.plan(step):
            rows.append((name, elements, spec, float(self._length(name, stage)), sent.get(name, 0)))
        return rows

    def _sent(self) -> Dict[str, int]:
        """The length of each tensor's last messages."""
        sent: Dict[str, int] = {}
        for known in sorted(self._buckets.values(), key=lambda known: known.step):
            sent.update(known.lengths)
        return sent

    def message_bytes(self, step: int) -> float:
        """The length of this rank's messages of a step, each counted once."""
        return sum(row[3] for row in self.plan(step))

    def _length(self, name: str, stage: Stage) -> int:
        """The length of the messages of a tensor."""
        kernel, _ = self.coding.compressor(stage.specs[name])
        parts = [one.elements for one in stage.exchange.slices.get(name, ())] or [prod(self.shapes[name])]
        return sum(kernel.form_bytes(part) for part in parts)

    def described(self, step: int) -> str:
        """See ``Description.transport``."""
        on_host, here = ([row[3] for row in plan] for plan in (self.reducer.plan(step), self.plan(step)))
        elements = max(sum(prod(shape) for shape in self.shapes.values()), 1)
        bits, coded = (f"{8.0 * sum(lengths) / elements:.3g}" for lengths in (here, on_host))
        return f"the device, {bits} bits an element (through the host about {coded}, with lossless codes)"

    def stats(self) -> Dict[str, Any]:
        """The cost of the last step, as ``Reducer.stats``. Waits for the device. Warns of values
        that are not finite, for which ``end_step`` then raises the error on all ranks."""
        return self._outcomes.stats()

    def release(self) -> None:
        """Frees the memory on the device. No step may follow."""
        # Kernels may still run, and memory goes back to the stream that took it.
        self._packing.wait_stream(self._sending)
        self._sending.wait_stream(self._packing)
        self._buckets.clear()
        self._blocks.clear()
        for kept in self.kept:
            kept.release()

    def save_unless_kept(self) -> Optional[bytes]:
        """This rank's state, if nothing is kept for the next step, here or in main memory; else
        ``None``."""
        return None if any(kept.arrays for kept in self.kept) else self.reducer.save_unless_kept()

    def save(self) -> bytes:
        """This rank's state, as ``Reducer.save`` returns it; warns as ``stats``."""
        self._outcomes.read()
        with self._given():
            return self.reducer.save()

    def save_all(self) -> List[bytes]:
        """The states of all ranks, which all must call at the same time; raises as
        ``end_step``."""
        self.check()
        with self._given():
            return self.reducer.save_all()

    def load(self, states: Sequence[bytes]) -> None:
        """Restores this rank's state, as ``Reducer.load`` does."""
        self.reducer.load(list(states))
        with self._between_steps():
            self._non_finite.begin()
            for kept in self.kept:
                kept.take()
        self._step = -1

    @contextmanager
    def _given(self) -> Iterator[None]:
        """Gives the reducer copies of the kept arrays, to save."""
        with self._between_steps():
            if self._skip:
                self._settle()
            if self._step >= 0:
                # After a load, the reducer has the stage of the loaded state.
                self.reducer.enter(self._step)
            for kept in self.kept:
                kept.give()
        try:
            yield
        finally:
            for kept in self.kept:
                kept.withdraw()

    @contextmanager
    def _between_steps(self) -> Iterator[None]:
        """Lets the caller read or change the kept arrays between two steps."""
        self._packing.wait_stream(self._sending)
        with self._packing.entered():
            yield
        self._sending.wait_stream(self._packing)

    def _fail(self, error: Exception) -> None:
        """Ends the exchange after an error. If a collective of gloo failed, raises an error with
        the lost rank, if there is one. NCCL does not report lost ranks in a call, so an error of it
        is this rank's own, and is raised at once."""
        self._outcomes.fail(error)
        if isinstance(error, CollectiveError) and self._device.type == "cpu":
            # The host's own connections to other ranks name a rank that has ended or failed.
            self.reducer.gather(0, b"")
