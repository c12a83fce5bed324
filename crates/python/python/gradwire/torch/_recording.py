"""Records the gradients and times of a few training steps without any exchange."""

from __future__ import annotations

import json
import statistics
import time
from functools import partial
from typing import Any, Callable, Dict, List, Sequence

import torch

from .. import _core
from ._link import deviation
from ._progress import Progress
from ._restored import joined
from ._tensors import as_reals, shape_of, trainable

# Steps before the first timed step: allocators and caches settle in them.
WARM_UP = 3
# The number of timed steps.
TIMED = 10


class Alone:
    """The ranks of a process without a group."""

    def barrier(self) -> None:
        """Waits for all ranks."""

    def slowest(self, seconds: Sequence[float]) -> List[float]:
        """For each time, its maximum over all ranks."""
        return list(seconds)

    def broadcast(self, text: str) -> str:
        """The text of rank 0."""
        return text


class Recording:
    """Gradients of some steps, and the times in a step at which they are ready.

    ``step`` runs forward and backward pass, and the optimizer. ``ranks`` has the methods of
    ``Alone``: all ranks begin a timed step together, and the slowest rank determines its time, as
    in training. A rank that ``keeps`` no gradients runs the same steps.
    """

    def __init__(
        self, model: torch.nn.Module, step: Callable[[], Any], steps: int, ranks: Any, progress: Progress, keeps: bool = True
    ) -> None:
        self.named = trainable(model)
        self._step, self._ranks, self._progress = step, ranks, progress
        clock = self._clock = _Clock(self.named[0][1].device)
        all_steps = WARM_UP + TIMED + steps
        for number in range(WARM_UP):
            progress.step(number, all_steps)
            self._run(step, self._check)
        ready: List[List[float]] = [[] for _ in self.named]
        totals = []
        for number in range(TIMED):
            progress.step(WARM_UP + number, all_steps)
            marks: Dict[int, Any] = {}
            ranks.barrier()
            start = clock.now()
            self._run(step, lambda index: marks.__setitem__(index, clock.now()))
            totals.append(clock.between(start, clock.now()))
            for index, mark in marks.items():
                ready[index].append(clock.between(start, mark))
        if not any(ready):
            raise _core.ConfigError("step() computed no gradients of this model; it must run a forward and a backward pass")
        all_totals = ranks.slowest(totals)
        own, slowest = statistics.median(totals), statistics.median(all_totals)
        # How much a timed step varies.
        self.noise = deviation(all_totals)
        medians = [slowest / own * statistics.median(times) if times else None for times in ready]
        last = max(time for time in medians if time is not None)
        # At the end of a step, DistributedDataParallel handles the parameters that the step did not
        # use. All ranks use the buckets of rank 0.
        ready_times = [last if time is None else time for time in medians]
        self.ready: List[float] = json.loads(ranks.broadcast(json.dumps(ready_times)))
        self.alone = slowest
        self.seconds = slowest + self._copying()
        self.gradients: List[List[torch.Tensor]] = []
        for number in range(steps):
            progress.step(WARM_UP + TIMED + number, all_steps)
            if not keeps:
                self._run(step, lambda index: None)
                continue
            taken = self._zeros()
            # With accumulation, the last call sees the sum.
            self._run(step, lambda index: taken[index].copy_(_reals(self._gradient(index))))
            self.gradients.append(taken)

    def _zeros(self) -> List[torch.Tensor]:
        """A tensor in main memory for each gradient, in the type of its parameter."""
        parameters = [_reals(parameter.detach()) for _, parameter in self.named]
        zeros = joined([(parameter.numel(), parameter.dtype, torch.device("cpu")) for parameter in parameters])
        return [zero.view(parameter.shape) for zero, parameter in zip(zeros, parameters)]

    @property
    def tensors(self) -> List[Any]:
        """Names, shapes, and the seconds after which gradients are ready."""
        return [(name, shape_of(p), at) for (name, p), at in zip(self.named, self.ready)]

    def buckets(self) -> List[List[int]]:
        """The buckets of DistributedDataParallel, as lists of indices of parameters."""
        types = [str(_reals(parameter.detach()).dtype).replace("torch.", "") for _, parameter in self.named]
        return _core.buckets(self.tensors, types)

    def seconds_with(self, exchange: Any) -> float:
        """The seconds of a step that exchanges its buckets.

        ``exchange.post(bucket)`` sends the gradients of a bucket, a list of indices of parameters,
        in the background; ``exchange.wait()`` waits for all of them, ahead of the optimizer.
        """
        start = self._clock.now()
        for number in range(WARM_UP + TIMED):
            self._progress.step(number, WARM_UP + TIMED)
            if number == WARM_UP:
                start = self._clock.now()
            backward = _Backward(self.buckets(), exchange)
            self._run(self._step, backward.seen)
            backward.end()
        # Steps follow each other as in training: a rank may begin one before the others.
        total: float = self._ranks.slowest([self._clock.between(start, self._clock.now())])[0]
        return total / TIMED

    def _copying(self) -> float:
        """The seconds that DistributedDataParallel takes to copy gradients in main memory into its
        buckets and back."""
        gradients = [parameter.grad for _, parameter in self.named if parameter.grad is not None]
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
        """The seconds that a byte takes to main memory and back."""
        largest = max((parameter for _, parameter in self.named), key=lambda parameter: parameter.numel())
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

    def _run(self, step: Callable[[], Any], seen: Callable[[int], Any]) -> None:
        """Runs a step, and calls ``seen`` with the index of each parameter whose gradient is
        ready."""
        hooks = [
            parameter.register_post_accumulate_grad_hook(partial(_call, seen, index))
            for index, (_, parameter) in enumerate(self.named)
        ]
        try:
            step()
        finally:
            for hook in hooks:
                hook.remove()

    def _check(self, index: int) -> None:
        """Refuses a gradient that cannot be averaged."""
        layout = self._gradient(index).layout
        if layout != torch.strided:
            raise _core.ConfigError(
                f"the gradient of '{self.named[index][0]}' is {layout}, not dense; create the embedding with sparse=False, or freeze this "
                "parameter"
            )

    def _gradient(self, index: int) -> torch.Tensor:
        name, parameter = self.named[index]
        if parameter.grad is None:
            raise _core.ConfigError(
                f"the gradient of '{name}' was removed as soon as it was ready. If an optimizer steps in the backward pass, it cannot "
                "wait for averages; call optimizer.step() after the backward pass"
            )
        return parameter.grad.detach()


def _call(seen: Callable[[int], Any], index: int, parameter: torch.Tensor) -> None:
    with torch.no_grad():
        seen(index)


def _reals(gradient: torch.Tensor) -> torch.Tensor:
    return as_reals(gradient.resolve_conj().resolve_neg())


class _Backward:
    """Posts the buckets of a backward pass in their order, each when all of its gradients are
    ready."""

    def __init__(self, buckets: List[List[int]], exchange: Any) -> None:
        self._waiting = [(bucket, set(bucket)) for bucket in buckets]
        self._exchange = exchange

    def seen(self, index: int) -> None:
        """The gradient of a parameter is ready."""
        if not self._waiting:
            return
        for _, missing in self._waiting:
            missing.discard(index)
        while self._waiting and not self._waiting[0][1]:
            self._exchange.post(self._waiting.pop(0)[0])
        if not self._waiting:
            self._exchange.wait()

    def end(self) -> None:
        """Posts the buckets of parameters that the step did not use."""
        if self._waiting:
            for bucket, _ in self._waiting:
                self._exchange.post(bucket)
            self._exchange.wait()


class _Clock:
    """Times on a device; on a GPU, the times of events on the current stream."""

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
