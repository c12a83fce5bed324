"""The communication of FSDP2: what replaces its collectives, and the handle that they share."""

from __future__ import annotations

import time
import weakref
from functools import partial
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch.profiler import record_function

from .. import _core
from .._arrays import buffer, keeping
from . import _setup
from ._channel import connect, release
from ._handle import Handle
from ._staging import Pinned, finish_current
from ._units import Named, Unit


_ALL = slice(None)


def _is_in_main_memory(values: torch.Tensor) -> bool:
    return values.device.type == "cpu"


class _GroupExchange:
    """Exchanges the values of groups of parameters, in place."""

    def __init__(self, reducer: _core.Reducer) -> None:
        self.reducer = reducer
        self._pinned: Dict[torch.device, Pinned] = {}

    def _memory(self, device: torch.device) -> Pinned:
        # One exchange ends before the next begins.
        return self._pinned.setdefault(device, Pinned(device))

    def exchange(
        self, step: int, names: List[str], values: torch.Tensor, scale: float = 1.0, read: slice = _ALL, written: slice = _ALL
    ) -> None:
        """Exchanges values, and waits: FSDP2 uses what its communication leaves as soon as it returns.

        Of values on a GPU the exchange sees only ``read``, and changes only ``written``, so that no more is copied.
        """
        host = values
        if not _is_in_main_memory(values):
            memory = self._memory(values.device).of(values.numel() * values.element_size())
            host = memory.view(values.dtype)
            host[read].copy_(values[read])
        group = self.reducer.group(names)
        self.reducer.average(group, step, buffer(host, "a group of shards"), keeping(host), scale=scale)
        self.reducer.wait()
        if host is not values:
            values[written].copy_(host[written])


class Sharded(Handle):
    """Averages the gradients of a sharded model over the ranks of a group."""

    _kind = "fsdp"

    def __init__(
        self,
        named: Named,
        compressor: str,
        group: Any,
        exchange: str,
        options: Dict[str, Any],
        scaler: Optional[Any],
    ) -> None:
        make = partial(_setup.every_step, named, compressor, exchange=exchange, **options)
        super().__init__(*connect(group, make, options.get("deadline")), scaler)
        self._gradients = _GroupExchange(self._reducer)
        self._parameters: Optional[_GroupExchange] = None
        self._installed: List[Tuple[Any, str, Any]] = []
        # The number of the backward pass in progress, as autograd counts them.
        self._backward = -1

    def gather(self, named: Named, compressor: str, group: Any, options: Dict[str, Any]) -> None:
        """Compresses the parameters that the ranks of ``group`` gather."""
        make = partial(_setup.every_step, named, compressor, exchange="gather-shards", **options)
        reducer, private = connect(group, make, options.get("deadline"))
        self._parameters = _GroupExchange(reducer)
        self._release_parameters = weakref.finalize(self, release, reducer, private)
        self._release_parameters.atexit = False

    def install(self, unit: Unit, attribute: str, communication: Any) -> None:
        """Puts a communication in the place of FSDP2's own, until the handle is closed."""
        present = getattr(unit.group, attribute)
        if not any(group is unit.group for group, _, _ in self._installed):
            prepare = unit.watch()
            if prepare is not None:
                self._installed.append((unit.group, "_prepare_reduce_scatter_inputs", prepare))
        setattr(unit.group, attribute, communication)
        self._installed.append((unit.group, attribute, present))

    def close(self) -> None:
        """Ends the exchange, as ``Handle.close`` does, and gives FSDP2 its own communication back."""
        for group, attribute, present in reversed(self._installed):
            setattr(group, attribute, present)
        self._installed.clear()
        try:
            super().close()
        finally:
            if self._parameters is not None:
                self._release_parameters()

    def _hurry(self) -> None:
        super()._hurry()
        if self._parameters is not None:
            self._parameters.reducer.hurry()

    def average(self, names: List[str], values: torch.Tensor, own: slice = _ALL) -> None:
        """Averages the gradients of some parameters in place: the shards of all ranks, of which ``own`` is needed, or one shard
        of all replicas."""
        backward = torch._C._current_graph_task_id()
        if backward != self._backward or backward == -1:
            self._backward = backward
            self._begin()
            self._wait_at_end()
        finish_current(values.device)
        start = time.perf_counter()
        with record_function("gradwire::exchange"):
            self._gradients.exchange(self._step - 1, names, values, float(self._scale), written=own)
        self._wait_seconds += time.perf_counter() - start

    def fill(self, names: List[str], values: torch.Tensor, own: slice) -> None:
        """Fills ``values``, the shards of all ranks of some parameters, of which ``own``, those of this rank, are given."""
        assert self._parameters is not None
        # In a backward pass the step is already counted. Both passes of a step need the same random draws.
        started = self._backward != -1 and self._backward == torch._C._current_graph_task_id()
        with record_function("gradwire::gather"):
            self._parameters.exchange(self._step - started, names, values, read=own)

    def stats(self) -> Dict[str, Any]:
        """The cost of the last step for this rank, as in ``Handle.stats``.

        With compressed parameters also ``parameter_bytes_up`` and ``parameter_bytes_down``, the bytes of the parameters
        that were gathered last for a step, and their totals.
        """
        stats = super().stats()
        if self._parameters is not None:
            gathered = self._parameters.reducer.stats()
            for name in ("bytes_up", "bytes_down", "total_bytes_up", "total_bytes_down"):
                stats[f"parameter_{name}"] = gathered[name]
        return stats


