"""Averages of buckets that a device compresses: streams, pinned memory, and the arrays that are kept from step to step."""

from __future__ import annotations

from math import prod
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch.futures import Future

from ... import _core
from ..._arrays import buffer
from .._staging import Lane, Pinned, Scale, future_of, is_one
from . import _source
from ._batch import Batch, Slot
from ._config import Config
from ._kernel import Forms, Kernel
from ._memory import Arrays, Memory
from ._rounds import Round, Rounds
from ._source import Source
from .halves import Uncompressed
from .kernels import kernel
from .memories import memory

Ranges = List[Tuple[int, int]]


def reason_against(reducer: _core.Reducer) -> Optional[str]:
    """Why the compressors of a reducer cannot run on a device; ``None`` if they can."""
    exchange, rounds = reducer.exchange, False
    if exchange not in ("all-gather", "all-reduce"):
        return f"ranks exchange by {exchange}, and kernels work with all-gather, or for methods in rounds all-reduce"
    for step, _ in reducer.stages:
        for spec in sorted(set(reducer.specs(step))):
            made = kernel(Config.of(spec))
            if made is None:
                return f"there is no kernel for '{spec}'"
            rounds |= isinstance(made, Rounds)
            if not _works(made, exchange):
                return f"the kernel for '{spec}' does not work with {exchange}"
    if exchange == "all-reduce" and not rounds:
        return "ranks exchange by all-reduce, and no compressor is a method in rounds"
    return None


def _works(made: Kernel, exchange: str) -> bool:
    """Whether an exchange can use a kernel. Messages that all-reduce averages do not come back, so what they leave out must
    be known without them."""
    if exchange == "all-gather":
        return not isinstance(made, Rounds)
    return isinstance(made, (Rounds, Uncompressed))


def reason_against_device(device: torch.device) -> Optional[str]:
    """Why Triton cannot run kernels on a device, such as a missing C compiler; ``None`` if it can."""
    try:
        # Triton launches on the current device, which may be another.
        with Lane(device).entered():
            batch = Batch([Slot("probe", (1,), 0, 0)], device)
            source = Source(torch.ones(1, device=device), batch.starts, None)
            found = int(_source.maxima(batch, source)[0])
    except Exception as error:
        return f"Triton cannot run a kernel there: {type(error).__name__}: {error}"
    return None if found == 0x3F800000 else "a kernel of Triton returns wrong numbers there"


