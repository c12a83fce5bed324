"""The communication of FSDP2: replacements of its collectives, and the handle that they share."""

from __future__ import annotations

import time
import weakref
from contextlib import contextmanager
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist
from torch.profiler import record_function

from .. import _core
from . import _device
from ._channel import connect, release
from ._handle import Handle
from ._options import Options
from ._staging import finish_current
from ._states import Layout, State
from ._steps import Steps
from ._tensors import Named
from ._unit_exchanges import ALL, Exchange, ThroughDevice, ThroughHost
from ._units import Unit
from ._unused import SameGradients, explained

# The function that users call.
_CALLER = "gradwire.torch.fsdp.register"


class Sharded(Handle):
    """Averages the gradients of a sharded model over the ranks of a group."""

    _kind = "fsdp"
    # Gathers parameters by messages that stay on the device; ``None`` if the host sends them.
    _parameters_on_device: Optional[Any] = None
    # ``Description.parameter_transport``, if the host exchanges compressed parameters.
    _parameters_through_host = ""

    def __init__(
        self,
        units: List[Unit],
        named: List[Named],
        options: Options,
        group: Any,
        scaler: Optional[Any],
    ) -> None:
        super().__init__(named, options, group, scaler, _CALLER)
        self._gradients: Exchange = ThroughHost(self._reducer)
        self._parameters: Optional[Exchange] = None
        self._installed: List[Tuple[Any, str, Any]] = []
        self._units = units
        self._steps = Steps(units)
        self._same = SameGradients(self._reducer, units)

    def choose_transport(self, request: _device.Request, named: List[Named], options: Options) -> None:
        """Keeps the messages of gradients on the device if the request asks for it, or allows it
        and it is possible. The group of the request is PyTorch's group of the ranks."""
        with self._closing():
            place = _device.of_transport(request, self._reducer, named, options)
            self._on_device, self._compressed_on, self._through_host = place.transport, place.compressed_on, place.through_host
        if self._on_device is not None:
            self._gradients = ThroughDevice(self._on_device)

    def gather(
        self, named: List[Named], on_devices: List[Named], options: Options, request: _device.Request
    ) -> _core.Reducer:
        """Compresses the parameters that the ranks of the request's group gather; returns the
        reducer. ``on_devices`` has their devices and types."""
        with self._closing():
            reducer, private = connect(request.group, partial(options.reducer_of_gradients, named), options.deadline, _CALLER)
            self._release_parameters = weakref.finalize(self, release, reducer, private)
            self._release_parameters.atexit = False
            self._parameters = ThroughHost(reducer)
            place = _device.of_transport(request, reducer, on_devices, options)
            self._parameters_on_device, self._parameters_through_host = place.transport, place.through_host
        if self._parameters_on_device is not None:
            self._parameters = ThroughDevice(self._parameters_on_device)
        return reducer

    @contextmanager
    def _closing(self) -> Iterator[None]:
        """Closes the handle after an error."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def install(self, unit: Unit, attribute: str, communication: Any) -> None:
        """Puts a communication in the place of FSDP2's own, until the handle is closed."""
        present = getattr(unit.param_group, attribute)
        if not any(param_group is unit.param_group for param_group, _, _ in self._installed):
            prepare = unit.watch()
            if prepare is not None:
                self._installed.append((unit.param_group, "_prepare_reduce_scatter_inputs", prepare))
        setattr(unit.param_group, attribute, communication)
        self._installed.append((unit.param_group, attribute, present))

    def close(self) -> None:
        """Ends the exchange, as ``Handle.close`` does, and gives FSDP2 its own communication
        back."""
        if self._reducer.forked:
            return
        self._steps.close()
        for param_group, attribute, present in reversed(self._installed):
            setattr(param_group, attribute, present)
        self._installed.clear()
        try:
            super().close()
        finally:
            if self._parameters is not None:
                self._release_parameters()
            for transport in (self._on_device, self._parameters_on_device):
                if transport is not None:
                    transport.release()

    def _hurry(self) -> None:
        super()._hurry()
        if self._parameters is not None:
            self._parameters.reducer.hurry()

    @property
    def step(self) -> int:
        """The number of optimizer steps started so far, counting steps whose gradients, or some of
        them, were exchanged. If gradients are accumulated with synchronization, every backward pass
        is a step."""
        return self._step

    @property
    def _states(self) -> Any:
        return self._on_device or self._reducer

    def _costs(self) -> Dict[str, Any]:
        return (self._on_device or self._reducer).stats()  # type: ignore[no-any-return]

    @property
    def _parameter_transport(self) -> str:
        here = self._parameters_on_device
        return self._parameters_through_host if here is None else here.described(self._step)  # type: ignore[no-any-return]

    def _wait_for_averages(self) -> None:
        # Parameters first: if they are not finite, gradients are neither.
        for transport in (self._parameters_on_device, self._on_device):
            if transport is not None:
                transport.end_step()
        if self._on_device is None:
            super()._wait_for_averages()

    @property
    def _layout(self) -> Layout:
        return {name: one for unit in self._units for name, one in unit.dimensions.items()}

    def _load_with(self, read: Callable[[], Optional[Union[State, Sequence[State]]]]) -> bool:
        self._steps.forget()
        self.gather_exactly()
        return super()._load_with(read)

    def gather_exactly(self) -> None:
        """Makes the next gather of parameters uncompressed, with ``parameter_changes``.

        Call it on all ranks, between two steps, after the parameters have changed by more than an
        optimizer's step: after ``model.load_state_dict``, or when averaged weights are swapped in
        or out. Otherwise the next forward passes use the change as the compressor has rounded it,
        with an error that the following ones make up for. ``load_state_dict`` of the handle calls
        it. If only some ranks call it, ranks wait for each other until the timeout.
        """
        for param_group, attribute, _ in self._installed:
            communication = getattr(param_group, attribute)
            if isinstance(communication, Communication):
                communication.forget()

    def average(self, unit: Unit, values: torch.Tensor, own: slice = ALL) -> None:
        """Averages the gradients of a unit in place. ``values`` are the shards of all ranks, and
        only ``own`` is needed afterwards; or they are one shard, which is averaged over all
        replicas. If this raises an error, other ranks fail, too."""
        try:
            self._average(unit, values, own)
        except BaseException:
            # The other ranks wait for this one.
            self._reducer.abort()
            self._stepping.end(failed=True)
            raise

    def _average(self, unit: Unit, values: torch.Tensor, own: slice) -> None:
        check_zeros([unit], self._spec, self._reducer.votes)
        elements = values[own].numel()
        names = unit.reduced(elements)
        first, in_backward = self._steps.begins_pass(), torch._C._current_graph_task_id() != -1
        if self._steps.reduce(unit):
            self._begin()
        elif first:
            # A step may take several backward passes.
            self._stepping.begin()
        if first and in_backward:
            self._wait_at_end()
        if self._on_device is None:
            finish_current(values.device)
        start = time.perf_counter()
        with record_function("gradwire::exchange"), explained(unit, names):
            self._same.check(self._step - 1, unit, names)
            self._gradients.exchange(self._step - 1, names, values, self._scale, written=own)
        if self._on_device is None:
            self._wait_seconds += time.perf_counter() - start
        if not in_backward:
            self._wait()

    @property
    def deadline(self) -> float:
        """The longest wait for another rank, in seconds."""
        seconds: float = self._reducer.deadline
        return seconds

    def fail(self) -> None:
        """Ends the exchange on all ranks, because this one cannot go on."""
        self._reducer.abort()
        if self._stepping.in_step:
            self._stepping.end(failed=True)

    def fill(self, unit: Unit, values: torch.Tensor, own: slice) -> None:
        """Fills ``values``, the shards of a unit's parameters on all ranks. ``own``, this rank's
        shard, is given."""
        assert self._parameters is not None
        with record_function("gradwire::gather"):
            self._parameters.exchange(self._steps.number_of_gather(unit, self._step), unit.names, values, read=own)

    def stats(self) -> Dict[str, Any]:
        """The cost of the last step for this rank, as in ``Handle.stats``.

        With compressed parameters, also contains ``parameter_bytes_up`` and
        ``parameter_bytes_down``, the bytes of the parameters that were gathered last for a step,
        and their totals; without gathers by FSDP2 itself.
        """
        stats = super().stats()
        if self._parameters is not None:
            gathered = (self._parameters_on_device or self._parameters.reducer).stats()
            for name in ("bytes_up", "bytes_down", "total_bytes_up", "total_bytes_down"):
                stats[f"parameter_{name}"] = gathered[name]
        return stats


