"""Errors of averages over two levels: finds the rank that caused one, and names it on all ranks."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from threading import Condition
from typing import Any, Callable, Iterator, List, Optional, Tuple

import torch

from .. import _core
from ._nodes import Nodes

# Errors that the failure of another rank causes.
_SECONDARY = ("PeerLostError", "DeadlineError")


class Failures:
    """The first error of this rank's averages, and its cause on any rank."""

    def __init__(self, control: Any, nodes: Nodes, skips: bool) -> None:
        """``control`` connects all ranks. ``skips``: a value that is not finite is no error."""
        self._control, self._nodes, self._skips = control, nodes, skips
        self._first: Optional[Exception] = None
        # Whether the collectives of the node have failed. Others would wait for the deadline, too.
        self._is_node_lost = False
        self._cause: Optional[Exception] = None
        # Of averages on a device, whose flags are read at the end of a step.
        self._flags: List[torch.Tensor] = []
        self.remedy = ""

    @contextmanager
    def noted(self) -> Iterator[None]:
        """A block whose errors end the exchange. Raises an earlier error of the node at once."""
        if self._is_node_lost and self._first is not None:
            raise self._first
        try:
            yield
        except Exception as error:
            self._is_node_lost |= isinstance(error, (RuntimeError, _core.PeerLostError, _core.DeadlineError))
            if self._first is None:
                self._first = _explained(error)
            raise

    def check_finite(self, flags: torch.Tensor, find: Callable[[], Optional[str]]) -> bool:
        """Whether the values of all ranks of the node are finite, given the flags of their chunks.
        If not, and steps are not skipped, raises ``NonFiniteError``. ``find`` returns the first
        parameter of this rank with such a value."""
        if bool(flags.isfinite().all()):
            return True
        if self._skips:
            return False
        name = find()
        if name is not None:
            raise _core.NonFiniteError(f"the gradient of '{name}' has NaN or infinity on rank {self._control.rank}{self.remedy}")
        node = self._nodes.node_of(self._control.rank)
        culprit = self._nodes.of_node(node)[flags.isfinite().tolist().index(False)]
        raise _core.NonFiniteError(f"a gradient of rank {culprit}, on the same node, has NaN or infinity, or their sum would overflow{self.remedy}")

    def check(self, flags: torch.Tensor) -> None:
        """Notes an error if a rank of the node sent no averages, given the flags of its chunks. The
        node goes on to the end of the step, so no rank waits for another in vain."""
        if self._first is None and bool(flags.isnan().any()):
            node = self._nodes.node_of(self._control.rank)
            culprit = self._nodes.of_node(node)[flags.isnan().tolist().index(True)]
            self._first = _core.PeerLostError(f"rank {culprit}, on the same node, could not average its slices with the other nodes")

    def check_later(self, flags: torch.Tensor) -> None:
        """Like ``check``, at the end of the step."""
        self._flags.append(flags)

    def first(self, error: Optional[Exception]) -> Optional[Exception]:
        """The first error of the step that ends now, which may be ``error``, of the reducer."""
        if self._first is None and error is None and self._flags:
            self.check(torch.stack(self._flags).sum(0).cpu())
        self._flags.clear()
        return self._first or error

    def cause_of(self, error: Exception) -> Exception:
        """The error to raise in place of this rank's. All ranks of a failed step call it, so they
        find out which rank is gone, or has caused the failure of the others."""
        if self._cause is None:
            self._cause = self._found(self._first or error)
        return self._cause

    def _found(self, own: Exception) -> Exception:
        try:
            report = json.dumps([type(own).__name__, str(own)]).encode()
            reports: List[Tuple[str, str]] = [json.loads(one) for one in self._control.gather(0, report)]
            self._control.wait()
        except _core.GradwireError as lost:
            return self._located(lost)
        # A rank whose own gradient is not finite knows its name; its neighbours do not.
        for primary in (lambda kind, text: "the gradient of" in text, lambda kind, text: kind not in _SECONDARY):
            for rank, (kind, text) in enumerate(reports):
                if primary(kind, text):
                    return own if rank == self._control.rank else getattr(_core, kind, _core.GradwireError)(f"on rank {rank}: {text}")
        return own

    def _located(self, lost: Exception) -> Exception:
        """An error of the connection to all ranks, with the node of the rank that it names."""
        text = str(lost)
        rank = re.search(r"\brank (\d+)", text)
        if rank is not None and int(rank[1]) < self._nodes.count * self._nodes.local:
            text += f" (rank {rank[1]} is on node {self._nodes.node_of(int(rank[1]))} of {self._nodes.count}, counted from 0)"
        return type(lost)(text)


def _explained(error: Exception) -> Exception:
    """An error of PyTorch's collectives as one of gradwire's."""
    if isinstance(error, _core.GradwireError) or not isinstance(error, RuntimeError):
        return error
    late = "imed out" in str(error) or "timeout" in str(error)
    text = f"the ranks of this node {'did not exchange their gradients within the deadline' if late else 'lost their connection'}: {error}"
    return _core.DeadlineError(text) if late else _core.PeerLostError(text)


class Pending:
    """Counts averages under way."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = Condition()

    def begin(self) -> None:
        """One more begins."""
        with self._idle:
            self._count += 1

    def end(self) -> None:
        """One has ended."""
        with self._idle:
            self._count -= 1
            self._idle.notify_all()

    def wait(self) -> None:
        """Waits until none is under way; Ctrl-C ends the wait."""
        with self._idle:
            while self._count:
                self._idle.wait(0.05)
