"""Chooses where gradients are compressed, by kernels on their device or on the host, and where
messages travel."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from typing import Any, Collection, Iterable, List, Optional, Sequence

import torch

from .. import _core
from ._options import Options, compare, suggestion
from ._tensors import Named
from ._two_levels import TwoLevels

# Earlier versions of Triton compile rounded divisions to instructions that flush subnormal numbers
# to zero.
MIN_TRITON = (3, 6)


TRANSPORTS = ("auto", "device", "host")


@dataclass(frozen=True)
class Request:
    """Where the caller of ``register`` wants gradients to be compressed and exchanged: its
    arguments ``device`` and ``transport``, and its process group."""

    device: str
    transport: str
    group: Any
    # What errors say cannot stay on the device.
    what: str = "messages"
    # Whether the values of a 16-bit tensor have its type.
    narrow: bool = True
    # The devices of the model. With nodes, a rank may own no tensor that would tell them.
    devices: Collection[torch.device] = ()
    # What errors call the values that are exchanged: "gradient", "parameter" or "change".
    values: str = "gradient"
    # Why messages cannot stay on the device, if the caller knows it.
    reason: Optional[str] = None
    # Whether tensors become known one after the other; ``named`` is the first one.
    grows: bool = False

    def check(self) -> None:
        """Refuses values that are unknown or exclude each other."""
        if self.device not in ("auto", "host", "gpu"):
            meant = {"cuda": "gpu", "cpu": "host"}.get(str(self.device).partition(":")[0])
            remedy = f"did you mean {meant!r}?" if meant else "use 'auto', 'host' or 'gpu'"
            raise _core.ConfigError(f"device={self.device!r} is unknown; {remedy}")
        if self.transport not in TRANSPORTS:
            raise _core.ConfigError(f"transport={self.transport!r} is unknown; {suggestion(str(self.transport), TRANSPORTS)}")
        if (self.device, self.transport) == ("host", "device"):
            raise _core.ConfigError("transport='device' sends what the device compresses, but device='host'; leave device= out")

    def devices_of(self, named: Iterable[Named]) -> List[torch.device]:
        """The devices of the model, of which a rank compresses the tensors ``named``."""
        return list(self.devices or {tensor.device for _, tensor in named})


@dataclass(frozen=True)
class Place:
    """Where gradients are compressed and exchanged."""

    # See ``Description``.
    compressed_on: str
    # A ``DeviceTransport`` or ``NodeTransport``, if messages stay on the device.
    transport: Optional[Any] = None
    # A ``DeviceExchange``, if the device compresses what the host sends.
    exchange: Optional[Any] = None
    # Why messages of tensors on a GPU do not stay there, unless the caller wanted it so.
    reason: str = ""

    @property
    def through_host(self) -> str:
        """``Description.transport``, for messages that do not stay on the device."""
        return f"the host, because {self.reason}" if self.reason else "the host"


def of(request: Request, reducer: _core.Reducer, named: Iterable[Named], options: Options) -> Place:
    """The place for the gradients of these parameters. With ``device="auto"``, rank 0 raises a
    ``RuntimeWarning`` if the host compresses instead of the GPU."""
    request.check()
    tensors = list(named)
    place = _transport(request, reducer, tensors, options)
    return place if place.transport is not None else replace(_compression(request, reducer, tensors, options), reason=place.reason)


def of_transport(request: Request, reducer: _core.Reducer, named: Iterable[Named], options: Options) -> Place:
    """The place for the shards of a model, or for the changes of local steps, which kernels
    compress only if messages stay on the device."""
    tensors = list(named)
    place = _transport(request, reducer, tensors, options)
    if place.transport is not None or not _on_gpu(tensors):
        return place
    return replace(place, compressed_on="the host, because messages travel through it")


def _on_gpu(named: Iterable[Named]) -> bool:
    return any(tensor.device.type == "cuda" for _, tensor in named)


def _transport(request: Request, reducer: _core.Reducer, named: Sequence[Named], options: Options) -> Place:
    """The device, if messages can stay there on all ranks; else the host on all ranks. All ranks
    must call it."""
    compare(reducer, {"transport": request.transport})
    if request.transport == "host":
        return Place("the host")
    reason = _of_any(reducer, _reason_against_transport(request, reducer, named))
    if reason is None:
        transport = _new_transport(request, reducer, named, options)
        reason = _of_any(reducer, transport.peers.reason_against())
    if reason is None:
        return Place("the GPU", transport)
    if request.transport == "device":
        raise _core.ConfigError(f"{request.what} cannot stay on the device: {reason}; transport='auto' sends them through the host")
    return Place("the host", reason=reason if _on_gpu(named) else "")


def _new_transport(request: Request, reducer: Any, named: Sequence[Named], options: Options) -> Any:
    from .cuda._node_transport import NodeTransport
    from .cuda._transport import DeviceTransport, Values

    shapes = [(name, tuple(parameter.shape)) for name, parameter in named]
    values = Values(request.devices_of(named)[0], request.narrow, options.on_nonfinite == "skip", request.values)
    if request.grows:
        from .cuda._group_transport import GroupTransport

        return GroupTransport(reducer, values, request.group, options.seed)
    if isinstance(reducer, TwoLevels):
        return NodeTransport(reducer, shapes, values, options.seed)
    return DeviceTransport(reducer, shapes, values, request.group, options.seed)


def _reason_against_transport(request: Request, reducer: _core.Reducer, named: Sequence[Named]) -> Optional[str]:
    """Why messages cannot stay on the device of this rank."""
    if request.device == "host":
        return "device='host'"
    if request.reason is not None:
        return request.reason
    wanted = request.transport == "device"
    reason = _reason_against_triton(wanted, request.devices_of(named), named)
    if reason is not None:
        return reason
    from .cuda._transport_support import reason_against

    return reason_against(reducer, request.group, request.devices_of(named)[0], named, wanted)


def _of_any(reducer: _core.Reducer, reason: Optional[str]) -> Optional[str]:
    """The reason of the first rank that has one. All ranks must call it."""
    reasons = [one.decode() for one in reducer.gather(0, (reason or "").encode())]
    # This rank may end now, and the others must have its reason.
    reducer.wait()
    rank, found = next(((rank, one) for rank, one in enumerate(reasons) if one), (0, None))
    return found if found is None or len(set(reasons)) == 1 else f"on rank {rank}, {found}"


def _compression(request: Request, reducer: _core.Reducer, tensors: Sequence[Named], options: Options) -> Place:
    """The place of compression, if the host exchanges messages."""
    device = request.device
    reason = "device='host'" if device == "host" else _reason_against(request, reducer, tensors)
    if reason is None:
        from .cuda._exchange import DeviceExchange

        shapes = [(name, tuple(parameter.shape)) for name, parameter in tensors]
        skip, where = options.on_nonfinite == "skip", request.devices_of(tensors)[0]
        return Place("the GPU", exchange=DeviceExchange(reducer, shapes, where, options.seed, skip))
    if device == "gpu":
        raise _core.ConfigError(
            f"gradients cannot be compressed on the GPU: {reason}; use device='auto' to compress on the host"
        )
    on_gpu = _on_gpu(tensors)
    if on_gpu and device == "auto" and reducer.rank == 0 and _compresses(reducer):
        warnings.warn(
            f"gradients are copied from the GPU and compressed on the host, because {reason}; pass device='host' if this is intended",
            RuntimeWarning,
            # The caller of register.
            stacklevel=6,
        )
    return Place(f"the host, because {reason}" if on_gpu else "the host")


def _compresses(reducer: _core.Reducer) -> bool:
    return any(spec != "none" for step, _ in reducer.stages for spec in reducer.specs(step))


def _reason_against(request: Request, reducer: _core.Reducer, named: Sequence[Named]) -> Optional[str]:
    devices = request.devices_of(named)
    reason = _reason_against_triton(request.device == "gpu", devices, named)
    if reason is not None:
        return reason
    from .cuda._support import reason_against, reason_against_device

    dtypes = {parameter.dtype for _, parameter in named}
    return reason_against(reducer) or reason_against_device(reducer, devices[0], dtypes)


def _reason_against_triton(wanted: bool, devices: Sequence[torch.device], named: Sequence[Named]) -> Optional[str]:
    """Why Triton cannot run on the devices of these parameters; ``wanted`` if the caller asked for
    it."""
    if len(devices) != 1:
        return "the parameters are on several devices"
    # Triton's interpreter runs kernels on the CPU, for tests.
    interpreted = wanted and os.environ.get("TRITON_INTERPRET") == "1"
    if devices[0].type != "cuda" and not interpreted:
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
    return None
