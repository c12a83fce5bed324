"""Detects parameters whose gradients are no longer averaged."""

from __future__ import annotations

import weakref
from typing import Any, Callable, List, Mapping, Tuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .. import _core


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
        hooks = [register(_calling(self, closures)) for register, closures in _HOOKS]
        self.close = weakref.finalize(self, lambda: [one.remove() for one in hooks])
        self.close.atexit = False

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


# Without a closure, gradients exist before the step. A closure runs the backward pass, so they
# exist after it.
_HOOKS: List[Tuple[Callable[[Any], Any], bool]] = [(register_optimizer_step_pre_hook, False), (register_optimizer_step_post_hook, True)]


def _calling(averaged: Averaged, closures: bool) -> Callable[..., None]:
    """The hook of all optimizers for steps with or without a closure. It keeps no reference to
    ``averaged``."""
    reference = weakref.ref(averaged)

    def call(optimizer: torch.optim.Optimizer, arguments: Tuple[Any, ...], named: Mapping[str, Any]) -> None:
        noted = reference()
        has_closure = any(map(callable, (*arguments, *named.values())))
        if noted is not None and has_closure is closures:
            noted.check(optimizer)

    return call
