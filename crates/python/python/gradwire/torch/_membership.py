"""Decides which workers form the next group. torchft's lighthouse knows which workers are alive;
all workers apply the same rule to them."""

from __future__ import annotations

import json
import socket
import threading
import time
import weakref
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple
from urllib.parse import urlsplit
from uuid import uuid4

import torch.distributed as dist

from .. import _core
from ._channel import Groups
from ._deadlines import CONNECT_WORKERS, HEARTBEAT, LIGHTHOUSE, PART_TO_CONNECT, SURVIVOR_DEADLINES
from ._process import OfOneProcess

# Seconds between two heartbeats. After 5 seconds without one, the lighthouse considers a worker
# dead.
_HEARTBEAT = 0.5
# Seconds after which a worker asks again if nobody waits for it. Each request restarts the
# lighthouse's join timeout, which is meant for the others.
_ASK_AGAIN = 2.0
# Seconds before a failed request is repeated.
_PAUSE = 0.1


@dataclass(frozen=True)
class Record:
    """A worker's message to the others when they meet."""

    # The digest of all arguments that must be equal.
    config: str
    # The worker's group, if none of its exchanges has failed; otherwise empty.
    group: str = ""
    # The first group of the run; empty for a worker without a past.
    run: str = ""
    # The number of groups of the run so far.
    groups: int = 0
    # The number of rounds in its common parameters.
    rounds: int = 0
    # Which group made which rounds: the group and its first round, oldest first.
    history: List[Tuple[str, int]] = field(default_factory=list)
    # The group and round of its last message, and whether it has applied the result.
    attempt: Optional[Tuple[str, int]] = None
    applied: bool = False
    # The addresses of the stores of a site's ranks, if the worker is a site of several.
    stores: List[str] = field(default_factory=list)

    def maker(self, round_: int) -> Optional[str]:
        """The group whose result of this round is in the common parameters; None if there is none,
        or it is forgotten."""
        makers = [group for group, first in self.history if first <= round_ < self.rounds]
        return makers[-1] if makers else None

    def contains(self, attempt: Optional[Tuple[str, int]]) -> bool:
        """Whether the messages of this attempt are in the common parameters."""
        return attempt is not None and self.maker(attempt[1]) == attempt[0]

    def has_parameters_of(self, other: Record) -> bool:
        """Whether both have the same common parameters."""
        latest = self.rounds - 1
        return (self.run, self.rounds, self.maker(latest)) == (other.run, other.rounds, other.maker(latest))

    def repeats(self, reference: Record) -> bool:
        """Whether it still has to repeat a round on the reference's common parameters."""
        open_ = self.attempt is not None and not self.applied
        return open_ and self.has_parameters_of(reference) and not reference.contains(self.attempt)


def reference(records: Sequence[Record]) -> int:
    """The index of the reference: all workers continue from its parameters.

    It belongs to the run with the most rounds, and there to the latest group. A worker that was
    left behind in an older group may be a round ahead, but the others have repeated this round
    without it.
    """
    run = max(records, key=lambda record: record.rounds).run
    return max(
        range(len(records)),
        key=lambda index: (records[index].run == run, records[index].groups, records[index].rounds, -index),
    )


def admitted(records: Sequence[Record], least: int) -> List[int]:
    """The indices of the workers that form the next group.

    If at least ``least`` workers have to repeat a round, others wait until it is done: they have no
    local steps to contribute.
    """
    latest = records[reference(records)]
    fitting = [index for index, record in enumerate(records) if record.config == latest.config]
    repeating = [index for index in fitting if records[index].repeats(latest)]
    return repeating if len(repeating) >= least else fitting


@dataclass(frozen=True)
class Meeting:
    """The workers of the next group, in the order of their ranks. It is the same on all of them."""

    group: str
    names: List[str]
    records: List[Record]
    rank: int
    # The address of the store of rank 0.
    store: str

    @property
    def reference(self) -> int:
        return reference(self.records)

    @property
    def unchanged(self) -> bool:
        """Whether these are exactly the workers of an intact group."""
        groups = {record.group for record in self.records}
        return len(groups) == 1 and groups != {""}


class Store:
    """A store of this process, in which workers find each other. ``deadline`` is the longest wait
    for another worker, in seconds."""

    def __init__(self, lighthouse: str, deadline: float) -> None:
        with _found(lighthouse):
            address = urlsplit(lighthouse)
            with socket.create_connection((address.hostname or "", address.port or 0), LIGHTHOUSE) as connection:
                # Other workers reach this worker at the address that the lighthouse sees.
                host = connection.getsockname()[0]
        self._store, self._deadline = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False), deadline
        self.address = f"{host}:{self._store.port}"

    def connect(self, meeting: Meeting, first: str) -> Groups:
        """The gloo group of a meeting, for both directions, given the address of the first worker's
        store. Raises ``RuntimeError`` if one of the workers is missing."""
        patience = timedelta(seconds=min(CONNECT_WORKERS, PART_TO_CONNECT * self._deadline))
        store = self._store
        if meeting.rank > 0:
            host, port = first.rsplit(":", 1)
            store = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=patience)
        group = dist.ProcessGroupGloo(
            dist.PrefixStore(meeting.group, store), meeting.rank, len(meeting.names), patience
        )
        # One group for both directions: connecting a second one would double the time, and the
        # deadline is short.
        return group, group


