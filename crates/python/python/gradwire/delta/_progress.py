"""Progress of long operations."""

from __future__ import annotations

import time
from typing import Any, Callable, List, Optional

from .. import _core

# Called with the bytes that are done and the total, which is more than 0.
Progress = Callable[[int, int], Any]

# The least seconds between two calls.
PAUSE = 0.1


def checked(progress: Optional[Progress]) -> Optional[Progress]:
    """Refuses what cannot be called."""
    if progress is None or callable(progress):
        return progress
    raise _core.ConfigError(f"progress={progress!r} is no function; give one that takes the bytes that are done and all bytes")


def listening(progress: Optional[Progress]) -> List[Progress]:
    """The listeners of a meter."""
    checked(progress)
    return [] if progress is None else [progress]


class Meter:
    """Counts the bytes of an operation, and calls listeners about ten times a second. A total that
    is not known beforehand, 0, is that of the bytes done."""

    def __init__(self, listeners: List[Progress], total: int) -> None:
        self._listeners, self._total, self._done = listeners, total, 0
        self._last = time.monotonic()

    def add(self, count: int) -> None:
        """More bytes are done."""
        self.at(self._done + count)

    def at(self, done: int) -> None:
        """So many bytes are done."""
        self._done, self._total = done, max(done, self._total)
        if time.monotonic() - self._last >= PAUSE:
            self._tell()

    def end(self) -> None:
        """All bytes are done."""
        self._done = self._total
        self._tell()

    def after(self, start: int) -> Progress:
        """A listener of an operation that is a part of this one: ``start`` bytes come before."""
        return lambda done, _: self.at(start + done)

    def _tell(self) -> None:
        # Listeners may divide by the total.
        for listener in self._listeners if self._total else ():
            listener(self._done, self._total)
        self._last = time.monotonic()
