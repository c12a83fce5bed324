"""Records the gradients and times of a few training steps without any exchange."""

from __future__ import annotations

import copy
import statistics
import time
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from .. import _core
from . import _setup

# Steps before the first that is timed: allocators and caches settle in them.
_WARM_UP = 3
# Steps that are timed.
_TIMED = 10


class Alone:
    """The ranks of a process without a group."""

    def barrier(self) -> None:
        """Waits for all ranks."""

    def slowest(self, seconds: Sequence[float]) -> List[float]:
        """For each of some times the longest that it took on any rank."""
        return list(seconds)

    def post(self) -> None:
        """Sends a message that carries almost nothing, in the background."""

    def settle(self) -> None:
        """Waits until all such messages are exchanged."""


class Recording:
    """Gradients of some steps, and when in a step they are ready.

    ``step`` runs forward and backward pass, and the optimizer. ``ranks`` has the methods of ``Alone``: all ranks
    begin a timed step together, and it takes as long as on the slowest of them, as in training.
    """

    def __init__(self, model: torch.nn.Module, step: Callable[[], Any], steps: int, ranks: Any) -> None:
        self._named = _setup.trainable(model)
        clock = _Clock(self._named[0][1].device)
        self._run(step, _WARM_UP, lambda index: None)
        ready: List[List[float]] = [[] for _ in self._named]
        totals = []
        for _ in range(_TIMED):
            marks: Dict[int, Any] = {}
            ranks.barrier()
            start = clock.now()
            self._run(step, 1, lambda index: marks.__setitem__(index, clock.now()))
            totals.append(clock.between(start, clock.now()))
            for index, mark in marks.items():
                ready[index].append(clock.between(start, mark))
        if not any(ready):
            raise _core.ConfigError("the step computed no gradients of this model; let it run forward and backward pass")
        own, slowest = statistics.median(totals), statistics.median(ranks.slowest(totals))
        medians = [slowest / own * statistics.median(times) if times else None for times in ready]
        last = max(time for time in medians if time is not None)
        # DistributedDataParallel handles parameters that a step does not use at the end.
        self.ready = [last if time is None else time for time in medians]
        # With the times that ranks wait for each other, but almost no bytes.
        self.synchronization = max(0.0, self._synchronized(step, ranks, clock) - slowest)
        self.seconds = slowest + self._copying()
        self.gradients: List[List[torch.Tensor]] = []
        for _ in range(steps):
            taken = [torch.zeros(parameter.shape) for _, parameter in self._named]
            # With accumulation the last call has the sum.
            self._run(step, 1, lambda index: taken[index].copy_(self._named[index][1].grad))
            self.gradients.append(taken)

    @property
    def tensors(self) -> List[Any]:
        """Names, shapes, and the seconds after which gradients are ready."""
        return [(name, tuple(p.shape), at) for (name, p), at in zip(self._named, self.ready)]

    def _synchronized(self, step: Callable[[], Any], ranks: Any, clock: _Clock) -> float:
        """The seconds of a step in which each bucket is followed by a message, and the optimizer waits for them."""
        buckets = [max(bucket, key=self.ready.__getitem__) for bucket in _core.buckets(self.tensors)]

        def seen(index: int) -> None:
            if index in buckets:
                ranks.post()
            if index == buckets[-1]:
                ranks.settle()

        totals = []
        for _ in range(_TIMED):
            ranks.barrier()
            start = clock.now()
            self._run(step, 1, seen)
            ranks.settle()
            totals.append(clock.between(start, clock.now()))
        return statistics.median(ranks.slowest(totals))

    def _copying(self) -> float:
        """The seconds in which DistributedDataParallel copies gradients in main memory into its buckets and back."""
        gradients = [parameter.grad for _, parameter in self._named if parameter.grad is not None]
        if not gradients or gradients[0].device.type != "cpu":
            return 0.0
        copies = [torch.zeros_like(gradient) for gradient in gradients]
        start = time.perf_counter()
        for copy_, gradient in zip(copies, gradients):
            copy_.copy_(gradient)
        for copy_, gradient in zip(copies, gradients):
            gradient.copy_(copy_)
        return time.perf_counter() - start

    def staging(self) -> float:
        """The seconds a byte takes to main memory and back."""
        largest = max((parameter for _, parameter in self._named), key=lambda parameter: parameter.numel())
        if largest.device.type != "cuda":
            return 0.0
        times = []
        for _ in range(3):
            torch.cuda.synchronize(largest.device)
            start = time.perf_counter()
            largest.detach().cpu().to(largest.device)
            torch.cuda.synchronize(largest.device)
            times.append(time.perf_counter() - start)
        return min(times) / (2 * largest.numel() * largest.element_size())

    def _run(self, step: Callable[[], Any], steps: int, seen: Callable[[int], Any]) -> None:
        """Runs steps, and calls ``seen`` with the index of each parameter whose gradient is ready."""
        hooks = [
            parameter.register_post_accumulate_grad_hook(partial(_call, seen, index))
            for index, (_, parameter) in enumerate(self._named)
        ]
        try:
            for _ in range(steps):
                step()
        finally:
            for hook in hooks:
                hook.remove()


def _call(seen: Callable[[int], Any], index: int, parameter: torch.Tensor) -> None:
    with torch.no_grad():
        seen(index)


class _Clock:
    """Times on a device: those of events on the current stream of a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"

    def now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, start: Any, end: Any) -> float:
        if not self._cuda:
            return float(end - start)
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3


class Restored:
    """Puts a model and its optimizer back into the state they were in, when the ``with`` block ends."""

    def __init__(self, model: torch.nn.Module, optimizer: Optional[Any]) -> None:
        self._model, self._optimizer = model, optimizer

    def __enter__(self) -> None:
        self._parameters = {name: value.clone() for name, value in self._model.state_dict().items() if torch.is_tensor(value)}
        self._state = copy.deepcopy(self._optimizer.state_dict()) if self._optimizer is not None else None

    def __exit__(self, *error: Any) -> None:
        with torch.no_grad():
            for name, value in self._model.state_dict().items():
                if name in self._parameters:
                    value.copy_(self._parameters[name])
        for parameter in self._model.parameters():
            parameter.grad = None
        if self._optimizer is not None:
            self._optimizer.load_state_dict(self._state)
