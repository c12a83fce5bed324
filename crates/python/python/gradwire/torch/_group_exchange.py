"""The exchange of a process group: averages tensors that become known when a call comes."""

from __future__ import annotations

import time
import warnings
import weakref
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union

import torch
from torch.futures import Future

from .. import _core
from .._arrays import buffer
from . import _device, _saved, _states
from ._failures import Pending
from ._gradient_calls import StepEnds, after_block, present_pass
from ._group_call import Call
from ._group_errors import named
from ._group_options import GATHERS, GroupOptions
from ._handle import Handle
from ._optimizer_steps import after_steps
from ._options import compare
from ._owners import Owners, gradients_of
from ._places import LONGEST_ABSENCE, Changes, Kind, Places, is_named
from ._staging import Output, Staging
from ._states import State
from ._traffic import Plain, sizes_of, warn_of_more


class Average:
    """An average under way."""

    def __init__(self, future: Future) -> None:
        # Of the caller's tensors.
        self.future = future
        # Whether the host has nothing more to do for it.
        self.ended = False


class GroupExchange(Handle):
    """Averages tensors over the ranks of a process group, each by its place in the step.

    All ranks must create one at the same time: at the first call that needs it.
    """

    _kind = "process group"

    def __init__(self, options: GroupOptions, kind: str, group: Any, trainer: int) -> None:
        """``kind``: of the calls. ``trainer``: the thread that trains; the first call may come in a
        thread of autograd."""
        self._given, self._options = options, options.of_kind(kind)
        self._group_name: str = group.group_name
        self._calls_of = kind
        # The place of the first call whose average failed.
        self._failed_place = ""
        super().__init__([], self._options, group, None, f"a compressed {kind} of process group '{self._group_name}'")
        # A group that compresses lets its inner one send. The group may be the key of this object.
        self._request = options.request(weakref.proxy(getattr(group, "_inner", group)), kind)
        self._stepping.set_trainer(trainer)
        # Whether the place of compression was chosen, for the first tensor on a device.
        self._has_chosen = False
        self._places = Places()
        self._ends = StepEnds()
        # The numbers of the tensor groups, by place.
        self._tensor_groups: Dict[str, int] = {}
        self._tensors: Dict[str, Tuple[List[int], str]] = {}
        self._staging: Dict[torch.device, Staging] = {}
        # The last average of each place on a device, and the last one of all.
        self._averages: Dict[str, Average] = {}
        self._last: Optional[Average] = None
        self._named: Set[str] = set()
        # The places of calls in the present step whose owners are unknown, by the address of the
        # tensor.
        self._addresses: Dict[int, Tuple[Kind, int]] = {}
        self._owners = Owners()
        self._keeps = kind != GATHERS and options.keeps()
        # The places of a loaded state that have not come up.
        self._awaited: Set[str] = set()
        self._closed = False
        self._failure: Optional[Exception] = None
        self._under_way = Pending()
        # Whether messages may not have left, and nobody waits for them yet.
        self._has_sent = self._will_flush = False
        after_steps(self._bind)
        # The number of places whose traffic was compared with an uncompressed exchange.
        self._measured = 0
        # The subjects of earlier warnings.
        self._warned: Set[str] = set()
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
        if self._step == 0 or self._ends.begins_step(begins_pass, self._is_skipped) or name in self._named:
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
        if self._keeps:
            self._places.note(kind.named(name))
        return kind.named(name)

    def _bind(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
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
        elif before and self._optimizers_before and not before & self._optimizers_before:
            self._warn(
                "models",
                "two optimizers take turns, so residuals of one model are added to gradients of another one of the same sizes; give each "
                "model a process group of its own, with gradwire.torch.wrap(torch.distributed.new_group()), or use a compressor without "
                "error feedback, such as eden",
            )

    def _is_skipped(self) -> bool:
        """Whether values of the present step were not finite on some rank. Waits for the last
        average; it tells, because all after the first such value are NaN. All ranks find the
        same."""
        step = self._step - 1
        if self._last is not None:
            self.wait_for(self._last, None)
            if self._reducer.skipped(step):
                return True
        return self._on_device is not None and self._on_device.is_skipped(step)

    def _begin_step(self) -> None:
        if self._on_device is not None:
            self._on_device.end_step()
        has_calls = self._last is not None
        self._step += 1
        self._last = None
        self._named.clear()
        self._check_optimizers()
        self._addresses.clear()
        self._owners.forget_addresses()
        if has_calls:
            self._warn_of_awaited()
        self._end_places(self._places.end())

    def _end_places(self, changes: Changes) -> None:
        """Drops residuals that may be added to another tensor, or that nobody may fetch any more,
        and tells of them, and of those that are kept in vain."""
        dropped = ([place for place in places if self._forget(place)] for places in (changes.uncertain, changes.absent, changes.early))
        # What the first step has left hardly counts.
        uncertain, absent, _ = dropped
        if uncertain:
            self._warn(
                "uncertain",
                f"a step had another number of calls than the step before, for example {uncertain[0]!r}, so it is unknown which tensors "
                "they exchange; their residuals are dropped. If steps often differ, use a compressor without error feedback, such as eden",
            )
        if absent:
            self._warn("absent", f"{absent[0]!r} has not come up for {LONGEST_ABSENCE} steps; its residual is dropped")
        if changes.unused:
            self._warn(
                "unused",
                f"{min(changes.unused)!r} has had no call for {LONGEST_ABSENCE} steps; its residual is kept for the next one. If the tensor "
                "has another name or size now, give it the old one, or its residual is never sent",
            )

    def _warn_of_awaited(self) -> None:
        """Warns after the first step with a loaded state of residuals that it has not used."""
        if self._awaited:
            self._warn(
                "awaited",
                f"the loaded state has residuals of calls that the first step did not make, for example {min(self._awaited)!r}; if "
                "gradients have other sizes than in the saved run, as those of FSDP2 on another number of ranks, these residuals are not used",
            )
            self._awaited.clear()

    def _warn(self, subject: str, text: str) -> None:
        """Warns, unless there was a warning of this subject."""
        if subject not in self._warned:
            self._warned.add(subject)
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _warn_of_more(self) -> None:
        """Warns once if the messages of all places together are larger than the tensors."""
        self._measured = len(self._tensors)
        if "traffic" in self._warned:
            return
        device = self._on_device
        places = [values for place, values in self._tensors.items() if device is None or device.knows(place)]
        size = sum(prod(shape) * (4 if element_type == "float32" else 2) for shape, element_type in places)
        what = f"the tensors of process group '{self._group_name}' so far"
        if warn_of_more(self._reducer, Plain(size, what, self._calls_of), stacklevel=2, sizes=sizes_of(device)):
            self._warned.add("traffic")

    def _forget(self, place: str) -> bool:
        """Drops what is kept for a place. Returns whether there was anything."""
        if place not in self._tensors:
            return False
        found: bool = self._reducer.forget(place)
        self._averages.pop(place, None)
        for staging in self._staging.values():
            staging.forget((self._tensor_groups[place], 0))
        return (self._on_device is not None and self._on_device.forget(place)) or found

    def average(self, place: str, call: Call) -> Average:
        """Starts a call. If the values of a rank are not finite, all results become NaN."""
        self._awaited.discard(place)
        self._add(place, call.values)
        stays = self._stays_on_device(place, call)
        if len(self._tensors) != self._measured:
            self._warn_of_more()
        if stays:
            average = self._last = Average(self._on_device.average_call(self._step - 1, place, call))  # type: ignore[union-attr]
            average.ended = True
            return average
        before = self._averages.get(place)
        if before is not None:
            # Its memory is used again.
            self.wait_for(before, None)
        average = self._last = self._through_the_host(place, call)
        if not call.values.is_cpu:
            self._averages[place] = average
        return average

    def _stays_on_device(self, place: str, call: Call) -> bool:
        """Whether the messages of a call stay on its device. All ranks choose at the first tensor
        on a device, and compare each place there when it comes first."""
        if not self._has_chosen and (not call.values.is_cpu or self._request.transport == "device"):
            self._has_chosen = True
            chosen = _device.of_transport(self._request, self._reducer, [(place, call.values)], self._options)
            self._on_device, self._through_host = chosen.transport, chosen.through_host
        transport = self._on_device
        if transport is None or transport.device != call.values.device:
            return False
        if not transport.knows(place):
            compare(self._reducer, {"the compressed call": place})
            transport.add(place, call.values.numel(), self._tensor_groups[place])
        return True

    def _through_the_host(self, place: str, call: Call) -> Average:
        """Starts an average by messages that pass through main memory."""
        ready: Optional[Callable[[], Optional[float]]] = None
        host, own, pending = call.values, call.output, Future()
        future, done = pending, partial(pending.set_result, call.tensors)
        if not host.is_cpu:
            staging = self._staging.setdefault(host.device, Staging(host.device))
            number = (self._tensor_groups[place], 0)
            pending, host, done, ready = staging.stage(number, call.values, 1.0, own)
            future = pending.then(partial(_tensors_of, call))
            own = None if own is None else Output(host[own.start : own.start + own.tensor.numel()], own.start)
        average = Average(future)
        finish = partial(self._finish, average, place, call, pending, done)
        self._under_way.begin()
        self._has_sent = True
        output = None if own is None else (own.start, buffer(own.tensor, place))
        tensor_group, values = self._tensor_groups[place], buffer(host, place)
        self._reducer.average(tensor_group, self._step - 1, values, finish, ready=ready, factor=call.factor, output=output)
        return average

    def _finish(self, average: Average, place: str, call: Call, pending: Future, done: Callable[[], None]) -> None:
        """Ends an average. Until then its exchange uses the memory of the call's tensors, which the
        reference to ``call`` keeps."""
        try:
            if self._reducer.failed:
                self._failed_place = self._failed_place or place
                # The values are no averages.
                raise _core.GradwireError(f"the exchange of '{place}' failed; wait() of its work raises the cause")
            done()
        except Exception as error:
            if not pending.done():
                pending.set_exception(error)
            raise
        finally:
            average.ended = True
            self._under_way.end()

    def wait_for(self, average: Average, seconds: Optional[float]) -> None:
        """Waits until an average is there; Ctrl-C ends the wait."""
        until = None if seconds is None else time.monotonic() + seconds
        while not (average.ended or self._under_way.wait_for(lambda: average.ended)):
            if until is not None and time.monotonic() > until:
                raise _core.DeadlineError(f"a compressed collective did not end within {seconds:g} s, the timeout of its wait()")

    def note(self, average: Average) -> None:
        """Raises the error of an average that the caller has waited for."""
        if self._closed:
            if self._failure is not None:
                raise self._failure
        elif self._reducer.failed:
            self._wait_for_reducer()
        elif self._has_sent and not self._will_flush and torch._C._current_graph_task_id() == -1:
            # A backward pass waits at its end.
            self._will_flush = True
            after_block(self._flush)

    def _flush(self, failed: bool) -> None:
        """Waits until the messages of all averages have left, because this rank may end now.
        Whoever waits for the last average calls it again."""
        self._will_flush = False
        if self._under_way.idle and not self._closed and not failed:
            self._has_sent = False
            self._wait_for_reducer()

    def _wait_for_reducer(self) -> None:
        with self._naming():
            self._reducer.wait()

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """A block that waits for averages. Its ``DeadlineError`` names the call that failed."""
        try:
            yield
        except _core.DeadlineError as error:
            if not self._failed_place:
                raise
            raise named(error, self._failed_place, self._group_name, self._given) from error

    def close(self) -> None:
        """Ends the exchange, after the averages under way."""
        if not self._closed and not self._reducer.forked:
            self._closed = True
            try:
                self._wait_for_reducer()
            except _core.GradwireError as error:
                # Whoever waits for the work gets it.
                self._failure = error
            if self._on_device is not None and self._failure is None:
                self._on_device.finish()
        super().close()
        if self._on_device is not None:
            self._on_device.release()

    def _wait_for_averages(self) -> None:
        if self._on_device is not None:
            self._on_device.end_step()
        with self._naming():
            super()._wait_for_averages()

    @property
    def _states(self) -> Any:
        return self._on_device or self._reducer

    def _costs(self) -> Dict[str, Any]:
        return (self._on_device or self._reducer).stats()  # type: ignore[no-any-return]

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
        plan = (self._on_device or self._reducer).plan(max(self._step - 1, 0))
        return {name: (spec, sent) for name, _, spec, _, sent in plan}

    @property
    def transport(self) -> str:
        """Where messages travel, as ``Description.transport``."""
        return self._transport

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
        places = self._tensors if loaded and self._keeps else ()
        self._awaited = {place for place in places if not is_named(place)}
        for place in places:
            if is_named(place):
                self._places.note(place)
        self._warned.discard("awaited")
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


def _tensors_of(call: Call, staged: Future) -> List[torch.Tensor]:
    # Raises the error of an average that has failed.
    staged.value()
    return call.tensors