class Device:
    """Averages the buckets of a model on a device."""

    def __init__(
        self,
        reducer: _core.Reducer,
        tensors: Sequence[Tuple[str, Tuple[int, ...]]],
        device: torch.device,
        seed: int,
        skip: bool,
    ) -> None:
        self.reducer = reducer
        self.device = device
        # Kernels that compress; copies of forms to main memory, which must not wait for the next bucket's kernels; and
        # copies back with the kernels that add.
        self.compress, self.up, self.down = Lane(device), Lane(device), Lane(device)
        self._seed, self._skip = seed, skip
        self._tensors = dict(tensors)
        self._places: Dict[str, int] = {}
        elements = 0
        for name, shape in tensors:
            self._places[name] = elements
            elements += prod(shape)
        self._elements = elements
        # By their names in a saved state; created when a memory first needs them. float32, with the tensors in the order of
        # the model.
        self.arrays: Dict[str, torch.Tensor] = {}
        # The arrays before the step in progress, if the step may be skipped.
        self._before: Optional[Tuple[int, Dict[str, torch.Tensor]]] = None
        self._buckets: Dict[Tuple[int, int], Bucket] = {}
        self._order = {name: at for at, (name, _) in enumerate(tensors)}
        self._specs = {first: reducer.specs(first) for first, _ in reducer.stages}
        # By array, the tensors that have it at some stage.
        self._keepers: Dict[str, List[str]] = {}
        for (name, _), specs in zip(tensors, zip(*self._specs.values())):
            for kind in dict.fromkeys(kind for spec in specs for kind in _memory(Config.of(spec)).kept):
                self._keepers.setdefault(kind, []).append(name)
        self._step = -1

    def average(self, group: int, step: int, names: Sequence[str], tensor: torch.Tensor, scale: Scale) -> Future:
        """Averages a bucket over ranks, in place and in the background."""
        bucket = self._bucket(group, step, names)
        if step != self._step:
            self._step = step
            # Those of the step before have read and changed what is kept.
            self.compress.after(self.down)
        future = future_of(self.device)
        bucket.start(tensor, step, scale)
        self.reducer.average_device(group, step, tensor.numel(), bucket, lambda: bucket.done(future))
        return future

    def _bucket(self, group: int, step: int, names: Sequence[str]) -> Bucket:
        """The bucket of a group at the stage of a step."""
        stage = max(first for first, _ in self.reducer.stages if first <= step)
        found = self._buckets.get((group, stage))
        if found is None:
            # DistributedDataParallel forms its buckets anew after the first step, and the old ones hold memory.
            self._buckets = {key: one for key, one in self._buckets.items() if one.step >= step - 1}
            slots, start = [], 0
            for name in names:
                slots.append(Slot(name, self._tensors[name], start, self._places[name]))
                start += slots[-1].elements
            specs = [self._specs[stage][self._order[name]] for name in names]
            found = self._buckets[group, stage] = Bucket(self, slots, specs)
        return found

    def config(self, spec: str) -> Config:
        """A compressor in this run."""
        return Config.of(spec, self._seed, self.reducer.rank, self.reducer.size)

    def array(self, kind: str) -> torch.Tensor:
        """An array that is kept, such as ``residual``."""
        found = self.arrays.get(kind)
        if found is None:
            found = self.arrays[kind] = torch.zeros(self._elements, dtype=torch.float32, device=self.device)
        return found

    def begin(self, step: int) -> None:
        """Copies the arrays before the first bucket of a step that may be skipped."""
        if self._skip and (self._before is None or self._before[0] != step):
            self._before = (step, {kind: self.array(kind).clone() for kind in self._keepers})

    def roll_back(self) -> None:
        """Restores the arrays from before the step in progress."""
        self.compress.after(self.down)
        if self._before is not None:
            for kind, values in self._before[1].items():
                self.array(kind).copy_(values)

    def save(self) -> bytes:
        """This rank's state, as ``Reducer.save`` returns it."""
        self._store()
        return self.reducer.save()

    def save_all(self) -> List[bytes]:
        """The states of all ranks, which all must call at the same time."""
        self._store()
        return self.reducer.save_all()

    def load(self, states: Sequence[bytes]) -> None:
        """Restores this rank's state, as ``Reducer.load`` does."""
        self.reducer.load(list(states))
        self._before = None
        for kind, names in self._keepers.items():
            for name in names:
                self._take(kind, name)

    def _take(self, kind: str, name: str) -> None:
        """Moves a tensor's array from the reducer to the device."""
        values, place = self.reducer.array(name, kind), self._place(name)
        if values:
            self.array(kind)[place] = torch.frombuffer(bytearray(values), dtype=torch.float32).to(self.device)
            self.reducer.set_array(name, kind, None)
        elif kind in self.arrays:
            self.arrays[kind][place] = 0

    def _store(self) -> None:
        """Gives the reducer a copy of the arrays, which it saves."""
        for kind, values in self.arrays.items():
            host = values.cpu()
            for name in self._keepers[kind]:
                own = host[self._place(name)].contiguous()
                self.reducer.set_array(name, kind, buffer(own, kind) if own.numel() else None)

    def _place(self, name: str) -> slice:
        """The elements of a tensor in the arrays."""
        start = self._places[name]
        return slice(start, start + prod(self._tensors[name]))


def _memory(config: Config) -> Memory:
    """The memory of a compressor that has a kernel."""
    found = memory(config)
    assert found is not None, config
    return found


class Part:
    """The tensors of a bucket that have the same compressor."""

    def __init__(self, kernel: Kernel, memory: Memory, batch: Batch, places: List[int]) -> None:
        self.kernel, self.memory, self.batch, self.places = kernel, memory, batch, places
        self.arrays: Arrays = {}
        self.source: Optional[Source] = None
        self.maxima = torch.empty(0)
        self.finish: Optional[Callable[[], Forms]] = None


