"""Errors of averages over two levels: finds the rank that caused one, and names it on all ranks."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Condition, RLock
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple
from uuid import uuid4

import torch

from .. import _core
from ._first_report import first_report
from ._nodes import Nodes
from ._reports import error_of, packed, renumbered, unpacked

# The most names of parameters in an error.
_NAMES = 4

# The seconds between two checks for Ctrl-C.
_GLANCE = 0.05

# In the errors of ranks that know whose gradient is not finite.
_KNOWN = "has NaN or infinity on"

# Errors that the failure of another rank causes.
_SECONDARY = ("PeerLostError", "DeadlineError")

# In the errors of PyTorch's collectives if another rank or the network fails: the source of gloo's
# connections, and results of NCCL.
_OF_CONNECTIONS = ("gloo/transport/", "ncclRemoteError", "ncclSystemError")

# Which of several errors, given as kind and text, names the cause: the first of these that some
# rank has. Other ranks may know a slice that is not finite, or only that something is.
_PRIMARY: Sequence[Callable[[str, str], bool]] = (
    lambda kind, text: _KNOWN in text,
    lambda kind, text: "the gradient of" in text,
    lambda kind, text: kind not in _SECONDARY,
)


class Flags(NamedTuple):
    """The flags of the chunks of a node's ranks, which a device computes."""

    values: torch.Tensor
    # Of the stream that computes them; ``None`` if they are in main memory.
    event: Any

    def known(self) -> bool:
        """Whether the device has computed them."""
        return self.event is None or bool(self.event.query())

    def read(self) -> List[bool]:
        """For each rank, whether its flag is set. Waits for the device."""
        if self.event is not None:
            self.event.synchronize()
        found: List[bool] = self.values.isnan().tolist()
        return found


# The flags of a bucket's gradients, and its parameters.
Scattered = Tuple[Flags, List[str]]


