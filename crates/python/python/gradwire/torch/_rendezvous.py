"""How ranks find each other before they connect."""

from __future__ import annotations

import hashlib
import time
from typing import Any, Dict, List, Sequence, Tuple

import torch.distributed as dist

from .. import _core

# The seconds between two looks at the store.
_PAUSE = 0.02

# How often the ranks of a group have met in this process, by the prefix of their keys.
_met: Dict[str, int] = {}


class Meeting:
    """Waits in the store of the default process group until some ranks have made the same call.

    ``prefix`` is then a prefix of keys of the store that only these ranks use, for this call alone.
    """

    def __init__(self, ranks: Sequence[int], caller: str, seconds: float) -> None:
        """Raises ``DeadlineError`` if ranks are missing after ``seconds``, and ``ConfigError`` if one made another call."""
        self._store: Any = dist.distributed_c10d._get_default_store()
        group = "gradwire/" + hashlib.sha256(repr(list(ranks)).encode()).hexdigest()[:16]
        self.prefix = f"{group}/{_met.get(group, 0)}"
        keys = {rank: f"{self.prefix}/{rank}" for rank in ranks}
        self._own = keys[dist.get_rank()]
        self._store.set(f"{self._own}/came", "")
        self._store.set(self._own, caller)
        try:
            self._wait(keys, caller, seconds)
        except BaseException:
            # A rank that comes later must not find this one, which has given up.
            self.leave()
            raise
        _met[group] = _met.get(group, 0) + 1
        self._compare(keys, caller)

    def leave(self) -> None:
        """Removes this rank's key. Call it once all ranks have seen each other."""
        self._store.delete_key(self._own)

    def _wait(self, keys: Dict[int, str], caller: str, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._store.check(list(keys.values())):
            if time.monotonic() > until:
                # Those that have given up already have made the call, too.
                called = [self._store.check([f"{key}/came"]) for key in keys.values()]
                came, missing = ([rank for rank, has_called in zip(keys, called) if has_called is found] for found in (True, False))
                raise _core.DeadlineError(
                    f"{named(missing)} did not call {caller} within {seconds:g} s, and {named(came)} did; all ranks of the process group "
                    "must call it, in the same order with other calls of gradwire"
                )
            time.sleep(_PAUSE)

    def _compare(self, keys: Dict[int, str], caller: str) -> None:
        """Refuses different calls. Keys stay then, so that all ranks see all of them."""
        calls: List[Tuple[int, str]] = [(rank, self._store.get(key).decode()) for rank, key in keys.items()]
        for rank, call in calls:
            if call != caller:
                raise _core.ConfigError(
                    f"this rank called {caller}, and rank {rank} called {call}; all ranks of the process group must make the same calls of "
                    "gradwire, in the same order"
                )


def named(ranks: Sequence[int]) -> str:
    """Ranks in words, at most ten of them."""
    named = ", ".join(map(str, ranks[:10])) + (f" and {len(ranks) - 10} others" if len(ranks) > 10 else "")
    return f"rank {named}" if len(ranks) == 1 else f"ranks {named}"
