"""Chooses where gradients are compressed: by kernels on their device, or on the host."""

from __future__ import annotations

import os
import warnings
from typing import Any, Iterable, Optional, Tuple

from .. import _core
from ._options import Options
from ._tensors import Named

# Earlier versions of Triton compile rounded divisions to instructions that flush subnormal numbers
# to zero.
MIN_TRITON = (3, 6)


def of(
    device: str, reducer: _core.Reducer, named: Iterable[Named], options: Options
) -> Tuple[Optional[Any], str]:
    """The object that averages on the device of these parameters, or ``None`` to compress on the
    host; and the place of compression, as in ``Description.compressed_on``. With ``device="auto"``,
    rank 0 raises a ``RuntimeWarning`` if the host compresses instead of the GPU.

    ``device`` is the argument of ``register``.
    """
    if device not in ("auto", "host", "gpu"):
        meant = {"cuda": "gpu", "cpu": "host"}.get(str(device).partition(":")[0])
        remedy = f"did you mean {meant!r}?" if meant else "use 'auto', 'host' or 'gpu'"
        raise _core.ConfigError(f"device={device!r} is unknown; {remedy}")
    tensors = list(named)
    reason = "device='host'" if device == "host" else _reason_against(device, reducer, tensors)
    if reason is None:
        from .cuda._exchange import DeviceExchange

        shapes = [(name, tuple(parameter.shape)) for name, parameter in tensors]
        skip = options.on_nonfinite == "skip"
        return DeviceExchange(reducer, shapes, tensors[0][1].device, options.seed, skip), "the GPU"
    if device == "gpu":
        raise _core.ConfigError(
            f"gradients cannot be compressed on the GPU: {reason}; use device='auto' to compress on the host"
        )
    on_gpu = any(parameter.device.type == "cuda" for _, parameter in tensors)
    if on_gpu and device == "auto" and reducer.rank == 0 and _compresses(reducer):
        warnings.warn(
            f"gradients are copied from the GPU and compressed on the host, because {reason}; pass device='host' if this is intended",
            RuntimeWarning,
            # The caller of register.
            stacklevel=5,
        )
    return None, f"the host, because {reason}" if on_gpu else "the host"


def _compresses(reducer: _core.Reducer) -> bool:
    return any(spec != "none" for step, _ in reducer.stages for spec in reducer.specs(step))


def _reason_against(device: str, reducer: _core.Reducer, named: Iterable[Named]) -> Optional[str]:
    devices = {parameter.device for _, parameter in named}
    if len(devices) != 1:
        return "the parameters are on several devices"
    # Triton's interpreter runs kernels on the CPU, for tests.
    interpreted = device == "gpu" and os.environ.get("TRITON_INTERPRET") == "1"
    if next(iter(devices)).type != "cuda" and not interpreted:
        return "the parameters are not on a CUDA device"
    try:
        import triton
    except ImportError as error:
        return f"Triton is missing ({error}); PyTorch's CUDA wheels for Linux contain it"
    if any(parameter.dtype.is_complex for _, parameter in named):
        return "some parameters are complex"
    if tuple(int(part) for part in triton.__version__.split(".")[:2]) < MIN_TRITON:
        least = ".".join(map(str, MIN_TRITON))
        return f"Triton is version {triton.__version__}, but the kernels need {least}, which comes with PyTorch 2.10"
    from .cuda._support import reason_against, reason_against_device

    dtypes = {parameter.dtype for _, parameter in named}
    return reason_against(reducer) or reason_against_device(reducer, next(iter(devices)), dtypes)