def check_free(unit: Unit) -> None:
    """Refuses a unit whose communication has been replaced already."""
    for attribute in ("_reduce_scatter_comm", "_all_reduce_hook", "_all_gather_comm"):
        if isinstance(getattr(unit.param_group, attribute), Communication):
            raise _core.ConfigError(
                f"{type(unit.module).__name__} is registered already; close the handle of that registration first"
            )


def check_zeros(units: List[Unit], spec: str, votes: bool) -> None:
    """Refuses a compressor that votes, if parameters that a step did not use would vote with
    zeros."""
    if votes and any(unit.fills_in for unit in units):
        raise _core.ConfigError(
            f"'{spec}' averages by votes, and with set_reduce_scatter_unused_params(True) the zeros of parameters that a step did "
            "not use would vote; set it to False, or use another compressor, such as efsignsgd"
        )


_FACTOR = "gradwire averages gradients; instead of set_gradient_divide_factor, multiply the loss by a factor"


class Communication:
    """A communication of one unit, in the form that FSDP2 takes."""

    def __init__(self, handle: Sharded, unit: Unit) -> None:
        self._handle, self._unit = handle, unit

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Memory for the values of all ranks, or for the result."""
        return torch.empty(*size, dtype=dtype, device=device)

    def forget(self) -> None:
        """Forgets what it keeps from step to step, because the parameters have changed."""


def own_place(group: Any, shard: int) -> slice:
    """The place of this rank's ``shard`` elements among the elements of all ranks."""
    return slice(group.rank() * shard, (group.rank() + 1) * shard)


