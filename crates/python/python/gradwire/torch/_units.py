"""The modules that FSDP2 shards, and the parameters that each module communicates together."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Sequence

import torch
import torch.distributed as dist

from .. import _core
from ._checks import check_gradients
from ._tensors import Named, plain, trainable


class Unit:
    """A module that ``fully_shard`` was applied to, and the parameters that it communicates
    together, in order."""

    def __init__(self, module: Any, param_group: Any, names: Dict[int, str]) -> None:
        self.module, self.param_group = module, param_group
        self.names: List[str] = [names[id(parameter)] for parameter in self.parameters]
        for name, of in zip(self.names, param_group.fsdp_params):
            _check(name, of)
        self.padded: List[torch.Size] = [of.padded_sharded_param_size for of in param_group.fsdp_params]
        # The places of the parameters whose gradients were reduced last, if known.
        self._reduced: Optional[List[int]] = None

    @property
    def parameters(self) -> List[torch.Tensor]:
        """The present parameters of the modules. ``load_state_dict(assign=True)`` replaces them,
        and FSDP2 may notice this only in the next forward pass."""
        infos = [of._module_info for of in self.param_group.fsdp_params]
        return [getattr(info.module, info.param_name) for info in infos]

    @property
    def shards(self) -> List[torch.Tensor]:
        """This rank's parts of the parameters. Optimizers train them, and they have the reduced
        gradients."""
        return [of.sharded_param for of in self.param_group.fsdp_params]

    def __str__(self) -> str:
        """The module, for errors: its class, and its name once FSDP2 knows it."""
        name = getattr(self.param_group, "_module_fqn", None)
        return type(self.module).__name__ + (f" '{name}'" if name else "")

    @property
    def dimensions(self) -> Dict[str, List[int]]:
        """By name, the dimension and the number of shards, which determine the order of elements in
        residuals. Parameters that are sharded by rows are left out."""
        placed = [of.fsdp_placement.dim for of in self.param_group.fsdp_params]
        return {name: [dim, self.ranks] if dim else [] for name, dim in zip(self.names, placed)}

    @property
    def ranks(self) -> int:
        """The number of shards."""
        size: int = self.param_group.mesh_info.shard_mesh_size
        return size

    @property
    def is_cleared(self) -> bool:
        """Whether a gradient of the last reduction is gone after the backward pass, because it has
        been used."""
        if getattr(self.param_group, "_partial_reduce_output", None) is not None:
            # FSDP2 keeps the gradients until it averages them over replicas.
            return False
        shards, places = self.shards, self._trained() if self._reduced is None else self._reduced
        # Gradient hooks may use and remove gradients in the backward pass.
        return any(shards[at].grad is None and not getattr(shards[at], "_post_accumulate_grad_hooks", None) for at in places)

    def _trained(self) -> List[int]:
        """The places of the parameters that are trained."""
        return [at for at, shard in enumerate(self.shards) if shard.requires_grad]

    def unused(self, reduced: Sequence[str]) -> List[int]:
        """The places of the trained parameters whose gradients are not ``reduced``."""
        known = set(reduced)
        return [at for at in self._trained() if self.names[at] not in known]

    @property
    def fills_in(self) -> bool:
        """Whether FSDP2 fills in zeros for the gradients of unused parameters, as it does since
        PyTorch 2.15."""
        return bool(getattr(self.param_group, "reduce_scatter_unused_params", False))

    @property
    def reduced_types(self) -> List[torch.dtype]:
        """The type in which FSDP2 reduces the gradient of each parameter."""
        return [policy.reduce_dtype or one.dtype for policy, one in zip(self._policies, self.parameters)]

    @property
    def gathered_types(self) -> List[torch.dtype]:
        """The type in which FSDP2 gathers each parameter."""
        return [policy.param_dtype or one.dtype for policy, one in zip(self._policies, self.parameters)]

    @property
    def _policies(self) -> List[Any]:
        """The mixed precision of each parameter. Early versions of PyTorch keep it in the group."""
        return [getattr(of, "mp_policy", None) or self.param_group.mp_policy for of in self.param_group.fsdp_params]

    @property
    def factor(self) -> Optional[float]:
        """The factor from ``set_gradient_divide_factor``."""
        factor: Optional[float] = getattr(self.param_group, "gradient_divide_factor", None)
        return factor

    @property
    def trains(self) -> bool:
        """Whether any of its parameters is trained."""
        return any(parameter.requires_grad for parameter in self.parameters)

    def watch(self) -> Optional[Any]:
        """Notes which parameters have gradients in each backward pass; returns the function that it
        replaced in FSDP2's group of parameters.

        FSDP2 does not pass this to its communication, so this wraps the function that FSDP2 calls
        before it. Versions of PyTorch before 2.15 have no such function.
        """
        prepare = getattr(self.param_group, "_prepare_reduce_scatter_inputs", None)
        if prepare is None:
            return None
        place_of = {id(of): at for at, of in enumerate(self.param_group.fsdp_params)}

        def note(fsdp_params: List[Any], *others: Any, **named: Any) -> Any:
            self._reduced = [place_of[id(of)] for of in fsdp_params]
            return prepare(fsdp_params, *others, **named)

        self.param_group._prepare_reduce_scatter_inputs = note
        return prepare

    def reduced(self, values: int) -> List[str]:
        """The names of the parameters whose gradients are being averaged, with ``values`` elements
        a rank."""
        if self._reduced is None:
            trained = self._trained()
            if values != sum(self.padded[at].numel() for at in trained):
                raise _core.ConfigError(
                    f"some parameters of {self} have no gradient in this step, and PyTorch {torch.__version__} does not say which; use "
                    "PyTorch 2.15 or later, with model.set_reduce_scatter_unused_params(True) if ranks use different parameters, or use "
                    "every parameter in every step, for example by adding 0 * parameter.sum() to the loss"
                )
            return [self.names[at] for at in trained]
        return [self.names[at] for at in self._reduced]


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
    check_gradients(model, sharded=True)
    # A unit may also hold parameters that are not trained.
    names = {id(parameter): plain(name) for name, parameter in model.named_parameters()}
    # Modules that were sharded together share a group of parameters.
    param_groups = {id(one): (module, one) for module in modules for one in _param_groups(module)}
    for module, param_group in param_groups.values():
        if not hasattr(param_group.mesh_info, "shard_process_group"):
            raise _core.ConfigError(
                f"every rank has all parameters of {type(module).__name__}, as after replicate(), so FSDP2 has no shards to exchange; "
                "wrap the model in DistributedDataParallel and use gradwire.torch.register"
            )
    # Includes those without trained parameters: they may be trained later.
    units = [Unit(module, param_group, names) for module, param_group in param_groups.values()]
    _check_outside(model, units)
    return units


def _check_outside(model: torch.nn.Module, units: List[Unit]) -> None:
    """Refuses a trained parameter outside all modules with ``fully_shard``, because nothing
    averages it.

    Of the parameters of such modules, only ``ignored_params`` are not sharded. PyTorch does not
    keep them, and their owner averages them.
    """
    from torch.distributed.fsdp import FSDPModule

    inside = {id(parameter) for module in model.modules() if isinstance(module, FSDPModule) for parameter in module.parameters()}
    inside.update(id(parameter) for unit in units for parameter in unit.parameters)
    for name, parameter in trainable(model):
        if id(parameter) not in inside:
            raise _core.ConfigError(
                f"'{name}' is in no module that fully_shard was applied to, so nothing averages its gradient; also call "
                "fully_shard(model), after its submodules, with ignored_params for parameters that you average yourself"
            )


def _param_groups(module: Any) -> List[Any]:
    """The groups of parameters that a module communicates: one for each mesh that
    ``shard_placement_fn`` gives them."""
    state = module._get_fsdp_state()
    param_groups = getattr(state, "_fsdp_param_groups", None)
    if param_groups is None:
        param_groups = [state._fsdp_param_group] if state._fsdp_param_group is not None else []
    return list(param_groups)


def _check(name: str, of: Any) -> None:
    """Refuses a parameter that is also distributed by something other than ``fully_shard``."""
    if of.is_dtensor:
        raise _core.ConfigError(
            f"'{name}' was a DTensor before fully_shard, as in tensor or expert parallelism: the ranks of its mesh "
            f"{of.sharded_param.device_mesh.mesh_dim_names} have different parts of it, which FSDP2 does not gather. gradwire averages "
            "only what fully_shard alone distributes; train this model without gradwire, or apply fully_shard separately to modules "
            "without such parameters, and register these"
        )


def check_gathering(units: List[Unit]) -> None:
    """Refuses units that gather parameters over different ranks in the backward and the forward
    pass."""
    for unit in units:
        if unit.param_group.post_forward_mesh_info not in (None, unit.param_group.mesh_info):
            raise _core.ConfigError(
                f"{type(unit.module).__name__} has a number as reshard_after_forward, so parameters are sharded over fewer ranks after "
                "the forward pass; with the argument parameters, use True or False"
            )


def whole(units: List[Unit], gathered: bool = False) -> List[Named]:
    """The names of all parameters, each with a tensor without memory that has the whole shape, and
    the type, in which ranks reduce its gradient, or in which its shards are ``gathered``."""
    types = [dtype for unit in units for dtype in (unit.gathered_types if gathered else unit.reduced_types)]
    named = [(name, shape) for unit in units for name, shape in zip(unit.names, _shapes(unit))]
    # The shapes have pairs of reals in place of complex numbers.
    return [(name, torch.empty(shape, dtype=dtype.to_real(), device="meta")) for (name, shape), dtype in zip(named, types)]


def _shapes(unit: Unit) -> Iterator[Sequence[int]]:
    """The shape of each whole parameter of a unit, cut by rows into the shards that FSDP2 reduces
    and gathers.

    Shards along another dimension are stacked, as FSDP2 sends them. Complex numbers are pairs of
    reals.
    """
    for parameter, padded, of in zip(unit.parameters, unit.padded, unit.param_group.fsdp_params):
        stacked = (unit.ranks * padded[0], *padded[1:])
        vector = parameter.is_complex() and parameter.dim() == 1
        shape = stacked if vector or of.fsdp_placement.dim != 0 else parameter.shape
        yield (*shape[:-1], 2 * shape[-1]) if parameter.is_complex() else shape


def shards(units: List[Unit]) -> List[Named]:
    """The names of all parameters, each with a tensor without memory that has the shape of the
    padded shard that ranks exchange."""
    named = [(name, dtype, size) for unit in units for name, dtype, size in zip(unit.names, unit.reduced_types, unit.padded)]
    return [(name, torch.empty(size, dtype=dtype, device="meta")) for name, dtype, size in named]


def on_devices(units: List[Unit], named: List[Named], reduced: bool = True) -> List[Named]:
    """The tensors of ``named``, those of all parameters of ``units`` in order, with the device and
    the type in which FSDP2 reduces their gradients; with ``reduced=False``, gathers them. They have
    the memory of one element."""
    kinds = []
    for unit in units:
        policy = getattr(unit.param_group, "mp_policy", None)
        dtype = (reduced and getattr(policy, "reduce_dtype", None)) or getattr(policy, "param_dtype", None)
        kinds += [(dtype or parameter.dtype, unit.param_group.device) for parameter in unit.parameters]
    return [
        (name, torch.empty((), dtype=dtype, device=device).expand(tensor.shape))
        for (name, tensor), (dtype, device) in zip(named, kinds)
    ]


def process_group(units: List[Unit], attribute: str) -> Any:
    """The process group of a collective of FSDP2, over which all units are sharded. Older versions
    of PyTorch have one group for all collectives, without ``attribute``."""
    group = shard_group(units)
    return getattr(units[0].param_group, attribute, group)


def shard_group(units: List[Unit]) -> Any:
    """The process group over which all units are sharded."""
    first, ranks = units[0], _ranks_of(units[0])
    for unit in units:
        if _ranks_of(unit) != ranks:
            raise _core.ConfigError(
                f"'{unit.names[0]}' of {unit} is sharded over ranks {_ranks_of(unit)}, but '{first.names[0]}' of {first} over ranks "
                f"{ranks}, and a handle exchanges shards over one process group; give fully_shard and shard_placement_fn the same mesh, "
                "or register the modules of each mesh separately"
            )
    return first.param_group.mesh_info.shard_process_group


def ranks(units: List[Unit]) -> List[int]:
    """The ranks of the mesh of the units, in order."""
    mesh: torch.Tensor = units[0].param_group.mesh_info.mesh.mesh
    return sorted(mesh.flatten().tolist())


def _ranks_of(unit: Unit) -> List[int]:
    """The ranks that share a unit's parameters."""
    ranks: List[int] = dist.get_process_group_ranks(unit.param_group.mesh_info.shard_process_group)
    return ranks


