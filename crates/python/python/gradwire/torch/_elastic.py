"""Rounds of local steps among workers that come and go.

A round has two phases. Workers exchange their messages; then each reports that it has the result. A
worker applies the result after all reports. If a worker is lost, the others meet again and compare
their records (``Record``). If some worker has applied the result, it contains all messages of the
round, and the others adopt its parameters. If none has, all take their messages back and repeat the
round in the new group.
"""

from __future__ import annotations

import io
import time
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from .. import _core
from . import _buffers
from ._channel import Channel
from ._gathering import Gathering
from ._membership import Meeting, Membership, Record
from ._replica import Replica
from ._site_membership import SiteMembership

# Errors that show that a worker is lost; gloo raises RuntimeError.
_LOST = (_core.PeerLostError, _core.DeadlineError, RuntimeError)
# The number of groups whose rounds a worker remembers. A worker that was away for more groups may
# send its last message twice.
_REMEMBERED = 100
_TAG = 1


@dataclass
class _Attempt:
    """A round with a sent message of this worker, until all know whether the message counts."""

    group: str
    round: int
    # This worker's contribution: its residual before the round, and the change of its parameters.
    before: bytes
    change: torch.Tensor
    applied: bool = False


class Elastic:
    """Keeps one worker in the run while others come and go.

    A survivor never loses its residual and its local steps: its message of a round either counts or
    is taken back.
    """

    def __init__(self, replica: Replica, membership: Union[Membership, SiteMembership], config: str, deadline: float) -> None:
        self._replica, self._membership = replica, membership
        self._config, self._deadline = config, deadline
        # The connections to the group; None if it is broken.
        self._channel: Optional[Channel] = None
        # The residuals when the group broke.
        self._residuals: Optional[bytes] = None
        self._attempt: Optional[_Attempt] = None
        self._names: List[str] = []
        self._group, self._run, self._groups = "", "", 0
        self._history: List[Tuple[str, int]] = []
        self.rounds = 0
        # The lost workers, each with the number of rounds at its loss.
        self._lost: Dict[str, int] = {}
        self._counts = {"lost_workers": 0, "joined_workers": 0}
        # The statistics of the last round in an earlier group, and the totals of all earlier
        # groups.
        self._last: Dict[str, Any] = {}
        self._totals: Dict[str, int] = {}
        # The exchange of bytes other than averages.
        self._gathering = Gathering()
        with torch.no_grad():
            self._meet()

    @property
    def name(self) -> str:
        """The name of this worker in the run."""
        return self._membership.name

    def synchronize(self) -> None:
        """Makes a round with the present workers, and admits waiting ones."""
        repeat = True
        while repeat:
            self._try_round()
            repeat = self._meet()

    def close(self) -> None:
        """Leaves the run, with the last statistics. Asks nothing of the exchange, which may be
        waiting for a lost worker."""
        if self._replica.reducer.forked:
            return
        self._membership.close()
        self._disconnect()

    def stats(self) -> Dict[str, Any]:
        """The statistics of the reducer, with totals over all groups, and counts of workers."""
        stats = self._replica.reducer.stats()
        if self._channel is None or (stats["step"] is None and self._last):
            # There has been no round in this group.
            stats = {**self._last, **self._totals}
        else:
            stats.update({key: stats[key] + total for key, total in self._totals.items()})
        return {**self._gathering.add_to(stats), "workers": len(self._names), **self._counts}

    def has_saved(self, states: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the only state is one that this worker has saved since the last round."""
        own = self.name, self.rounds
        return [(state.get("worker"), state.get("rounds")) for state in states] == [own]

    def load(self, _: Sequence[Mapping[str, Any]], states: List[bytes]) -> None:
        """Loads this worker's residual at the start of a run, or the residuals of all workers of an
        earlier run."""
        if len(states) == 1:
            self._replica.reducer.adopt(states[0])
        else:
            self._replica.reducer.load(states)

    def take_over(self, saved: Sequence[Mapping[str, Any]], states: List[bytes]) -> None:
        """Loads the residual of a lost worker from the state that it saved after its last round."""
        worker: str = saved[0].get("worker", "")
        if worker not in self._lost or self._lost[worker] != saved[0].get("rounds") or len(states) != 1:
            raise _core.StateError(
                "this worker has joined a run, so it can load only the state of a lost worker, and only if that worker sent nothing "
                "after saving it. Load a state only if completed_steps is 0, or continue without it"
            )
        self._replica.reducer.adopt(states[0])
        del self._lost[worker]

    def _try_round(self) -> None:
        change = self._replica.change()
        self._attempt = _Attempt(self._group, self.rounds, self._replica.reducer.save(), change.clone())
        self._gathering.start()
        try:
            with self._replica.site.agreed(f"round {self.rounds}"):
                number = self._replica.average(change)
                settled = self._settled_buffers()
                self._replica.reducer.gather(number, b"")
        except _LOST:
            self._leave()
            return
        self._replica.apply(change, number)
        _buffers.apply(settled)
        self._attempt.applied = True
        self.rounds += 1

    def _settled_buffers(self) -> _buffers.Settled:
        """The buffers that differ between workers, with their new values if the round counts."""
        replica = self._replica
        if not replica.buffers.shared:
            return []
        replica.buffers.make_equal_in(replica.site)
        gather = lambda own: self._gathering.gather(replica.reducer, own)
        return replica.buffers.settle(gather(replica.buffers.digests()), replica.reducer.rank, gather)

    def _meet(self) -> bool:
        """Meets the other workers and forms a new group if they have changed.

        Returns whether this worker has to repeat its round.
        """
        until = time.monotonic() + self._membership.longest
        while True:
            record = self._record()
            meeting = self._membership.meet(record)
            latest = meeting.records[meeting.reference]
            if meeting.unchanged and len(meeting.names) == len(self._names):
                self._attempt = None
                return False
            try:
                self._join(meeting, record, latest)
                return record.repeats(latest)
            except _LOST as error:
                self._leave()
                if time.monotonic() > until:
                    raise _core.PeerLostError(
                        f"the workers could not connect to each other within {self._membership.longest:g} s: {error}"
                    ) from error

    def _record(self) -> Record:
        attempt = self._attempt
        return Record(
            config=self._config,
            group=self._group if self._channel is not None else "",
            run=self._run,
            groups=self._groups,
            rounds=self.rounds,
            history=self._history,
            attempt=attempt and (attempt.group, attempt.round),
            applied=attempt is not None and attempt.applied,
        )

    def _join(self, meeting: Meeting, record: Record, latest: Record) -> None:
        """Connects the group of a meeting; afterwards all its workers have the same common
        parameters."""
        self._leave()
        # All ranks of a site join, or none.
        with ExitStack() as undo:
            with self._replica.site.agreed(f"group {meeting.group}"):
                channel = self._adopt(meeting, record, latest, undo)
            undo.pop_all()
        self._channel, self._residuals, self._attempt = channel, None, None
        before, self._names = self._names, meeting.names
        self._group, self.rounds = meeting.group, latest.rounds
        self._run = latest.run or meeting.group
        self._groups = 1 + max(other.groups for other in meeting.records)
        made = [(group, first) for group, first in latest.history if first < latest.rounds]
        self._history = [*made, (meeting.group, latest.rounds)][-_REMEMBERED:]
        self._report(before)

    def _adopt(self, meeting: Meeting, record: Record, latest: Record, undo: ExitStack) -> Channel:
        """Connects the group of a meeting, and continues from its parameters; returns the
        connections, which ``undo`` closes."""
        groups = self._membership.connect(meeting)
        state = self._state(meeting, groups[0])
        channel = Channel(groups)
        undo.callback(channel.close)
        self._replica.connect(channel)
        # If the message counts, its residual stays. Otherwise the message is taken back.
        taken_back = None if latest.contains(record.attempt) else self._attempt
        residuals = taken_back.before if taken_back is not None else self._residuals
        if residuals is not None:
            self._replica.reducer.adopt(residuals)
        if state is not None:
            ahead = taken_back.change if taken_back is not None else None
            self._replica.adopt(state["replica"], ahead, new=not record.run)
            self._lost = state["lost"]
        return channel

    def _state(self, meeting: Meeting, group: Any) -> Optional[Dict[str, Any]]:
        """The state of the reference, on workers that have other parameters."""
        source, latest = meeting.reference, meeting.records[meeting.reference]
        differs = [not (other.run and other.has_parameters_of(latest)) for other in meeting.records]
        patience = timedelta(seconds=self._deadline)
        if meeting.rank == source:
            receivers = [rank for rank, needs in enumerate(differs) if needs and rank != source]
            if receivers:
                _send({"replica": self._replica.pack(), "lost": self._lost}, group, receivers, patience)
            return None
        return _receive(group, source, patience) if differs[meeting.rank] else None

    def _report(self, before: List[str]) -> None:
        """Counts and reports the workers that have come or gone since this worker's last group."""
        gone = [rank for rank, name in enumerate(before) if name not in self._names]
        come = [name for name in self._names if name not in before]
        self._counts["lost_workers"] += len(gone)
        self._counts["joined_workers"] += len(come) if before else 0
        for name in come:
            self._lost.pop(name, None)
        self._lost.update({before[rank]: self.rounds for rank in gone})
        for rank in gone:
            warnings.warn(
                f"rank {rank} of {len(before)} (worker {before[rank]}) is lost after {self.rounds} rounds, with its residual; "
                f"{len(self._names)} workers continue",
                RuntimeWarning,
                stacklevel=2,
            )

    def _leave(self) -> None:
        """Leaves the group, which its other workers notice."""
        if self._channel is None:
            return
        self._residuals = self._replica.reducer.save()
        self._disconnect()

    def _disconnect(self) -> None:
        """Closes the connections to the group, if there is one, and keeps its statistics."""
        if self._channel is None:
            return
        stats = self._replica.reducer.stats()
        if stats["step"] is not None:
            self._last = stats
        for key in stats:
            if key.startswith("total_"):
                self._totals[key] = self._totals.get(key, 0) + stats[key]
        self._channel.close()
        self._channel = None


def _send(state: Dict[str, Any], group: Any, receivers: List[int], patience: timedelta) -> None:
    file = io.BytesIO()
    torch.save(state, file)
    payload = torch.frombuffer(file.getbuffer(), dtype=torch.uint8)
    length = torch.tensor([payload.numel()], device="cpu")
    works = [group.send([tensor], rank, _TAG) for rank in receivers for tensor in (length, payload)]
    for work in works:
        work.wait(patience)


def _receive(group: Any, source: int, patience: timedelta) -> Dict[str, Any]:
    length = torch.zeros(1, dtype=torch.int64, device="cpu")
    group.recv([length], source, _TAG).wait(patience)
    payload = torch.empty(int(length), dtype=torch.uint8, device="cpu")
    group.recv([payload], source, _TAG).wait(patience)
    # The sender may have other devices; loading the state moves it.
    state: Dict[str, Any] = torch.load(io.BytesIO(payload.numpy().tobytes()), weights_only=True, map_location="cpu")
    return state
