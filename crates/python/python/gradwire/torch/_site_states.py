"""The states of local steps of sharded replicas. Each rank saves its rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from .. import _core
from . import _local_optimizer, _saved, _states
from ._elastic import Elastic
from ._outer import check_saved
from ._replica import Replica, Sent
from ._rounds import Pending, Rounds
from ._rows import Rows, cut, pack_optimizer, saved_rows, unpack_optimizer
from ._states import State

# The entries that only the state of a sharded replica has.
_ENTRIES = ("round", "fragments", "shard", "sent")


@dataclass
class _Loaded:
    """The entries of a saved state, except the state of the exchange."""

    step: int
    round: int
    common: torch.Tensor
    outer: Optional[Dict[str, Any]]
    # Of the local optimizer.
    optimizer: Dict[str, Any]
    pending: Optional[Pending]


class SiteStates:
    """Saves and loads the states of local steps of one rank of a site. Create it when ranks are
    connected, before the first step."""

    def __init__(self, replica: Replica, rounds: Rounds, elastic: Optional[Elastic]) -> None:
        self._replica, self._rounds, self._elastic = replica, rounds, elastic
        self._rows: List[Rows] = [rows for rows in map(replica.site.rows, replica.trained) if rows is not None]
        self._place = [replica.reducer.rank, replica.reducer.size, replica.site.rank, replica.site.size]

    def pack(self, all_ranks: bool) -> State:
        """The state of this rank."""
        self._check_fixed()
        if all_ranks:
            raise _core.ConfigError(
                "the states of all ranks of a sharded model may not fit into the memory of one; save the state of every rank: with "
                "torch.distributed.checkpoint.save, or in a file of its own"
            )
        replica = self._replica
        reducer, pending = replica.reducer, self._rounds.pack()
        if pending is not None:
            places = replica.places[pending["fragment"]]
            pending["mean"] = self._saved_rows(pending["mean"], places)
        shard = {
            "place": self._place,
            "rows": self._ranges(),
            "common": self._saved_rows(replica.common, slice(None)),
            "outer": self._packed_outer(),
            "pending": pending,
            "optimizer": pack_optimizer(replica.optimizer.state_dict(), *self._replica.of_optimizer()),
        }
        state = _states.packed("local", replica.step, reducer, [reducer.save()])
        state.update(round=replica.round, fragments=replica.fragments)
        state["sent"] = _states.by_rank(reducer, _states.to_bytes(self._rounds.sent()), False)
        # Distributed checkpoints must not merge the rows of ranks.
        state["shard"] = _states.by_rank(reducer, _states.to_bytes(shard), False)
        return state

    def _check_fixed(self) -> None:
        if self._elastic is not None:
            raise _core.ConfigError(
                "with lighthouse, LocalSteps of a sharded model has no state to save: a site that joins receives everything but residuals "
                "from another site. For a restart of all sites save the model and the local optimizer at the end of a round, such as with "
                "torch.distributed.checkpoint"
            )

    def _ranges(self) -> Dict[str, List[int]]:
        """The whole shape and the rows of each parameter."""
        return {name: [*rows.shape, rows.first, rows.end] for name, rows in zip(self._replica.names, self._rows)}

    def _saved_rows(self, flat: torch.Tensor, places: slice) -> Dict[str, Any]:
        """The rows of some parameters, from their concatenated values."""
        sizes = [rows.elements.stop - rows.elements.start for rows in self._rows[places]]
        values = flat.detach().cpu().split(sizes)
        return {name: saved_rows(own, rows) for name, own, rows in zip(self._replica.names[places], values, self._rows[places])}

    def _joined(self, site: Sequence[Mapping[str, Any]], places: slice) -> torch.Tensor:
        """The rows of some parameters, concatenated, from those that the ranks of a site saved."""
        found = []
        for name, rows in zip(self._replica.names[places], self._rows[places]):
            like = torch.empty(rows.elements.stop - rows.elements.start, dtype=torch.float32, device="meta")
            found.append(cut([one[name] for one in site], rows, like, name))
        return torch.cat(found)

    def _packed_outer(self) -> Optional[Dict[str, Any]]:
        packed = self._replica.pack_outer()
        if packed is not None:
            packed["state"] = pack_optimizer(packed["state"], self._replica.common_parts, self._rows)
        return packed

    def load(self, given: Union[State, Sequence[State]]) -> None:
        """Restores results of ``pack``: on all ranks, or on none."""
        self._check_fixed()
        replica, before = self._replica, self._replica.reducer.save()
        place = lambda one: f"step {one.step} and round {one.round}"
        try:
            with replica.site.agreed("load_state_dict"):
                loaded = _states.together(replica.reducer, replica.reducer, partial(self._read_and_load, given), place)
        except _core.GradwireError:
            replica.reducer.load([before])
            raise
        replica.step = replica.base = loaded.step
        replica.round = loaded.round
        replica.common.copy_(loaded.common)
        replica.load_outer(loaded.outer)
        replica.optimizer.load_state_dict(loaded.optimizer)
        self._rounds.load(loaded.pending)

    def _read_and_load(self, given: Union[State, Sequence[State]]) -> _Loaded:
        with _saved.reading():
            states = _saved.listed(given)
            for state in states:
                _saved.check(state, "local")
                if "shard" not in state:
                    raise _core.StateError("the state was saved with a plain model; load it before fully_shard, or begin without it")
                _saved.need(state, _ENTRIES)
            loaded, exchange = self._read(states)
            self._replica.reducer.load(exchange)
        return loaded

    def _read(self, states: Sequence[State]) -> Tuple[_Loaded, List[bytes]]:
        """The entries of saved states that fit, and the states of their exchanges."""
        first, fragments = states[0], self._replica.fragments
        if len({state["step"] for state in states}) > 1:
            raise _core.StateError("the states are from different steps; pass states that all ranks saved at the same step")
        if first["fragments"] != fragments:
            raise _core.StateError(
                f"the state was saved with fragments={first['fragments']}, but this run has {fragments}; use the same number"
            )
        own = _states.rank_key(self._replica.reducer)
        shards = {rank: entry for state in states for rank, entry in state["shard"].items()}
        exchange = {rank: entry for state in states for rank, entry in state["exchange"].items()}
        saved = {own: _saved.from_bytes(shards[own])} if own in shards else {}
        sent: Sent = {}
        if own in saved and saved[own]["place"] == self._place and saved[own]["rows"] == self._ranges():
            site = [saved[own]]
            sent = {rank: entry for state in states for rank, entry in state["sent"].items()}.get(own, sent)
            sent = _saved.from_bytes(sent) if sent else {}
            exchange = {own: exchange[own]}
        else:
            site = self._site_of([_saved.from_bytes(entry) for entry in shards.values()])
            self._check_movable()
        return self._loaded(first, site, sent), [_saved.unpack(entry) for entry in exchange.values()]

    def _site_of(self, shards: Sequence[Mapping[str, Any]]) -> List[Mapping[str, Any]]:
        """The shards of the saved site from which this one continues: its own, or of another number
        of sites one of them."""
        _, sites, _, size = shards[0]["place"]
        places = {tuple(one["place"]) for one in shards}
        missing = [(at, shard) for at in range(sites) for shard in range(size) if (at, sites, shard, size) not in places]
        if missing:
            raise _core.StateError(
                f"the run was saved by {sites} sites of {size} ranks, and this rank has other rows, so it needs the states of all; the "
                f"state of shard {missing[0][1]} of site {missing[0][0]} is missing. Read a distributed checkpoint with "
                "gradwire.torch.read_checkpoint(folder), or pass a list of all states"
            )
        return [one for one in shards if one["place"][0] == self._place[0] % sites]

    def _check_movable(self) -> None:
        """Refuses rows of a method that keeps more for each tensor than values for its elements."""
        if _local_optimizer.keeps_common_state(self._replica.reducer):
            raise _core.StateError(
                "low-rank methods and ef=ef21 keep values that cannot move to other rows; resume on the same numbers of sites and "
                "shards, or with another compressor"
            )

    def _check_shapes(self, saved: Mapping[str, List[int]]) -> None:
        own = self._ranges()
        for name in sorted(own.keys() | saved.keys()):
            before, now = (str(one[name][:-2]) if name in one else "none" for one in (saved, own))
            if before != now:
                raise _core.StateError(
                    f"'{name}' has the shape {now}, but in the state {before}; LocalSteps resumes only the model that was saved, and with "
                    "shards along another dimension than 0 only on the same number of shards"
                )

    def _loaded(self, first: State, site: Sequence[Mapping[str, Any]], sent: Sent) -> _Loaded:
        replica = self._replica
        self._check_shapes(site[0]["rows"])
        moves = len(site) > 1 or site[0]["rows"] != self._ranges()
        outer, pending = site[0]["outer"], site[0]["pending"]
        check_saved(outer, replica.outer)
        if outer is not None:
            saved = [one["outer"]["state"] for one in site]
            outer = {**outer, "state": unpack_optimizer(saved, replica.common_parts, self._rows, moves)}
        if pending is not None:
            mean = self._joined([one["pending"]["mean"] for one in site], replica.places[pending["fragment"]])
            pending = {**pending, "mean": mean}
        parameters, rows = replica.of_optimizer()
        _local_optimizer.check_groups(site[0]["optimizer"], replica.optimizer)
        optimizer = unpack_optimizer([one["optimizer"] for one in site], parameters, rows, moves)
        common = self._joined([one["common"] for one in site], slice(None))
        return _Loaded(first["step"], first["round"], common, outer, optimizer, Rounds.unpack(pending, sent))
