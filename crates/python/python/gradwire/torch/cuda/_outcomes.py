"""The outcomes of steps whose averages the host does not wait for: their costs, and gradients that
are not finite."""

from __future__ import annotations

import warnings
from collections import deque
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple

from ... import _core
from ._collectives import Peers, Traffic
from ._nonfinite import ELSEWHERE, Found, Reading

# The names of the tensors in the messages of a sender.
Names = Callable[[int], Sequence[str]]


@dataclass(eq=False)
class _Step:
    """The costs of a step, and what its messages told."""

    step: int
    # What this rank had sent and received before it.
    before: Traffic
    elements: int = 0
    message_bytes: int = 0
    # Whether its gradients have the factor of a scaler.
    scaled: bool = False
    # The tensors in the messages of each exchange.
    names: List[Names] = field(default_factory=list)
    # The first exchange of each bucket. Without training, gathers of the same buckets are repeated
    # without end in one step.
    firsts: Dict[Tuple[Names, ...], int] = field(default_factory=dict)
    # After the end of the step.
    reading: Optional[Reading] = None
    skipped: bool = False


class Outcomes:
    """The outcomes of all steps.

    With ``skip``, steps with elements that are not finite are counted as skipped. Without it, they
    end the exchange with an error, which ``remedy`` follows. The averages of such a step are NaN,
    and the optimizer has used them before the host knows. ``what`` is what the error calls a
    tensor: "gradient", "parameter" or "change".
    """

    def __init__(self, peers: Peers, skip: bool, remedy: str, what: str = "gradient") -> None:
        self._peers, self._skip, self._remedy, self._what = peers, skip, remedy, what
        self._last: Optional[_Step] = None
        # The steps whose readings have not been looked at.
        self._unread: Deque[_Step] = deque()
        self._steps, self._skipped = 0, 0
        self._failure: Optional[str] = None
        # The first step that is refused, and why.
        self._refused: Optional[Tuple[_Step, _core.NonFiniteError]] = None

    def check_open(self) -> None:
        """Raises ``ConfigError`` after a failure."""
        if self._failure is not None:
            raise _core.ConfigError(f"the exchange has ended: {self._failure}; create the model and its registration again, from a checkpoint")

    def fail(self, error: Exception) -> None:
        """Ends the exchange."""
        self._failure = self._failure or str(error)

    def begin(self, step: int) -> None:
        self._last = _Step(step, self._traffic())
        self._steps += 1

    def add(self, names: Sequence[Names], elements: int, message_bytes: int, scaled: bool = False) -> int:
        """Adds a bucket; ``names`` has its exchanges, and ``scaled`` tells whether its values have
        the factor of a scaler. Returns the number of the first exchange."""
        step = self._last
        assert step is not None, "no step has begun"
        first = step.firsts.setdefault(tuple(names), len(step.names))
        if first == len(step.names):
            step.names += names
        step.elements += elements
        step.message_bytes += message_bytes
        step.scaled |= scaled
        return first

    def end(self, reading: Reading) -> None:
        """Ends the step; ``reading`` has what its messages told. A step of several backward passes
        ends with each of them."""
        step = self._last
        assert step is not None, "no step has begun"
        step.reading = reading
        if step not in self._unread:
            self._unread.append(step)

    def check(self, all_steps: bool) -> None:
        """Looks at the readings of all steps, or of all but the last. Raises ``NonFiniteError``
        unless such steps are skipped. All ranks call it after the same steps, so all raise."""
        self._read(all_steps)
        if self._refused is not None and (all_steps or self._refused[0] is not self._last):
            _, error = self._refused
            self.fail(error)
            raise error

    def read(self) -> None:
        """Looks at the readings of all steps. A rank may call it alone: of an error, which
        ``check`` then raises on all ranks, it warns."""
        before = self._refused
        self._read(all_steps=True)
        if self._refused is not None and before is None:
            warnings.warn(str(self._refused[1]), RuntimeWarning, stacklevel=2)

    def _read(self, all_steps: bool) -> None:
        while len(self._unread) > (0 if all_steps else 1):
            step = self._unread.popleft()
            assert step.reading is not None
            found = step.reading.found()
            self._skipped += found is not None and not step.skipped
            step.skipped = found is not None
            if found is not None and not self._skip and self._refused is None:
                self._refused = step, self._error(step, found)

    def _error(self, step: _Step, found: Found) -> _core.NonFiniteError:
        if found.sender == ELSEWHERE:
            return _core.NonFiniteError(f"a {self._what} contains NaN or infinity at step {step.step}{self._remedy}")
        name = step.names[found.exchange](found.sender)[found.place]
        # Parameters have no residual.
        what, also = ("parameter", "") if self._what == "parameter" else (f"{self._what} of", ", or its sum with the residual does")
        also += ", or the scale of the loss is 0 or not finite" if step.scaled else ""
        on = f"{self._peers.kind} {found.sender}"
        return _core.NonFiniteError(f"the {what} '{name}' on {on} contains NaN or infinity at step {step.step}{also}{self._remedy}")

    def stats(self) -> Dict[str, Any]:
        """The cost of the last step, and totals, with the keys of ``Reducer.stats``. Warns as
        ``read``."""
        self.read()
        step = self._last
        now = self._traffic()
        before = now if step is None else step.before
        of_step = Traffic(*(end - start for start, end in zip(astuple(before), astuple(now))))
        elements, size = (0, 0) if step is None else (step.elements, step.message_bytes)
        return {
            "step": None if step is None else step.step,
            "skipped": step is not None and step.skipped,
            "elements": elements,
            "message_bytes": size,
            "ratio": 4.0 * elements / max(size, 1),
            "bytes_up": of_step.bytes_up,
            "bytes_down": of_step.bytes_down,
            "messages_up": of_step.messages_up,
            "messages_down": of_step.messages_down,
            "compress_seconds": 0.0,
            "decompress_seconds": 0.0,
            "wire_seconds": 0.0,
            "total_steps": self._steps,
            "total_skipped": self._skipped,
            "total_bytes_up": now.bytes_up,
            "total_bytes_down": now.bytes_down,
        }

    def _traffic(self) -> Traffic:
        return replace(self._peers.traffic)
