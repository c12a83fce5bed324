"""Copies between a GPU and main memory: streams, pinned memory, and buckets that are compressed on
the host."""

from __future__ import annotations

import math
from contextlib import nullcontext
from threading import RLock
from typing import Any, Callable, ContextManager, Dict, List, NamedTuple, Optional, Tuple, Union

import torch
from torch.futures import Future, collect_all

# The factor by which a GradScaler multiplied gradients: a number, or a tensor that is on the GPU
# and is not read back.
Scale = Union[float, torch.Tensor]

# Triton's interpreter, which runs kernels on a CPU, has one state for all threads.
_INTERPRETER = RLock()


class Output(NamedTuple):
    """A tensor that receives a part of a bucket's averages, while the bucket is left as it is."""

    tensor: torch.Tensor
    # The index of its first element in the bucket.
    start: int


def is_one(scale: Scale) -> bool:
    """Whether nothing has to be multiplied."""
    return isinstance(scale, float) and scale == 1.0


def divides(scale: float) -> bool:
    """Whether gradients can be computed from values that are multiplied by ``scale``."""
    return math.isfinite(scale) and scale != 0.0


def use(device: torch.device) -> None:
    """Makes a device the current one of this thread. A thread begins with the first GPU. There even
    pinned memory would create a context of some hundred megabytes."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def finish_current(device: torch.device) -> None:
    """Waits for the work of a GPU's current stream, without keeping a core busy."""
    if device.type == "cuda":
        done = torch.cuda.Event(blocking=True)
        done.record(torch.cuda.current_stream(device))
        done.synchronize()


class Stream:
    """A stream of a device; a CPU has none, and works at once."""

    def __init__(self, device: torch.device, first: bool = False) -> None:
        """With ``first``, the device prefers its work to the work of other streams."""
        self._stream: Any = torch.cuda.Stream(device, priority=-1 if first else 0) if device.type == "cuda" else None
        self._device = device

    def entered(self) -> ContextManager[Any]:
        """Launches kernels and copies in this stream."""
        return _INTERPRETER if self._stream is None else torch.cuda.stream(self._stream)

    def wait_current(self, tensor: torch.Tensor) -> None:
        """Makes this stream wait for the current stream, such as for the computation of ``tensor``,
        which this stream uses next."""
        self.follow_current()
        self.record_stream(tensor)

    def follow_current(self) -> None:
        """Makes this stream wait for the work submitted to the current stream so far."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def precede_current(self) -> None:
        """Makes the current stream wait for the work submitted to this stream so far."""
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def record_stream(self, tensor: torch.Tensor) -> None:
        """Keeps the memory of a tensor of another stream until this stream has used it."""
        if self._stream is not None:
            tensor.record_stream(self._stream)

    def wait_stream(self, other: Stream) -> None:
        """Makes this stream wait for the work submitted to another stream so far."""
        if self._stream is not None:
            self._stream.wait_stream(other._stream)

    def record_event(self) -> Any:
        """An event for the work submitted to this stream so far, for ``wait_event`` of another
        stream."""
        if self._stream is None:
            return None
        event = torch.cuda.Event()
        event.record(self._stream)
        return event

    def wait_event(self, event: Any) -> None:
        """Makes this stream wait for an event of another stream."""
        if self._stream is not None and event is not None:
            self._stream.wait_event(event)

    def waiter(self) -> Callable[[], None]:
        """A function that waits on the host for the work submitted so far, without keeping a core
        busy."""
        if self._stream is None:
            return nothing
        done = torch.cuda.Event(blocking=True)
        done.record(self._stream)
        wait: Callable[[], None] = done.synchronize
        return wait


def nothing() -> None:
    """Waits for nothing."""


def future_of(device: torch.device) -> Future:
    """A future of tensors on a device. Streams that use its value wait for it."""
    return Future(devices=[device]) if device.type == "cuda" else Future()


def joined(futures: List[Future], whole: torch.Tensor) -> Future:
    """The future of a tensor, from the futures of its parts."""
    future = future_of(whole.device)

    def finish(_: Future) -> None:
        try:
            with torch.cuda.device(whole.device) if whole.is_cuda else nullcontext():
                # The current stream waits for the recorded streams of each future, and the new
                # future records the current stream.
                for part in futures:
                    part.wait()
                future.set_result(whole)
        except Exception as error:
            future.set_exception(error)

    # Its own result would not make streams wait, because it has no device.
    collect_all(futures).add_done_callback(finish)
    return future


class Pinned:
    """Host memory for copies. A longer request replaces it, which frees the shorter one."""

    def __init__(self, device: torch.device) -> None:
        self._pin = device.type == "cuda"
        self._bytes = torch.empty(0, dtype=torch.uint8, device="cpu")

    def of(self, length: int) -> torch.Tensor:
        """The first ``length`` bytes. Their content stays unless the memory grew."""
        if self._bytes.numel() < length:
            self._bytes = torch.empty(0, dtype=torch.uint8, device="cpu")
            self._bytes = torch.empty(length, dtype=torch.uint8, device="cpu", pin_memory=self._pin)
        return self._bytes[:length]


class Staging:
    """Copies buckets from a device to main memory and back. Each direction has its own stream, so a
    mean does not wait for the gradients of the next bucket."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._up, self._down = Stream(device), Stream(device)
        # By the number of the bucket in its step, and the number of the message in its bucket. When
        # DistributedDataParallel rebuilds its buckets, they take the memory of the old ones.
        self._pinned: Dict[Tuple[int, int], Pinned] = {}

    def forget(self, number: Tuple[int, int]) -> None:
        """Frees the main memory of a bucket, if it has some."""
        self._pinned.pop(number, None)

    def stage(
        self, number: Tuple[int, int], tensor: torch.Tensor, scale: Scale, output: Optional[Output] = None
    ) -> Tuple[Future, torch.Tensor, Callable[[], None], Callable[[], Optional[float]]]:
        """Starts to copy a bucket, or its part in one message, to main memory.

        Values of float32 are divided by ``scale``; the averaging thread divides values of 16 bits.
        Averages replace the bucket, unless there is an ``output``. Returns the future of what
        receives them, the values in main memory, a function to call when they have been averaged,
        and a function to call before they are read, which returns the scale that values of 16 bits
        still have.
        """
        narrow = tensor.dtype != torch.float32
        # The other stream does not use the bucket before the averaging thread has waited for the
        # copy.
        divided = unscaled(tensor, 1.0 if narrow else scale, self._up, self._down)
        with self._up.entered():
            pinned = self._pinned.setdefault(number, Pinned(self._device))
            host = pinned.of(divided.numel() * divided.element_size()).view(divided.dtype)
            host.copy_(divided, non_blocking=True)
            left = scale
            if narrow and isinstance(scale, torch.Tensor):
                self._up.record_stream(scale)
                left = scale.to("cpu", non_blocking=True)
        copied = self._up.waiter()
        future = future_of(self._device)
        result, start = output or Output(tensor, 0)
        self._down.record_stream(result)

        def ready() -> Optional[float]:
            use(self._device)
            copied()
            return float(left) if narrow else None

        def done() -> None:
            # The future records the current stream, so its waiters also wait for this copy.
            with self._down.entered():
                own = host[start : start + result.numel()]
                if narrow or is_one(scale):
                    result.copy_(own, non_blocking=True)
                else:
                    write(own.to(self._device, non_blocking=True), scale, result)
                future.set_result(result)

        return future, host, done, ready


