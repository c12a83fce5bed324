"""The modules that FSDP2 shards, and the parameters that each of them communicates together."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist

from .. import _core
from . import _setup

Named = List[Tuple[str, torch.Tensor]]


class Unit:
    """A module that ``fully_shard`` was applied to, and the parameters that it communicates together, in order."""

    def __init__(self, module: Any, group: Any, names: Dict[int, str]) -> None:
        self.module, self.group = module, group
        self.names: List[str] = [names[id(parameter)] for parameter in self.parameters]
        for name, of in zip(self.names, group.fsdp_params):
            _check(name, of)
        self.padded: List[torch.Size] = [of.padded_sharded_param_size for of in group.fsdp_params]
        self._reduced: Optional[List[str]] = None

    @property
    def parameters(self) -> List[torch.Tensor]:
        """The parameters that the modules have now: ``load_state_dict(assign=True)`` replaces them, which FSDP2 may notice only
        in the next forward pass."""
        infos = [of._module_info for of in self.group.fsdp_params]
        return [getattr(info.module, info.param_name) for info in infos]

    @property
    def fills_in(self) -> bool:
        """Whether FSDP2 fills in zeros for the gradients of parameters that a step did not use, since PyTorch 2.15."""
        return bool(getattr(self.group, "reduce_scatter_unused_params", False))

    @property
    def factor(self) -> Optional[float]:
        """What ``set_gradient_divide_factor`` set."""
        factor: Optional[float] = getattr(self.group, "gradient_divide_factor", None)
        return factor

    @property
    def trains(self) -> bool:
        """Whether any of its parameters is trained."""
        return any(parameter.requires_grad for parameter in self.parameters)

    def watch(self) -> Optional[Any]:
        """Notes which parameters have gradients in each backward pass; returns what it replaced in the group.

        FSDP2 does not tell its communication, so this wraps the function that FSDP2 calls before it. Versions of PyTorch
        before 2.15 have no such function.
        """
        prepare = getattr(self.group, "_prepare_reduce_scatter_inputs", None)
        if prepare is None:
            return None
        name_of = dict(zip(map(id, self.group.fsdp_params), self.names))

        def note(fsdp_params: List[Any], *others: Any, **named: Any) -> Any:
            self._reduced = [name_of[id(of)] for of in fsdp_params]
            return prepare(fsdp_params, *others, **named)

        self.group._prepare_reduce_scatter_inputs = note
        return prepare

    def reduced(self, values: int) -> List[str]:
        """The names of the parameters whose gradients are being averaged, with ``values`` elements a rank."""
        if self._reduced is not None:
            return self._reduced
        trained = [at for at, parameter in enumerate(self.parameters) if parameter.requires_grad]
        if values != sum(self.padded[at].numel() for at in trained):
            raise _core.ConfigError(
                f"some parameters of {type(self.module).__name__} have no gradient in this step, and PyTorch "
                f"{torch.__version__} does not tell which; use PyTorch 2.15 or later, or a step that uses all parameters"
            )
        return [self.names[at] for at in trained]


def of(model: torch.nn.Module) -> List[Unit]:
    """The units of a sharded model."""
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError as error:
        raise _core.ConfigError(f"PyTorch {torch.__version__} has no fully_shard; use 2.9 or later") from error
    modules: List[Any] = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not modules:
        raise _core.ConfigError(
            "no module of this model is sharded by fully_shard; call fully_shard first. For DistributedDataParallel use "
            "gradwire.torch.register, for a plain model gradwire.torch.LocalSteps"
        )
    if not hasattr(modules[0], "set_custom_reduce_scatter"):
        raise _core.ConfigError(
            f"PyTorch {torch.__version__} has no set_custom_reduce_scatter, which gradwire needs; use 2.9 or later"
        )
    for module in modules:
        # After a forward pass, the outermost module still holds whole parameters.
        module.reshard()
    _setup.check_gradients(model, sharded=True)
    # A unit may also hold parameters that are not trained.
    names = {id(parameter): _setup.plain(name) for name, parameter in model.named_parameters()}
    # Modules that were sharded together share a group.
    groups = {id(group): (module, group) for module in modules for group in _groups(module)}
    for module, group in groups.values():
        if not hasattr(group.mesh_info, "shard_process_group"):
            raise _core.ConfigError(
                f"every rank has all parameters of {type(module).__name__}, as replicate() leaves them, and FSDP2 has no shards to exchange; "
                "wrap the model in DistributedDataParallel and use gradwire.torch.register"
            )
    # Those of which nothing is trained, too: they may be trained later.
    units = [Unit(module, group, names) for module, group in groups.values()]
    _check_outside(model, units)
    return units


def _check_outside(model: torch.nn.Module, units: List[Unit]) -> None:
    """Refuses a parameter that is trained and that no module with ``fully_shard`` contains, because nothing averages it.

    Of the parameters of such modules, only ``ignored_params`` are not sharded. PyTorch does not keep them, and their owner
    averages them.
    """
    from torch.distributed.fsdp import FSDPModule

    inside = {id(parameter) for module in model.modules() if isinstance(module, FSDPModule) for parameter in module.parameters()}
    inside.update(id(parameter) for unit in units for parameter in unit.parameters)
    for name, parameter in _setup.trainable(model):
        if id(parameter) not in inside:
            raise _core.ConfigError(
                f"'{name}' is in no module that fully_shard was applied to, so that its gradient is averaged by nobody; call "
                "fully_shard(model), too, after its submodules, with ignored_params for parameters that you average yourself"
            )


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


def check_gathering(units: List[Unit]) -> None:
    """Refuses units that gather parameters over other ranks in the backward pass than in the forward pass."""
    for unit in units:
        if unit.group.post_forward_mesh_info not in (None, unit.group.mesh_info):
            raise _core.ConfigError(
                f"{type(unit.module).__name__} has a number as reshard_after_forward, which shards parameters over fewer "
                "ranks after the forward pass; with parameters, use True or False"
            )


def whole(units: List[Unit]) -> Named:
    """The names of all parameters, with tensors of their whole shapes."""
    return [(name, parameter) for unit in units for name, parameter in zip(unit.names, unit.parameters)]


def shards(units: List[Unit]) -> Named:
    """The names of all parameters, with tensors, without memory, of the shapes of padded shards."""
    named = [(name, size) for unit in units for name, size in zip(unit.names, unit.padded)]
    return [(name, torch.empty(size, device="meta")) for name, size in named]


def shard_group(units: List[Unit]) -> Any:
    """The process group over which all units are sharded."""
    groups = {tuple(dist.get_process_group_ranks(unit.group.mesh_info.shard_process_group)) for unit in units}
    if len(groups) > 1:
        raise _core.ConfigError(
            "the modules of this model are sharded over different ranks; apply fully_shard with the same mesh"
        )
    return units[0].group.mesh_info.shard_process_group


def replica_rank(units: List[Unit]) -> Optional[int]:
    """Which of the replicas that PyTorch averages this rank belongs to; ``None`` for a mesh of one dimension."""
    rank: Optional[int] = getattr(units[0].group.mesh_info, "replicate_mesh_rank", None)
    return rank


def replicas(units: List[Unit]) -> int:
    """The number of replicas that PyTorch averages."""
    count: int = getattr(units[0].group.mesh_info, "replicate_mesh_size", 1)
    return count


def replica_group(replicas: Any, units: List[Unit]) -> Any:
    """The process group of ``replicas``, for units that are sharded over a mesh of one dimension."""
    if replica_rank(units) is not None:
        raise _core.ConfigError(
            "with replicas, apply fully_shard with a mesh of one dimension, that of the shards: PyTorch itself averages "
            "over the replicas of a mesh with two"
        )
    group = replicas.get_group() if hasattr(replicas, "get_group") else replicas
    if not isinstance(group, dist.ProcessGroup):
        raise _core.ConfigError(
            f"replicas={replicas!r} is neither a process group nor a mesh of one dimension; give that of the ranks that hold the same shard"
        )
    common = set(dist.get_process_group_ranks(group)) & set(dist.get_process_group_ranks(shard_group(units)))
    if common != {dist.get_rank()}:
        raise _core.ConfigError(
            f"replicas and the mesh of the shards have ranks {sorted(common)} in common; replicas are the ranks that hold "
            "the same shard, such as the other dimension of a mesh of two"
        )
    return group
