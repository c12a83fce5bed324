"""1-bit Adam: ranks exchange momentum, which suits Adam better than compressed gradients."""

from __future__ import annotations

import math
import warnings
from typing import Any, Dict, Iterable, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist

from .. import _core
from .._arrays import whole_number
from ._staging import Scale, is_one
from ._tensors import as_reals

# The types of second moments that differ from the types of their parameters.
_PRECISE = {torch.float16: torch.float32, torch.complex32: torch.complex64}


class OneBitAdam(torch.optim.Optimizer):
    """AdamW for distributed training: after ``freeze`` steps, ranks exchange momentum instead of
    gradients (Tang et al. 2021).

    Compression with error feedback harms Adam, probably because residuals enlarge its second
    moments. Here the first ``freeze`` steps are steps of AdamW. Then second moments are frozen.
    Each rank updates the momentum with its own gradient and sends it; the mean over ranks becomes
    the momentum. Give it to ``register``, too, with a schedule that compresses from the freeze on::

        optimizer = gradwire.torch.OneBitAdam(model.parameters(), lr=1e-3, freeze=1000)
        gradwire.torch.register(model, "none until 1000 then onebit", optimizer=optimizer)

    The paper freezes when second moments have become stable, for BERT after a sixth of the steps.
    After the freeze ``grad`` is the momentum once ``backward()`` has returned, so do not clip it;
    log gradient norms before the freeze. Accumulate gradients under ``model.no_sync()``, since
    momentum can be exchanged only once in a step. ``torch.distributed.algorithms.Join`` is not
    supported after the freeze: a rank without data has no gradient to update its momentum with.

    Compression spreads noise over a whole tensor, and a step divides it by the root of the second
    moment. So two rules, which the paper does not have, apply after the freeze. First, an element
    whose second moment is 0 had no gradient before the freeze (a row of an embedding that no batch
    used, a dead unit, a pruned weight). Ranks send 0 as its momentum, and only weight decay changes
    it, even if it gets a gradient later. Freeze only after all elements that should learn have had
    gradients. Second, no element moves further in a step than AdamW can ever move one: 7.3 learning
    rates with the default ``betas``.

    ``betas``, ``eps`` and ``weight_decay`` are as in ``torch.optim.AdamW``. Second moments of
    float16 parameters are float32: in float16 they would be 0 for gradients below 0.005. Raises
    ``ConfigError`` for values out of range.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: Tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        *,
        freeze: int,
    ) -> None:
        if whole_number("freeze", freeze) < 1:
            raise _core.ConfigError(f"freeze={freeze} is too small; second moments need at least 1 step")
        if not all(0.0 <= beta < 1.0 for beta in betas):
            raise _core.ConfigError(f"betas={betas} are out of range; give two numbers from 0 to below 1")
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if not value >= 0.0:
                raise _core.ConfigError(f"{name}={value} is out of range; give a number of at least 0")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self._freeze = freeze
        # The parameters whose momentum was exchanged since the last step.
        self._exchanged: Set[torch.Tensor] = set()
        self._warned = False

    def __getstate__(self) -> Dict[str, Any]:
        """The content of copies and pickles: the base class would leave out attributes that it does
        not know."""
        own = {"_freeze": self._freeze, "_exchanged": self._exchanged, "_warned": self._warned}
        return {**super().__getstate__(), **own}

    @property
    def freeze(self) -> int:
        """The number of steps of AdamW."""
        return self._freeze

    def forget_exchange(self) -> None:
        """Discards the exchanged momentum, because no step will use it."""
        self._exchanged.clear()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Resets gradients, and with them the exchanged momentum."""
        self.forget_exchange()
        super().zero_grad(set_to_none)

    @torch.no_grad()
    def to_exchange(self, parameters: Sequence[torch.nn.Parameter], gradients: Sequence[torch.Tensor], scale: Scale) -> None:
        """Replaces this rank's gradients, which are multiplied by ``scale``, by the values to
        exchange, in place. A scale on a GPU stays there.

        Raises ``ConfigError`` outside a backward pass. Also raises it if ``grad`` already is the
        exchanged momentum, to which a backward pass has added.
        """
        groups = {id(one): group for group in self.param_groups for one in group["params"]}
        for parameter, gradient in zip(parameters, gradients):
            state: Dict[str, Any] = self.state.get(parameter, {})
            group = groups.get(id(parameter))
            if group is not None and state and state["step"] >= self._freeze:
                self._check_exchange(parameter)
                self._exchanged.add(parameter)
                beta, _ = group["betas"]
                gradient = _as_in_bucket(gradient, parameter)
                mean, square = as_reals(state["exp_avg"]), as_reals(state["exp_avg_sq"])
                gradient.mul_(1.0 - beta).add_(mean if is_one(scale) else mean * scale, alpha=beta)
                # A product keeps NaN, which a scaler looks for.
                gradient.mul_(_had_gradient(square))

    def _check_exchange(self, parameter: torch.nn.Parameter) -> None:
        """Refuses to exchange momentum without a gradient of this rank, or twice in a step."""
        if torch._C._current_graph_task_id() == -1:
            raise _core.ConfigError(
                "OneBitAdam does not support torch.distributed.algorithms.Join after its freeze: a rank without data has no gradient for "
                "its momentum; give all ranks the same number of batches"
            )
        if parameter in self._exchanged:
            raise _core.ConfigError(
                "OneBitAdam has already exchanged momentum since its last step, and a second backward pass would add to it; run all but "
                "the last backward pass of a step under model.no_sync(), and call optimizer.zero_grad() if you skip a step"
            )

    @torch.no_grad()
    def step(self, closure: Optional[Any] = None) -> Any:
        """Takes a step. After the freeze, gradients that ``register`` has exchanged are the mean
        momentum of all ranks.

        Warns once if no momentum was exchanged after the freeze, although there are other ranks.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not self._exchanged and not self._warned and self._should_exchange():
            self._warned = True
            warnings.warn(
                "OneBitAdam took a step after its freeze, but ranks exchanged no momentum before it; pass the optimizer to "
                "gradwire.torch.register(model, ..., optimizer=optimizer)",
                stacklevel=2,
            )
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        self.forget_exchange()
        return loss

    def _should_exchange(self) -> bool:
        """Whether there are other ranks, and momentum to exchange with them in this step."""
        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return False
        parameters = [one for group in self.param_groups for one in group["params"] if one.grad is not None]
        return any(self.state[one]["step"] >= self._freeze for one in parameters if self.state.get(one))

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Loads a result of ``state_dict()``."""
        super().load_state_dict(state_dict)
        # The base class has converted states to the types of the parameters.
        saved = [number for group in state_dict["param_groups"] for number in group["params"]]
        parameters = [one for group in self.param_groups for one in group["params"]]
        for number, parameter in zip(saved, parameters):
            if parameter.dtype == torch.float16 and number in state_dict["state"]:
                square = state_dict["state"][number]["exp_avg_sq"]
                self.state[parameter]["exp_avg_sq"] = square.to(parameter.device, torch.float32)

    def _update(self, parameter: torch.nn.Parameter, group: Dict[str, Any]) -> None:
        """Updates the moments of a parameter, then the parameter."""
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter, dtype=_PRECISE.get(parameter.dtype, parameter.dtype))
        state["step"] += 1
        exchanged, frozen = parameter in self._exchanged, state["step"] > self._freeze
        first, second = group["betas"]
        assert parameter.grad is not None
        values, gradient = as_reals(parameter), as_reals(parameter.grad)
        mean, square = as_reals(state["exp_avg"]), as_reals(state["exp_avg_sq"])
        if exchanged:
            # DistributedDataParallel writes no mean for a parameter that no rank used: its zeros
            # stay.
            mean.mul_(first).lerp_(gradient, gradient.any().to(mean.dtype))
        else:
            mean.lerp_(gradient, 1.0 - first)
        if frozen:
            mean.mul_(_had_gradient(square))
        else:
            square.mul_(second).addcmul_(gradient, gradient, value=1.0 - second)
        values.mul_(1.0 - group["lr"] * group["weight_decay"])
        root = (square / (1.0 - second ** min(state["step"], self._freeze))).sqrt_().add_(group["eps"])
        corrected = 1.0 - first ** state["step"]
        if frozen:
            limit = corrected * _largest_step(first, second)
            values.add_(torch.div(mean, root, out=root).clamp_(-limit, limit), alpha=-group["lr"] / corrected)
        else:
            values.addcdiv_(mean, root, value=-group["lr"] / corrected)


