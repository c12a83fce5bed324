"""Compresses the sums and means of a process group, or says why not."""

from __future__ import annotations

import threading
import warnings
import weakref
from typing import Any, Dict, List, Optional, Sequence

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work
from torch.futures import Future

from .. import _core
from . import _saved
from ._call_sites import CallSites, GroupDescription
from ._gradient_calls import is_of_function, present_pass
from ._group_call import Call
from ._group_errors import named
from ._group_exchange import Average, GroupExchange
from ._group_options import GATHERS, REPLICAS, SHARDS, GroupOptions
from ._options import compare
from ._places import Kind
from ._staging import Output
from ._states import State

_OUTSIDE = "it is outside of a backward pass and of gradients()"
_OF_FUNCTION = "the backward pass of a function calls it, so it may be no gradient of a parameter"
# The sums that a group passes on for this reason before it warns.
_PATIENCE = 20

_TYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


class Averaging(Work):  # type: ignore[misc]
    """The work of a compressed collective."""

    def __init__(self, exchange: GroupExchange, average: Average) -> None:
        super().__init__()
        self._exchange, self._average, self._future = exchange, average, average.future

    def wait(self, timeout: Any = None) -> bool:
        """Waits for the result; raises the error of an average that has failed, and
        ``DeadlineError`` after ``timeout``, a ``timedelta`` above 0."""
        seconds = timeout.total_seconds() if timeout else None
        self._exchange.wait_for(self._average, seconds if seconds and seconds > 0 else None)
        self._exchange.note(self._average)
        # Streams wait for the copy of the result.
        self._future.wait()
        return True

    def synchronize(self) -> None:
        """Like ``wait``."""
        self.wait()

    def get_future(self) -> Future:
        """The future of the tensors."""
        return self._future

    def is_completed(self) -> bool:
        """Whether the result is there."""
        return bool(self._future.done())

    def is_success(self) -> bool:
        """Whether the result is there, and no average has failed."""
        return self.is_completed() and not self._exchange.failed

    def result(self) -> List[torch.Tensor]:
        """The tensors."""
        found: List[torch.Tensor] = self._future.wait()
        return found


