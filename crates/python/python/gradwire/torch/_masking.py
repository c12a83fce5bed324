"""Sets the momentum of a local optimizer to zero, and checks that this is possible.

An optimizer may keep its momentum under any name and in any format. So before training, two copies
of it take steps with small parameters. They get opposite gradients in the first step, so their
second moments are equal and their momenta are opposite. Then their momenta are set to zero. If
their parameters move differently in a step without gradient, some momentum is left.
"""

from __future__ import annotations

import contextlib
import copy
from collections import OrderedDict, defaultdict
from inspect import signature
from typing import Any, ContextManager, Dict, Iterable, List, Optional, Sequence, Tuple

import torch

from .. import _core
from .._arrays import buffer
from ._options import Options
from ._tensors import as_reals, own_part

# The names of momenta in the state of an optimizer.
_MOMENTA = ("momentum_buffer", "exp_avg")
# The most elements of a parameter of the copy. 8-bit optimizers keep tensors of up to 4096 elements
# in 32 bits.
_ELEMENTS = 1 << 14


def momenta(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> List[torch.Tensor]:
    """The momenta of a parameter that exist so far."""
    state = optimizer.state.get(parameter, {})
    return [own_part(state[key]) for key in _MOMENTA if torch.is_tensor(state.get(key))]


def forget(optimizer: torch.optim.Optimizer, name: str, parameter: torch.Tensor, positions: Optional[torch.Tensor]) -> None:
    """Sets the momentum of some elements of a parameter to zero; of all if ``positions`` is
    ``None``.

    Positions are row-major; the momentum may have another order in memory. Complex elements are
    pairs.
    """
    found = momenta(optimizer, parameter)
    if not found:
        return
    mask = torch.full(as_reals(own_part(parameter)).shape, positions is None, dtype=torch.bool, device="cpu")
    if positions is not None:
        mask.view(-1)[positions.long()] = True
    for momentum in found:
        try:
            if not (momentum.is_floating_point() or momentum.is_complex()):
                raise TypeError("the zero of codes is not 0")
            as_reals(momentum).masked_fill_(mask.to(momentum.device), 0.0)
        except (NotImplementedError, RuntimeError, TypeError) as error:
            reason = f"it is a {type(momentum).__name__} of type {momentum.dtype} and shape {tuple(momentum.shape)}"
            raise _refusal(optimizer, f"of '{name}' cannot be set to zero, because {reason}") from error


def sent_in_part(named: Sequence[Tuple[str, torch.nn.Parameter]], options: Options) -> List[Tuple[str, torch.nn.Parameter]]:
    """The parameters for which some messages carry only a part of the elements."""
    reducer = options.reducer_alone(named)
    try:
        stages = [reducer.specs(step) for step, _ in reducer.stages]
    finally:
        reducer.close()
    sparse = {spec for spec in set().union(*stages) if _is_sparse(spec)}
    return [one for one, *specs in zip(named, *stages) if sparse & set(specs)]


def _is_sparse(spec: str) -> bool:
    """Whether the messages of a compressor carry only a part of the elements, with their
    positions."""
    values = torch.randn(4096, generator=torch.Generator("cpu").manual_seed(0), dtype=torch.float32, device="cpu")
    reducer = Options(spec, raw_below=0).reducer_alone([("tensor", values.view(64, 64))])
    try:
        reducer.average(reducer.tensor_group(["tensor"]), 0, buffer(values))
        reducer.wait()
        return reducer.sent("tensor") is not None
    finally:
        reducer.close()


def check_maskable(optimizer: Any, named: Sequence[Tuple[str, torch.Tensor]]) -> None:
    """Refuses an optimizer whose momentum cannot be set to zero. Takes steps with a copy, and
    changes nothing.

    An optimizer that cannot be copied passes.
    """
    while isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = optimizer.optimizer
    names = {id(parameter): name for name, parameter in named}
    with _undisturbed(parameter for _, parameter in named):
        moved = [_movement(optimizer, names, sign) for sign in (1.0, -1.0)]
    if None in moved:
        return
    for (name, up), (_, down) in zip(*moved):
        if not torch.equal(up, down):
            raise _refusal(optimizer, f"of '{name}' is not in {' or '.join(_MOMENTA)}, the only states that gradwire sets to zero")


def _refusal(optimizer: Any, reason: str) -> _core.ConfigError:
    return _core.ConfigError(
        f"the momentum of {type(optimizer).__name__} {reason}; pass mask=False to keep the momentum of sent elements, or use another "
        "optimizer"
    )


def _movement(optimizer: Any, names: Dict[int, str], sign: float) -> Optional[List[Tuple[str, torch.Tensor]]]:
    """A copy of the optimizer takes a step with a gradient, and its momentum is set to zero.
    Returns the movement of its parameters in the next step, without a gradient. ``None`` if the
    optimizer cannot be copied, or cannot take a step."""
    try:
        twin, stand_ins = _twin(optimizer, names)
        starts = [parameter.detach().clone() for _, parameter in stand_ins]
        generator = torch.Generator("cpu").manual_seed(0)
        for _, parameter in stand_ins:
            gradient = torch.randn(as_reals(parameter).shape, generator=generator, device="cpu")
            parameter.grad = torch.zeros_like(parameter)
            as_reals(parameter.grad).copy_(sign * gradient)
        _take_step(twin)
    except Exception:
        # The optimizer is unknown; the first round will show whether it works.
        return None
    for name, parameter in stand_ins:
        if name:
            forget(twin, name, parameter, None)
    try:
        for (_, parameter), start in zip(stand_ins, starts):
            parameter.detach().copy_(start)
            parameter.grad = torch.zeros_like(parameter)
        _take_step(twin)
    except Exception:
        return None
    return [(name, parameter.detach()) for name, parameter in stand_ins if name]


def _twin(optimizer: Any, names: Dict[int, str]) -> Tuple[Any, List[Tuple[str, torch.nn.Parameter]]]:
    """A copy of an optimizer as before its first step, and the parameters that the copy trains,
    with names.

    The parameters of the copy are new and small. Each stands for all parameters of a parameter
    group with the same type, device and small shape, and has the name of the first. Parameters that
    are not in ``names`` have their own stand-in with an empty name, because their momentum is never
    set to zero.
    """
    memo: Dict[int, Any] = {}
    stand_ins: Dict[Any, Tuple[str, torch.nn.Parameter]] = {}
    for at, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            shape = _smaller(parameter.shape)
            name = names.get(id(parameter), "")
            key = at, shape, parameter.dtype, parameter.device, parameter.requires_grad, bool(name)
            if key not in stand_ins:
                # At zero no weight decay adds to the gradient.
                values = torch.zeros(shape, dtype=parameter.dtype, device=parameter.device)
                stand_ins[key] = name, torch.nn.Parameter(values, parameter.requires_grad)
            memo[id(parameter)] = stand_ins[key][1]
    twin = object.__new__(type(optimizer))
    memo[id(optimizer)] = twin
    # A scheduler may have replaced the method step.
    attributes = {name: value for name, value in vars(optimizer).items() if name not in ("state", "step") and not _has_hooks(name)}
    vars(twin).update(copy.deepcopy(attributes, memo))
    vars(twin).update({name: OrderedDict() for name in vars(optimizer) if _has_hooks(name)}, state=defaultdict(dict))
    for group in twin.param_groups:
        group["params"] = list(dict.fromkeys(group["params"]))
        # Schedules begin with 0, at which nothing moves.
        if isinstance(group.get("lr"), (float, torch.Tensor)):
            group["lr"] = torch.full_like(group["lr"], 0.01) if isinstance(group["lr"], torch.Tensor) else 0.01
    return twin, [one for one in stand_ins.values() if one[1].requires_grad]


def _has_hooks(name: str) -> bool:
    """Whether an attribute of an optimizer has hooks of its user."""
    return name.startswith("_optimizer_") and name.endswith("_hooks")


def _smaller(shape: Iterable[int]) -> Tuple[int, ...]:
    """A shape of as many dimensions with at most ``_ELEMENTS`` elements; a small shape as it is."""
    sizes = torch.Size(shape)
    longest = _ELEMENTS
    while torch.Size(min(size, longest) for size in sizes).numel() > _ELEMENTS:
        longest //= 2
    return tuple(min(size, longest) for size in sizes)


def _take_step(optimizer: Any) -> None:
    if "closure" in signature(optimizer.step).parameters:
        # Some optimizers need a closure.
        optimizer.step(lambda: torch.zeros(()))
    else:
        optimizer.step()


@contextlib.contextmanager
def _undisturbed(parameters: Iterable[torch.Tensor]) -> Any:
    """Restores random generators, and lets functions that ``torch.compile`` has wrapped run without
    being compiled."""
    devices = sorted({one.device.index for one in parameters if one.device.type == "cuda" and one.device.index is not None})
    stance = getattr(torch.compiler, "set_stance", None)
    eager: ContextManager[Any] = stance("force_eager") if stance is not None else contextlib.nullcontext()
    with torch.random.fork_rng(devices=devices), eager:
        yield
