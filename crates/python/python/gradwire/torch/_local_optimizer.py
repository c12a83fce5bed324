"""The state of a local optimizer as a part of the state of local steps, and support for frameworks
that treat local steps as a plain optimizer."""

from __future__ import annotations

import re
import sys
import warnings
from types import FrameType
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import torch

from .. import _core
from . import _saved, _states
from ._states import State


def pack(optimizer: torch.optim.Optimizer) -> bytes:
    """The moments and parameter groups of an optimizer. They differ between ranks, so distributed
    checkpoints must not merge them."""
    return _states.to_bytes(optimizer.state_dict())


def parameters(optimizer: torch.optim.Optimizer) -> List[torch.Tensor]:
    """The parameters of an optimizer."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def saved(states: Sequence[State], own: str, optimizer: torch.optim.Optimizer) -> Optional[Dict[str, Any]]:
    """The state of the local optimizer that the rank with the key ``own`` loads, from states of one
    or several ranks: its own, or else another rank's. ``None`` if there is none.

    Raises ``StateError`` if it is damaged, or has other parameter groups.
    """
    entries: Dict[str, Any] = {}
    for state in states:
        entries.update(state["optimizer"])
    if not entries:
        return None
    ranks = sorted(entries, key=_number)
    packed = entries[own] if own in entries else entries[ranks[_number(own) % len(ranks)]]
    try:
        loaded: Dict[str, Any] = _saved.from_bytes(packed)
        for group in loaded["param_groups"]:
            _saved.need(group, ["params"])
        _saved.need(loaded, ["state"])
    except Exception as error:
        raise _core.StateError(
            f"the local optimizer in the state cannot be read: {error!r}; load another checkpoint, or allow the classes of its state with "
            "torch.serialization.add_safe_globals"
        ) from error
    check_groups(loaded, optimizer)
    return loaded


def check_groups(saved: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> None:
    """Refuses the saved state of an optimizer that has other parameter groups."""
    groups = [len(group["params"]) for group in saved["param_groups"]]
    if groups != [len(group["params"]) for group in optimizer.param_groups]:
        raise _core.StateError("the saved local optimizer has different parameter groups; create the optimizer with the same groups")


def _number(key: str) -> int:
    found = re.search(r"\d+$", key)
    return int(found.group()) if found else 0


def is_of_another_rank(states: Sequence[State], own: str, size: int) -> bool:
    """Whether the only state to load comes from another rank of a run of several. Frameworks that
    save the optimizer of one process write such states."""
    ranks = {rank for state in states for rank in state.get("exchange", {})}
    return own not in ranks and len(ranks) == 1 and states[0]["world_size"] > 1 and size > 1


def warn_of_another_rank(states: Sequence[State], own: str, without_residual: bool, loaded: Optional[Mapping[str, Any]]) -> None:
    """After a rank has loaded another rank's state, warns of the parts that it lacks."""
    lost: List[str] = []
    if loaded is not None and loaded["state"]:
        lost.append("its local optimizer continues with the state of another rank")
    if without_residual:
        lost.append("its residual begins empty")
    if lost:
        [rank] = states[0]["exchange"]
        warnings.warn(
            f"the checkpoint contains the state of LocalSteps only for {rank}, and this is {own}: {', and '.join(lost)}. To resume "
            "exactly, save a file for each rank, or save steps.all_ranks.state_dict(), which all ranks must call at the same time",
            RuntimeWarning,
            stacklevel=5,
        )


def keeps_common_state(reducer: _core.Reducer) -> bool:
    """Whether a rank keeps something that must be the same on all ranks, such as a factor of a
    low-rank method."""
    specs = {spec for step, _ in reducer.stages for spec in reducer.specs(step)}
    rounds = {one["id"] for one in _core.compressors() if one["aggregation"] == "rounds"}
    return any("ef=ef21" in spec or spec.partition(":")[0] in rounds for spec in specs)


def check_kind(states: Sequence[Any]) -> None:
    """Refuses the state of a plain optimizer, or of a sharded replica."""
    for state in states:
        if isinstance(state, Mapping) and "shard" in state:
            raise _core.StateError(
                "the state was saved with a model that fully_shard had sharded; shard this model, too, or begin without the state"
            )
        if isinstance(state, Mapping) and "gradwire" not in state and "param_groups" in state:
            raise _core.StateError(
                "this is the state of an optimizer that was saved without LocalSteps; load it into the local optimizer before you create "
                "LocalSteps"
            )


def with_hooks(optimizer: Any) -> Optional[Any]:
    """The optimizer that calls hooks for its steps: ``optimizer``, or the one that a wrapper of
    Accelerate or Lightning holds. ``None`` if neither does."""
    for one in (optimizer, getattr(optimizer, "optimizer", None)):
        if hasattr(one, "_optimizer_step_post_hooks"):
            return one
    return None


def counting(follow: Callable[[], None]) -> Callable[..., None]:
    """A hook of an optimizer that calls ``follow`` for each step. It ignores the steps that
    ``torch.distributed.checkpoint.state_dict`` takes to make the optimizer create its state."""

    def call(*_: Any) -> None:
        frame: Optional[FrameType] = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__") != _STATE_DICT:
            frame = frame.f_back
        if frame is None:
            follow()

    return call


_STATE_DICT = "torch.distributed.checkpoint.state_dict"


def refuse_distributed_checkpoint() -> None:
    """Raises ``ConfigError`` if ``torch.distributed.checkpoint.state_dict`` asks for the state of
    the optimizer.

    Its functions take a step to make an optimizer create its state, and this step would count. Then
    they load only moments and parameter groups. They first ask whether there is a state.
    """
    frame = sys._getframe(2)
    # A wrapper, such as Accelerate's, asks in its own property.
    while frame.f_back is not None and frame.f_code.co_name == "state":
        frame = frame.f_back
    if frame.f_globals.get("__name__") == _STATE_DICT:
        raise _core.ConfigError(
            "get_optimizer_state_dict, set_optimizer_state_dict, get_state_dict and set_state_dict treat LocalSteps as a plain "
            "optimizer: they would take a step, and save only the moments; pass the local optimizer to them, and save steps.state_dict() "
            "in addition"
        )
