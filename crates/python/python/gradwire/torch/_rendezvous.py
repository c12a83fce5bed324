"""How ranks find each other before they connect."""

from __future__ import annotations

import hashlib
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Sequence
from weakref import WeakKeyDictionary

import torch.distributed as dist

from .. import _core

# The first and the longest time between two looks at the store, in seconds.
_PAUSE, _LONGEST_PAUSE = 0.02, 0.5

# For each default process group, the number of meetings of a group's ranks, by the prefix of their
# keys.
_met: WeakKeyDictionary[Any, Dict[str, int]] = WeakKeyDictionary()


class Rendezvous:
    """Waits in the store of the default process group until some ranks have made the same call.

    ``prefix`` is then a prefix of keys of the store that only these ranks use, for this call alone.
    The key ``count`` has the number of present ranks. It decides whether ranks have met, even if
    one gives up while another arrives.
    """

    def __init__(self, ranks: Sequence[int], caller: str, seconds: float) -> None:
        """Raises ``DeadlineError`` if ranks are missing after ``seconds``, ``ConfigError`` if one
        made another call, and ``PeerLostError`` if the store is gone."""
        self._ranks = list(ranks)
        group = "gradwire/" + hashlib.sha256(repr(self._ranks).encode()).hexdigest()[:16]
        met = _met.setdefault(dist.distributed_c10d._get_default_group(), {})
        self.prefix = f"{group}/{met.get(group, 0)}"
        with _store_errors():
            self._store: Any = dist.distributed_c10d._get_default_store()
            self._store.set(self._call_of(dist.get_rank()), caller)
            self._store.add(self._came(dist.get_rank()), 1)
            self._store.add(self._count, 1)
            self._wait(caller, seconds)
            met[group] = met.get(group, 0) + 1
            self._compare(caller)

    def leave(self) -> None:
        """Removes this rank's keys. Call it once all ranks have seen each other."""
        try:
            self._store.add(self._count, -1)
            for key in (self._call_of(dist.get_rank()), self._came(dist.get_rank())):
                self._store.delete_key(key)
        except RuntimeError:
            # The rank that has the store may have ended; the keys have ended with it.
            pass

    @property
    def _count(self) -> str:
        return f"{self.prefix}/count"

    def _call_of(self, rank: int) -> str:
        return f"{self.prefix}/{rank}/call"

    def _came(self, rank: int) -> str:
        return f"{self.prefix}/{rank}/came"

    def _wait(self, caller: str, seconds: float) -> None:
        until, pause = time.monotonic() + seconds, _PAUSE
        try:
            while self._store.add(self._count, 0) < len(self._ranks):
                if time.monotonic() > until:
                    raise _core.DeadlineError(self._missing(caller, seconds))
                time.sleep(pause)
                pause = min(1.5 * pause, _LONGEST_PAUSE)
        except BaseException:
            # This rank gives up, so later ranks must not count it, unless the last one has arrived
            # meanwhile.
            if self._store.add(self._count, -1) + 1 < len(self._ranks):
                raise
            self._store.add(self._count, 1)

    def _missing(self, caller: str, seconds: float) -> str:
        # Ranks that have given up have made the call, too.
        called = {rank: self._store.add(self._came(rank), 0) > 0 for rank in self._ranks}
        came, missing = ([rank for rank in self._ranks if called[rank] is found] for found in (True, False))
        return (
            f"{named(missing)} did not call {caller} within {seconds:g} s, but {named(came)} did; all ranks of the process group must "
            "make the same calls of gradwire, in the same order"
        )

    def _compare(self, caller: str) -> None:
        """Refuses different calls. The keys then stay, so all ranks see all of them."""
        calls: List[str] = [self._store.get(self._call_of(rank)).decode() for rank in self._ranks]
        for rank, call in zip(self._ranks, calls):
            if call != caller:
                raise _core.ConfigError(
                    f"this rank called {caller}, but rank {rank} called {call}; all ranks of the process group must make the same calls "
                    "of gradwire, in the same order"
                )


@contextmanager
def _store_errors() -> Iterator[None]:
    """Explains errors of the store by their most likely cause."""
    try:
        yield
    except RuntimeError as error:
        raise _core.PeerLostError(
            f"the store of the process group does not answer ({error}): rank 0, which usually holds the store, has probably ended; see its output"
        ) from error


def named(ranks: Sequence[int]) -> str:
    """Ranks as text, at most ten of them."""
    named = ", ".join(map(str, ranks[:10])) + (f" and {len(ranks) - 10} others" if len(ranks) > 10 else "")
    return f"rank {named}" if len(ranks) == 1 else f"ranks {named}"
