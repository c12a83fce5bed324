"""Restores a model and its optimizer to their earlier state."""

from __future__ import annotations

import copy
from contextlib import ExitStack
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch.nn.parameter import is_lazy

from .. import _core
from ._modes import write
from ._tensors import plain

# The dictionary of a module's parameters or buffers, a name in it, and the name in the model.
_Place = Tuple[Dict[str, Optional[torch.Tensor]], str, str]


def check_restorable(model: torch.nn.Module) -> None:
    """Refuses a model with parameters or buffers that no training step can use, or that cannot be
    restored after one. Changes nothing."""
    for kept, key, name in _places(model):
        tensor = kept[key]
        if tensor is None:
            continue
        if is_lazy(tensor):
            raise _core.ConfigError(f"'{name}' has no shape yet, because its module is lazy; run the model on a batch first")
        if tensor.device.type == "meta" and tensor.requires_grad:
            raise _core.ConfigError(
                f"'{name}' is on the meta device and has no values; call model.to_empty(device=...) and initialise the model first"
            )
        if not _is_plain(tensor):
            _try(tensor, name)


class Restored:
    """Copies the state of a model and its optimizer, and restores it when the ``with`` block ends,
    even by an error.

    Restores the values and places of parameters and buffers, their ``requires_grad``, the modes of
    modules, and the state and settings of the optimizer. Gradients are None afterwards.
    """

    def __init__(self, model: torch.nn.Module, optimizer: Optional[Any]) -> None:
        self._undo = ExitStack()
        self._undo.callback(_clear_gradients, list(model.parameters()))
        for module in model.modules():
            self._undo.callback(setattr, module, "training", module.training)
        tensors: Dict[int, torch.Tensor] = {}
        # Includes buffers that are not in the state dict. A step may replace any tensor by another.
        for kept, key, _ in _places(model):
            tensor = kept[key]
            self._undo.callback(kept.__setitem__, key, tensor)
            if tensor is not None and id(tensor) not in tensors:
                tensors[id(tensor)] = tensor
                self._undo.callback(tensor.requires_grad_, tensor.requires_grad)
        self._undo.callback(_put_back(list(tensors.values())))
        if optimizer is not None:
            self._undo.callback(_optimizer_back(optimizer))

    def __enter__(self) -> Restored:
        return self

    def __exit__(self, *error: Any) -> None:
        # Closing calls all callbacks, even after one that raises.
        self._undo.close()


def held(model: torch.nn.Module, optimizer: Optional[Any]) -> int:
    """The bytes that ``Restored`` copies."""
    tensors = [*model.parameters(), *model.buffers()]
    for state in getattr(optimizer, "state", {}).values():
        tensors += [value for value in state.values() if isinstance(value, torch.Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _places(model: torch.nn.Module) -> Iterator[_Place]:
    for prefix, module in model.named_modules():
        for kept in (module._parameters, module._buffers):
            for key in list(kept):
                yield kept, key, plain(f"{prefix}.{key}".lstrip("."))  # type: ignore[misc]


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether it is certain that a copy can be written to a tensor."""
    known = type(tensor) in (torch.Tensor, torch.nn.Parameter) or type(tensor).__name__ == "Buffer"
    return known and tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_nested


def _try(tensor: torch.Tensor, name: str) -> None:
    """Writes the values of a tensor to itself. Raises ``ConfigError`` if this is not possible."""
    try:
        _put_back([tensor])()
    except (RuntimeError, NotImplementedError, TypeError) as error:
        raise _core.ConfigError(
            f"'{name}' is a {type(tensor).__name__} of the layout {tensor.layout} and the type {tensor.dtype}, which advise cannot "
            f"restore after its steps ({str(error).splitlines()[0]}); make it a plain dense tensor for this call"
        ) from error


def _put_back(tensors: Sequence[torch.Tensor]) -> Callable[[], None]:
    """Copies tensors; returns a function that writes the copies back."""
    undo = ExitStack()
    plain = [tensor for tensor in tensors if _is_plain(tensor)]
    with torch.no_grad():
        copies = joined([(tensor.numel(), tensor.dtype, tensor.device) for tensor in plain])
        for tensor, copied in zip(plain, copies):
            # The copy may be shorter, without the elements that `expand` repeats.
            places = _places_of(tensor)
            undo.callback(write, places, copied[: places.numel()].view(places.shape).copy_(places))
        for tensor in tensors:
            if not _is_plain(tensor):
                # Not detached: a detached sparse tensor has indices of its own.
                undo.callback(write, tensor, tensor.clone())
    return undo.close


def joined(tensors: Sequence[Tuple[int, torch.dtype, torch.device]]) -> List[torch.Tensor]:
    """Zeros with some numbers of elements, types and devices. Tensors of one kind are parts of one
    large tensor, because an allocator returns its memory to the system, but not the memory of many
    small ones."""
    sizes: Dict[Tuple[torch.dtype, torch.device], int] = {}
    for elements, dtype, device in tensors:
        sizes[dtype, device] = sizes.get((dtype, device), 0) + elements
    left = {kind: torch.zeros(size, dtype=kind[0], device=kind[1]) for kind, size in sizes.items()}
    parts = []
    for elements, dtype, device in tensors:
        parts.append(left[dtype, device][:elements])
        left[dtype, device] = left[dtype, device][elements:]
    return parts


def _places_of(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor with their own places in memory, without the repetitions of
    ``expand``."""
    if 0 not in tensor.stride():
        return tensor
    return tensor[tuple(slice(0, 1) if stride == 0 and size > 1 else slice(None) for size, stride in zip(tensor.shape, tensor.stride()))]


def _clear_gradients(parameters: List[torch.Tensor]) -> None:
    for parameter in parameters:
        parameter.grad = None


def _optimizer_back(optimizer: Any) -> Callable[[], None]:
    """Copies the state and settings of an optimizer; returns a function that restores them.

    ``load_state_dict`` converts a state to the type of its parameter, so it is used only if an
    optimizer overrides it.
    """
    if getattr(type(optimizer), "load_state_dict", None) is not torch.optim.Optimizer.load_state_dict:
        return partial(optimizer.load_state_dict, copy.deepcopy(optimizer.state_dict()))
    undo = ExitStack()
    settings = [*optimizer.state.values(), *optimizer.param_groups]
    undo.callback(_fill, optimizer.state, dict(optimizer.state))
    for kept in settings:
        # Tensors stay the same objects, and the parameters of a group are never others.
        same = {key for key, value in kept.items() if isinstance(value, torch.Tensor) or key == "params"}
        undo.callback(_fill, kept, {key: value if key in same else copy.deepcopy(value) for key, value in kept.items()})
    undo.callback(_put_back([value for kept in settings for value in kept.values() if isinstance(value, torch.Tensor)]))
    return undo.close


def _fill(mapping: Dict[Any, Any], values: Dict[Any, Any]) -> None:
    mapping.clear()
    mapping.update(values)
