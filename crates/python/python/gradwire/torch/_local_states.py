"""The states of local steps: saves them, and lets a run or a joining worker continue from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import torch

from .. import _core
from . import _local_optimizer, _saved, _states
from ._elastic import Elastic
from ._outer import check_saved
from ._replica import Replica, Sent
from ._rounds import Pending, Rounds
from ._states import State

Load = Callable[[Sequence[State], List[bytes]], None]

# The entries that only the state of local steps has.
_ENTRIES = ("round", "common", "fragments", "outer", "pending", "sent", "optimizer")


@dataclass
class _Loaded:
    """The entries of a saved state, except the state of the exchange."""

    step: int
    round: int
    base: int
    common: torch.Tensor
    outer: Optional[Dict[str, Any]]
    # Of the local optimizer.
    optimizer: Optional[Dict[str, Any]]
    pending: Optional[Pending]


class LocalStates:
    """Saves and loads the states of one rank's local steps. Create it when ranks are connected,
    before the first step."""

    def __init__(self, replica: Replica, rounds: Rounds, elastic: Optional[Elastic]) -> None:
        self._replica, self._rounds, self._elastic = replica, rounds, elastic
        # The state of an exchange without residuals.
        self._empty = replica.averages.save() if elastic is None else b""
        self._residual_is_missing = False

    def pack(self, all_ranks: bool) -> State:
        """The state of this rank, or of all ranks."""
        replica = self._replica
        reducer, averages, pending = replica.reducer, replica.averages, self._rounds.pack()
        state = _states.packed("local", replica.step, reducer, averages.save_all() if all_ranks else [averages.save()])
        state.update(round=replica.round, common=replica.common.to("cpu", copy=True), fragments=replica.fragments)
        # Distributed checkpoints load only keys that already exist, and take a tuple as a whole.
        state.update(outer=(replica.pack_outer(),), pending=(pending,))
        state["sent"] = _states.by_rank(reducer, _states.to_bytes(self._rounds.sent()), all_ranks)
        state["optimizer"] = _states.by_rank(reducer, _local_optimizer.pack(replica.optimizer), all_ranks)
        if self._elastic is not None:
            state.update(base=replica.base, worker=self._elastic.name, rounds=self._elastic.rounds)
        return state

    def load(self, given: Union[State, Sequence[State]]) -> None:
        """Restores results of ``pack``: on all ranks, or on none."""
        replica, elastic = self._replica, self._elastic
        if elastic is None:
            load = partial(self._read_and_load, given, self._load_exchange)
            loaded = _states.together(replica.reducer, replica.averages, load, lambda one: f"step {one.step} and round {one.round}")
        elif replica.step and not self._has_saved(given, elastic):
            self._read_and_load(given, elastic.take_over)
            return
        else:
            loaded = self._read_and_load(given, elastic.load)
        replica.step, replica.round, replica.base = loaded.step, loaded.round, loaded.base
        replica.common.copy_(loaded.common)
        replica.load_outer(loaded.outer)
        if loaded.optimizer is not None:
            replica.optimizer.load_state_dict(loaded.optimizer)
        self._rounds.load(loaded.pending)
        key = _states.rank_key(replica.reducer)
        states = _saved.listed(given)
        if elastic is None and _local_optimizer.is_of_another_rank(states, key, replica.reducer.size):
            _local_optimizer.warn_of_another_rank(states, key, self._residual_is_missing, loaded.optimizer)

    def _has_saved(self, given: Any, elastic: Elastic) -> bool:
        """Whether this worker has saved the given state, the only one, since the last round."""
        with _saved.reading():
            return elastic.has_saved(_saved.listed(given))

    def _load_exchange(self, states: Sequence[State], parts: List[bytes]) -> None:
        """Loads the residuals of states. Begins with empty ones if the only state comes from
        another rank."""
        reducer, averages, self._residual_is_missing = self._replica.reducer, self._replica.averages, False
        try:
            averages.load(parts)
        except _core.ConfigError:
            alone = _local_optimizer.is_of_another_rank(states, _states.rank_key(reducer), reducer.size)
            if not alone or _local_optimizer.keeps_common_state(reducer):
                raise
            averages.load([self._empty])
            self._residual_is_missing = True

    def _read_and_load(self, given: Union[State, Sequence[State]], load: Load) -> _Loaded:
        """Calls ``load`` with saved states that fit, and with the states of their exchanges;
        returns the other entries."""
        with _saved.reading():
            states = _saved.listed(given)
            loaded, parts = self._read(states)
            load(states, parts)
        return loaded

    def _read(self, states: Sequence[State]) -> Tuple[_Loaded, List[bytes]]:
        """The entries of saved states that fit, and the states of their exchanges."""
        _local_optimizer.check_kind(states)
        replica = self._replica
        first, parts = _saved.merged(states, "local", replica.reducer.size, _ENTRIES)
        if first["common"].shape != replica.common.shape:
            raise _core.StateError(
                f"the state has {first['common'].numel()} elements, but the model has {replica.common.numel()}; LocalSteps resumes only "
                "the model that was saved"
            )
        outer = _whole(first["outer"])
        check_saved(outer, replica.outer)
        fragments = first["fragments"]
        if fragments != replica.fragments:
            raise _core.StateError(
                f"the state was saved with fragments={fragments}, but this run has {replica.fragments}; use the same number"
            )
        try:
            pending = self._rounds.unpack(_whole(first["pending"]), self._sent(states))
        except Exception as error:
            raise _core.StateError(
                f"the unfinished exchange in the state is damaged: {error!r}; load another checkpoint"
            ) from error
        step = first["step"]
        optimizer = _local_optimizer.saved(states, _states.rank_key(replica.reducer), replica.optimizer)
        return _Loaded(step, first["round"], first.get("base", step), first["common"], outer, optimizer, pending), parts

    def _sent(self, states: Sequence[State]) -> Sent:
        """The elements that this rank had sent in an exchange that was under way when it saved one
        of these states."""
        reducer = self._replica.reducer
        for state in states:
            own = state["sent"].get(_states.rank_key(reducer))
            if own is not None and state["world_size"] == reducer.size:
                sent: Sent = _saved.from_bytes(own)
                return sent
        return {}


def _whole(entry: Any) -> Any:
    """An entry of a state from its tuple, which a file format may have made a list."""
    return entry[0]