class Bucket:
    """One bucket: what ``gradwire_exchange::DeviceGroup`` asks of a device. ``start`` is called by the hook; the reducer's
    thread calls ``forms``, ``skip``, ``inbox``, ``add``, ``addends``, ``add_means`` and ``done``."""

    def __init__(self, owner: Device, slots: List[Slot], specs: List[str]) -> None:
        self._owner = owner
        self._slots = slots
        self._parts: List[Part] = []
        for spec in dict.fromkeys(specs):
            places = [at for at, own in enumerate(specs) if own == spec]
            config = owner.config(spec)
            made = kernel(config)
            assert made is not None, spec
            self._parts.append(Part(made, _memory(config), Batch([slots[at] for at in places], owner.device), places))
        self._out = Pinned(owner.device)
        self._in: Dict[int, Pinned] = {}
        self._addends = Pinned(owner.device)
        self._tensor = torch.empty(0)
        self._values = torch.empty(0)
        # The sums so far; ``None`` before the first message.
        self._means: Optional[torch.Tensor] = None
        self._received = torch.empty(0)
        self._computed: Any = None
        self.step = 0
        self._scale: Scale = 1.0

    def start(self, tensor: torch.Tensor, step: int, scale: Scale) -> None:
        """Launches the compression of a bucket's values."""
        owner = self._owner
        self._tensor, self.step, self._scale = tensor, step, scale
        self._means = None
        owner.compress.follow(tensor)
        # It is not used there before the host has waited for the forms.
        owner.down.hold(tensor)
        if isinstance(scale, torch.Tensor):
            owner.compress.hold(scale)
            owner.down.hold(scale)
        with owner.compress.entered():
            owner.begin(step)
            self._values = tensor if is_one(scale) else tensor.float() / scale
            for part in self._parts:
                part.arrays = {kind: owner.array(kind) for kind in part.memory.kept}
                part.source, part.maxima = part.memory.source(part.batch, self._values, part.arrays)
                part.finish = part.kernel.start(part.batch, part.source, part.maxima, step)
            self._computed = owner.compress.point()

    def forms(self) -> Tuple[int, Ranges, Optional[Tuple[int, int, float]]]:
        """Waits for the forms; returns their address in main memory, the bytes of each, and an element that is not finite."""
        owner = self._owner
        owner.up.after_point(self._computed)
        with owner.up.entered():
            # What is allocated in one lane and used in another is kept until ``done``, and the host waits before.
            ready = [part.finish() for part in self._parts if part.finish is not None]
            lengths = [forms.bytes.numel() + -forms.bytes.numel() % 4 for forms in ready]
            host = self._out.of(sum(lengths))
            ranges: Ranges = [(0, 0)] * len(self._slots)
            start = 0
            for part, forms, length in zip(self._parts, ready, lengths):
                host[start : start + forms.bytes.numel()].copy_(forms.bytes, non_blocking=True)
                for place, (first, end) in zip(part.places, forms.ranges):
                    ranges[place] = (start + first, start + end)
                start += length
            maxima = torch.cat([part.maxima for part in self._parts]).to("cpu", non_blocking=True)
        owner.up.mark()()
        bad = None
        if int(maxima.max()) > _source.FINITE:
            with owner.up.entered():
                bad = self._not_finite()
        return host.data_ptr(), ranges, bad

    def _not_finite(self) -> Tuple[int, int, float]:
        """The first tensor with an element that is not finite, the element's index and its value."""
        found = []
        for part in self._parts:
            for at, place in enumerate(part.places):
                if int(part.maxima[at]) > _source.FINITE:
                    found.append((place, at, part))
        place, at, part = min(found, key=lambda one: one[0])
        slot = self._slots[place]
        values = self._values[slot.start : slot.start + slot.elements].float()
        corrected = part.memory.corrected(part.batch, at, self._values, part.arrays)
        index = int((~torch.isfinite(corrected)).nonzero()[0])
        value = values[index] if not torch.isfinite(values[index]) else corrected[index]
        return place, index, float(value)

    def skip(self) -> None:
        """Undoes the step, and makes the bucket NaN."""
        with self._owner.compress.entered():
            self._owner.roll_back()
            self._tensor.fill_(float("nan"))
        self._owner.compress.mark()()

    def inbox(self, rank: int, length: int) -> int:
        """The address of host memory for the forms of a rank's messages."""
        pinned = self._in.setdefault(rank, Pinned(self._owner.device))
        self._received = pinned.of(length + -length % 4)
        return self._received.data_ptr()

    def add(self, rank: int, weight: float, ranges: Ranges) -> None:
        """Adds a rank's messages, whose forms are in the inbox."""
        owner = self._owner
        with owner.down.entered():
            if self._means is None:
                self._means = self._zeros()
            if not ranges:
                return
            forms = self._received.to(owner.device, non_blocking=True)
            for part in self._parts:
                own = [ranges[place] for place in part.places]
                at = part.batch.vector([start for start, _ in own])
                if rank == owner.reducer.rank and part.source is not None:
                    part.kernel.settle(part.batch, Forms(forms, own), at, part.source)
                    part.memory.settle(part.batch, Forms(forms, own), at, part.arrays)
                part.kernel.add(part.batch, forms, at, self._means, weight, self.step, rank)

    def addends(self, number: int, places: List[Optional[Tuple[int, int, int, int]]]) -> int:
        """Computes the addends of a round, whose forms are in the inbox, and waits for them; returns their address."""
        owner = self._owner
        with owner.up.entered():
            forms = self._received.to(owner.device, non_blocking=True).view(torch.float32)
            length = max(one[3] for one in places if one is not None)
            addends = torch.empty(length // 4, dtype=torch.float32, device=owner.device)
            rounds = []
            for part in self._parts:
                if isinstance(part.kernel, Rounds) and part.source is not None:
                    round = Round(number, forms, addends, [places[place] for place in part.places])
                    part.kernel.contribute(part.batch, part.source, round)
                    rounds.append((part.kernel, part.batch, part.source, round))
            host = self._addends.of(length)
            host.copy_(addends.view(torch.uint8), non_blocking=True)
            computed = owner.up.mark()
            # The other ranks need not wait for this.
            for made, batch, source, round in rounds:
                made.take_out(batch, source, round)
        computed()
        return host.data_ptr()

    def add_means(self, ranges: Ranges) -> None:
        """Adds the means of messages and rounds, whose forms are in the inbox."""
        owner = self._owner
        owner.down.after(owner.up)
        with owner.down.entered():
            self._means = self._zeros()
            forms = self._received.to(owner.device, non_blocking=True)
            for part in self._parts:
                at = part.batch.vector([ranges[place][0] for place in part.places])
                # A mean has no single sender.
                part.kernel.add(part.batch, forms, at, self._means, 1.0, self.step, 0)

    def _zeros(self) -> torch.Tensor:
        """The means before the first message. The values are not needed any more, and means of float32 take their place."""
        if self._tensor.dtype == torch.float32:
            return self._tensor.zero_()
        return torch.zeros_like(self._tensor, dtype=torch.float32)

    def done(self, future: Future) -> None:
        """Writes the means to the bucket, if there are any, and completes its future."""
        try:
            with self._owner.down.entered():
                if self._means is not None:
                    self._write(self._means)
                # A future of CUDA tensors records the current stream, so that who waits for it waits for these kernels.
                future.set_result(self._tensor)
        except BaseException as error:
            future.set_exception(error)
            raise
        finally:
            self._release()

    def _release(self) -> None:
        """Drops what belongs to this step, so that its memory is free until the next."""
        empty = torch.empty(0)
        self._tensor = self._values = self._received = empty
        self._means = self._computed = None
        for part in self._parts:
            part.source, part.finish, part.maxima = None, None, empty

    def _write(self, means: torch.Tensor) -> None:
        for part in self._parts:
            part.kernel.aggregate(part.batch, means)
        if not is_one(self._scale):
            means.mul_(self._scale)
        if means is not self._tensor:
            # As on the host, a mean that is too large becomes the largest number.
            limit = torch.finfo(self._tensor.dtype).max
            self._tensor.copy_(means.clamp_(-limit, limit))
