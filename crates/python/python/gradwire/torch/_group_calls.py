"""Compresses the sums and means of a process group, or says why not."""

from __future__ import annotations

import threading
import warnings
import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work
from torch.futures import Future

from .. import _core
from .._arrays import whole_number
from .._specs import has_error_feedback
from ._call_sites import CallSite, CallSites, GroupDescription
from ._gradient_calls import is_of_function, present_pass
from ._group_exchange import Average, GroupExchange
from ._options import Options
from ._places import Kind
from ._states import State

_OUTSIDE = "it is outside of a backward pass and of gradients()"
_OF_FUNCTION = "the backward pass of a function calls it, so it may be no gradient of a parameter"
# The sums that a group passes on for this reason before it warns.
_PATIENCE = 20

_TYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}

# The exchanges of a group by the kind of its calls.
REPLICAS, SHARDS, GATHERS = "all-reduce", "reduce-scatter", "all-gather"
_EXCHANGES = {SHARDS: "reduce-scatter", GATHERS: "gather-shards"}


@dataclass(frozen=True)
class GroupOptions(Options):
    """How a process group compresses. ``configure`` documents the fields."""

    on_nonfinite: str = "skip"
    raw_below: int = 4096
    # What is averaged has one dimension.
    raw_vectors: bool = False
    when: str = "backward"

    def of_kind(self, kind: str) -> Options:
        """The options of the exchange of a kind of calls."""
        # Short tensors are passed on before. The buffer of a gather has no values yet.
        nonfinite = "error" if kind == GATHERS else self.on_nonfinite
        changed = {"exchange": _EXCHANGES.get(kind, self.exchange), "raw_below": 0, "on_nonfinite": nonfinite}
        return Options.of({**vars(self), **changed})

    def check(self) -> None:
        """Refuses options that do not suit a process group."""
        super().check()
        self.check_replicated("they are chosen by the call")
        if self.when not in ("backward", "always"):
            raise _core.ConfigError(f"when={self.when!r} is unknown; use 'backward' or 'always'")
        for stage in _core.canonical(self.compressor).split(" then "):
            name = stage.split()[0].partition(":")[0]
            if _family(stage) == "low-rank":
                raise _core.ConfigError(
                    f"'{name}' factors matrices, but a process group gets buffers without the shapes of their parameters; use "
                    "gradwire.torch.register, or another compressor, such as eden"
                )
        if self.uses_ef21():
            raise _core.ConfigError(
                f"'{self.compressor}' keeps sums of all changes on all ranks, which other tensors in the place of a call would damage; use "
                "ef=on, or gradwire.torch.register"
            )

    def keeps(self) -> bool:
        """Whether something may be kept for a place from step to step."""
        stages = [stage.split()[0] for stage in _core.canonical(self.compressor).split(" then ")]
        return any(has_error_feedback(stage) or "momentum" in stage for stage in stages)

    def check_alone(self) -> None:
        """As ``check``, and also refuses what only a reducer knows, before ranks connect."""
        self.check()
        whole_number("raw_below", self.raw_below)
        alone = self.of_kind(REPLICAS).reducer_alone([])
        votes, every = alone.votes, max(steps for _, steps in alone.stages)
        alone.close()
        if votes:
            raise _core.ConfigError(
                f"'{self.compressor}' averages by votes, which are +1 or -1 and no sums; use another compressor, such as efsignsgd"
            )
        if every > 1:
            raise _core.ConfigError(
                f"'{self.compressor}' exchanges every {every} steps, but gradients are exchanged at every step; remove 'every'"
            )


def _family(stage: str) -> str:
    name = stage.split()[0].partition(":")[0]
    return next((one["family"] for one in _core.compressors() if one["id"] == name), "")


class Averaging(Work):  # type: ignore[misc]
    """The work of a compressed collective."""

    def __init__(self, exchange: GroupExchange, average: Average, finish: Callable[[], List[torch.Tensor]]) -> None:
        """``finish`` is called when the averages are there, and returns the tensors."""
        super().__init__()
        self._exchange, self._average = exchange, average

        def take(done: Future) -> List[torch.Tensor]:
            # Raises the error of an average that has failed.
            done.value()
            return finish()

        self._future = average.future.then(take)

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
        value = self._future.wait()
        return list(value) if isinstance(value, (list, tuple)) else [value]


