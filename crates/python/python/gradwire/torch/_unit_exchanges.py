"""Exchanges of the values of a unit's parameters, through the host or on the device."""

from __future__ import annotations

from typing import Any, Dict, List, Union

import torch

from .. import _core
from .._arrays import buffer, keeping
from ._custom_reducer import CustomReducer
from ._staging import Pinned, Scale
from ._tensors import as_reals

ALL = slice(None)


def _pairs(place: slice) -> slice:
    """A place among complex numbers, as a place among their pairs of reals."""
    return place if place == ALL else slice(2 * place.start, 2 * place.stop)


def _is_in_main_memory(values: torch.Tensor) -> bool:
    return values.device.type == "cpu"


class ThroughHost:
    """Exchanges the values of a unit's parameters, in place."""

    def __init__(self, reducer: _core.Reducer) -> None:
        self.reducer = reducer
        self._pinned: Dict[torch.device, Pinned] = {}

    def _memory(self, device: torch.device) -> Pinned:
        # One exchange ends before the next begins.
        return self._pinned.setdefault(device, Pinned(device))

    def exchange(
        self, step: int, names: List[str], values: torch.Tensor, scale: Scale = 1.0, read: slice = ALL, written: slice = ALL
    ) -> None:
        """Exchanges values, and waits, because FSDP2 uses the result as soon as its communication
        returns.

        For values on a GPU, the exchange reads only ``read`` and changes only ``written``, so no
        more is copied.
        """
        if values.is_complex():
            values = as_reals(values).flatten()
            read, written = _pairs(read), _pairs(written)
        host = values
        if not _is_in_main_memory(values):
            # The first use may be a forward pass in inference mode, and later passes change it.
            with torch.inference_mode(False):
                memory = self._memory(values.device).of(values.numel() * values.element_size())
            host = memory.view(values.dtype)
            host[read].copy_(values[read])
        tensor_group = self.reducer.tensor_group(names)
        self.reducer.average(tensor_group, step, buffer(host, "the shards of a unit"), keeping(host), scale=float(scale))
        self.reducer.wait()
        if host is not values:
            values[written].copy_(host[written])


class ThroughPython:
    """Exchanges the values of a unit's parameters, in place, by a compressor written in Python.
    They are one tensor, and every rank receives the messages of all."""

    def __init__(self, reducer: CustomReducer) -> None:
        self.reducer = reducer

    def exchange(
        self, step: int, names: List[str], values: torch.Tensor, scale: Scale = 1.0, read: slice = ALL, written: slice = ALL
    ) -> None:
        """Exchanges values, and waits. There is no scale, because a ``GradScaler`` is refused."""
        if values.is_complex():
            values = as_reals(values).flatten()
        self.reducer.average_whole(names, step, values)


class ThroughDevice:
    """Exchanges the values of a unit's parameters, in place, by messages that stay on the
    device."""

    def __init__(self, transport: Any) -> None:
        self.transport, self.reducer = transport, transport.reducer

    def exchange(
        self, step: int, names: List[str], values: torch.Tensor, scale: Scale = 1.0, read: slice = ALL, written: slice = ALL
    ) -> None:
        """Makes the current stream wait for the exchanged values. The host does not wait.

        ``read`` and ``written`` are those of the host's exchange, and the transport knows them.
        """
        if isinstance(scale, torch.Tensor):
            scale = scale.to(values.device)
        self.transport.exchange(self.reducer.tensor_group(names), step, names, values, scale)


Exchange = Union[ThroughHost, ThroughPython, ThroughDevice]
