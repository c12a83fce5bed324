"""Functions shared by hooks and local steps: creation of exchanges, and states."""

from __future__ import annotations

import io
import json
import re
from difflib import get_close_matches
from inspect import signature
from numbers import Real
from typing import Any, Callable, Collection, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

import torch
import torch.distributed as dist

from .. import _core
from .._arrays import DTYPES, whole_number
from . import _exit
from ._channel import Channel

State = Dict[str, Any]
Loaded = TypeVar("Loaded")
Rules = Union[Mapping[str, str], Sequence[str], None]
# The strides of parameters by name; of contiguous ones, none.
Layout = Dict[str, List[int]]


# What torch.compile and activation checkpointing insert into the names of the modules that they wrap.
_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")


def trainable(model: torch.nn.Module, ignored: Collection[str] = ()) -> List[Tuple[str, torch.nn.Parameter]]:
    """The parameters that require gradients, except those with an ``ignored`` name, with the names that they have in the model
    without wrappers."""
    named = [(plain(name), one) for name, one in model.named_parameters() if one.requires_grad and name not in ignored]
    if not named:
        raise _core.ConfigError("the model has no parameters that require gradients")
    return named


def as_reals(tensor: torch.Tensor) -> torch.Tensor:
    """A view of a complex tensor as pairs of reals, with a last dimension of two; other tensors as they are."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def shape_of(parameter: torch.Tensor) -> Tuple[int, ...]:
    """The shape of the floats that are sent of a parameter: those of complex numbers are pairs in its last dimension."""
    shape = tuple(parameter.shape)
    if not parameter.is_complex():
        return shape
    return (*shape[:-1], 2 * shape[-1]) if shape else (2,)


def check_types(model: torch.nn.Module, ignored: Collection[str] = ()) -> None:
    """Refuses a model with parameters of a type that cannot be averaged."""
    for name, parameter in trainable(model, ignored):
        if parameter.dtype not in _TYPES:
            raise _core.ConfigError(
                f"'{name}' has the type {parameter.dtype}; gradwire averages {', '.join(DTYPES)} and complex64, so "
                "convert the model, or freeze this parameter"
            )


# The types of parameters that can be averaged; complex numbers are pairs of reals.
_TYPES = [getattr(torch, name) for name in (*DTYPES, "complex64", "complex32")]


def check_whole(parameters: Iterable[Tuple[str, torch.Tensor]]) -> None:
    """Refuses parameters of which this rank has a part, as tensor parallelism and FSDP2 make them."""
    for name, parameter in parameters:
        if _is_a(parameter, "DTensor"):
            raise _core.ConfigError(
                f"'{plain(name)}' is a DTensor, of which each rank has a part, as with tensor parallelism; gradwire averages whole "
                "parameters: leave this model to PyTorch, or shard it with fully_shard alone and use gradwire.torch.fsdp.register"
            )


def check_gradients(model: torch.nn.Module, sharded: bool = False, ignored: Collection[str] = ()) -> None:
    """Refuses a model whose gradients, except those of ``ignored`` parameters, cannot be averaged. The parameters of a ``sharded``
    one are DTensors."""
    if not sharded:
        check_whole(trainable(model, ignored))
    check_types(model, ignored)
    for name, module in model.named_modules():
        if not isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
            continue
        weight = f"{name}.weight".lstrip(".")
        if module.sparse and module.weight.requires_grad and weight not in ignored:
            raise _core.ConfigError(f"the gradient of '{plain(weight)}' is sparse; create the embedding with sparse=False")


def check_unwrapped(model: torch.nn.Module) -> None:
    """Refuses a model if something else averages gradients of it, or of a part of it, already."""
    for module in model.modules():
        if any(_is_a(module, kind) for kind in _AVERAGED):
            where = "the model is" if module is model else "the model contains"
            raise _core.ConfigError(
                f"{where} a {type(module).__name__}, whose gradients are already averages; pass the model before it is wrapped"
            )


# What averages gradients: DistributedDataParallel, FSDP1 and FSDP2.
_AVERAGED = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule")


def is_sharded(model: torch.nn.Module) -> bool:
    """Whether ``fully_shard`` has sharded a part of the model."""
    return any(_is_a(module, "FSDPModule") for module in model.modules())


def _is_a(one: Any, kind: str) -> bool:
    """Whether the class of a module or tensor has this name, or one of its bases; not every version of PyTorch has every class."""
    return any(base.__name__ == kind for base in type(one).__mro__)


def uncompiled(model: Any) -> Any:
    """The module that ``torch.compile`` has wrapped, or the model if it is not compiled."""
    while isinstance(getattr(model, "_orig_mod", None), torch.nn.Module):
        model = model._orig_mod
    return model


def plain(name: str) -> str:
    """The name that a parameter has in the model without wrappers."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def reducer(
    named: Iterable[Tuple[str, torch.Tensor]],
    compressor: str,
    channel: Channel,
    *,
    rules: Rules = None,
    exchange: str = "auto",
    seed: int = 0,
    deadline: float = 300.0,
    on_nonfinite: str = "error",
    raw_vectors: bool = True,
    raw_below: int = 256,
    raw_names: Sequence[str] = (),
    total_steps: Optional[int] = None,
    threads: int = 1,
) -> _core.Reducer:
    """Creates a reducer for some parameters over the ranks of a channel."""
    check_given(compressor)
    if not isinstance(compressor, str):
        raise _core.ConfigError("compressors written in Python work with DistributedDataParallel only; use a spec string")
    if exchange not in _EXCHANGES:
        remedy = _suggestion(str(exchange), _EXCHANGES[:4])
        raise _core.ConfigError(f"exchange={exchange!r} is unknown here; {remedy}")
    if not isinstance(raw_vectors, bool):
        raise _core.ConfigError(f"raw_vectors={raw_vectors!r} is neither True nor False; give one of them")
    if total_steps is not None and whole_number("total_steps", total_steps) < 1:
        raise _core.ConfigError(f"total_steps={total_steps} is too small; a run has at least 1 step")
    if whole_number("threads", threads) < 1:
        raise _core.ConfigError(f"threads={threads} is too small; compression needs at least 1")
    if threads > _core.MOST_THREADS:
        raise _core.ConfigError(f"threads={threads} is too large; give the number of idle cores, at most {_core.MOST_THREADS}")
    if on_nonfinite not in ("error", "skip"):
        raise _core.ConfigError(f"on_nonfinite={on_nonfinite!r} is unknown; use 'error' or 'skip'")
    tensors = [(name, shape_of(parameter)) for name, parameter in named]
    created = _core.Reducer(
        channel,
        tensors,
        compressor,
        rules=rules_of(rules),
        exchange=exchange,
        seed=whole_number("seed", seed),
        raw_vectors=raw_vectors,
        raw_below=whole_number("raw_below", raw_below),
        raw_names=strings("raw_names", raw_names),
        skip=on_nonfinite == "skip",
        deadline=seconds(deadline),
        steps=None if total_steps is None else whole_number("total_steps", total_steps),
        threads=threads,
    )
    _exit.watch(created)
    return created


