"""Detects parameters whose gradients are no longer averaged."""

from __future__ import annotations

import weakref
from typing import Any, Callable, List, Mapping, Tuple

import torch

from .. import _core
from ._optimizer_steps import after_steps, before_steps


class Averaged:
    """Raises ``ConfigError`` before an optimizer takes a step with gradients that
    DistributedDataParallel did not average because a parameter was converted.

    DistributedDataParallel waits at the nodes of autograd that add up gradients. If the type or
    device of a parameter changes, it gets a new node that DistributedDataParallel does not know.
    DistributedDataParallel then silently averages nothing.
    """

    def __init__(self, step: Callable[[], int], named: Mapping[str, torch.Tensor]) -> None:
        """``step`` returns the number of steps with an exchange so far."""
        self._step = step
        self._nodes: List[Tuple[str, torch.Tensor, Any]] = [(name, one, _node(one)) for name, one in named.items()]
        # The number of exchanges when each optimizer took its last step.
        self._exchanged: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()
        # Without a closure, gradients exist before the step. A closure runs the backward pass, so
        # they exist after it.
        self._ends = before_steps(self._check_without_closure), after_steps(self._check_with_closure)

    def close(self) -> None:
        """Checks no further steps."""
        for end in self._ends:
            end()

    def _check_without_closure(self, optimizer: torch.optim.Optimizer, arguments: Tuple[Any, ...], named: Mapping[str, Any]) -> None:
        if not _has_closure(arguments, named):
            self.check(optimizer)

    def _check_with_closure(self, optimizer: torch.optim.Optimizer, arguments: Tuple[Any, ...], named: Mapping[str, Any]) -> None:
        if _has_closure(arguments, named):
            self.check(optimizer)

    def check(self, optimizer: torch.optim.Optimizer) -> None:
        """Raises the error if an optimizer steps with gradients of converted parameters without an
        exchange since its last step."""
        before, now = self._exchanged.get(optimizer, 0), self._step()
        self._exchanged[optimizer] = now
        if before != now:
            return
        own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for name, parameter, node in self._nodes:
            used = id(parameter) in own and parameter.requires_grad and parameter.grad is not None
            if used and _node(parameter) is not node:
                raise _core.ConfigError(
                    f"the gradient of '{name}' was not averaged: the model was converted after DistributedDataParallel wrapped it, for "
                    "example by model.to(torch.bfloat16), and DistributedDataParallel does not see the gradients of converted "
                    "parameters; convert the model first, then wrap it and register"
                )


def is_awaited(parameter: torch.Tensor) -> bool:
    """Whether DistributedDataParallel waits for the gradient of a parameter. It keeps the nodes of
    the parameters that it waits for."""
    node = _node(parameter)
    if node is None:
        return False
    node.metadata[_MARK] = True
    # If nothing else keeps the node, it is gone now, and the parameter gets a new one.
    del node
    node = _node(parameter)
    return node.metadata.pop(_MARK, False)  # type: ignore[no-any-return]


_MARK = "gradwire"


def _node(parameter: torch.Tensor) -> Any:
    """The node of autograd that adds up the gradients of a parameter."""
    with torch.inference_mode(False), torch.enable_grad():
        function = parameter.view_as(parameter).grad_fn
    return None if function is None else function.next_functions[0][0]


def _has_closure(arguments: Tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    """Whether a step of an optimizer is given a closure."""
    return any(map(callable, (*arguments, *named.values())))