def unscaled(bucket: torch.Tensor, scale: Scale, first: Stream, last: Stream) -> torch.Tensor:
    """The values of a bucket, divided by ``scale`` in the stream ``first``. It waits for the stream
    that computes them. The memory of both is kept until ``first`` and ``last`` have used it;
    ``last`` writes means to the bucket."""
    first.wait_current(bucket)
    last.record_stream(bucket)
    if isinstance(scale, torch.Tensor):
        first.record_stream(scale)
        last.record_stream(scale)
    if is_one(scale):
        return bucket
    with first.entered():
        return divided(bucket, scale)


def divided(bucket: torch.Tensor, scale: Scale) -> torch.Tensor:
    """The values of a bucket, divided by ``scale``, in the current stream."""
    return bucket if is_one(scale) else bucket.float() / scale


def mark_overflow(products: torch.Tensor) -> None:
    """Replaces products of means that float16 cannot hold by NaN, as on the host: as the largest
    number they would hide an overflow."""
    products.masked_fill_(products.abs() > torch.finfo(torch.float16).max, torch.nan)


def write(means: torch.Tensor, scale: Scale, bucket: torch.Tensor) -> None:
    """Writes float32 means, multiplied by ``scale``, to a bucket of any type; changes the means. In
    a 16-bit type, a mean that is too large becomes the largest number, as on the host."""
    if not is_one(scale):
        means.mul_(scale)
    if means is bucket:
        return
    if bucket.dtype != torch.float32:
        limit = torch.finfo(bucket.dtype).max
        means.clamp_(-limit, limit)
    bucket.copy_(means)