def replica_rank(units: List[Unit]) -> Optional[int]:
    """The number of this rank's replica among the replicas that PyTorch averages; ``None`` for a
    mesh of one dimension."""
    rank: Optional[int] = getattr(units[0].param_group.mesh_info, "replicate_mesh_rank", None)
    return rank


def replicas(units: List[Unit]) -> int:
    """The number of replicas that PyTorch averages."""
    count: int = getattr(units[0].param_group.mesh_info, "replicate_mesh_size", 1)
    return count


def replica_group(replicas: Any, units: List[Unit]) -> Any:
    """The process group of ``replicas``, for units that are sharded over a mesh of one
    dimension."""
    if replica_rank(units) is not None:
        raise _core.ConfigError(
            "with replicas, give fully_shard a mesh of one dimension, the mesh of the shards: PyTorch itself averages over the replicas "
            "of a mesh of two dimensions"
        )
    group = replicas.get_group() if hasattr(replicas, "get_group") else replicas
    check_replicas("replicas", group, units)
    return group


def check_replicas(argument: str, group: Any, units: List[Unit]) -> None:
    """Refuses an argument that is not the process group of the ranks that hold the same shard."""
    if not isinstance(group, dist.ProcessGroup):
        raise _core.ConfigError(
            f"{argument}={group!r} is neither a process group nor a mesh of one dimension; give the process group of the ranks that hold "
            "the same shard"
        )
    common = set(dist.get_process_group_ranks(group)) & set(dist.get_process_group_ranks(shard_group(units)))
    if common != {dist.get_rank()}:
        raise _core.ConfigError(
            f"{argument} and the mesh of the shards have ranks {sorted(common)} in common; {argument} are the ranks that hold the same "
            "shard, such as the other dimension of a mesh of two dimensions"
        )
