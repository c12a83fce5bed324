"""Whether the messages of a reducer can stay on the device."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch

from ... import _core
from .._tensors import Named
from ._config import Config
from ._kernel import Dense
from ._rounds import Rounds
from ._support import reason_against_device
from .kernels import kernel_and_memory


# By type of device, the backend whose collectives send bytes between devices.
_BACKENDS = {"cuda": "nccl", "cpu": "gloo"}


def reason_against(
    reducer: _core.Reducer, group: Any, device: torch.device, named: Sequence[Named], wanted: bool
) -> Optional[str]:
    """Why messages cannot stay on the device of these parameters, with the remedy; ``None`` if they
    can. A CPU suits only a caller who has asked for it."""
    backend = _backend(group, device)
    if backend != _BACKENDS.get(device.type) or (device.type == "cpu" and not wanted):
        return f"the process group sends tensors on {device.type} by {backend}; create it with NCCL"
    for step, _ in reducer.stages:
        for spec in sorted(set(reducer.specs(step))):
            reason = _reason_against_compressor(spec)
            if reason is not None:
                return reason
    return reason_against_device(reducer, device, {parameter.dtype for _, parameter in named})


def _backend(group: Any, device: torch.device) -> str:
    """The backend that sends tensors on a device; a process group may have one for each type."""
    try:
        return str(group._get_backend(device).name()).lower()
    except RuntimeError:
        return "no backend"


def _reason_against_compressor(spec: str) -> Optional[str]:
    found = kernel_and_memory(Config.of(spec))
    if found is None:
        return f"there is no kernel for '{spec}'; use another compressor, such as eden"
    if isinstance(found[0], Rounds):
        return f"ranks compute the result of '{spec}' in several rounds; use a quantizer, such as eden"
    if not isinstance(found[0], Dense):
        return f"the length of messages of '{spec}' depends on the gradient; use a quantizer, such as eden"
    return None
