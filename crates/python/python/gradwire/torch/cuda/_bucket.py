"""One bucket of gradients on a device: the kernels of its compressors, and copies of forms in
pinned memory.

See ``_exchange`` for the streams.
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import torch
from torch.futures import Future

from .._staging import Pinned, Scale, divides, is_one, unscaled, use, write
from ._batch import Batch, Slot
from ._forms import Encoded, Forms
from ._kernel import Dense, Kernel
from ._memory import Arrays, Memory
from ._resources import Resources
from ._rounds import Round, Rounds
from ._source import FINITE, Source
from .kernels import kernel_and_memory

Ranges = List[Tuple[int, int]]


class Failed:
    """Stands for a bucket whose compression failed to start. The reducer then ends the exchange on
    all ranks, which would otherwise wait for this rank."""

    def __init__(self, error: Exception, tensor: torch.Tensor) -> None:
        self._error, self._tensor = error, tensor

    def forms(self) -> None:
        raise self._error

    def done(self, future: Future) -> None:
        """Completes the future; the end of the backward pass raises the error."""
        future.set_result(self._tensor)


class Sent(NamedTuple):
    """How a tensor is sent."""

    # The compressor of its messages.
    spec: str
    # Whether messages are the gradients themselves, in 16 bits, with the factor of a scaler.
    keeps_scale: bool


class Part:
    """The tensors of a bucket that are sent in the same way. ``places`` are their numbers in the
    bucket."""

    def __init__(self, kernel: Kernel, memory: Memory, batch: Batch, places: List[int], keeps_scale: bool) -> None:
        self.kernel, self.memory, self.batch, self.places = kernel, memory, batch, places
        self.keeps_scale = keeps_scale
        self.arrays: Arrays = {}
        self.clear()

    def clear(self) -> None:
        """Frees the values of one step."""
        # The values of the whole bucket.
        self.values = torch.empty(0)
        self.source: Optional[Source] = None
        self.finish: Optional[Callable[[], Encoded]] = None

    def start(self, values: torch.Tensor, arrays: Arrays, step: int) -> None:
        """Launches the compression of a bucket's values."""
        self.values, self.arrays = values, arrays
        self.source = self.memory.source(self.batch, values, arrays)
        self.finish = self.kernel.start(self.batch, self.source, step)

    @property
    def maxima(self) -> torch.Tensor:
        """The bits of the largest absolute value of each tensor."""
        assert self.source is not None, "a bucket was not started"
        return self.source.maxima

    def clear_sent(self, forms: Forms) -> None:
        """Updates the residual and the other arrays by this rank's own messages."""
        if self.source is not None:
            self.kernel.clear_sent(self.batch, forms, self.source)
            self.memory.clear_sent(self.batch, forms, self.arrays)


