"""Reads saved states. If a part of a state is missing or was changed, a ``StateError`` names the
part."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import Any, Iterator, List, Mapping, Sequence, Tuple, Union

import torch
import torch.distributed as dist

from .. import _core
from ._states import Layout, State

_WHOLE = "give the whole result of state_dict(), as it was saved, or load another checkpoint"
SAME_GROUPS = (
    "first make the groups of the saved run, in the same order, and call gradwire between them as that run did: PyTorch numbers groups, "
    "and gradwire's own count, too"
)


@contextmanager
def reading() -> Iterator[None]:
    """A block that reads a saved state. Its errors become ``StateError``, unless they are
    gradwire's own."""
    try:
        yield
    except _core.GradwireError:
        raise
    except KeyError as error:
        raise _core.StateError(f"the state has no {error}; {_WHOLE}") from error
    except Exception as error:
        raise _core.StateError(f"the state cannot be read ({type(error).__name__}: {error}); {_WHOLE}") from error


def listed(states: Any) -> List[State]:
    """The argument of ``load_state_dict`` as a list: one state, or a sequence of states."""
    if states is None:
        raise _core.StateError("the state is None: the checkpoint contains no state of gradwire; begin without load_state_dict")
    if isinstance(states, Mapping):
        return [dict(states)]
    if not isinstance(states, (list, tuple)):
        raise _core.StateError(f"a {type(states).__name__} is not a state; {_WHOLE}")
    return list(states)


def check_mappings(state: Any, name: str, levels: int) -> None:
    """Refuses anything but a mapping whose entries are mappings, too, ``levels`` deep. ``name`` is
    its name in errors."""
    if not isinstance(state, Mapping):
        raise _core.StateError(f"{name} has the type {type(state).__name__}, but must be a mapping; {_WHOLE}")
    for key, entry in state.items() if levels else ():
        check_mappings(entry, f"{name}[{key!r}]", levels - 1)


def check(state: Any, kind: str, more: Sequence[str] = ()) -> None:
    """Refuses anything but the state of a ``kind`` of object, and a state that lacks one of its
    entries, or one of ``more``.

    The entries for steps, rounds and numbers of ranks must be integers.
    """
    if not isinstance(state, Mapping) or state.get("gradwire") != kind:
        raise _core.StateError(f"this is not the state of a gradwire {kind}; pass the result of its state_dict()")
    need(state, ("step", "world_size", "exchange", *more))
    for key in _COUNTS:
        count = state.get(key, 1)
        if not isinstance(count, int) or isinstance(count, bool) or count < (key == "world_size"):
            raise _core.StateError(f"'{key}' of the state is {count!r}, which is not a count; {_WHOLE}")
    if not isinstance(state["exchange"], Mapping) or not state["exchange"]:
        raise _core.StateError(f"'exchange' of the state contains no rank's state; {_WHOLE}")


def need(state: Mapping[str, Any], keys: Sequence[str]) -> None:
    """Refuses a state, or an entry of one, without one of these keys."""
    for key in keys:
        if key not in state:
            raise _core.StateError(f"the state has no '{key}'; {_WHOLE}")


# The entries that are integers from 0; the number of ranks from 1.
_COUNTS = ("step", "world_size", "round", "base", "fragments")


def merged(states: Union[State, Sequence[State]], kind: str, size: int, more: Sequence[str] = ()) -> Tuple[State, List[bytes]]:
    """The first of the saved states, and the exchange states of all of them, for a rank in a group
    of ``size`` ranks.

    ``more`` are the entries that only this ``kind`` of object saves.
    """
    states = listed(states)
    for state in states:
        check(state, kind, more)
    if not states:
        raise _core.StateError("there are no states to load; pass this rank's state, or those of all ranks")
    if len({state["step"] for state in states}) > 1:
        raise _core.StateError("the states are from different steps; pass states that all ranks saved at the same step")
    return states[0], [unpack(part) for state in states for part in _parts(state, size)]


def _parts(state: State, size: int) -> List[Any]:
    """The states of ranks in a saved state."""
    exchange, saved = state["exchange"], state["world_size"]
    if len(exchange) <= saved:
        return list(exchange.values())
    # The states of several groups of ranks, as on a mesh of two dimensions. A rank takes its own
    # state.
    own = f"rank{dist.get_rank()}" if dist.is_initialized() else ""
    if saved != size or own not in exchange:
        raise _core.StateError(
            f"the state has {len(exchange)} ranks in process groups of {saved}, as on a mesh of two dimensions, but this rank's process "
            f"group has {size}; resume on the same mesh, or without the state of gradwire"
        )
    return [exchange[own]]


def share(states: Sequence[State], rank: int, size: int) -> State:
    """The part of loaded states that a rank in a group of ``size`` ranks saves again before it has
    used them; empty if it has none.

    The parts of all ranks are together what was loaded, so they are still states of the ranks that
    saved them first: another number of ranks needs all of them.
    """
    with reading():
        entries = {name: entry for state in states for name, entry in state["exchange"].items()}
        # A rank has loaded the states of all ranks of a group, in any order, or only its own.
        whole = len(entries) == states[0]["world_size"]
        own = sorted(entries, key=_number_of)[rank::size] if whole else list(entries)
        return {**states[0], "exchange": {name: entries[name] for name in own}} if own else {}


def _number_of(name: str) -> int:
    """The number of a rank from its name in states."""
    return int(name[len("rank") :])


def unpack(packed: Any) -> bytes:
    """Bytes from the tuple with a tensor of them, which a file format may have made a list."""
    tensor = packed[0] if isinstance(packed, (list, tuple)) and packed else packed
    if not isinstance(tensor, torch.Tensor):
        raise _core.StateError(f"the state of a rank is a {type(tensor).__name__}, not a tensor of bytes; {_WHOLE}")
    unpacked: bytes = tensor.cpu().numpy().tobytes()
    return unpacked


def from_bytes(packed: Any) -> Any:
    """The value that ``_states.to_bytes`` has packed, from an entry of a state."""
    return torch.load(io.BytesIO(unpack(packed)), weights_only=True, map_location="cpu")


def check_layout(states: Union[State, Sequence[State]], layout: Layout) -> None:
    """Refuses states whose residuals have their elements in another order."""
    for state in listed(states):
        for _, saved in state["exchange"].values():
            for name in sorted(saved.keys() & layout.keys()):
                if list(saved[name]) != layout[name]:
                    raise _core.StateError(
                        f"'{name}' was saved in another memory format, or sharded along another dimension, so its residual has another "
                        "order; give the model the memory format of the saved run (model.to(memory_format=...)) before "
                        "DistributedDataParallel wraps it, or use the shard_placement_fn and the number of ranks of the saved run"
                    )
