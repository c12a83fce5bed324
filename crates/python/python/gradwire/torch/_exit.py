"""Ends exchanges before the interpreter does."""

from __future__ import annotations

import atexit
import weakref
from typing import Any

_live: weakref.WeakSet[Any] = weakref.WeakSet()


def watch(reducer: Any) -> None:
    """Ends a reducer at the end of the process, if nobody has closed it by then.

    Its thread may wait for a message in PyTorch. A message, or the end of another rank, may wake
    the thread after the interpreter is gone. CPython before 3.14 then ends the thread in the middle
    of C++ code, which aborts the process with SIGABRT.
    """
    _live.add(reducer)


def _end() -> None:
    own = [reducer for reducer in _live if not reducer.forked]
    # The threads of other ranks that are ending may wait for this rank.
    for reducer in own:
        reducer.abort()
    for reducer in own:
        reducer.hurry()
        reducer.close()


atexit.register(_end)