def _had_gradient(square: torch.Tensor) -> torch.Tensor:
    """1 for elements with a second moment, 0 for the others: without one, the size of a step is
    unknown."""
    return square.sign()


def _largest_step(first: float, second: float) -> float:
    """The most learning rates that AdamW can move an element in a step, whatever the gradients are.

    By the inequality of Cauchy and Schwarz, the momentum is at most (1-first) / sqrt((1-second) *
    (1 - first^2/second)) times the root of the second moment. Bias corrections make the bound
    smaller, since x + y >= 2 * sqrt(x * y) for the powers of first^2/second and second in it. There
    is no bound if second <= first^2.
    """
    left = second - first * first
    return (1.0 - first) * math.sqrt(second / ((1.0 - second) * left)) if left > 0.0 else math.inf


def _as_in_bucket(gradient: torch.Tensor, parameter: torch.nn.Parameter) -> torch.Tensor:
    """A gradient of a bucket with its strides in the bucket: the strides of its parameter, if the
    parameter is dense. Complex numbers are pairs of reals.

    Hooks always get row-major gradients, so elements of a ``channels_last`` weight are at wrong
    places.
    """
    layout = as_reals(torch.empty_like(parameter, device="meta"))
    gradient = as_reals(gradient)
    return gradient.as_strided(layout.size(), layout.stride(), gradient.storage_offset())
