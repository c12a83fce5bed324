"""States of exchanges: packs them, and loads them on all ranks or on none."""

from __future__ import annotations

import io
import json
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, TypeVar

import torch
import torch.distributed as dist

from .. import _core

State = Dict[str, Any]
Loaded = TypeVar("Loaded")
# The strides of parameters by name, without contiguous ones.
Layout = Dict[str, List[int]]

# The report of a rank that has nothing to load.
_NOTHING_TO_LOAD = "it has no state, but other ranks have; give all ranks their states, or none"


def packed(kind: str, step: int, reducer: _core.Reducer, states: Sequence[bytes], *more: Any) -> State:
    """The state of a ``kind`` of object. ``states`` are the states of its exchange on this rank, or
    on all ranks of its group; ``more`` is stored with each.

    The name of a rank contains its number in the default process group, if there is one, so names
    are unique in a job.
    """
    ranks = [rank_key(reducer)]
    if len(states) > 1:
        # All ranks get the states of all ranks.
        ranks = [rank.decode() for rank in reducer.gather(0, ranks[0].encode())]
        # This rank may end now, and the others must have its name.
        reducer.wait()
    return {
        "gradwire": kind,
        "step": step,
        "world_size": reducer.size,
        "exchange": {rank: (_pack(state), *more) for rank, state in zip(ranks, states)},
    }


def rank_key(reducer: _core.Reducer) -> str:
    """The name of this rank in states."""
    # Workers that come and go make their own groups, and there is no default group.
    return f"rank{dist.get_rank() if dist.is_initialized() else reducer.rank}"


def by_rank(reducer: _core.Reducer, own: bytes, all_ranks: bool) -> Dict[str, Tuple[torch.Tensor]]:
    """Bytes of this rank, or of all ranks of its group, in the form of an entry of a state."""
    if not all_ranks:
        return {rank_key(reducer): (_pack(own),)}
    ranks, parts = reducer.gather(0, rank_key(reducer).encode()), reducer.gather(0, own)
    # This rank may end now, and the others must have its part.
    reducer.wait()
    return {rank.decode(): (_pack(part),) for rank, part in zip(ranks, parts)}


def to_bytes(value: Any) -> bytes:
    """Tensors by name as bytes."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _pack(state: bytes) -> torch.Tensor:
    """Bytes as a tensor, which ``torch.save``, ``torch.load(weights_only=True)`` and distributed
    checkpoints accept.

    Distributed checkpoints load a tensor only into a tensor of the same length, but take a tuple as
    it is. So the caller puts it into a tuple.
    """
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)


def layout_of(named: Iterable[Tuple[str, torch.Tensor]]) -> Layout:
    """The layout of some parameters."""
    return {name: [] if one.is_contiguous() else list(one.stride()) for name, one in named}


def together(
    reducer: _core.Reducer, states: Any, load: Callable[[], Loaded], place: Callable[[Loaded], str] = "step {}".format
) -> Loaded:
    """Loads a state on all ranks, or on none if ``load`` fails on one of them; returns the result
    of ``load``.

    ``place`` computes from this result the position in the run at which the state was saved; it
    must be the same on all ranks. ``states`` has the state that ``load`` replaces. If ``load``
    fails, it must leave that state unchanged. If it has nothing to load, it returns ``None``. This
    is an error unless all ranks do so.
    """
    before = states.save()
    failure: Optional[Exception] = None
    try:
        loaded = load()
    except Exception as error:
        failure = error
    report = f"{type(failure).__name__}: {failure}" if failure is not None else _NOTHING_TO_LOAD if loaded is None else ""
    own = json.dumps([report, "" if report else place(loaded)])
    gathered = [json.loads(one) for one in reducer.gather(0, own.encode())]
    # This rank may end now, and the others must have its report.
    reducer.wait()
    if failure is not None:
        raise failure
    reports, places = [one[0] for one in gathered], [one[1] for one in gathered]
    if set(reports) == {_NOTHING_TO_LOAD}:
        return loaded
    for rank, report in enumerate(reports):
        if report:
            states.load([before])
            raise _core.StateError(f"rank {rank} cannot load its state: {report}")
    for rank, other in enumerate(places):
        if other != places[0]:
            states.load([before])
            raise _core.StateError(
                f"rank 0 loads the state of {places[0]}, but rank {rank} loads the state of {other}; give all ranks states that they "
                "saved at the same step"
            )
    return loaded
