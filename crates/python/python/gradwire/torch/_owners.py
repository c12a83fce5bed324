"""Whose gradient a collective exchanges, as far as a process group can know."""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, Optional

import torch

from ._gradient_calls import running_function
from ._optimizer_steps import after_steps


class Owners:
    """Finds the owner of a tensor: the parameter whose ``.grad`` it is, or the parameters that
    FSDP2 reduces together.

    Frameworks that copy gradients into buffers of their own leave no trace of the owner.
    """

    def __init__(self) -> None:
        # Numbers of the owners, in the order in which they came up, by ``id``.
        self._numbers: Dict[int, int] = {}
        self._alive: Dict[int, Any] = {}
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._parameters: Optional[Dict[int, torch.Tensor]] = None
        after_steps(self._note)

    def forget_addresses(self) -> None:
        """Another pass begins, with gradients at other addresses."""
        self._parameters = None

    def of(self, values: torch.Tensor) -> Optional[int]:
        """The number of the owner of a tensor; ``None`` if it is unknown."""
        if torch._C._current_graph_task_id() == -1:
            if self._parameters is None:
                self._parameters = {address: one for optimizer in self._optimizers for address, one in gradients_of(optimizer).items()}
            found: Any = self._parameters.get(values.data_ptr())
            # It may have another gradient by now, and the address another tensor.
            return self.number(found) if _is_gradient(values, found) else None
        node = running_function()
        param_group = getattr(node, "param_group", None)
        if param_group is not None:
            return self.number(param_group)
        variable = getattr(node, "variable", None)
        return self.number(variable) if _is_gradient(values, variable) else None

    def number(self, owner: Any) -> int:
        """The number of an owner."""
        key = id(owner)
        known = self._alive.get(key)
        if known is None or known() is not owner:
            self._alive[key] = weakref.ref(owner)
            self._numbers[key] = max(self._numbers.values(), default=-1) + 1
        return self._numbers[key]

    def _note(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._optimizers.add(optimizer)


def _is_gradient(values: torch.Tensor, parameter: Any) -> bool:
    """Whether values are the gradient of a parameter, and not of several that begin with it."""
    gradient = getattr(parameter, "grad", None)
    if gradient is None or gradient.layout != torch.strided or gradient.numel() != values.numel():
        return False
    return bool(gradient.data_ptr() == values.data_ptr())


def gradients_of(optimizer: torch.optim.Optimizer) -> Dict[int, torch.Tensor]:
    """The parameters of an optimizer by the addresses of their gradients."""
    parameters: List[torch.Tensor] = [one for group in optimizer.param_groups for one in group["params"]]
    have = [one for one in parameters if one.grad is not None and one.grad.layout == torch.strided and one.grad.numel()]
    return {one.grad.data_ptr(): one for one in have}  # type: ignore[union-attr]
