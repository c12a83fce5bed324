"""Compressed gradients for models that ``fully_shard`` (FSDP2) has sharded.

Every rank holds a shard of each parameter: a chunk of its rows. In a backward pass FSDP2 reduce-scatters gradients, module
by module: each rank gets the mean of its shard. ``register`` compresses these messages. With ``replicas``, FSDP2's own
reduce-scatter stays, for fast links inside a node, and the means of shards are averaged with compressed messages
between nodes.
"""

from __future__ import annotations

import time
import weakref
from functools import partial
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch.profiler import record_function

from .. import _core
from .._arrays import buffer
from . import _setup
from ._channel import connect, release
from ._handle import Handle

__all__ = ["Handle", "register"]


def register(
    model: torch.nn.Module,
    compressor: str = "eden",
    *,
    replicas: Optional[Any] = None,
    parameters: Optional[str] = None,
    rules: _setup.Rules = None,
    exchange: str = "auto",
    seed: int = 0,
    deadline: float = 300.0,
    on_nonfinite: str = "error",
    scaler: Optional[Any] = None,
    raw_vectors: bool = True,
    raw_below: int = 256,
    raw_names: Sequence[str] = (),
    total_steps: Optional[int] = None,
) -> Handle:
    """Compresses the gradients that a model sharded by ``fully_shard`` exchanges.

    Call it after ``fully_shard``, on all ranks at the same time. Without ``replicas``, the reduce-scatter of the shards is
    compressed; with a mesh of two dimensions (HSDP), PyTorch's all-reduce between replicas stays uncompressed. With
    ``replicas``, a process group or a mesh of one dimension with the ranks that hold the same shard, the mean of each
    shard is averaged over these ranks with compressed messages, by ``exchange``; the model must then be sharded over a
    mesh of one dimension.

    ``parameters``, such as ``"int8"``, ``"8bit"`` or ``"fp16"``, also compresses the parameters that FSDP2 gathers for the
    forward pass, and again for the backward pass if it frees them in between. They are sent whole each time, without
    error feedback: training goes on with rounded parameters, while each rank's shards, which the optimizer updates and
    checkpoints contain, stay exact. ``raw_vectors``, ``raw_below`` and ``raw_names`` apply, ``rules`` do not.

    Names, shapes and rules are those of whole parameters, and ``rules``, ``raw_…`` and all other arguments are those of
    ``gradwire.torch.register``. Low-rank methods see the rows of a shard as a matrix. Parameters must be sharded by rows
    (dimension 0), the default of ``fully_shard``, and must not be sharded by tensor parallelism.
    """
    common: Dict[str, Any] = dict(
        seed=seed,
        deadline=deadline,
        raw_vectors=raw_vectors,
        raw_below=raw_below,
        raw_names=raw_names,
        total_steps=total_steps,
    )
    options = {**common, "rules": rules, "on_nonfinite": on_nonfinite}
    units = _units(model)
    if replicas is None:
        if exchange not in ("auto", "reduce-scatter"):
            raise _core.ConfigError(
                f"exchange={exchange!r} needs replicas, the process group of the ranks that hold the same shard; "
                "gradients of shards are averaged by reduce-scatter"
            )
        handle = _Sharded(_whole(units), compressor, _shard_group(units), "reduce-scatter", options, scaler)
        for unit in units:
            unit.module.set_custom_reduce_scatter(_ReduceScatter(handle, unit))
    else:
        _setup.check_replicated({"exchange": exchange})
        shards = [(name, shard) for unit in units for name, shard in zip(unit.names, unit.padded_shards())]
        handle = _Sharded(shards, compressor, _one_dimensional(replicas, units), exchange, options, scaler)
        for unit in units:
            unit.module.set_all_reduce_hook(partial(handle.average, unit))
    if parameters is not None:
        handle.gather(_whole(units), parameters, _shard_group(units), common)
        for unit in units:
            unit.module.set_custom_all_gather(_AllGather(handle, unit))
    return handle