def check_free(unit: Unit) -> None:
    """Refuses a unit whose communication has been replaced already."""
    for attribute in ("_reduce_scatter_comm", "_all_reduce_hook", "_all_gather_comm"):
        if isinstance(getattr(unit.group, attribute), _Communication):
            raise _core.ConfigError(
                f"{type(unit.module).__name__} is registered already; close the handle of that registration first"
            )


def check_zeros(units: List[Unit], spec: str, votes: bool) -> None:
    """Refuses a compressor that votes, for units in which the zeros of parameters that a step did not use would vote."""
    if votes and any(unit.fills_in for unit in units):
        raise _core.ConfigError(
            f"'{spec}' averages by votes, and with set_reduce_scatter_unused_params(True) the zeros of parameters that a step did "
            "not use would vote; set it to False, or use another compressor, such as efsignsgd"
        )


_FACTOR = "gradwire averages gradients; instead of set_gradient_divide_factor, multiply the loss by a factor"


class _Communication:
    """A communication of one unit, in the form that FSDP2 takes."""

    def __init__(self, handle: Sharded, unit: Unit) -> None:
        self._handle, self._unit = handle, unit

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Memory for the values of all ranks, or for the result."""
        return torch.empty(*size, dtype=dtype, device=device)


def _own(group: Any, shard: int) -> slice:
    """The place of this rank's ``shard`` elements among those of all ranks."""
    return slice(group.rank() * shard, (group.rank() + 1) * shard)


class ReduceScatter(_Communication):
    """The reduce-scatter of a unit's gradients."""

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        """Replaces ``output_tensor`` by the mean, or sum, of this rank's shard."""
        if op not in (dist.ReduceOp.AVG, dist.ReduceOp.SUM):
            raise _core.ConfigError(_FACTOR)
        check_zeros([self._unit], self._handle._spec, self._handle._reducer.votes)
        shard = output_tensor.numel()
        own = _own(group, shard)
        self._handle.average(self._unit.reduced(shard), input_tensor, own)
        torch.mul(input_tensor[own], group.size() if op == dist.ReduceOp.SUM else 1, out=output_tensor)


class AllGather(_Communication):
    """The all-gather of a unit's parameters."""

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, async_op: bool = False
    ) -> None:
        """Fills ``output_tensor`` with the shards of all ranks, decoded, so that all ranks have the same bits."""
        if output_tensor.dtype == torch.uint8:
            raise _core.ConfigError(
                f"the parameters of {type(self._unit.module).__name__} have several types; give them one, or leave out "
                "parameters"
            )
        # The input is this rank's part of the output.
        self._handle.fill(self._unit.names, output_tensor, _own(group, input_tensor.numel()))


class AllReduce(_Communication):
    """The hook after the reduce-scatter of a unit's gradients."""

    def __call__(self, reduce_output: torch.Tensor) -> None:
        """Averages this rank's shard over the replicas, in place."""
        if self._unit.factor not in (None, self._unit.group.mesh_info.shard_mesh_size):
            # It divides the sum over shards, and the mean over replicas comes on top.
            raise _core.ConfigError(_FACTOR)
        check_zeros([self._unit], self._handle._spec, self._handle._reducer.votes)
        self._handle.average(self._unit.reduced(reduce_output.numel()), reduce_output)