class Calls:
    """The collectives of one process group that may be compressed."""

    def __init__(self, group: Any, options: GroupOptions) -> None:
        # The group owns this object, or is its key.
        self._reference = weakref.ref(group)
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

    @property
    def ranks(self) -> int:
        """The number of ranks of the group."""
        size: int = self._group.size()
        return size

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
        if self.options.when == "backward" and present_pass() is None:
            return _OUTSIDE
        if self.options.when == "backward" and is_of_function():
            return _OF_FUNCTION
        if self._group.size() == 1:
            return "the group has one rank"
        return ""

    def pass_on(self, collective: str, tensors: Sequence[torch.Tensor], reason: str) -> None:
        """Notes a call that is passed on."""
        if reason == _OUTSIDE:
            self._warn_of_outside()
        if not tensors:
            self._sites.count(CallSite(collective, 0, "", "", reason))
            return
        largest = max(tensors, key=lambda tensor: tensor.numel())
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor.layout == torch.strided)
        element_type = str(largest.dtype).replace("torch.", "")
        self._sites.count(CallSite(collective, largest.numel(), element_type, "", reason, 0, size))

    def _warn_of_outside(self) -> None:
        """Warns once if a group compresses nothing, because its framework exchanges gradients after
        the backward pass."""
        self._outside += 1
        if self._outside == _PATIENCE and not self._exchanges:
            warnings.warn(
                f"process group '{self._group.group_name}' has passed on {_PATIENCE} sums, because they came outside of a backward pass, and has "
                "compressed none; if they are gradients, put the calls in a block 'with gradwire.torch.gradients():'",
                RuntimeWarning,
                stacklevel=4,
            )

    def exchange(self, kind: str) -> GroupExchange:
        """The exchange of a kind of calls. All ranks connect at the first of them."""
        found = self._exchanges.get(kind)
        if found is None:
            caller = f"a compressed {kind} of process group '{self._group.group_name}'"
            options, keeps = self.options.of_kind(kind), self.options.keeps()
            found = self._exchanges[kind] = GroupExchange(options, self._group, caller, keeps, self._trainer)
            if kind in self._states:
                found.load_state_dict(self._states.pop(kind))
        return found

    def all_reduce(self, collective: str, tensor: torch.Tensor, op: Any, name: Optional[str] = None) -> Averaging:
        """Replaces a tensor by its sum or mean over all ranks."""
        with self._alone(collective):
            exchange, values = self.exchange(REPLICAS), _flat(tensor)
            place = self._place(exchange, Kind(collective, _TYPES[tensor.dtype], tensor.numel()), values, name)
            average = partial(exchange.average, place, values, self._factor(op))
            return Averaging(exchange, self._started(exchange, average), lambda: [tensor])

    def reduce_scatter(
        self, collective: str, output: torch.Tensor, values: torch.Tensor, op: Any, name: Optional[str] = None
    ) -> Averaging:
        """Writes this rank's part of the sum or mean of flat ``values`` to ``output``. ``values``
        is left as it was, unless ``output`` is a part of it."""
        with self._alone(collective):
            exchange = self.exchange(SHARDS)
            place = self._place(exchange, Kind(collective, _TYPES[values.dtype], values.numel()), values, name)
            rank, chunk = self._group.rank(), values.numel() // self._group.size()
            own = values[rank * chunk : (rank + 1) * chunk]
            in_place = output.data_ptr() == own.data_ptr() and output.is_contiguous()
            if not in_place:
                # Others may read the input meanwhile.
                values = values.clone()
                own = values[rank * chunk : (rank + 1) * chunk]
            # Another rank's part is not changed, except to NaN.
            probe = (rank + 1) * chunk % values.numel()
            average, factor = partial(exchange.average, place, values, 1.0, probe), self._factor(op)

            def take() -> List[torch.Tensor]:
                if in_place:
                    own.mul_(factor)
                else:
                    torch.mul(own.view_as(output), factor, out=output.detach())
                return [output]

            return Averaging(exchange, self._started(exchange, average), take)

    def gather(self, collective: str, output: torch.Tensor, own: torch.Tensor, name: Optional[str] = None) -> Averaging:
        """Writes the flat parts of all ranks to flat ``output``, compressed; every rank gets the
        same bits, also of its own part."""
        with self._alone(collective):
            exchange = self.exchange(GATHERS)
            place = self._place(exchange, Kind(collective, _TYPES[output.dtype], output.numel()), output, name)
            start = self._group.rank() * own.numel()
            part = output[start : start + own.numel()]
            if part.data_ptr() != own.data_ptr():
                part.copy_(own.view_as(part))
            average = partial(exchange.average, place, output, 1.0)
            return Averaging(exchange, self._started(exchange, average), lambda: [output])

    def _place(self, exchange: GroupExchange, kind: Kind, values: torch.Tensor, name: Optional[str]) -> str:
        place = exchange.place(kind, values, name)
        collective = kind.collective if name is None else f"{kind.collective} '{name}'"
        site = self._sites.count(CallSite(collective, kind.elements, kind.element_type, self.options.compressor, ""))
        site.place = place
        return place

    def _started(self, exchange: GroupExchange, average: Callable[[], Average]) -> Average:
        try:
            return average()
        except BaseException:
            # The other ranks wait for this one.
            exchange.fail()
            raise

    def _factor(self, op: Any) -> float:
        return 1.0 if op == dist.ReduceOp.AVG else float(self._group.size())

    @contextmanager
    def _alone(self, collective: str) -> Iterator[None]:
        """Refuses calls of two threads at the same time: their order may differ between ranks."""
        if not self._busy.acquire(blocking=False):
            raise _core.ConfigError(
                f"two threads call compressed collectives of process group '{self._group.group_name}' at the same time, here {collective}, "
                "and ranks must call them in the same order; call them from one thread, or give each thread its own process group"
            )
        try:
            yield
        finally:
            self._busy.release()

    def tell_step(self) -> None:
        """The step has ended."""
        for exchange in self._exchanges.values():
            exchange.tell_step()

    def describe(self) -> GroupDescription:
        """The call sites so far."""
        sent = {kind: exchange.bytes_of_places for kind, exchange in self._exchanges.items()}
        known = {place: found for places in sent.values() for place, found in places.items()}
        rows = [row.of(*known[row.place]) if row.place in known else row for row in self._sites.rows()]
        step = max((exchange.step for exchange in self._exchanges.values()), default=0)
        return GroupDescription(self._group.group_name, self._group.size(), step, rows)

    def stats(self) -> Dict[str, Dict[str, Any]]:
        """The costs of each exchange."""
        return {kind: exchange.stats() for kind, exchange in self._exchanges.items()}

    def state_dict(self, all_ranks: bool) -> Dict[str, State]:
        """The state of each exchange."""
        return {kind: exchange.state_dict(all_ranks=all_ranks) for kind, exchange in self._exchanges.items()}

    def load_state_dict(self, states: Any) -> None:
        """Restores the states of exchanges; those that are not connected yet, when they connect."""
        given = [states] if isinstance(states, dict) else list(states)
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
    tensor = tensor.detach()
    if tensor.is_contiguous():
        return tensor.view(-1)
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
