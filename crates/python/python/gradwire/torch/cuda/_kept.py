"""The arrays that memories keep from step to step, for all tensors of a model."""

from __future__ import annotations

from math import prod
from typing import Dict, List, Optional, Sequence, Tuple

import torch

from ... import _core
from ..._arrays import buffer
from ._config import Config
from .kernels import kernel_and_memory


class Kept:
    """Arrays of float32 on the device, by their names in a saved state, such as ``residual``.

    Each array has room for all tensors that some memory keeps, in the order of the model. It is
    created with zeros when a memory first needs it. The caller chooses the stream.
    """

    def __init__(self, reducer: _core.Reducer, tensors: Sequence[Tuple[str, Tuple[int, ...]]], device: torch.device) -> None:
        self._reducer, self._device = reducer, device
        self._users = _users(reducer, [name for name, _ in tensors])
        users = {name for names in self._users.values() for name in names}
        # The first element of each tensor in an array. Meaningless for tensors that no memory
        # keeps.
        self.starts: Dict[str, int] = {}
        self._shapes = dict(tensors)
        self._elements = 0
        for name, shape in tensors:
            self.starts[name] = self._elements
            self._elements += prod(shape) if name in users else 0
        self.arrays: Dict[str, torch.Tensor] = {}
        # The number of the step in progress, and the arrays before it, if it may be skipped.
        self._step: Optional[int] = None
        self._before: Dict[str, torch.Tensor] = {}

    def array(self, kind: str) -> torch.Tensor:
        """The array of this name."""
        found = self.arrays.get(kind)
        if found is None:
            found = self.arrays[kind] = torch.zeros(self._elements, dtype=torch.float32, device=self._device)
        return found

    def remember(self, step: int) -> None:
        """Copies all arrays before the first change of a step, so ``roll_back`` can undo the
        step."""
        if self._step == step:
            return
        self._step = step
        for kind, values in self.arrays.items():
            if kind in self._before:
                self._before[kind].copy_(values)
            else:
                self._before[kind] = values.clone()

    def roll_back(self) -> None:
        """Restores the arrays from before the step in progress."""
        # A copy, because a bucket in the thread of the backward pass may add an array meanwhile.
        for kind, values in list(self.arrays.items()):
            if kind in self._before:
                values.copy_(self._before[kind])
            else:
                # The array was created in this step.
                values.zero_()

    def give(self) -> None:
        """Gives the reducer copies of the arrays, to save."""
        for kind, values in self.arrays.items():
            host = values.cpu()
            for name in self._users[kind]:
                own = host[self._place(name)].contiguous()
                self._reducer.set_array(name, kind, buffer(own, kind) if own.numel() else None)

    def withdraw(self) -> None:
        """Frees the reducer's copies; with ``skip`` it would copy them at every step."""
        for kind in self.arrays:
            for name in self._users[kind]:
                self._reducer.set_array(name, kind, None)

    def take(self) -> None:
        """Moves the arrays that the reducer has loaded to the device."""
        self._step = None
        for kind, names in self._users.items():
            for name in names:
                self._take(kind, name)

    def release(self) -> None:
        """Frees the arrays."""
        self.arrays.clear()
        self._before.clear()

    def _take(self, kind: str, name: str) -> None:
        values, place = self._reducer.array(name, kind), self._place(name)
        if values:
            self.array(kind)[place] = torch.frombuffer(bytearray(values), dtype=torch.float32).to(self._device)
            self._reducer.set_array(name, kind, None)
        elif kind in self.arrays:
            self.arrays[kind][place] = 0

    def _place(self, name: str) -> slice:
        """The elements of a tensor in the arrays."""
        start = self.starts[name]
        return slice(start, start + prod(self._shapes[name]))


def _users(reducer: _core.Reducer, names: Sequence[str]) -> Dict[str, List[str]]:
    """By array, the tensors that have it at some stage of the run."""
    users: Dict[str, List[str]] = {}
    specs_of_stages = [reducer.specs(first) for first, _ in reducer.stages]
    for name, *specs in zip(names, *specs_of_stages):
        for kind in dict.fromkeys(kind for spec in specs for kind in _kinds(spec)):
            users.setdefault(kind, []).append(name)
    return users


def _kinds(spec: str) -> Tuple[str, ...]:
    """The names of the arrays that a compressor's memory keeps."""
    found = kernel_and_memory(Config.of(spec))
    assert found is not None, spec
    _, memory = found
    return memory.kept