class _Unit:
    """A module that ``fully_shard`` was applied to, and the parameters that it communicates together, in order."""

    def __init__(self, module: Any, group: Any, names: Dict[int, str]) -> None:
        self.module, self.group = module, group
        self.names: List[str] = [names[id(of.sharded_param)] for of in group.fsdp_params]
        for name, of in zip(self.names, group.fsdp_params):
            _check(name, of)
        self.parameters: List[torch.Tensor] = [of.sharded_param for of in group.fsdp_params]
        self._name_of = dict(zip(map(id, group.fsdp_params), self.names))
        self._padded = [of.padded_sharded_param_size for of in group.fsdp_params]
        self._reduced: Optional[List[str]] = None
        self._watch()

    def _watch(self) -> None:
        """Notes which parameters have gradients in each backward pass.

        FSDP2 does not tell its communication, so this wraps the function that FSDP2 calls before it. Versions of PyTorch
        before 2.15 have no such function.
        """
        prepare = getattr(self.group, "_prepare_reduce_scatter_inputs", None)
        if prepare is None:
            return

        def note(fsdp_params: List[Any], *others: Any, **named: Any) -> Any:
            self._reduced = [self._name_of[id(of)] for of in fsdp_params]
            return prepare(fsdp_params, *others, **named)

        self.group._prepare_reduce_scatter_inputs = note

    def padded_shards(self) -> List[torch.Tensor]:
        """Tensors of the shapes of this rank's shards with their padding, without memory."""
        return [torch.empty(size, device="meta") for size in self._padded]

    def reduced(self, values: int) -> List[str]:
        """The names of the parameters whose gradients are being averaged, with ``values`` elements a rank."""
        if self._reduced is not None:
            return self._reduced
        if values != sum(size.numel() for size in self._padded):
            raise _core.ConfigError(
                f"some parameters of {type(self.module).__name__} have no gradient in this step, and PyTorch "
                f"{torch.__version__} does not tell which; use PyTorch 2.15 or later, or a step that uses all parameters"
            )
        return self.names


def _check(name: str, of: Any) -> None:
    """Refuses a parameter that is not sharded by rows alone."""
    if of.fsdp_placement.dim != 0:
        raise _core.ConfigError(
            f"'{name}' is sharded over dimension {of.fsdp_placement.dim}, and gradwire needs whole rows; leave out "
            "shard_placement_fn"
        )
    if of.is_dtensor:
        raise _core.ConfigError(
            f"'{name}' is also sharded by tensor parallelism, which gradwire does not support; leave this model's "
            "gradients to PyTorch"
        )


class _Groups:
    """Exchanges the values of groups of parameters, in place."""

    def __init__(self, reducer: _core.Reducer) -> None:
        self.reducer = reducer
        self._groups: Dict[Tuple[str, ...], int] = {}

    def exchange(self, step: int, names: List[str], values: torch.Tensor, scale: float = 1.0) -> None:
        """Exchanges values, and waits: FSDP2 uses what its communication leaves as soon as it returns."""
        group = self._groups.get(tuple(names))
        if group is None:
            group = self._groups[tuple(names)] = self.reducer.group(names)
        host = values if values.device.type == "cpu" else values.cpu()
        self.reducer.average(group, step, buffer(host, "a group of shards"), partial(_keep, host), scale=scale)
        self.reducer.wait()
        if host is not values:
            values.copy_(host)


def _keep(values: torch.Tensor) -> None:
    """The callback of the averaging thread, which only has the address of the values."""


class _Sharded(Handle):
    """Averages the gradients of a sharded model over the ranks of a group."""

    _kind = "fsdp"
    parameters: Optional[_Groups] = None

    def __init__(
        self,
        named: List[Tuple[str, torch.Tensor]],
        compressor: str,
        group: Any,
        exchange: str,
        options: Dict[str, Any],
        scaler: Optional[Any],
    ) -> None:
        make = partial(_setup.every_step, named, compressor, exchange=exchange, **options)
        super().__init__(*connect(group, make), scaler)
        self._gradients = _Groups(self._reducer)
        self._backward = -1

    def gather(self, named: List[Tuple[str, torch.Tensor]], compressor: str, group: Any, options: Dict[str, Any]) -> None:
        """Compresses the parameters that the ranks of ``group`` gather."""
        make = partial(_setup.every_step, named, compressor, exchange="gather-shards", **options)
        reducer, private = connect(group, make)
        self.parameters = _Groups(reducer)
        self._release_parameters = weakref.finalize(self, release, reducer, private)
        self._release_parameters.atexit = False

    def close(self) -> None:
        """Ends the exchange, as ``Handle.close`` does."""
        super().close()
        if self.parameters is not None:
            self._release_parameters()

    def average(self, unit: _Unit, values: torch.Tensor) -> None:
        """Averages the gradients of a unit in place: its shards of all ranks, or its shard of all replicas."""
        self.exchange(unit.reduced(values.numel()), values)

    def exchange(self, names: List[str], values: torch.Tensor) -> None:
        """Averages the gradients of some parameters in place."""
        backward = torch._C._current_graph_task_id()
        if backward != self._backward or backward == -1:
            self._backward = backward
            self._begin()
        start = time.perf_counter()
        with record_function("gradwire::exchange"):
            self._gradients.exchange(self._step - 1, names, values, self._scale)
        self._wait_seconds += time.perf_counter() - start

    def stats(self) -> Dict[str, Any]:
        """The cost of the last step for this rank, as in ``Handle.stats``.

        With ``parameters`` also ``parameter_bytes_up`` and ``parameter_bytes_down``, the bytes of parameters since the
        first gradient of the last step but one, and their totals.
        """
        stats = super().stats()
        if self.parameters is not None:
            gathered = self.parameters.reducer.stats()
            for name in ("bytes_up", "bytes_down", "total_bytes_up", "total_bytes_down"):
                stats[f"parameter_{name}"] = gathered[name]
        return stats