@contextmanager
def _found(lighthouse: str) -> Iterator[None]:
    """A block that raises ``ConfigError`` if the lighthouse does not answer."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        raise _core.ConfigError(
            f"there is no lighthouse at {lighthouse!r} ({error}); start torchft_lighthouse, and pass its address as "
            "http://host:port"
        ) from error


class Membership(OfOneProcess):
    """One worker's contact to the lighthouse.

    ``lighthouse`` is its address, such as ``http://host:29510``. A group has at least ``least``
    workers. ``deadline`` is the longest wait for another worker, in seconds. A new worker waits
    that long for a group. A worker that was in a group before waits longer
    (``SURVIVOR_DEADLINES``).
    """

    def __init__(self, lighthouse: str, least: int, deadline: float) -> None:
        try:
            from torchft.coordination import LighthouseClient
        except ImportError as error:
            raise _core.ConfigError("lighthouse= needs torchft; install it with 'pip install torchft'") from error
        super().__init__()
        self.name = uuid4().hex
        self._least, self._deadline = least, deadline
        # The longest wait of a worker that was in a group before.
        self.longest = SURVIVOR_DEADLINES * deadline
        self._lighthouse = lighthouse
        self.store = Store(lighthouse, deadline)
        with _found(lighthouse):
            self._client = LighthouseClient(lighthouse, timedelta(seconds=LIGHTHOUSE))
        stop = threading.Event()
        self.close = weakref.finalize(self, stop.set)
        threading.Thread(target=_beat, args=(self._client, self.name, stop), daemon=True).start()

    def meet(self, record: Record) -> Meeting:
        """Waits for the other workers, and returns the next group, which includes this worker.

        Raises ``DeadlineError`` if there is no such group in time.
        """
        # The members of a group wait for each other. Others must not use up the lighthouse's join
        # timeout.
        patient = bool(record.run)
        seconds = self.longest if patient else self._deadline
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise _core.DeadlineError(
                    f"the lighthouse at {self._lighthouse} did not find {self._least} workers, this one included, within {seconds:g} s; "
                    "start more workers, or raise the deadline above the duration of a round"
                )
            quorum = self._ask(record, left if patient else min(left, _ASK_AGAIN))
            if quorum is None:
                continue
            meeting = self._meeting(quorum)
            if meeting is not None and len(meeting.names) >= self._least:
                return meeting
            patient = False
            time.sleep(_PAUSE)

    def _ask(self, record: Record, seconds: float) -> Optional[Any]:
        """Asks the lighthouse for a quorum; None if there is none yet."""
        try:
            return self._client.quorum(
                self.name,
                timedelta(seconds=seconds),
                store_address=self.store.address,
                data={"record": json.dumps(asdict(record))},
            )
        except (RuntimeError, OSError):
            # The time is over, or the lighthouse is unreachable.
            time.sleep(min(_PAUSE, seconds))
            return None

    def _meeting(self, quorum: Any) -> Optional[Meeting]:
        """The group that a quorum's workers form; None if this worker has to wait for the next
        one."""
        # The lighthouse counts groups only when members change. The time makes the names of groups
        # unique.
        group = f"{quorum.quorum_id}-{quorum.created.seconds}-{quorum.created.nanos}"
        records = [_read(member.data["record"]) for member in quorum.participants]
        names = [member.replica_id for member in quorum.participants]
        own, latest = names.index(self.name), records[reference(records)]
        if records[own].config != latest.config:
            raise _core.ConfigError(
                "this worker's model or arguments differ from those of the run; start all workers with the same model and arguments"
            )
        chosen = admitted(records, self._least)
        if own not in chosen:
            return None
        return Meeting(
            group=group,
            names=[names[index] for index in chosen],
            records=[records[index] for index in chosen],
            rank=chosen.index(own),
            store=quorum.participants[chosen[0]].store_address,
        )

    def connect(self, meeting: Meeting) -> Groups:
        """As ``Store.connect``."""
        return self.store.connect(meeting, meeting.store)


def _read(text: str) -> Record:
    return record_of(json.loads(text))


def record_of(fields: Dict[str, Any]) -> Record:
    """A record from its fields, which a file format may have made lists."""
    attempt = fields.pop("attempt")
    history = [(group, first) for group, first in fields.pop("history")]
    return Record(**fields, history=history, attempt=attempt and (attempt[0], attempt[1]))


def _beat(client: Any, name: str, stop: threading.Event) -> None:
    """Tells the lighthouse that this worker is alive, until its membership is closed or
    collected."""
    while not stop.wait(_HEARTBEAT):
        try:
            client.heartbeat(name, timedelta(seconds=HEARTBEAT))
        except (RuntimeError, OSError):
            # The lighthouse is unreachable; the next meeting reports it.
            pass
