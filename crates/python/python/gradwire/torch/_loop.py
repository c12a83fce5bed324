"""Averages of gradients for training loops without a wrapper."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple
from weakref import WeakKeyDictionary

import torch

from .. import _core
from ._checks import check_unwrapped
from ._hook import Hook
from ._modes import without_gradients
from ._tensors import as_reals, trainable, uncompiled

# The most bytes of a bucket, as in DistributedDataParallel.
_BUCKET = 25 << 20


class _Bucket:
    """Gradients that are exchanged together, in the form of DistributedDataParallel's buckets."""

    def __init__(self, number: int, parameters: List[torch.nn.Parameter], last: bool) -> None:
        self._number, self._parameters, self._last = number, parameters, last
        first = parameters[0]
        sizes = [one.numel() for one in parameters]
        self._flat = torch.zeros(sum(sizes), dtype=first.dtype, device=first.device)
        self._views = [part.view(one.shape) for part, one in zip(self._flat.split(sizes), parameters)]

    def index(self) -> int:
        return self._number

    def is_last(self) -> bool:
        return self._last

    def buffer(self) -> torch.Tensor:
        return self._flat

    def parameters(self) -> List[torch.nn.Parameter]:
        return self._parameters

    def gradients(self) -> List[torch.Tensor]:
        return list(self._views)

    def fill(self) -> None:
        """Copies the gradients of the parameters."""
        for parameter, view in zip(self._parameters, self._views):
            if parameter.grad is None:
                view.zero_()
            else:
                view.copy_(parameter.grad)

    def write(self) -> None:
        """Copies the averages to the parameters."""
        for parameter, view in zip(self._parameters, self._views):
            if parameter.grad is None:
                parameter.grad = view.clone()
            else:
                parameter.grad.copy_(view)


class _Averages:
    """The averages of one model's gradients."""

    def __init__(self, model: torch.nn.Module, arguments: Tuple[Any, Any, Dict[str, Any]]) -> None:
        self.arguments = arguments
        group, compressor, options = arguments
        check_unwrapped(model)
        self.hook = Hook(model, compressor, process_group=group, **options)
        # There is no DistributedDataParallel whose nodes must stay.
        self.hook._averaged.close()
        self.hook._refuse_votes("parameters without a gradient would vote with zeros")
        self._buckets = _buckets_of(model)

    def average(self) -> None:
        """Averages the present gradients."""
        for bucket in self._buckets:
            bucket.fill()
            self.hook.average(bucket)
        for bucket in self._buckets:
            bucket.write()


def _buckets_of(model: torch.nn.Module) -> List[_Bucket]:
    parts: List[List[torch.nn.Parameter]] = []
    size = 0
    for _, one in trainable(model):
        last = parts[-1][0] if parts else None
        full = size + one.numel() * one.element_size() > _BUCKET
        if last is None or full or (last.dtype, last.device) != (one.dtype, one.device):
            parts.append([])
            size = 0
        parts[-1].append(one)
        size += as_reals(one).numel() * as_reals(one).element_size()
    return [_Bucket(at, part, at == len(parts) - 1) for at, part in enumerate(parts)]


# Of each model.
_averages: WeakKeyDictionary[torch.nn.Module, _Averages] = WeakKeyDictionary()


@without_gradients
def average_gradients(model: Any, compressor: Any = "eden", *, group: Optional[Any] = None, **options: Any) -> Hook:
    """Averages the gradients of a model over all ranks, in place; for training loops without
    DistributedDataParallel. Call it after ``backward()`` and before ``optimizer.step()``, on all
    ranks, always with the same arguments.

    A parameter without a gradient counts as zeros. Residuals belong to the names of parameters, so
    all methods are possible, also those of low rank.

    Args:
        model: the model. Its parameters must be the same on all ranks
        compressor: as for ``register``. Default: ``"eden"``
        group: the process group. Default: all ranks
        options: the other arguments of ``register``

    Returns:
        The handle that ``register`` would return: statistics, and the state of a checkpoint.

    Raises:
        ConfigError: an argument is wrong, differs between ranks or from the last call, or does not
            suit the model.
    """
    model = uncompiled(model)
    if not isinstance(model, torch.nn.Module):
        raise _core.ConfigError(f"a {type(model).__name__} is no model; give a torch.nn.Module")
    arguments = (group, compressor, options)
    found = _averages.get(model)
    if found is None:
        found = _averages[model] = _Averages(model, arguments)
    elif found.arguments != arguments:
        raise _core.ConfigError(
            f"average_gradients was called with other arguments before: {found.arguments[1]!r}, {found.arguments[2]}; give the same ones "
            "at each step, or close the handle and give a copy of the model"
        )
    found.average()
    return found.hook
