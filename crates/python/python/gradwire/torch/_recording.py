"""Records the gradients and times of a few training steps without any exchange."""

from __future__ import annotations

import copy
import statistics
import time
from functools import partial
from typing import Any, Callable, Dict, List, Optional

import torch

from .. import _core
from . import _setup

# Steps before the first that is timed: allocators and caches settle in them.
_WARM_UP = 3
# Steps that are timed.
_TIMED = 10


class Recording:
    """Gradients of some steps, and when in a step they are ready.

    ``step`` runs forward and backward pass, and the optimizer. ``barrier`` is called before each timed step, so that all ranks
    compute at the same time, as in training.
    """

    def __init__(
        self, model: torch.nn.Module, step: Callable[[], Any], steps: int, barrier: Callable[[], Any]
    ) -> None:
        self._named = _setup.trainable(model)
        clock = _Clock(self._named[0][1].device)
        self._run(step, _WARM_UP, lambda index: None)
        ready: List[List[float]] = [[] for _ in self._named]
        totals = []
        for _ in range(_TIMED):
            marks: Dict[int, Any] = {}
            barrier()
            start = clock.now()
            self._run(step, 1, lambda index: marks.__setitem__(index, clock.now()))
            totals.append(clock.between(start, clock.now()))
            for index, mark in marks.items():
                ready[index].append(clock.between(start, mark))
        if not any(ready):
            raise _core.ConfigError("the step computed no gradients of this model; let it run forward and backward pass")
        self.seconds = statistics.median(totals)
        medians = [statistics.median(times) if times else None for times in ready]
        last = max(time for time in medians if time is not None)
        # DistributedDataParallel handles parameters that a step does not use at the end.
        self.ready = [last if time is None else time for time in medians]
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