class Failures:
    """The first error of this rank's averages, and its cause on any rank."""

    def __init__(self, control: Any, nodes: Nodes, ranks: Sequence[int], skips: bool) -> None:
        """``control`` connects all ranks, which are ``ranks`` of the job. ``skips``: a value that
        is not finite is no error."""
        self._control, self._nodes, self._ranks, self._skips = control, nodes, ranks, skips
        # A name of this exchange that no other of the job has.
        self._key: str = control.gather(0, uuid4().hex.encode())[0].decode()
        control.wait()
        self._node, self._local_rank = nodes.node_of(control.rank), nodes.local_rank_of(control.rank)
        self._first: Optional[Exception] = None
        # Whether the collectives of the node have failed. Others would wait for the deadline, too.
        self._is_node_lost = False
        self._cause: Optional[Exception] = None
        # Of averages on a device, whose flags are read at the end of a step: those of gradients,
        # with the parameters of the bucket, and those of averages.
        self._scattered: List[Scattered] = []
        self._gathered: List[Flags] = []
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
            raise _core.NonFiniteError(f"the gradient of '{name}' {_KNOWN} {self._named(self._control.rank)}{self.remedy}")
        culprit = self._of_own_node(flags.isfinite().tolist().index(False))
        raise _core.NonFiniteError(f"a gradient of {culprit} has NaN or infinity, or the sum over its node would overflow{self.remedy}")

    def check(self, flags: torch.Tensor) -> None:
        """Notes an error if a rank of the node sent no averages, given the flags of its chunks. The
        node goes on to the end of the step, so no rank waits for another in vain."""
        if self._first is None and bool(flags.isnan().any()):
            self._note_lost(flags.isnan().tolist())

    def _note_lost(self, flags: List[bool]) -> None:
        culprit = self._of_own_node(flags.index(True))
        self._first = _core.PeerLostError(f"{culprit} could not average its slices with the other nodes")

    def note_scattered(self, flags: Flags, parameters: List[str]) -> None:
        """Notes the flags of the gradients of a bucket on a device."""
        self._scattered.append((flags, parameters))

    def check_later(self, flags: Flags) -> None:
        """Like ``check``, at the end of the step."""
        self._gathered.append(flags)

    def first(self, error: Optional[Exception]) -> Optional[Exception]:
        """The first error of the step that ends now, which may be ``error``, of the reducer."""
        for flags in self._gathered:
            if self._first is None and error is None and any(lost := flags.read()):
                self._note_lost(lost)
        found = self._first or error
        if found is not None and not self._skips:
            self._first = found = self.not_finite(self._scattered) or found
        self._scattered.clear()
        self._gathered.clear()
        return found

    def not_finite(self, scattered: Iterable[Scattered]) -> Optional[Exception]:
        """The error of the first of these buckets in which this node has a gradient that is not
        finite."""
        for flags, parameters in scattered:
            if flags.known() and any(bad := flags.read()):
                names = ", ".join(f"'{name}'" for name in parameters[:_NAMES]) + (", …" if len(parameters) > _NAMES else "")
                culprit, which = self._of_own_node(bad.index(True)), "the gradient of" if len(parameters) == 1 else "one of the gradients of"
                return _core.NonFiniteError(
                    f"{which} {names} {_KNOWN} {culprit}, or the sum over its node would overflow{self.remedy}"
                )
        return None

    def _named(self, rank: int) -> str:
        """A rank of ``control`` for errors."""
        return f"rank {self._place(rank)}"

    def _place(self, rank: int) -> str:
        """The number of a rank of ``control`` in the job, and its place."""
        return f"{self._ranks[rank]} (node {self._nodes.node_of(rank)}, local rank {self._nodes.local_rank_of(rank)})"

    def _of_own_node(self, local_rank: int) -> str:
        return self._named(self._nodes.of_node(self._node)[local_rank])

    def of_column(self, error: Exception) -> Exception:
        """An error of this rank's column, whose ranks are nodes, with the rank that it names."""
        return renumbered(error, [self._place(rank) for rank in self._nodes.of_column(self._local_rank)])

    def of_control(self, error: Exception) -> Exception:
        """An error of the connections to all ranks, with the rank that was lost first."""
        found = renumbered(error, [self._place(rank) for rank in range(self._control.size)])
        # Ranks that noticed the loss earlier may have ended, and seem to be lost, too.
        kind, text = unpacked(first_report(self._key, packed(found).decode()).encode())
        return found if text == str(found) else error_of(kind, text)

    def cause_of(self, error: Exception) -> Exception:
        """The error to raise in place of this rank's. All ranks of a failed step call it, so they
        find out which rank is gone, or has caused the failure of the others."""
        if self._cause is None:
            self._cause = self._found(self._first or error)
        return self._cause

    def _found(self, own: Exception) -> Exception:
        try:
            reports = [unpacked(one) for one in self._control.gather(0, packed(own))]
            self._control.wait()
        except _core.GradwireError as lost:
            return self.of_control(lost)
        for primary in _PRIMARY:
            for rank, (kind, text) in enumerate(reports):
                if primary(kind, text):
                    # Errors of values that are not finite name their rank.
                    where = "" if kind == "NonFiniteError" else f"on {self._named(rank)}: "
                    return own if rank == self._control.rank else error_of(kind, text, where)
        return own


def _explained(error: Exception) -> Exception:
    """An error of a connection between ranks, in PyTorch's collectives, as one of gradwire's. Other
    errors, such as missing memory, stay as they are."""
    if not isinstance(error, RuntimeError) or not any(mark in str(error) for mark in _OF_CONNECTIONS):
        return error
    late = "imed out" in str(error) or "timeout" in str(error)
    text = f"{'ranks did not exchange their gradients within the deadline' if late else 'ranks lost their connection'}: {error}"
    return _core.DeadlineError(text) if late else _core.PeerLostError(text)


class Pending:
    """Counts averages under way."""

    def __init__(self) -> None:
        self._count = 0
        self._lock = RLock()
        self._idle = Condition(self._lock)

    def begin(self) -> None:
        """One more begins."""
        # Without the methods of the condition, which are written in Python.
        with self._lock:
            self._count += 1

    def end(self) -> None:
        """One has ended."""
        with self._idle:
            self._count -= 1
            self._idle.notify_all()

    @property
    def idle(self) -> bool:
        """Whether none is under way."""
        return self._count == 0

    def wait_for(self, ended: Callable[[], bool]) -> bool:
        """Waits until one has ended for which ``ended()`` is true then, but only a moment, so that
        Ctrl-C ends the wait. Returns ``ended()``."""
        with self._idle:
            return self._idle.wait_for(ended, _GLANCE)

    def wait(self) -> None:
        """Waits until none is under way; Ctrl-C ends the wait."""
        with self._idle:
            while self._count:
                self._idle.wait(_GLANCE)
