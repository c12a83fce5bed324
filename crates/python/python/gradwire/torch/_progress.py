"""Reports the progress of ``advise`` on standard error."""

from __future__ import annotations

import sys
import time
from typing import Optional, TextIO

# Models with at least this number of elements take so much time and memory that an estimate is
# shown.
_LARGE = 10_000_000
# The number of trials by default. Candidates that differ only in their local steps share a trial.
DEFAULT_TRIALS = 11
# The seconds that a core takes to compress, decompress and add up an element of one rank in one
# step: the mean of the default candidates.
_SECONDS_AN_ELEMENT = 30e-9


class Progress:
    """Shows the progress of ``advise``: on a terminal in one line that is rewritten; elsewhere in a
    line for each trial, if the model is large."""

    def __init__(self, elements: int, shown: bool, stream: Optional[TextIO] = None) -> None:
        self._elements = elements
        self._stream = sys.stderr if stream is None else stream
        self._terminal = shown and self._stream is not None and self._stream.isatty()
        self._told = shown and self._stream is not None and elements >= _LARGE
        self._started = time.perf_counter()
        self._last = ""

    def estimate(self, memory: int, steps: int, recorded: int, trials: int, ranks: int, cores: int) -> None:
        """For a large model, shows the cost of ``advise``: the bytes of memory beyond training, the
        number of steps, and the trials of ``recorded`` steps between a number of ranks on a number
        of cores."""
        if not self._told:
            return
        work = self._elements * max(recorded, 2) * ranks * trials * _SECONDS_AN_ELEMENT
        self._line(
            f"runs {steps} training steps of {self._elements / 1e6:.1f} million parameters, then trials of {trials} compressors "
            f"between {ranks} ranks (about {_duration(work / max(1, min(ranks, cores)))}), and takes up to {memory / 1e9:.1f} GB of memory in "
            "addition to training"
        )

    def step(self, done: int, steps: int) -> None:
        """The number of finished training steps. Steps of one kind follow each other."""
        if done == 0:
            self._started = time.perf_counter()
        self._show(f"training step {min(done + 1, steps)} of {steps}{self._left(done / steps)}")

    def trial(self, candidate: str, finished: int, trials: int, done: float) -> None:
        """The present candidate, the number of finished trials, and the finished part of the
        work."""
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
        """The remaining time at the present speed."""
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
            # The reader is gone, but the advice is still wanted.
            self._terminal = self._told = False


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min"
