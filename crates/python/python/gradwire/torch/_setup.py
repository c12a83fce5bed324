"""Functions shared by hooks and local steps: creation of exchanges, and states."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from .. import _core
from ._channel import Channel

State = Dict[str, Any]
Rules = Union[Mapping[str, str], Sequence[str], None]


def trainable(model: torch.nn.Module) -> List[Tuple[str, torch.nn.Parameter]]:
    """The parameters that require gradients, with their names."""
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    if not named:
        raise _core.ConfigError("the model has no parameters that require gradients")
    return named


def reducer(
    named: Iterable[Tuple[str, torch.Tensor]],
    compressor: str,
    channel: Channel,
    *,
    rules: Rules = None,
    exchange: str = "auto",
    seed: int = 0,
    deadline: float = 300.0,
    on_nonfinite: str = "error",
    raw_vectors: bool = True,
    raw_below: int = 256,
    raw_names: Sequence[str] = (),
    total_steps: Optional[int] = None,
) -> _core.Reducer:
    """Creates a reducer for some parameters over the ranks of a channel."""
    if on_nonfinite not in ("error", "skip"):
        raise _core.ConfigError(f"on_nonfinite={on_nonfinite!r} is unknown; use 'error' or 'skip'")
    tensors = [(name, tuple(parameter.shape)) for name, parameter in named]
    return _core.Reducer(
        channel,
        tensors,
        compressor,
        rules=_rules(rules),
        exchange=exchange,
        seed=seed,
        raw_vectors=raw_vectors,
        raw_below=raw_below,
        raw_names=list(raw_names),
        skip=on_nonfinite == "skip",
        deadline=deadline,
        steps=total_steps,
    )


def _rules(rules: Rules) -> List[str]:
    if isinstance(rules, Mapping):
        rules = [f"{tensors} -> {spec}" for tensors, spec in rules.items()]
    return list(rules or ())


def pack(state: bytes) -> torch.Tensor:
    """Converts bytes to a tensor, which ``torch.save`` and ``torch.load(weights_only=True)`` accept."""
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)


def unpack(state: torch.Tensor) -> bytes:
    """Converts a tensor from ``pack`` back to bytes."""
    return state.cpu().numpy().tobytes()


def merged(states: Union[State, Sequence[State]], kind: str) -> Tuple[State, List[bytes]]:
    """The first of some saved states, and the exchange states of all of them."""
    states = [states] if isinstance(states, Mapping) else list(states)
    for state in states:
        if not isinstance(state, Mapping) or state.get("gradwire") != kind:
            raise _core.StateError(f"this is not the state of a gradwire {kind}; pass the result of its state_dict()")
    if not states:
        raise _core.StateError("there are no states to load; pass this rank's state, or those of all ranks")
    if len({state["step"] for state in states}) > 1:
        raise _core.StateError("the states are from different steps; pass those that all ranks saved at the same step")
    return states[0], [unpack(part) for state in states for part in state["exchange"]]
