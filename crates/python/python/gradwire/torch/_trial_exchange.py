"""An exchange of a model's buckets while its training steps are measured."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any, List, Optional, Sequence, Tuple

import torch

from .._arrays import buffer
from ._channel import connect, release
from ._options import Options
from ._tensors import as_reals


class TrialExchange:
    """Averages the gradients of a model between ranks, like the hook for DistributedDataParallel.

    All ranks must create it at the same time, with the same buckets.
    """

    # Short messages, so even a slow link has little influence on the step.
    spec = "3lc"

    def __init__(
        self, named: List[Tuple[str, torch.nn.Parameter]], process_group: Optional[Any], deadline: float
    ) -> None:
        self._named = named
        make = partial(Options(self.spec, deadline=deadline).reducer, named)
        self._reducer, self._groups = connect(process_group, make, deadline, "gradwire.torch.advise")
        self._step = 0
        self._bytes: List[int] = []
        self._posted: List[Tuple[Sequence[int], torch.Tensor]] = []

    def post(self, bucket: Sequence[int]) -> None:
        """Averages the gradients of some parameters in the background."""
        values = torch.cat([self._values(index) for index in bucket])
        tensor_group = self._reducer.tensor_group([self._named[index][0] for index in bucket])
        self._reducer.average(tensor_group, self._step, buffer(values))
        self._posted.append((bucket, values))

    def wait(self) -> None:
        """Waits until all gradients are averages, and copies them back."""
        self._reducer.wait()
        for bucket, values in self._posted:
            sizes = [as_reals(self._named[index][1]).numel() for index in bucket]
            for index, average in zip(bucket, values.split(sizes)):
                gradient = self._named[index][1].grad
                if gradient is None:
                    continue
                if gradient.is_complex():
                    average = torch.view_as_complex(average.view(-1, 2))
                gradient.copy_(average.view(gradient.shape))
        self._posted = []
        self._step += 1
        self._bytes.append(self._reducer.stats()["bytes_up"])

    def bytes_up(self, steps: int) -> float:
        """The mean number of bytes that this rank sent in each of the last steps."""
        return statistics.mean(self._bytes[-steps:])

    def _values(self, index: int) -> torch.Tensor:
        """The gradient of a parameter as float32 in main memory; zeros if the step did not use
        it."""
        parameter = self._named[index][1]
        if parameter.grad is None:
            return torch.zeros(as_reals(parameter).numel(), dtype=torch.float32, device="cpu")
        gradient = parameter.grad.detach().resolve_conj().resolve_neg()
        return as_reals(gradient).flatten().float().cpu()

    def __enter__(self) -> TrialExchange:
        return self

    def __exit__(self, *error: Any) -> None:
        release(self._reducer, self._groups)
