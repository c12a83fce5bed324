"""The exchange of a process group: averages tensors that become known when a call comes."""

from __future__ import annotations

import time
import warnings
import weakref
from functools import partial
from threading import Event
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple, Union

import torch
from torch.futures import Future

from .. import _core
from .._arrays import buffer
from . import _saved, _states
from ._failures import Pending
from ._gradient_calls import StepEnds, present_pass, watch_optimizers
from ._handle import Handle
from ._options import Options
from ._owners import Owners, gradients_of
from ._places import Kind, Places
from ._staging import Staging
from ._states import State

# The seconds between two checks for Ctrl-C.
_GLANCE = 0.05


class Average:
    """An average under way."""

    def __init__(self, future: Future) -> None:
        self.future = future
        # Set when the future is done.
        self.ended = Event()
        # Whether the values of a rank were not finite; known when the future is done.
        self.skipped = False


class GroupExchange(Handle):
    """Averages tensors over the ranks of a process group, each by its place in the step.

    All ranks must create one at the same time: at the first call that needs it.
    """

    _kind = "process group"

    def __init__(self, options: Options, group: Any, caller: str, keeps: bool, trainer: int) -> None:
        """``keeps``: something is kept for a place from step to step. ``trainer``: the thread that
        trains; the first call may come in a thread of autograd."""
        super().__init__([], options, group, None, caller)
        self._stepping.set_trainer(trainer)
        self._places = Places()
        self._ends = StepEnds()
        # The numbers of the tensor groups, by place.
        self._tensor_groups: Dict[str, int] = {}
        self._tensors: Dict[str, Tuple[List[int], str]] = {}
        self._staging: Dict[torch.device, Staging] = {}
        # The last average of each place on a device.
        self._averages: Dict[str, Average] = {}
        self._named: Set[str] = set()
        # The places of calls in the present step whose owners are unknown, by the address of the
        # tensor.
        self._addresses: Dict[int, Tuple[Kind, int]] = {}
        self._owners = Owners()
        self._keeps = keeps
        self._closed = False
        self._failure: Optional[Exception] = None
        self._under_way = Pending()
        # Whether an average of the present pass was skipped.
        self._skipped = False
        watch_optimizers(self._bind)
        self._has_warned = self._has_warned_of_models = False
        # The optimizers that took a step after calls of the present step, and of the last one with
        # calls whose owners are unknown.
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._optimizers_before: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()

    def tell_step(self) -> None:
        """The step has ended."""
        self._ends.tell()

    def place(self, kind: Kind, values: torch.Tensor, name: Optional[str] = None) -> str:
        """The place of the next call, with flat ``values``; it may begin a step. ``name`` is the
        name that the caller gave to the tensor; one that comes again begins a step, too."""
        begins_pass = self._ends.begins_pass()
        if begins_pass and present_pass() is not None:
            self._owners.forget_addresses()
        if self._step == 0 or self._ends.begins_step(begins_pass) or name in self._named:
            self._begin_step()
        if begins_pass and torch._C._current_graph_task_id() != -1:
            # Before the first tensor of the pass is exchanged, so a failure ends the step, too.
            self._stepping.begin()
            self._wait_at_end()
        if name is None:
            owner = self._owners.of(values) if self._keeps else None
            number = self._places.next(kind, owner)
            if owner is None and self._keeps:
                self._addresses[values.data_ptr()] = kind, number
            return kind.place(number)
        self._named.add(name)
        return f"{name} {kind.element_type}[{kind.elements}]"

    def _bind(self, optimizer: torch.optim.Optimizer) -> None:
        """Gives places of the present step to the parameters of an optimizer, whose step uses what
        was exchanged there."""
        self._optimizers.add(optimizer)
        if self._addresses:
            for address, parameter in gradients_of(optimizer).items():
                found = self._addresses.get(address)
                if found is not None and found[0].elements == parameter.grad.numel():  # type: ignore[union-attr]
                    del self._addresses[address]
                    self._places.bind(*found, self._owners.number(parameter))

    def _check_optimizers(self) -> None:
        """Warns once if two models take turns, and nobody knows whose gradients are exchanged."""
        before, self._optimizers_before = self._optimizers_before, self._optimizers
        self._optimizers = weakref.WeakSet()
        if not self._addresses:
            # The owners are known, so the step does not count.
            self._optimizers_before = before
        elif before and self._optimizers_before and not before & self._optimizers_before and not self._has_warned_of_models:
            self._has_warned_of_models = True
            warnings.warn(
                "two optimizers take turns, so residuals of one model are added to gradients of another one of the same sizes; give each "
                "model a process group of its own, with gradwire.torch.wrap(torch.distributed.new_group()), or use a compressor without "
                "error feedback, such as eden",
                RuntimeWarning,
                stacklevel=2,
            )

    def _begin_step(self) -> None:
        self._step += 1
        self._skipped = False
        self._named.clear()
        self._check_optimizers()
        self._addresses.clear()
        self._owners.forget_addresses()
        changes = self._places.end()
        uncertain = [place for place in changes.uncertain if self._forget(place)]
        for place in changes.absent:
            self._forget(place)
        if uncertain and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"a step had another number of calls than the step before, for example {uncertain[0]!r}, so it is unknown which tensors "
                "they exchange; their residuals are dropped. If steps often differ, use a compressor without error feedback, such as eden",
                RuntimeWarning,
                stacklevel=2,
            )

    def _forget(self, place: str) -> bool:
        """Drops what is kept for a place. Returns whether there was anything."""
        return place in self._tensors and self._reducer.forget(place)

    def average(self, place: str, values: torch.Tensor, factor: float, probe: int = 0) -> Average:
        """Starts to average flat values in place, times ``factor``.

        The element at ``probe`` tells whether the values of a rank were not finite: then all
        become NaN.
        """
        self._add(place, values)
        before = self._averages.get(place)
        if before is not None:
            # Its memory is used again.
            self.wait_for(before, None)
        ready: Optional[Callable[[], Optional[float]]] = None
        host, future = values, Future()
        done: Callable[[], None] = partial(future.set_result, values)
        if values.device.type != "cpu":
            staging = self._staging.setdefault(values.device, Staging(values.device))
            number = (self._tensor_groups[place], 0)
            future, host, done, ready = staging.stage(number, values, 1.0)
        average = self._averages[place] = Average(future)

        def finish() -> None:
            try:
                if self._reducer.failed:
                    # The values are no averages.
                    raise _core.GradwireError(f"the exchange of '{place}' failed; wait() of its work raises the cause")
                average.skipped = bool(host.numel() and host[probe].isnan())
                self._skipped |= average.skipped
                done()
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
                raise
            finally:
                self._under_way.end()
                average.ended.set()

        self._under_way.begin()

        tensor_group, tensor = self._tensor_groups[place], buffer(host, place)
        self._reducer.average(tensor_group, self._step - 1, tensor, finish, ready=ready, factor=factor)
        return average

    def wait_for(self, average: Average, seconds: Optional[float]) -> None:
        """Waits until an average is there; Ctrl-C ends the wait."""
        until = None if seconds is None else time.monotonic() + seconds
        while not average.ended.wait(_GLANCE):
            if until is not None and time.monotonic() > until:
                raise _core.DeadlineError(f"a compressed collective did not end within {seconds:g} s, the timeout of its wait()")

    def note(self, average: Average) -> None:
        """Notes the outcome of an average that the caller has waited for, and raises its error. All
        ranks wait in the same order, so they agree on what they know."""
        if self._closed:
            if self._failure is not None:
                raise self._failure
        elif self._reducer.failed or self._under_way.idle:
            # This rank may end now, and the others must have its messages.
            self._reducer.wait()
        self._ends.skipped |= average.skipped

    def close(self) -> None:
        """Ends the exchange, after the averages under way."""
        if not self._closed and not self._reducer.forked:
            self._closed = True
            try:
                self._reducer.wait()
            except _core.GradwireError as error:
                # Whoever waits for the work gets it.
                self._failure = error
        super().close()

    def _wait_for_averages(self) -> None:
        super()._wait_for_averages()
        self._ends.skipped |= self._skipped
        self._skipped = False

    @property
    def failed(self) -> bool:
        """Whether an average has failed."""
        found: bool = self._reducer.failed
        return found

    def _add(self, place: str, values: torch.Tensor) -> None:
        if place in self._tensor_groups:
            return
        element_type = str(values.dtype).replace("torch.", "")
        self._tensors[place] = [values.numel()], element_type
        self._reducer.add([(place, [values.numel()], element_type)])
        self._tensor_groups[place] = self._reducer.tensor_group([place])

    @property
    def bytes_of_places(self) -> Dict[str, Tuple[str, int]]:
        """The compressor of each place, and the bytes of this rank's last message."""
        return {name: (spec, sent) for name, _, spec, _, sent in self._reducer.plan(max(self._step - 1, 0))}

    def fail(self) -> None:
        """Ends the exchange on all ranks, because this one cannot go on."""
        self._reducer.abort()
        self._hurry()

    def _packed(self, step: int, states: Sequence[bytes]) -> State:
        tensors = _states.to_bytes([(name, shape, element_type) for name, (shape, element_type) in self._tensors.items()])
        return _states.packed(self._kind, step, self._reducer, states, _states._pack(tensors))

    def _load_with(self, read: Callable[[], Optional[Union[State, Sequence[State]]]]) -> bool:
        def read_and_add() -> Optional[Union[State, Sequence[State]]]:
            states = read()
            if states is not None:
                with _saved.reading():
                    self._add_saved(_saved.listed(states))
            return states

        loaded = super()._load_with(read_and_add)
        self._ends.tell()
        return loaded

    def _add_saved(self, states: Sequence[State]) -> None:
        """Adds the tensors that states contain."""
        for state in states:
            _saved.check(state, self._kind)
            for _, packed in state["exchange"].values():
                for name, shape, element_type in _saved.from_bytes(packed):
                    self._reducer.add([(name, shape, element_type)])
                    self._tensors[name] = list(shape), element_type
                    self._tensor_groups[name] = self._reducer.tensor_group([name])
