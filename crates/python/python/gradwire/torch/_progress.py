"""What ``advise`` tells while it works, on standard error."""

from __future__ import annotations

import sys
import time
from typing import Optional, TextIO

# The number of elements from which a model takes so long, and so much memory, that an estimate is
# told.
_LARGE = 10_000_000
# The trials of the candidates that are tried by default. Those that differ only in their local
# steps are tried together.
DEFAULT_TRIALS = 10
# The seconds in which a core compresses, decompresses and adds up an element of one rank in one
# step: the mean of the default candidates.
_SECONDS_AN_ELEMENT = 30e-9


class Progress:
    """Tells how far ``advise`` is: in a line that is rewritten on a terminal; elsewhere in a line
    for each trial, if the model is large."""

    def __init__(self, elements: int, shown: bool, stream: Optional[TextIO] = None) -> None:
        self._elements = elements
        self._stream = sys.stderr if stream is None else stream
        self._terminal = shown and self._stream is not None and self._stream.isatty()
        self._told = shown and self._stream is not None and elements >= _LARGE
        self._started = time.perf_counter()
        self._last = ""

    def estimate(self, memory: int, steps: int, recorded: int, trials: int, ranks: int, cores: int) -> None:
        """Tells, for a large model, what ``advise`` will take: the bytes of memory beside those of
        training; the number of steps; the trials of ``recorded`` steps between a number of ranks on
        a number of cores."""
        if not self._told:
            return
        work = self._elements * max(recorded, 2) * ranks * trials * _SECONDS_AN_ELEMENT
        self._line(
            f"it takes {steps} training steps of {self._elements / 1e6:.1f} million parameters; then trials of {trials} compressors between "
            f"{ranks} ranks, about {_duration(work / max(1, min(ranks, cores)))}; and up to {memory / 1e9:.1f} GB of memory in addition to training"
        )

    def step(self, done: int, steps: int) -> None:
        """The number of training steps that are done. Those of one kind follow each other."""
        if done == 0:
            self._started = time.perf_counter()
        self._show(f"training step {min(done + 1, steps)} of {steps}{self._left(done / steps)}")

    def trial(self, candidate: str, finished: int, trials: int, done: float) -> None:
        """The candidate that is tried, how many are finished, and the part of the work that is
        done."""
        if done == 0.0:
            self._started = time.perf_counter()
        what = f"trial {finished + 1} of {trials}, {candidate}"
        if self._told and not self._terminal and what != self._last:
            self._line(f"{what}{self._left(done)}")
        self._last = what
        self._show(f"{what}{self._left(done)}")

    def close(self) -> None:
        """Removes the line from a terminal."""
        if self._terminal:
            self._write("\r\x1b[K")

    def _left(self, done: float) -> str:
        """The time that is left, if the work goes on as until now."""
        if done < 0.02:
            return ""
        return f", about {_duration((time.perf_counter() - self._started) * (1.0 - done) / done)} left"

    def _show(self, text: str) -> None:
        if self._terminal:
            self._write(f"\r\x1b[Kgradwire advise: {text}")

    def _line(self, text: str) -> None:
        self.close()
        self._write(f"gradwire advise: {text}\n")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            # Whoever read it is gone; the advice is still wanted.
            self._terminal = self._told = False


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min"
