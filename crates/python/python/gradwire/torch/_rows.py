"""The rows of a sharded model's parameters that this rank has, and saved tensors in rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from .. import _core
from ._tensors import own_part

# Some rows of a saved tensor: the place of their first element in the whole one, and their values.
SavedRows = Dict[str, Any]


@dataclass(frozen=True)
class Rows:
    """The rows of a parameter that this rank has, from ``first`` to before ``end``.

    ``shape`` is the shape of the whole parameter as ranks exchange it: shards along another
    dimension are stacked, and complex numbers are pairs of reals.
    """

    shape: Tuple[int, ...]
    first: int
    end: int

    @staticmethod
    def of(parameter: torch.Tensor, dim: int, shard: int, shards: int) -> Rows:
        """The rows of one of several shards, as FSDP2 cuts a parameter along a dimension."""
        shape = list(parameter.shape)
        if dim:
            shape[dim] //= shards
            shape[0] *= shards
        chunk = -(-shape[0] // shards)
        first, end = (min(one * chunk, shape[0]) for one in (shard, shard + 1))
        if parameter.is_complex():
            shape[-1] *= 2
            if len(shape) == 1:
                first, end = 2 * first, 2 * end
        return Rows(tuple(shape), first, end)

    @property
    def part(self) -> Tuple[int, Tuple[int, ...]]:
        """The first element and the shape of these rows, as in ``Parts``."""
        return self.elements.start, (self.end - self.first, *self.shape[1:])

    @property
    def elements(self) -> slice:
        """The floats of these rows among those of the whole parameter."""
        row = 1
        for size in self.shape[1:]:
            row *= size
        return slice(self.first * row, self.end * row)


def saved_rows(values: torch.Tensor, rows: Rows) -> SavedRows:
    """This rank's rows of a tensor, in the form in which they are saved."""
    start = rows.elements.start // (2 if values.is_complex() else 1)
    return {"start": start, "values": values.detach().reshape(-1)}


def cut(saved: Sequence[SavedRows], rows: Rows, like: torch.Tensor, name: str) -> torch.Tensor:
    """These rows of a tensor, from those that the ranks of a site have saved, in the shape of
    ``like``. Raises ``StateError`` if a row is missing."""
    start = rows.elements.start // (2 if like.is_complex() else 1)
    at, end, found = start, start + like.numel(), []
    for one in sorted(saved, key=lambda one: (one["start"], one["values"].numel())):
        first, values = one["start"], one["values"].reshape(-1)
        if first <= at < first + values.numel() and at < end:
            found.append(values[at - first : end - first])
            at += found[-1].numel()
    if at < end:
        raise _core.StateError(f"the state lacks rows of '{name}'; give the states of all ranks of the saved run")
    return torch.cat(found).reshape(like.shape) if found else torch.empty_like(like, device="cpu")


def pack_optimizer(packed: Mapping[str, Any], parameters: Sequence[torch.Tensor], rows: Sequence[Optional[Rows]]) -> Dict[str, Any]:
    """The state of an optimizer with ``SavedRows`` instead of tensors of the size of a shard.

    ``rows`` are those of each of its ``parameters``.
    """
    state: Dict[int, Dict[str, Any]] = {}
    for index, entries in packed["state"].items():
        own, where = own_part(parameters[index]), rows[index]
        state[index] = {
            key: saved_rows(own_part(value), where) if where is not None and _has_rows(value, own) else own_part(value)
            for key, value in entries.items()
        }
    return {**packed, "state": state}


def _has_rows(value: Any, own: torch.Tensor) -> bool:
    return torch.is_tensor(value) and own_part(value).shape == own.shape


def unpack_optimizer(
    site: Sequence[Mapping[str, Any]], parameters: Sequence[torch.Tensor], rows: Sequence[Optional[Rows]], moves: bool
) -> Dict[str, Any]:
    """The state of an optimizer of this rank, from those that ``pack_optimizer`` made of the ranks
    of a site. ``moves``: this rank has other rows than the rank that saved the first state."""
    first = site[0]
    state: Dict[int, Dict[str, Any]] = {}
    for index, entries in first["state"].items():
        parameter, where = parameters[index], rows[index]
        state[index] = {}
        for key, value in entries.items():
            if isinstance(value, dict) and where is not None:
                saved = [one["state"][index][key] for one in site]
                value = _like(cut(saved, where, own_part(parameter), f"{key} of parameter {index}"), parameter)
            elif torch.is_tensor(value) and value.numel() > 1 and moves:
                raise _core.StateError(
                    f"'{key}' of the optimizer has no rows, so it cannot move to another number of shards; use the saved number"
                )
            state[index][key] = value
    return {**first, "state": state}


def _like(values: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """This rank's rows as a DTensor with the placement of a parameter, if it is one."""
    if own_part(parameter) is parameter:
        return values
    from torch.distributed.tensor import DTensor

    placed: Any = parameter
    own: List[Any] = [values.to(parameter.device), placed.device_mesh, placed.placements]
    return DTensor.from_local(*own, run_check=False, shape=parameter.shape, stride=parameter.stride())