class Bucket:
    """One bucket, with the methods of ``gradwire_exchange::DeviceGroup``.

    The hook calls ``start``. Then the reducer's thread calls ``forms``; after it one of

    - ``skip``,
    - ``inbox`` and ``add`` for each rank,
    - ``inbox`` and ``addends`` for each round, and then ``inbox`` and ``add_means``;

    and at last ``done``.
    """

    def __init__(self, resources: Resources, slots: List[Slot], sent: List[Sent]) -> None:
        self._resources = resources
        self._slots = slots
        self._parts = [self._part(one, sent) for one in dict.fromkeys(sent)]
        # Whether every message has the same length, and so the same place, at every step.
        self._fixed = all(isinstance(part.kernel, Dense) for part in self._parts)
        self._out = Pinned(resources.device)
        self._addends = Pinned(resources.device)
        self.step = -1
        self._scale: Scale = 1.0
        self._clear()

    def _part(self, one: Sent, sent: List[Sent]) -> Part:
        """The tensors that are sent like ``one``."""
        places = [place for place, other in enumerate(sent) if other == one]
        found = kernel_and_memory(self._resources.config(one.spec))
        assert found is not None, one.spec
        batch = Batch([self._slots[place] for place in places], self._resources.device)
        return Part(*found, batch, places, one.keeps_scale)

    def _clear(self) -> None:
        """Frees the values of one step until the next one."""
        # The bucket of DistributedDataParallel.
        self._tensor = torch.empty(0)
        # The sums so far; ``None`` before the first message.
        self._means: Optional[torch.Tensor] = None
        self._received = torch.empty(0)
        self._compressed: Any = None
        for part in self._parts:
            part.clear()

    def start(self, tensor: torch.Tensor, step: int, scale: Scale) -> None:
        """Launches the compression of a bucket's values."""
        resources = self._resources
        self._tensor, self.step, self._scale = tensor, step, scale
        self._means = None
        # The other stream does not use the bucket before the host has waited for the forms.
        values = unscaled(tensor, scale, resources.compress, resources.down)
        with resources.compress.entered():
            resources.begin(step)
            for part in self._parts:
                part.start(tensor if part.keeps_scale else values, {kind: resources.kept.array(kind) for kind in part.memory.kept}, step)
            self._compressed = resources.compress.record_event()

    def forms(self) -> Tuple[int, Ranges, Optional[Tuple[int, int, float]], Optional[float]]:
        """Waits for the forms. Returns their address in main memory, the byte range of each, an
        element that is not finite, if there is one, and the scale if gradients cannot be divided by
        it, unless the step is then skipped."""
        resources = self._resources
        use(resources.device)
        resources.up.wait_event(self._compressed)
        with resources.up.entered():
            # Memory that is allocated in one stream and used in another is kept until ``done``; the
            # host waits before that.
            ready = [part.finish() for part in self._parts if part.finish is not None]
            host, ranges = self._copied(ready)
            maxima = torch.cat([part.maxima for part in self._parts]).to("cpu", non_blocking=True)
            given = self._scale.to("cpu", non_blocking=True) if isinstance(self._scale, torch.Tensor) else self._scale
        resources.up.waiter()()
        scale, bad = float(given), None
        if not divides(scale):
            # Values that keep the factor may be finite.
            return host.data_ptr(), ranges, (0, 0, scale), None if resources.skip else scale
        if int(maxima.max()) > FINITE.value:
            with resources.up.entered():
                bad = self._not_finite()
        return host.data_ptr(), ranges, bad, None

    def _copied(self, ready: List[Encoded]) -> Tuple[torch.Tensor, Ranges]:
        """Starts to copy the forms of all parts to main memory; returns the copy, and the byte
        range of each tensor's form."""
        # ``Encoded.empty`` gives each part a multiple of four bytes.
        host = self._out.of(sum(encoded.forms.bytes.numel() for encoded in ready))
        ranges: Ranges = [(0, 0)] * len(self._slots)
        start = 0
        for part, encoded in zip(self._parts, ready):
            length = encoded.forms.bytes.numel()
            host[start : start + length].copy_(encoded.forms.bytes, non_blocking=True)
            for place, (first, end) in zip(part.places, encoded.ranges):
                ranges[place] = (start + first, start + end)
            start += length
        return host, ranges

    def _not_finite(self) -> Tuple[int, int, float]:
        """The first tensor with an element that is not finite, and the element's index and
        value."""
        found = []
        for part in self._parts:
            bad = (part.maxima > FINITE.value).nonzero().flatten().tolist()
            found += [(part.places[tensor], tensor, part) for tensor in bad]
        place, tensor, part = min(found, key=lambda one: one[0])
        slot = self._slots[place]
        values = part.values[slot.start : slot.start + slot.elements].float()
        corrected = part.memory.corrected(part.batch, tensor, part.values, part.arrays)
        index = int((~torch.isfinite(corrected)).nonzero()[0])
        value = values[index] if not torch.isfinite(values[index]) else corrected[index]
        return place, index, float(value)

    def skip(self) -> None:
        """Undoes the step, and makes the bucket NaN."""
        self._means = None
        with self._resources.compress.entered():
            self._resources.roll_back()
            self._tensor.fill_(float("nan"))
        self._resources.compress.waiter()()

    def inbox(self, length: int) -> int:
        """The address of main memory for forms. The reducer writes them there, and the next call of
        ``add``, ``addends`` or ``add_means`` reads them."""
        self._received = self._resources.inboxes.next(length + -length % 4)
        return self._received.data_ptr()

    def add(self, rank: int, weight: float, ranges: Ranges) -> None:
        """Adds a rank's messages from their forms in the inbox."""
        resources = self._resources
        with resources.down.entered():
            if self._means is None:
                self._means = self._zeros()
            if not ranges:
                return
            received = resources.inboxes.copy(self._received, resources.down, resources.device)
            for part in self._parts:
                starts = part.batch.vector([ranges[place][0] for place in part.places], keep=self._fixed)
                forms = Forms(received, starts)
                if rank == resources.reducer.rank:
                    part.clear_sent(forms)
                part.kernel.add(part.batch, forms, self._means, weight, self.step, rank)

    def addends(self, number: int, places: List[Optional[Tuple[int, int, int, int]]]) -> int:
        """Computes the addends of a round from the forms in the inbox, and waits for them; returns
        their address."""
        resources = self._resources
        with resources.up.entered():
            forms = resources.inboxes.copy(self._received, resources.up, resources.device).view(torch.float32)
            length = max(place[3] for place in places if place is not None)
            addends = torch.empty(length // 4, dtype=torch.float32, device=resources.device)
            rounds = []
            for part in self._parts:
                if isinstance(part.kernel, Rounds) and part.source is not None:
                    of_part = Round(number, forms, addends, [places[place] for place in part.places])
                    part.kernel.contribute(part.batch, part.source, of_part)
                    rounds.append((part.kernel, part.batch, part.source, of_part))
            host = self._addends.of(length)
            host.copy_(addends.view(torch.uint8), non_blocking=True)
            computed = resources.up.waiter()
            # The other ranks need not wait for this.
            for kernel, batch, source, of_part in rounds:
                kernel.take_out(batch, source, of_part)
        computed()
        return host.data_ptr()

    def add_means(self, ranges: Ranges) -> None:
        """Adds the means of messages and rounds from their forms in the inbox."""
        resources = self._resources
        # ``take_out`` may still run in ``up``, and the next step waits only for ``down``.
        resources.down.wait_stream(resources.up)
        with resources.down.entered():
            self._means = self._zeros()
            received = resources.inboxes.copy(self._received, resources.down, resources.device)
            for part in self._parts:
                forms = Forms(received, part.batch.vector([ranges[place][0] for place in part.places]))
                # A mean has no single sender.
                part.kernel.add(part.batch, forms, self._means, 1.0, self.step, 0)

    def _zeros(self) -> torch.Tensor:
        """Zeros for the means. They reuse the memory of the bucket's values, which are no longer
        needed, if these are float32."""
        if self._tensor.dtype == torch.float32:
            return self._tensor.zero_()
        return torch.zeros_like(self._tensor, dtype=torch.float32)

    def _multiplied(self, means: torch.Tensor) -> Scale:
        """The factor that all means lack. If some have it, multiplies the others here."""
        if is_one(self._scale) or not any(part.keeps_scale for part in self._parts):
            return self._scale
        slots = [slot for part in self._parts if not part.keeps_scale for slot in part.batch.slots]
        if slots:
            torch._foreach_mul_([means[slot.start : slot.start + slot.elements] for slot in slots], self._scale)
        return 1.0

    def done(self, future: Future) -> None:
        """Writes the means to the bucket, if there are any, and completes its future."""
        try:
            with self._resources.down.entered():
                if self._means is not None:
                    for part in self._parts:
                        part.kernel.aggregate(part.batch, self._means)
                    write(self._means, self._multiplied(self._means), self._tensor)
                # A future of CUDA tensors records the current stream, so its waiters wait for these
                # kernels.
                future.set_result(self._tensor)
        except BaseException as error:
            future.set_exception(error)
            raise
        finally:
            self._clear()