class ReduceScatter(Communication):
    """The reduce-scatter of a unit's gradients."""

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        """Replaces ``output_tensor`` by the mean, or sum, of this rank's shard."""
        if op not in (dist.ReduceOp.AVG, dist.ReduceOp.SUM):
            raise _core.ConfigError(_FACTOR)
        own = own_place(group, output_tensor.numel())
        self._handle.average(self._unit, input_tensor, own)
        torch.mul(input_tensor[own], group.size() if op == dist.ReduceOp.SUM else 1, out=output_tensor)


class AllGather(Communication):
    """The all-gather of a unit's parameters."""

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, async_op: bool = False
    ) -> None:
        """Fills ``output_tensor`` with the decoded shards of all ranks, so all ranks have the same
        bits."""
        self.check_type(output_tensor)
        # The input is this rank's part of the output.
        self._handle.fill(self._unit, output_tensor, own_place(group, input_tensor.numel()))


    def check_type(self, output_tensor: torch.Tensor) -> None:
        """Refuses parameters of several types, which FSDP2 gathers as bytes."""
        if output_tensor.dtype == torch.uint8:
            raise _core.ConfigError(f"the parameters of {self._unit} have several types; give them one type, or leave out the argument parameters")


class AllReduce(Communication):
    """The hook after the reduce-scatter of a unit's gradients."""

    def __call__(self, reduce_output: torch.Tensor) -> None:
        """Averages this rank's shard over the replicas, in place."""
        if self._unit.factor not in (None, self._unit.param_group.mesh_info.shard_mesh_size):
            # The factor divides the sum over shards; the mean over replicas would divide again.
            raise _core.ConfigError(_FACTOR)
        if reduce_output.is_cuda:
            # FSDP2 allocates it in another stream than the one that calls this.
            reduce_output.record_stream(torch.cuda.current_stream(reduce_output.device))
        self._handle.average(self._unit, reduce_output)
