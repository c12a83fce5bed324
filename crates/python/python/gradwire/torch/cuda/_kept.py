"""The arrays that memories keep from step to step, for all tensors of a model."""

from __future__ import annotations

from math import prod
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from ... import _core
from ..._arrays import buffer
from ._config import Config
from .kernels import kernel_and_memory
from .memories import plain_memory
from ._room import Room


# By the name of an array, the tensors that have it at some stage of the run.
Users = Dict[str, List[str]]


class Kept:
    """Arrays of float32 on the device, by their names in a saved state, such as ``residual``.

    Each array has room for all tensors that some memory keeps, in the order in which they became
    known, and more if some came late. It is created with zeros when a memory first needs it. The
    caller chooses the stream.
    """

    def __init__(
        self,
        reducer: _core.Reducer,
        tensors: Sequence[Tuple[str, Tuple[int, ...]]],
        device: torch.device,
        users: Optional[Users] = None,
        averages: bool = False,
    ) -> None:
        """``users`` are those of ``users_of``; by default ``tensors`` are those of the model.
        ``averages`` means the averages of an owner instead of gradients."""
        self._reducer, self._device, self._averages = reducer, device, averages
        self._users: Users = {}
        # The first element of each tensor in an array. Meaningless for tensors that no memory
        # keeps.
        self.starts: Dict[str, int] = {}
        self._shapes: Dict[str, Tuple[int, ...]] = {}
        self._room = Room()
        own = users_of(reducer, {name: place for place, (name, _) in enumerate(tensors)}) if users is None else users
        self._make_room(tensors, own)
        # The length of each array.
        self._length = self._room.end
        self.arrays: Dict[str, torch.Tensor] = {}
        # The number of the step in progress, and the arrays before it, if it may be skipped.
        self._step: Optional[int] = None
        self._before: Dict[str, torch.Tensor] = {}

    def _make_room(self, tensors: Sequence[Tuple[str, Tuple[int, ...]]], users: Users) -> None:
        have = {name for names in users.values() for name in names}
        for name, shape in tensors:
            self._shapes[name], self.starts[name] = shape, self._room.take(prod(shape) if name in have else 0)
        for kind, names in users.items():
            self._users.setdefault(kind, []).extend(names)

    def add(self, tensors: Sequence[Tuple[str, Tuple[int, ...]]], users: Users, skips: bool) -> None:
        """Adds tensors that became known later, with what the reducer has loaded for them.
        ``users`` are theirs. With ``skips``, the step in progress may be undone.

        May copy all arrays, whose streams must not use them meanwhile. A copy has room for half as
        many elements again.
        """
        self._make_room(tensors, users)
        if self._room.end > self._length:
            self._length = self._room.end + self._length // 2
            for arrays in (self.arrays, self._before):
                for kind, values in arrays.items():
                    arrays[kind] = values.new_zeros(self._length)
                    arrays[kind][: values.numel()] = values
        for kind, names in users.items():
            for name in names:
                self._take(kind, name)
                if skips and kind in self.arrays:
                    before = self._before.setdefault(kind, torch.zeros_like(self.arrays[kind]))
                    before[self._place(name)] = self.arrays[kind][self._place(name)]

    def forget(self, name: str) -> None:
        """Forgets a tensor, and what is kept for it. Its room is free for others."""
        own, is_kept = self._place(name), False
        for kind, names in self._users.items():
            if name not in names:
                continue
            names.remove(name)
            is_kept = True
            for arrays in (self.arrays, self._before):
                if kind in arrays:
                    arrays[kind][own] = 0
        if is_kept:
            self._room.give_back(own.start, own.stop - own.start)
        del self.starts[name], self._shapes[name]

    def array(self, kind: str) -> torch.Tensor:
        """The array of this name."""
        found = self.arrays.get(kind)
        if found is None:
            found = self.arrays[kind] = torch.zeros(self._length, dtype=torch.float32, device=self._device)
        return found

    def named(self, kinds: Sequence[str]) -> Dict[str, torch.Tensor]:
        """The arrays of these names."""
        return {kind: self.array(kind) for kind in kinds}

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

    def settle(self, skipped: torch.Tensor) -> None:
        """Keeps or undoes a step, and prepares the next one. ``skipped`` is a truth value on the
        device, which this does not wait for: whether the step must be undone."""
        for kind, values in self.arrays.items():
            if kind not in self._before:
                # The array was created in the step.
                self._before[kind] = torch.zeros_like(values)
            before = self._before[kind]
            torch.where(skipped, before, values, out=values)
            before.copy_(values)

    def give(self) -> None:
        """Gives the reducer copies of the arrays, to save."""
        for kind, values in self.arrays.items():
            host = values.cpu()
            for name in self._users[kind]:
                own = host[self._place(name)].contiguous()
                self._set(name, kind, own if own.numel() else None)

    def withdraw(self) -> None:
        """Frees the reducer's copies; with ``skip`` it would copy them at every step."""
        for kind in self.arrays:
            for name in self._users[kind]:
                self._set(name, kind, None)

    def take(self) -> None:
        """Moves the arrays that the reducer has loaded to the device."""
        self._step = None
        # The state may be one of another exchange.
        self.release()
        for kind, names in self._users.items():
            for name in names:
                self._take(kind, name)

    def release(self) -> None:
        """Frees the arrays."""
        self.arrays.clear()
        self._before.clear()

    def _take(self, kind: str, name: str) -> None:
        values, place = self._reducer.array(name, kind, averages=self._averages), self._place(name)
        if values:
            self.array(kind)[place] = torch.frombuffer(bytearray(values), dtype=torch.float32).to(self._device)
            self._set(name, kind, None)

    def _set(self, name: str, kind: str, values: Optional[torch.Tensor]) -> None:
        self._reducer.set_array(name, kind, None if values is None else buffer(values, kind), averages=self._averages)

    def _place(self, name: str) -> slice:
        """The elements of a tensor in the arrays."""
        start = self.starts[name]
        return slice(start, start + prod(self._shapes[name]))


def users_of(reducer: _core.Reducer, tensors: Mapping[str, int], exchange: Optional[str] = None, plain: bool = False) -> Users:
    """The users of arrays, by the names of arrays. ``tensors`` has for each name the place of the
    tensor, or of the tensor of which it is a slice, in the model. Of several exchanges, the users
    are those of the stages with ``exchange``. With ``plain``, memories are ``plain_memory``."""
    users: Users = {}
    specs_of_stages = [reducer.specs(first) for first, _ in reducer.stages if exchange in (None, reducer.exchange_at(first))]
    for name, place in tensors.items():
        kinds = (kind for specs in specs_of_stages for kind in _kinds(specs[place], plain))
        for kind in dict.fromkeys(kinds):
            users.setdefault(kind, []).append(name)
    return users


def _kinds(spec: str, plain: bool) -> Tuple[str, ...]:
    """The names of the arrays that a compressor's memory keeps."""
    config = Config.of(spec)
    if plain:
        return plain_memory(config).kept
    found = kernel_and_memory(config)
    assert found is not None, spec
    _, memory = found
    return memory.kept