class _ReduceScatter:
    """The reduce-scatter of one unit, as ``set_custom_reduce_scatter`` takes it."""

    def __init__(self, handle: _Sharded, unit: _Unit) -> None:
        self._handle, self._unit = handle, unit

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Memory for the gradients of all ranks' shards, or for their mean."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: Any,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """Replaces ``output_tensor`` by the mean, or sum, of this rank's shard."""
        if op not in (dist.ReduceOp.AVG, dist.ReduceOp.SUM):
            raise _core.ConfigError(
                "gradwire averages gradients; instead of set_gradient_divide_factor, multiply the loss by a factor"
            )
        shard = output_tensor.numel()
        self._handle.exchange(self._unit.reduced(shard), input_tensor)
        torch.mul(
            input_tensor[group.rank() * shard :][:shard],
            group.size() if op == dist.ReduceOp.SUM else 1,
            out=output_tensor,
        )


class _AllGather:
    """The all-gather of one unit's parameters, as ``set_custom_all_gather`` takes it."""

    def __init__(self, handle: _Sharded, unit: _Unit) -> None:
        self._handle, self._unit = handle, unit

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Memory for the parameters of all ranks' shards."""
        return torch.empty(*size, dtype=dtype, device=device)

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
        assert self._handle.parameters is not None
        self._handle.parameters.exchange(self._handle.step, self._unit.names, output_tensor)


def _whole(units: List[_Unit]) -> List[Tuple[str, torch.Tensor]]:
    """The names of all parameters, with tensors of their whole shapes."""
    return [(name, parameter) for unit in units for name, parameter in zip(unit.names, unit.parameters)]


def _units(model: torch.nn.Module) -> List[_Unit]:
    """The units of a sharded model that have parameters to train."""
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError as error:
        raise _core.ConfigError(f"PyTorch {torch.__version__} has no fully_shard; use 2.9 or later") from error
    modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not modules:
        raise _core.ConfigError(
            "no module of this model is sharded by fully_shard; call fully_shard first. For DistributedDataParallel use "
            "gradwire.torch.register, for a plain model gradwire.torch.LocalSteps"
        )
    if not hasattr(modules[0], "set_custom_reduce_scatter"):
        raise _core.ConfigError(
            f"PyTorch {torch.__version__} has no set_custom_reduce_scatter, which gradwire needs; use 2.9 or later"
        )
    _setup.trainable(model)
    # A unit may also hold parameters that are not trained.
    names = {id(parameter): _setup.plain(name) for name, parameter in model.named_parameters()}
    # Modules that were sharded together share a group.
    groups = {id(group): (module, group) for module in modules for group in _groups(module)}
    units = [_Unit(module, group, names) for module, group in groups.values()]
    return [unit for unit in units if any(parameter.requires_grad for parameter in unit.parameters)]


def _groups(module: Any) -> List[Any]:
    """The groups of parameters that a module communicates, of which gradwire takes one."""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        groups = [state._fsdp_param_group] if state._fsdp_param_group is not None else []
    if len(groups) > 1:
        raise _core.ConfigError(
            f"{type(module).__name__} shards its parameters over several meshes; give it one mesh, or apply fully_shard "
            "to its submodules"
        )
    return list(groups)


def _shard_group(units: List[_Unit]) -> Any:
    """The process group over which all units are sharded."""
    groups = {tuple(dist.get_process_group_ranks(u.group.mesh_info.shard_process_group)): u for u in units}
    if len(groups) > 1:
        raise _core.ConfigError(
            "the modules of this model are sharded over different ranks; apply fully_shard with the same mesh"
        )
    return units[0].group.mesh_info.shard_process_group


def _one_dimensional(replicas: Any, units: List[_Unit]) -> Any:
    """The process group of ``replicas``, for units that are sharded over a mesh of one dimension."""
    if any(unit.group.mesh_info.mesh.ndim > 1 for unit in units):
        raise _core.ConfigError(
            "with replicas, apply fully_shard with a mesh of one dimension, that of the shards: PyTorch itself averages "
            "over the replicas of a mesh with two"
        )
    return replicas.get_group() if hasattr(replicas, "get_group") else replicas
