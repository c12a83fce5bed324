"""An optimizer that stands for another one, for schedulers, ``GradScaler`` and frameworks."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import torch

from .. import _core
from ._local_optimizer import refuse_distributed_checkpoint
from ._modes import with_gradients


class OptimizerProxy(torch.optim.Optimizer):
    """Has the parameter groups and the state of the local optimizer. The constructor of
    ``torch.optim.Optimizer`` is not called."""

    _optimizer: torch.optim.Optimizer

    # GradScaler then passes `found_inf` and `grad_scale` to `step` instead of skipping steps, so
    # they are counted.
    _step_supports_amp_scaling = True

    def __getattr__(self, name: str) -> Any:
        # The attributes of torch.optim.Optimizer, such as hooks, are the local optimizer's.
        if name == "_optimizer":
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Raises ``ConfigError``: rounds average the parameters that the model had at the start."""
        raise _core.ConfigError("LocalSteps cannot add parameters; add them to the optimizer and create LocalSteps again")

    @property
    def param_groups(self) -> List[Dict[str, Any]]:  # type: ignore[override]
        """The parameter groups of the local optimizer."""
        return self._optimizer.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The state of the local optimizer."""
        refuse_distributed_checkpoint()
        return self._optimizer.state

    @property
    def defaults(self) -> Dict[str, Any]:  # type: ignore[override]
        """The defaults of the local optimizer."""
        return self._optimizer.defaults

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Calls ``zero_grad`` of the optimizer."""
        self._optimizer.zero_grad(set_to_none=set_to_none)

    def _step_of_optimizer(self, closure: Optional[Any]) -> Any:
        """Takes a step of the local optimizer, unless a ``GradScaler`` has found infinities in its
        gradients."""
        optimizer, found = self._optimizer, self.__dict__.get("found_inf")
        if found is not None and found.item():
            return None
        scale = self.__dict__.get("grad_scale")
        if scale is not None:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.grad.div_(scale.to(parameter.grad.device))
        return optimizer.step(with_gradients(closure)) if closure is not None else optimizer.step()
