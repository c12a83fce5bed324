"""Common parts of the callbacks for training frameworks."""

from __future__ import annotations

import inspect
import warnings
from typing import Any, Callable, Dict, Mapping, Optional

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ._handle import Handle
from ._mid_step import NO_STATE
from ._register import register
from ._tensors import uncompiled


def is_single_process(model: Any) -> bool:
    """Whether there are no other ranks to exchange gradients with; warns if so."""
    if isinstance(uncompiled(model), DistributedDataParallel):
        return False
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return False
    warnings.warn(
        "gradwire compresses nothing, because only a single process trains the model; start several, for example with torchrun "
        "--nproc-per-node 2, or remove the callback",
        RuntimeWarning,
        stacklevel=3,
    )
    return True


def arguments_of(given: Mapping[str, Any]) -> Dict[str, Any]:
    """The arguments of ``register`` after the model, among all arguments of a callback: its
    ``locals()`` in the first line."""
    _, *names = inspect.signature(register).parameters
    return {name: given[name] for name in names}


def with_scaler(arguments: Mapping[str, Any], scaler: Optional[Any]) -> Dict[str, Any]:
    """The arguments of ``register``. ``scaler="auto"`` becomes the framework's ``scaler``; a
    compressor written in Python takes none. With it ``on_nonfinite`` defaults to ``"skip"``."""
    is_auto = arguments["scaler"] == "auto"
    taken = scaler if is_auto and isinstance(arguments["compressor"], str) else None
    on_nonfinite = arguments["on_nonfinite"] or ("error" if taken is None else "skip")
    return {**arguments, "scaler": taken if is_auto else arguments["scaler"], "on_nonfinite": on_nonfinite}


def load(handle: Handle, read: Callable[[], Optional[Any]], where: str) -> None:
    """Restores the state that ``read`` returns, on all ranks or on none.

    If it returns ``None`` on all ranks, residuals begin empty, and schedules at step 0, with a
    warning. If it returns ``None`` on some ranks only, this is an error.
    """
    if not handle._load_with(read):
        warnings.warn(
            NO_STATE.format(where),
            RuntimeWarning,
            stacklevel=3,
        )