def votes(named: Iterable[Tuple[str, torch.Tensor]], compressor: str, **options: Any) -> bool:
    """Whether a compressor, or that of a rule, averages by votes. Needs no other rank, and the arguments are those of ``reducer``."""
    created = reducer(named, compressor, _Alone(), **options)  # type: ignore[arg-type]
    try:
        return created.votes
    finally:
        created.close()


class _Alone:
    """Stands for the channel of a single rank, which sends nothing."""

    rank, size = 0, 1

    def close(self) -> None:
        pass


# The first four average gradients of replicas; scatter-reduce is a reduce-scatter followed by an all-gather. The last two are those of a
# sharded model: reduce-scatter averages the shards of gradients, and gather-shards gathers parameters.
_EXCHANGES = ("auto", "all-gather", "scatter-reduce", "all-reduce", "reduce-scatter", "gather-shards")


def check_given(compressor: Any) -> None:
    """Refuses ``None``, which ``Advice.compressor`` is where compression does not pay."""
    if compressor is None:
        raise _core.ConfigError(
            "compressor is None: if this is Advice.compressor, compression does not pay, and training needs no gradwire; pass 'none' to send everything "
            "uncompressed"
        )


def seconds(deadline: Any) -> float:
    """A deadline in seconds. Refuses one that is not above 0, or above a day."""
    if not isinstance(deadline, Real) or not 0.0 < float(deadline) <= _LONGEST_DEADLINE:
        raise _core.ConfigError(f"deadline={deadline!r}: give seconds above 0, at most {_LONGEST_DEADLINE}")
    return float(deadline)


# A day.
_LONGEST_DEADLINE = 86_400


def listed(name: str, values: Any) -> List[Any]:
    """An argument as a list. Refuses a string, whose letters would be its entries."""
    if isinstance(values, (str, Mapping)) or not isinstance(values, Iterable):
        kind = "a string" if isinstance(values, str) else f"a {type(values).__name__}"
        raise _core.ConfigError(f"{name} is {kind}; give a list")
    return list(values)


