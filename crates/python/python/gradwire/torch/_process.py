"""Objects whose threads and connections belong to one process."""

from __future__ import annotations

import os

from .. import _core


class OfOneProcess:
    """An object with threads or connections. A forked process has a copy of it, without the
    threads.

    Collecting the copy ends nothing: ending the connections would wait for the threads forever.
    """

    def __init__(self) -> None:
        self._process = os.getpid()

    def __del__(self) -> None:
        if getattr(self, "_process", None) not in (None, os.getpid()):
            _core.keep_forever(vars(self))
