"""Local steps: workers train locally and exchange the change of their parameters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist

from .. import _core
from .._arrays import buffer
from . import _setup
from ._setup import State

_MOMENTA = ("momentum_buffer", "exp_avg")


@dataclass(frozen=True)
class Nesterov:
    """An outer optimizer that applies the workers' mean change by SGD with Nesterov momentum, as in DiLoCo
    (Douillard et al. 2023)."""

    lr: float = 0.7
    momentum: float = 0.9


class LocalSteps:
    """An optimizer for local training whose workers exchange weight updates every ``every`` steps.

    ``every`` defaults to that of the compressor, or to 100. Use it instead of the optimizer, with a plain model (not
    DistributedDataParallel)::

        steps = gradwire.torch.LocalSteps(model, optimizer, every=100, compressor="sbc:p=0.01")
        loss.backward()
        steps.step()

    All ranks start from rank 0's parameters and buffers. In each round a rank sends the compressed change of its
    parameters since the last round, with error feedback, and all ranks continue from the common parameters. The first
    ``sync_until`` steps are rounds of one step each (post-local SGD). ``outer`` is an optimizer for the mean change
    (``Nesterov()``); without it the mean change is added. With ``mask`` the local momentum of the elements that were
    sent is set to zero, as in sparse binary compression.

    The common parameters are kept in main memory in float32, four bytes per element. A model of 16-bit floats continues
    from them rounded; changes too small for its type still add up over rounds. Schedules count steps, not rounds: the last
    step of a round determines its stage.

    Other arguments are those of ``register``, except ``scaler``. A change of the parameters that is not finite is an
    error, because skipping a step cannot repair the parameters.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        every: Optional[int] = None,
        compressor: str = "sbc:p=0.01",
        *,
        outer: Optional[Nesterov] = None,
        sync_until: int = 0,
        mask: bool = True,
        process_group: Optional[Any] = None,
        **options: Any,
    ) -> None:
        if every is not None and every < 1:
            raise _core.ConfigError(f"every={every} is too small; a round has at least 1 step")
        if options.pop("scaler", None) is not None or options.get("on_nonfinite", "error") != "error":
            raise _core.ConfigError(
                "LocalSteps does not support scaler and on_nonfinite: skipping a round does not repair parameters that "
                "are not finite; skip the local step that overflows"
            )
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self._reducer = _setup.reducer(named, compressor, process_group, **options)
        self._names = [name for name, _ in named]
        self._parameters = [parameter for _, parameter in named]
        self._group = self._reducer.group(self._names)
        self._optimizer, self._outer, self._mask = optimizer, outer, mask
        own = list(dict.fromkeys(self._reducer.every))
        if every is None and len(own) > 1:
            raise _core.ConfigError(
                f"the stages of '{compressor}' exchange every {' and '.join(map(str, own))} steps, but all rounds must "
                "have the same length; pass every=N, which then applies to all stages"
            )
        self._every = every if every is not None else own[0] if own[0] > 1 else 100
        self._sync_until = sync_until
        self._step = 0
        # The smallest number that the next round may use.
        self._round = 0
        source = dist.get_process_group_ranks(process_group)[0] if process_group is not None else 0
        for tensor in [*model.parameters(), *model.buffers()]:
            dist.broadcast(tensor.data, source, group=process_group)
        self._common = self._flat()
        self._velocity = torch.zeros_like(self._common) if outer is not None else None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Calls ``zero_grad`` of the optimizer."""
        self._optimizer.zero_grad(set_to_none=set_to_none)

    def step(self, closure: Optional[Any] = None) -> Any:
        """Takes a local step, and exchanges updates if a round is due."""
        loss = self._optimizer.step(closure) if closure is not None else self._optimizer.step()
        self._step += 1
        if self._step <= self._sync_until or (self._step - self._sync_until) % self._every == 0:
            self.synchronize()
        return loss

    @torch.no_grad()
    def synchronize(self) -> None:
        """Exchanges updates now, after which all ranks continue from the same parameters.

        All ranks must call it at the same time, after the same number of steps.
        """
        change = self._change()
        # The number of a round is that of its last step, which determines the stage of a schedule. Two rounds without a step
        # between them must not share a number, because it is also part of the key of random draws.
        number = max(self._step - 1, self._round)
        self._reducer.average(self._group, number, buffer(change), partial(_hold, change))
        self._reducer.wait()
        self._round = number + 1
        if self._outer is not None and self._velocity is not None:
            self._velocity.mul_(self._outer.momentum).add_(change)
            change.add_(self._velocity, alpha=self._outer.momentum).mul_(self._outer.lr)
        self._common.add_(change)
        for parameter, values in zip(self._parameters, self._parts(self._common)):
            parameter.copy_(values.view(parameter.shape))
        if self._mask:
            self._mask_momentum()

    def _change(self) -> torch.Tensor:
        """The change of this rank's parameters since the last round.

        The round started from the common parameters rounded to the model's type; the rounding is not part of the change.
        """
        change = self._flat()
        for own, common, parameter in zip(self._parts(change), self._parts(self._common), self._parameters):
            own.sub_(common.to(parameter.dtype))
        return change

    def _flat(self) -> torch.Tensor:
        parts = [p.detach().to("cpu", torch.float32).reshape(-1) for p in self._parameters]
        return torch.cat(parts)

    def _parts(self, flat: torch.Tensor) -> Sequence[torch.Tensor]:
        return flat.split([parameter.numel() for parameter in self._parameters])

    def _mask_momentum(self) -> None:
        for name, parameter in zip(self._names, self._parameters):
            state = self._optimizer.state.get(parameter, {})
            momenta = [state[key] for key in _MOMENTA if torch.is_tensor(state.get(key))]
            sent = self._reducer.sent(name) if momenta else None
            if sent:
                # Positions are row-major; the momentum may have another order in memory.
                mask = torch.zeros(parameter.shape, dtype=torch.bool)
                mask.view(-1)[torch.frombuffer(bytearray(sent), dtype=torch.int32).long()] = True
                for momentum in momenta:
                    momentum.masked_fill_(mask.to(momentum.device), 0.0)

    def stats(self) -> Dict[str, Any]:
        """The cost of the last round, as in ``Hook.stats``."""
        return self._reducer.stats()

    def scalars(self, prefix: str = "gradwire/") -> Iterator[Tuple[str, float, int]]:
        """The statistics of the last round as arguments of ``SummaryWriter.add_scalar``."""
        stats = self.stats()
        stats.pop("step")
        for name, value in stats.items():
            yield prefix + name, float(value), self._step

    def state_dict(self, *, all_ranks: bool = False) -> State:
        """The state that a resumed run needs, apart from model and optimizer, as in ``Hook.state_dict``."""
        states: List[bytes] = self._reducer.save_all() if all_ranks else [self._reducer.save()]
        return {
            "gradwire": "local",
            "step": self._step,
            "round": self._round,
            "world_size": self._reducer.size,
            "common": self._common.clone(),
            "velocity": None if self._velocity is None else self._velocity.clone(),
            "exchange": [_setup.pack(state) for state in states],
        }

    def load_state_dict(self, states: Union[State, Sequence[State]]) -> None:
        """Restores results of ``state_dict``, as ``Hook.load_state_dict`` does.

        Restore the model and the optimizer, too: each rank its own, if they were saved between two rounds.
        """
        first, parts = _setup.merged(states, "local")
        if first["common"].shape != self._common.shape:
            raise _core.StateError(
                f"the state has {first['common'].numel()} parameters, but the model has {self._common.numel()}; it "
                "belongs to another model"
            )
        if (first["velocity"] is None) != (self._velocity is None):
            raise _core.StateError("the state was saved with another outer optimizer; use the same one")
        self._reducer.load(parts)
        self._step, self._round = first["step"], first["round"]
        self._common.copy_(first["common"])
        if self._velocity is not None:
            self._velocity.copy_(first["velocity"])


def _hold(change: torch.Tensor) -> None:
    """The callback of the averaging thread, which only has the address of the change.

    The pending callback keeps the tensor alive, even if Ctrl-C ends the wait.
    """
