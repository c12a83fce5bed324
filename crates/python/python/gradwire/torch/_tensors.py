"""The parameters of a model, and the floats that are sent for each."""

from __future__ import annotations

from typing import Any, Collection, List, Tuple

import torch

from .. import _core

# A tensor, such as a parameter, with its name.
Named = Tuple[str, torch.Tensor]

# torch.compile and activation checkpointing insert these into the names of the modules that they
# wrap.
_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")


def plain(name: str) -> str:
    """The name of a parameter without the names of wrappers."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def uncompiled(model: Any) -> Any:
    """The module that ``torch.compile`` has wrapped, or the model if it is not compiled."""
    while isinstance(getattr(model, "_orig_mod", None), torch.nn.Module):
        model = model._orig_mod
    return model


def trainable(model: torch.nn.Module, ignored: Collection[str] = ()) -> List[Tuple[str, torch.nn.Parameter]]:
    """The parameters that require gradients, with their names without wrappers. Leaves out
    ``ignored`` names."""
    named = [(plain(name), one) for name, one in model.named_parameters() if one.requires_grad and name not in ignored]
    if not named:
        raise _core.ConfigError("the model has no parameters that require gradients")
    return named


def own_part(tensor: Any) -> Any:
    """This rank's part of a DTensor; everything else as it is."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def as_reals(tensor: torch.Tensor) -> torch.Tensor:
    """A view of a complex tensor as pairs of reals, with a last dimension of two; other tensors as
    they are."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def element_type(tensor: torch.Tensor) -> str:
    """The name of the type of the floats that are sent for a tensor: ``"float32"`` unless they have
    16 bits."""
    dtype = tensor.real.dtype
    return str(dtype).replace("torch.", "") if dtype in (torch.float16, torch.bfloat16) else "float32"


def shape_of(parameter: torch.Tensor) -> Tuple[int, ...]:
    """The shape of the floats that are sent for a parameter. Complex numbers are pairs in the last
    dimension."""
    shape = tuple(parameter.shape)
    if not parameter.is_complex():
        return shape
    return (*shape[:-1], 2 * shape[-1]) if shape else (2,)
