"""Common parts of the callbacks for training frameworks."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Dict, Mapping, Optional

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ._handle import Handle
from ._mid_step import NO_STATE
from ._tensors import uncompiled


def is_single_process(model: Any) -> bool:
    """Whether there are no other ranks to exchange gradients with; warns if so."""
    if isinstance(uncompiled(model), DistributedDataParallel):
        return False
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return False
    warnings.warn(
        "gradwire compresses nothing, because a single process trains the model; start several, as with "
        "torchrun --nproc-per-node 2, or remove the callback",
        RuntimeWarning,
        stacklevel=3,
    )
    return True


def with_scaler(compressor: Any, options: Mapping[str, Any], scaler: Optional[Any]) -> Dict[str, Any]:
    """The options of ``register``, with the framework's ``scaler`` unless another is given, or the
    compressor is written in Python and takes none."""
    if scaler is None or "scaler" in options or not isinstance(compressor, str):
        return dict(options)
    return {"on_nonfinite": "skip", **options, "scaler": scaler}


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
