"""Refuses models, optimizers and scalers that gradwire cannot work with."""

from __future__ import annotations

from typing import Any, Collection, Iterable, Tuple

import torch

from .. import _core
from .._arrays import DTYPES
from ._tensors import plain, trainable

# The types of parameters that can be averaged; complex numbers are pairs of reals.
_TYPES = [getattr(torch, name) for name in (*DTYPES, "complex64", "complex32")]

# Wrappers that average gradients: DistributedDataParallel, FSDP1 and FSDP2.
_AVERAGING = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule")


def check_types(model: torch.nn.Module, ignored: Collection[str] = ()) -> None:
    """Refuses a model with parameters of a type that cannot be averaged."""
    for name, parameter in trainable(model, ignored):
        if parameter.dtype not in _TYPES:
            raise _core.ConfigError(
                f"'{name}' has the type {parameter.dtype}, but gradwire averages only {', '.join(DTYPES)} and complex64; convert the "
                "model, or freeze this parameter"
            )


def check_whole(parameters: Iterable[Tuple[str, torch.Tensor]]) -> None:
    """Refuses sharded parameters, which tensor parallelism and FSDP2 create."""
    for name, parameter in parameters:
        if _is_a(parameter, "DTensor"):
            raise _core.ConfigError(
                f"'{plain(name)}' is a DTensor: each rank has only a part of it, as in tensor parallelism. gradwire averages whole "
                "parameters; train this model without gradwire, or shard it with fully_shard alone and use gradwire.torch.fsdp.register"
            )


def check_gradients(model: torch.nn.Module, sharded: bool = False, ignored: Collection[str] = ()) -> None:
    """Refuses a model whose gradients cannot be averaged. Leaves out ``ignored`` parameters. A
    ``sharded`` model has DTensors."""
    if not sharded:
        check_whole(trainable(model, ignored))
    check_types(model, ignored)
    for name, module in model.named_modules():
        if not isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
            continue
        weight = f"{name}.weight".lstrip(".")
        if module.sparse and module.weight.requires_grad and weight not in ignored:
            raise _core.ConfigError(f"the gradient of '{plain(weight)}' is sparse; create the embedding with sparse=False")


def check_unwrapped(model: torch.nn.Module, sharded: bool = False) -> None:
    """Refuses a model if a wrapper of it, or of one of its modules, already averages gradients. A
    ``sharded`` model has modules of ``fully_shard``."""
    averaging = [kind for kind in _AVERAGING if not (sharded and kind == "FSDPModule")]
    for module in model.modules():
        if any(_is_a(module, kind) for kind in averaging):
            where = "the model is" if module is model else "the model contains"
            raise _core.ConfigError(
                f"{where} a {type(module).__name__}, which already averages gradients; pass the model before you wrap it"
            )


def is_sharded(model: torch.nn.Module) -> bool:
    """Whether ``fully_shard`` has sharded a part of the model."""
    return any(_is_a(module, "FSDPModule") for module in model.modules())


def _is_a(one: Any, kind: str) -> bool:
    """Whether a module or tensor has a class or base class of this name. Compares names, because
    some versions of PyTorch lack some classes."""
    return any(base.__name__ == kind for base in type(one).__mro__)


def check_scaler(scaler: Any, on_nonfinite: Any) -> None:
    """Refuses a scaler that is not a ``GradScaler``. Also refuses to skip steps without a scaler:
    the optimizer would take such a step with NaN."""
    if scaler is not None and not callable(getattr(scaler, "get_scale", None)):
        raise _core.ConfigError(f"scaler={scaler!r} has no get_scale(); give the torch.amp.GradScaler of the training, or None")
    enabled = scaler is not None and getattr(scaler, "is_enabled", lambda: True)()
    if on_nonfinite == "skip" and scaler is not None and not enabled:
        raise _core.ConfigError(
            "on_nonfinite='skip' needs an enabled GradScaler, but this one is disabled, as torch.amp.GradScaler() is on a machine "
            "without CUDA; create it for the device of the gradients, as in torch.amp.GradScaler('cpu'), or keep on_nonfinite='error'"
        )
    if on_nonfinite == "skip" and not enabled:
        raise _core.ConfigError(
            "on_nonfinite='skip' sets the gradients of a skipped step to NaN, and without an enabled GradScaler the optimizer would take "
            "this step; pass scaler=, or keep on_nonfinite='error'"
        )


def check_optimizer(optimizer: torch.optim.Optimizer, parameters: Iterable[torch.Tensor]) -> None:
    """Refuses an optimizer of another model."""
    own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if not own & set(map(id, parameters)):
        raise _core.ConfigError("the optimizer has none of the model's parameters; create it with model.parameters()")


def check_others(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> None:
    """Refuses an optimizer that also trains parameters of another model."""
    known = set(map(id, model.parameters()))
    for at, group in enumerate(optimizer.param_groups):
        names = group.get("param_names") or [f"parameter {place}" for place in range(len(group["params"]))]
        for name, parameter in zip(names, group["params"]):
            if parameter.requires_grad and id(parameter) not in known:
                raise _core.ConfigError(
                    f"the optimizer also trains {name} of its parameter group {at}, of shape {tuple(parameter.shape)}. The model does not "
                    "have this parameter, so no round would average it; give LocalSteps one module with all the others in it, such as a "
                    "torch.nn.ModuleList, or give the others their own optimizer"
                )
