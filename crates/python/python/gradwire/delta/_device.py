"""Copies of the kept weights on GPUs. New weights on a GPU are compared there, so only their
changes cross to main memory."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, ContextManager, Dict, List, NamedTuple, Optional, Tuple

import torch

from .. import _core
from .._arrays import is_torch
from ..torch._staging import finish_current
from ..torch.cuda.changes import Changes, ends_of, runs_on
from ._weights import Memory, on_host, pinned

# If more than this share of a tensor changed, all of it is copied: positions and values of a
# quarter of bfloat16 weights take three quarters of the bytes of all weights, and the host would
# have to put them together.
_MOST = 0.25

# The name and the first row of a tensor.
_Key = Tuple[str, int]


class Changed(NamedTuple):
    """The changes of a tensor, in main memory, and what keeps their memory alive."""

    description: _core.DeltaChanges
    owner: Any


class DeviceBase:
    """The kept weights of a sender on the devices of the tensors that it was given.

    The copies advance when changes are found. So ``rollback`` has to drop them, and the next
    comparison copies the weights from main memory again.
    """

    def __init__(self, core: _core.DeltaSender) -> None:
        self._core = core
        self._copies: Dict[_Key, torch.Tensor] = {}
        # The sender's tensors by key: their numbers, element types, shapes and rows.
        self._kept: Optional[Dict[_Key, Tuple[int, _core.DeltaDescription]]] = None

    def compare(self, batch: List[Memory]) -> Tuple[List[Memory], List[Changed]]:
        """Compares the tensors that can be compared on their devices. Returns the tensors that are
        whole in main memory, and the changes of the others."""
        whole: List[Memory] = []
        changed: List[Changed] = []
        on_devices: Dict[torch.device, List[Memory]] = {}
        for memory in batch:
            if self._number(memory) is None:
                # The sender's tensor advances without the copy.
                self._copies.pop(_key(memory), None)
                whole.append(on_host(memory))
            else:
                on_devices.setdefault(memory.owner.device, []).append(memory)
        for device, memories in on_devices.items():
            with _current(device):
                self._compare_on(memories, whole, changed)
                finish_current(device)
        return whole, changed

    def commit(self) -> None:
        """The sender's weights are to advance; they may have other tensors then."""
        self._kept = None

    def rollback(self) -> None:
        """The sender's weights are as they were."""
        self._copies.clear()

    def _compare_on(self, memories: List[Memory], whole: List[Memory], changed: List[Changed]) -> None:
        copies = [self._copy(memory) for memory in memories]
        found = [Changes(copy, memory.owner) for copy, memory in zip(copies, memories)]
        for memory, copy, changes, ends in zip(memories, copies, found, ends_of(found)):
            if ends[-1] > _MOST * memory.owner.numel():
                whole.append(on_host(memory))
                copy.copy_(memory.owner)
            else:
                positions, values = (_to_host(one) for one in changes.advance(ends[-1]))
                described = (*memory.description[:4], values.data_ptr())
                changed.append(Changed((described, positions.data_ptr(), ends), (positions, values)))

    def _copy(self, memory: Memory) -> torch.Tensor:
        """The kept weights on the tensor's device."""
        key, device = _key(memory), memory.owner.device
        copy = self._copies.get(key)
        if copy is None or copy.device != device:
            number, host = self._number(memory), pinned(memory.owner)
            assert number is not None
            self._core.copy(number, host.data_ptr())
            copy = self._copies[key] = host.to(device)
        return copy

    def _number(self, memory: Memory) -> Optional[int]:
        """The number of the sender's tensor that a tensor can be compared with on its device."""
        if not is_torch(memory.owner) or not runs_on(memory.owner.device) or not memory.size:
            return None
        if self._kept is None:
            all_kept = enumerate(self._core.tensors())
            self._kept = {(kept[0], kept[3][0]): (number, kept) for number, kept in all_kept}
        _, element, shape, rows, _ = memory.description
        number, kept = self._kept.get(_key(memory), (None, None))
        rows = rows or (0, shape[0] if shape else 1)
        return number if kept is not None and kept[1:] == (element, list(shape), tuple(rows)) else None


def _key(memory: Memory) -> _Key:
    rows = memory.description[3]
    return memory.name, rows[0] if rows else 0


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Starts a copy to main memory."""
    copy: torch.Tensor = pinned(tensor).copy_(tensor, non_blocking=True)
    return copy


def _current(device: torch.device) -> ContextManager[Any]:
    """Makes a device the current one, on which Triton launches."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
