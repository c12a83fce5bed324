"""Where gradients are compressed: by kernels on the device that has them, or on the host."""

from __future__ import annotations

import os
from typing import Any, Iterable, Mapping, Optional, Tuple

import torch

from .. import _core


def of(
    device: str, reducer: _core.Reducer, named: Iterable[Tuple[str, torch.Tensor]], options: Mapping[str, Any]
) -> Optional[Any]:
    """What averages on the device of these parameters; ``None`` to compress on the host.

    ``device`` is that of ``register``, and ``options`` are those of the reducer.
    """
    if device not in ("auto", "host", "gpu"):
        raise _core.ConfigError(f"device={device!r} is unknown; use 'auto', 'host' or 'gpu'")
    named = list(named)
    reason = "it was asked for" if device == "host" else _reason_against(device, reducer, named)
    if reason is None:
        from .cuda._exchange import Device

        tensors = [(name, tuple(parameter.shape)) for name, parameter in named]
        skip = options.get("on_nonfinite") == "skip"
        return Device(reducer, tensors, named[0][1].device, options.get("seed", 0), skip)
    if device == "gpu":
        raise _core.ConfigError(
            f"gradients cannot be compressed on the GPU: {reason}; use device='auto' to compress on the host"
        )
    return None


def _reason_against(device: str, reducer: _core.Reducer, named: Iterable[Tuple[str, torch.Tensor]]) -> Optional[str]:
    devices = {parameter.device for _, parameter in named}
    if len(devices) != 1:
        return "the parameters are on several devices"
    # Triton's interpreter runs kernels on the CPU, for tests.
    interpreted = device == "gpu" and os.environ.get("TRITON_INTERPRET") == "1"
    if next(iter(devices)).type != "cuda" and not interpreted:
        return "the parameters are not on a CUDA device"
    try:
        from .cuda._exchange import reason_against, reason_against_device
    except ImportError as error:
        return f"Triton is missing ({error}); PyTorch's CUDA wheels for Linux contain it"
    return reason_against(reducer) or reason_against_device(next(iter(devices)))