def strings(name: str, values: Any) -> List[str]:
    """An argument as a list of strings."""
    found = listed(name, values)
    for one in found:
        if not isinstance(one, str):
            raise _core.ConfigError(f"{name} contains {one!r}, which is no string; give a list of strings")
    return found


def compare(reducer: _core.Reducer, settings: Mapping[str, str]) -> None:
    """Raises ``ConfigError`` that names the first of some settings that differs between ranks, with its values."""
    ranks = [json.loads(one) for one in reducer.gather(0, json.dumps(dict(settings)).encode())]
    # Ranks that end now must have sent their values.
    reducer.wait()
    for what in settings:
        values = {str(one.get(what)) for one in ranks}
        if len(values) > 1:
            raise _core.ConfigError(f"{what} differs between ranks: {'; '.join(sorted(values))}")


# The keyword arguments of ``reducer``.
OPTIONS = [name for name, one in signature(reducer).parameters.items() if one.kind is one.KEYWORD_ONLY]


def check_options(options: Iterable[str], known: Sequence[str] = OPTIONS) -> None:
    """Refuses unknown keyword arguments."""
    for name in options:
        if name not in known:
            raise _core.ConfigError(f"there is no argument {name!r}; {_suggestion(name, known)}")


def _suggestion(name: str, known: Sequence[str]) -> str:
    """The known name that another may stand for, or all of them."""
    near = get_close_matches(name, known, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"


def every_step(named: Iterable[Tuple[str, torch.Tensor]], compressor: str, channel: Channel, **options: Any) -> _core.Reducer:
    """Creates a reducer for gradients, which are exchanged at every step."""
    created = reducer(named, compressor, channel, **options)
    every = max(steps for _, steps in created.stages)
    if every > 1:
        created.close()
        raise _core.ConfigError(
            f"'{compressor}' exchanges every {every} steps, but gradients are exchanged at every step; use "
            "gradwire.torch.LocalSteps, or remove 'every'"
        )
    return created


def check_replicated(
    options: Mapping[str, Any], remedy: str = "use gradwire.torch.fsdp.register for such a model, or scatter-reduce"
) -> None:
    """Refuses an exchange that suits only the shards of a model."""
    exchange = options.get("exchange")
    if exchange in ("reduce-scatter", "gather-shards"):
        raise _core.ConfigError(f"{exchange} is for models that fully_shard has sharded, not for replicas; {remedy}")


def rules_of(rules: Rules) -> List[str]:
    """Rules as a list of ``TENSORS -> SPEC``."""
    if isinstance(rules, Mapping):
        rules = [f"{tensors} -> {spec}" for tensors, spec in rules.items()]
    return strings("rules", () if rules is None else rules)


def check_scaler(scaler: Any, on_nonfinite: Any) -> None:
    """Refuses what is not a ``GradScaler``, and to skip steps without one, because the optimizer would take them with NaN."""
    if scaler is not None and not callable(getattr(scaler, "get_scale", None)):
        raise _core.ConfigError(f"scaler={scaler!r} has no get_scale(); give the torch.amp.GradScaler of the training, or None")
    enabled = scaler is not None and getattr(scaler, "is_enabled", lambda: True)()
    if on_nonfinite == "skip" and scaler is not None and not enabled:
        raise _core.ConfigError(
            "on_nonfinite='skip' needs an enabled GradScaler, and this one is disabled, as torch.amp.GradScaler() is on a machine without "
            "CUDA; give it the device of the gradients, as in torch.amp.GradScaler('cpu'), or leave on_nonfinite='error'"
        )
    if on_nonfinite == "skip" and not enabled:
        raise _core.ConfigError(
            "on_nonfinite='skip' makes the gradients of a skipped step NaN, and without an enabled GradScaler the optimizer would take "
            "this step; pass scaler=, or leave on_nonfinite='error'"
        )


def check_optimizer(optimizer: torch.optim.Optimizer, parameters: Iterable[torch.Tensor]) -> None:
    """Refuses an optimizer of another model."""
    own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if not own & set(map(id, parameters)):
        raise _core.ConfigError("the optimizer has none of the model's parameters; create it with model.parameters()")


def check_others(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> None:
    """Refuses an optimizer that also trains parameters that are not the model's."""
    known = set(map(id, model.parameters()))
    for at, group in enumerate(optimizer.param_groups):
        names = group.get("param_names") or [f"parameter {place}" for place in range(len(group["params"]))]
        for name, parameter in zip(names, group["params"]):
            if parameter.requires_grad and id(parameter) not in known:
                raise _core.ConfigError(
                    f"the optimizer also trains {name} of its group {at}, of shape {tuple(parameter.shape)}, which the model does not "
                    "have and no round would average; put all modules into one, such as torch.nn.ModuleList, and give LocalSteps that, "
                    "or give the others an optimizer of their own"
                )


def uses_ef21(compressor: Any, rules: Rules) -> bool:
    """Whether a compressor or one of the rules has ``ef=ef21``, whose receivers keep a sum of changes."""
    specs = [str(compressor), *(rule.rpartition("->")[2] for rule in rules_of(rules))]
    return any(re.search(r"\bef\s*=\s*ef21\b", spec) for spec in specs)


def packed(kind: str, step: int, reducer: _core.Reducer, states: Sequence[bytes], *more: Any) -> State:
    """The state of a ``kind`` of object: ``states`` are those of its exchange at this rank, or at all ranks of its group, with ``more``
    beside each.

    Ranks are named by their numbers in the default process group, if there is one, so that names are unique in a job.
    """
    ranks = [rank_key(reducer)]
    if len(states) > 1:
        # Those of all ranks are given on all ranks.
        ranks = [rank.decode() for rank in reducer.gather(0, ranks[0].encode())]
        # This rank may end now, and the others must have its name.
        reducer.wait()
    return {
        "gradwire": kind,
        "step": step,
        "world_size": reducer.size,
        "exchange": {rank: (_pack(state), *more) for rank, state in zip(ranks, states)},
    }


def rank_key(reducer: _core.Reducer) -> str:
    """The name of this rank in states."""
    # Workers that come and go make their own groups, and there is no default group.
    return f"rank{dist.get_rank() if dist.is_initialized() else reducer.rank}"


def by_rank(reducer: _core.Reducer, own: bytes, all_ranks: bool) -> Dict[str, Tuple[torch.Tensor]]:
    """Bytes of this rank, or of all ranks of its group, as a state has them."""
    if not all_ranks:
        return {rank_key(reducer): (_pack(own),)}
    ranks, parts = reducer.gather(0, rank_key(reducer).encode()), reducer.gather(0, own)
    # This rank may end now, and the others must have its part.
    reducer.wait()
    return {rank.decode(): (_pack(part),) for rank, part in zip(ranks, parts)}


def to_bytes(value: Any) -> bytes:
    """Tensors by name as bytes."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _pack(state: bytes) -> torch.Tensor:
    """Bytes as ``torch.save``, ``torch.load(weights_only=True)`` and distributed checkpoints take them.

    Distributed checkpoints load a tensor only where there is one of the same length, but take a tuple as it is; so give it in one.
    """
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)


def layout_of(named: Iterable[Tuple[str, torch.Tensor]]) -> Layout:
    """The layout of some parameters."""
    return {name: [] if one.is_contiguous() else list(one.stride()) for name, one in named}


def together(
    reducer: _core.Reducer, states: Any, load: Callable[[], Loaded], place: Callable[[Loaded], str] = "step {}".format
) -> Loaded:
    """Loads a state on all ranks, or on none if it fails on one, or if ``place``, where in the run a state was saved, differs between
    ranks; returns what ``load`` returned, by default a number of steps.

    ``states`` has the state that ``load`` replaces; a ``load`` that fails must leave it as it was. One that has nothing to load
    returns ``None``, which is an error where others have something.
    """
    before = states.save()
    failure: Optional[Exception] = None
    try:
        loaded = load()
    except Exception as error:
        failure = error
    report = f"{type(failure).__name__}: {failure}" if failure is not None else _NOTHING_TO_LOAD if loaded is None else ""
    own = json.dumps([report, "" if report else place(loaded)])
    gathered = [json.loads(one) for one in reducer.gather(0, own.encode())]
    # This rank may end now, and the others must have its report.
    reducer.wait()
    if failure is not None:
        raise failure
    reports, places = [one[0] for one in gathered], [one[1] for one in gathered]
    if set(reports) == {_NOTHING_TO_LOAD}:
        return loaded
    for rank, report in enumerate(reports):
        if report:
            states.load([before])
            raise _core.StateError(f"rank {rank} cannot load its state: {report}")
    for rank, other in enumerate(places):
        if other != places[0]:
            states.load([before])
            raise _core.StateError(
                f"rank 0 loads the state of {places[0]}, and rank {rank} that of {other}; give all ranks the states that they saved at the "
                "same step"
            )
    return loaded


# What a rank reports that has nothing to load.
_NOTHING_TO_LOAD = "it has none, and others have; give all ranks their states, or none"