class Calls:
    """The collectives of one process group that may be compressed."""

    def __init__(self, group: Any, options: GroupOptions) -> None:
        # The group owns this object, or is its key.
        self._reference = weakref.ref(group)
        # The number of ranks of the group, and this rank's number.
        self.ranks: int = group.size()
        self._rank: int = group.rank()
        self.options = options
        self._sites = CallSites()
        self._exchanges: Dict[str, GroupExchange] = {}
        self._states: Dict[str, Any] = {}
        self._busy = threading.Lock()
        # The thread that makes a group trains.
        self._trainer = threading.get_ident()
        # The number of long sums outside of a backward pass.
        self._outside = 0

    @property
    def _group(self) -> Any:
        return self._reference()

    def why_not(self, tensor: torch.Tensor, op: Any, elements: int) -> str:
        """Why a sum or mean of ``elements``, among them those of a tensor, is passed on; "" if it
        is compressed. It must not depend on the rank."""
        if not is_mean(op):
            return f"{_name_of(op)} is no sum or mean"
        if tensor.layout != torch.strided:
            return "it is sparse"
        if tensor.dtype not in _TYPES:
            return f"{str(tensor.dtype).replace('torch.', '')} is not compressed"
        if elements < self.options.raw_below:
            return f"it has fewer than {self.options.raw_below} elements"
        if self.options.when == "backward":
            if present_pass() is None:
                return _OUTSIDE
            if is_of_function():
                return _OF_FUNCTION
        if self.ranks == 1:
            return "the group has one rank"
        return ""

    def pass_on(self, collective: str, tensors: Sequence[torch.Tensor], reason: str) -> None:
        """Notes a call that is passed on."""
        if reason == _OUTSIDE:
            self._warn_of_outside()
        if not tensors:
            self._sites.passed_on(collective, 0, "", reason, 0)
            return
        largest = max(tensors, key=lambda tensor: tensor.numel())
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor.layout == torch.strided)
        element_type = str(largest.dtype).replace("torch.", "")
        self._sites.passed_on(collective, largest.numel(), element_type, reason, size)

    def _warn_of_outside(self) -> None:
        """Warns once if a group compresses nothing, because its framework exchanges gradients after
        the backward pass."""
        self._outside += 1
        if self._outside == _PATIENCE and not self._exchanges:
            warnings.warn(
                f"process group '{self._group.group_name}' has passed on {_PATIENCE} sums, because they came outside of a backward pass, and "
                "has compressed none; if they are gradients, put the calls in a block 'with gradwire.torch.gradients():'",
                RuntimeWarning,
                stacklevel=4,
            )

    def exchange(self, kind: str) -> GroupExchange:
        """The exchange of a kind of calls. All ranks connect at the first of them."""
        found = self._exchanges.get(kind)
        if found is None:
            found = self._exchanges[kind] = GroupExchange(self.options, kind, self._group, self._trainer)
            # Ranks that load would wait for the others, which are at their first call.
            compare(found._reducer, {"load_state_dict": "called" if kind in self._states else "not called"})
            if kind in self._states:
                found.load_state_dict(self._states.pop(kind))
        return found

    def all_reduce(self, collective: str, tensor: torch.Tensor, op: Any, name: Optional[str] = None) -> Averaging:
        """Replaces a tensor by its sum or mean over all ranks."""
        kind = Kind(collective, _TYPES[tensor.dtype], tensor.numel())
        return self._started(REPLICAS, kind, Call(_flat(tensor), [tensor], self._factor(op)), name)

    def reduce_scatter(
        self, collective: str, output: torch.Tensor, values: torch.Tensor, op: Any, name: Optional[str] = None
    ) -> Averaging:
        """Writes this rank's part of the sum or mean of flat ``values`` to a contiguous ``output``.
        ``values`` is left as it was, unless ``output`` is a part of it."""
        kind = Kind(collective, _TYPES[values.dtype], values.numel())
        own = Output(output.detach().view(-1), self._rank * output.numel())
        return self._started(SHARDS, kind, Call(values, [output], self._factor(op), own), name)

    def gather(self, collective: str, output: torch.Tensor, own: torch.Tensor, name: Optional[str] = None) -> Averaging:
        """Writes the flat parts of all ranks to flat ``output``, compressed; every rank gets the
        same bits, also of its own part."""
        kind = Kind(collective, _TYPES[output.dtype], output.numel())
        start = self._rank * own.numel()
        part = output[start : start + own.numel()]
        if part.data_ptr() != own.data_ptr():
            part.copy_(own.view_as(part))
        return self._started(GATHERS, kind, Call(output, [output]), name)

    def _started(self, exchange_kind: str, kind: Kind, call: Call, name: Optional[str]) -> Averaging:
        """Starts a call, whose place is found here. Frameworks make many of them, so it enters no
        context managers, which would take longer than the rest."""
        self._enter(kind.collective)
        exchange, place = None, ""
        try:
            # All ranks connect at the first call of a kind.
            exchange = self.exchange(exchange_kind)
            place = exchange.place(kind, call.values, name)
            collective = kind.collective if name is None else f"{kind.collective} '{name}'"
            self._sites.compressed(collective, kind.elements, kind.element_type, self.options.compressor, place)
            return Averaging(exchange, exchange.average(place, call))
        except BaseException as error:
            if exchange is not None:
                # The other ranks wait for this one.
                exchange.fail()
            if isinstance(error, _core.DeadlineError):
                place = place or (kind.place(0) if name is None else kind.named(name))
                raise named(error, place, self._group.group_name, self.options) from error
            raise
        finally:
            self._busy.release()

    def _enter(self, what: str) -> None:
        """Begins what ranks must do in the same order, until ``_busy`` is released. Refuses a
        second thread: the order may differ between ranks."""
        if not self._busy.acquire(blocking=False):
            raise _core.ConfigError(
                f"two threads call compressed collectives of process group '{self._group.group_name}' at the same time, here {what}, and "
                "ranks must call them in the same order; call them from one thread, or give each thread its own process group"
            )

    def _factor(self, op: Any) -> float:
        return 1.0 if op == dist.ReduceOp.AVG else float(self.ranks)

    def tell_step(self) -> None:
        """The step has ended."""
        for exchange in self._exchanges.values():
            exchange.tell_step()

    def describe(self) -> GroupDescription:
        """The call sites so far."""
        # Another thread may connect meanwhile.
        exchanges = dict(self._exchanges)
        sent = {kind: exchange.bytes_of_places for kind, exchange in exchanges.items()}
        known = {place: found for places in sent.values() for place, found in places.items()}
        rows = [row.of(*known[row.place]) if row.place in known else row for row in self._sites.rows()]
        step = max((exchange.step for exchange in exchanges.values()), default=0)
        transports = {kind: exchange.transport for kind, exchange in exchanges.items()}
        return GroupDescription(self._group.group_name, self._group.size(), step, rows, transports)

    def stats(self) -> Dict[str, Dict[str, Any]]:
        """The costs of each exchange."""
        return {kind: exchange.stats() for kind, exchange in dict(self._exchanges).items()}

    def state_dict(self, all_ranks: bool) -> Dict[str, State]:
        """The state of each exchange. States that were loaded, and that no call has used yet, stay
        as they are."""
        if all_ranks:
            # All ranks call it, so they can connect.
            self._enter("state_dict")
            try:
                for kind in list(self._states):
                    self.exchange(kind)
            finally:
                self._busy.release()
        waiting = {kind: _saved.share(parts, self._rank, self.ranks) for kind, parts in self._states.items()}
        known = {kind: exchange.state_dict(all_ranks=all_ranks) for kind, exchange in self._exchanges.items()}
        return {**{kind: state for kind, state in waiting.items() if state}, **known}

    @property
    def is_waiting(self) -> bool:
        """Whether there are loaded states that no call has used yet."""
        return bool(self._states)

    def load_state_dict(self, states: Any) -> None:
        """Restores the states of exchanges; those that are not connected yet, when they connect."""
        given = _saved.listed(states)
        for one in given:
            _saved.check_mappings(one, "the state", 1)
        for kind in (REPLICAS, SHARDS, GATHERS):
            parts = [one[kind] for one in given if kind in one]
            if not parts:
                continue
            if kind in self._exchanges:
                self._exchanges[kind].load_state_dict(parts)
            else:
                self._states[kind] = parts

    def abort(self) -> None:
        """Ends all exchanges at once."""
        for exchange in self._exchanges.values():
            exchange.fail()

    def close(self) -> None:
        """Ends all exchanges after the averages under way."""
        for exchange in self._exchanges.values():
            exchange.close()


def is_mean(op: Any) -> bool:
    """Whether an operation is a sum or a mean."""
    # The operation of a call's options equals these, but is not found in a tuple of them.
    return bool(op == dist.ReduceOp.SUM or op == dist.ReduceOp.AVG)


def _name_of(op: Any) -> str:
    names = ("PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
    return next((name for name in names if op == getattr(dist.ReduceOp, name, None)), str(op))


def flat_or_none(tensor: torch.Tensor) -> Optional[torch.Tensor]:
    """The elements of a tensor in the order of its memory, as a view; ``None`` if its memory has
    gaps."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_contiguous():
        return tensor if tensor.dim() == 1 else tensor.view(-1)
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size > 1):
        if stride != expected:
            return None
        expected *= size
    return tensor.as_strided((tensor.numel(),), (1,))


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    found = flat_or_none(tensor)
    if found is None:
        raise _core.ConfigError("the memory of the tensor has gaps; call .contiguous() first")
    return found
