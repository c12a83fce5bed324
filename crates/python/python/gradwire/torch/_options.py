"""The options that ``register``, ``fsdp.register``, ``LocalSteps`` and ``advise`` share, and the
reducers created from them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import lru_cache
from numbers import Real
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type, TypeVar, Union

from .. import _core
from .._arrays import whole_number
from . import _exit
from ._channel import Channel
from ._deadlines import DEADLINE, LONGEST
from ._tensors import Named, element_type, shape_of

Rules = Union[Mapping[str, str], Sequence[str], None]
Self = TypeVar("Self", bound="Options")
# For a sharded model, reduce-scatter averages the shards of gradients, and gather-shards gathers
# parameters.
_FOR_SHARDS = ("reduce-scatter", "gather-shards")
# These average gradients of replicas; scatter-reduce is a reduce-scatter followed by an all-gather.
_FOR_REPLICAS = ("auto", "all-gather", "scatter-reduce", "all-reduce")


class Parts(NamedTuple):
    """The parts of a model's tensors that a rank averages, if the ranks of a node or site share
    it."""

    # The number of this rank among the ranks of its node or site, and their number.
    number: int
    count: int
    # For each tensor, the first element of its part, and the part's shape, with 0 elements or more.
    of_tensors: Sequence[Tuple[int, Tuple[int, ...]]]


@dataclass(frozen=True)
class Options:
    """How ranks compress and exchange tensors. ``register`` documents the fields."""

    compressor: str = "eden"
    rules: Rules = None
    exchange: str = "auto"
    seed: int = 0
    # Only fields with ``compare`` must be the same on all ranks.
    deadline: float = field(default=DEADLINE, compare=False)
    on_nonfinite: str = "error"
    raw_vectors: bool = True
    raw_below: int = 256
    raw_names: Sequence[str] = ()
    total_steps: Optional[int] = None
    threads: int = field(default=1, compare=False)

    @classmethod
    def of(cls: Type[Self], arguments: Mapping[str, Any]) -> Self:
        """The options among all arguments of a function: its ``locals()`` in the first line."""
        return cls(**{one.name: arguments[one.name] for one in fields(cls)})

    def compared(self) -> Dict[str, Any]:
        """The options that must be the same on all ranks."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.compare}

    def check(self) -> None:
        """Refuses options that the reducer does not check itself."""
        check_given(self.compressor)
        if not isinstance(self.compressor, str):
            raise _core.ConfigError("a compressor written in Python cannot be used here; use a spec string")
        if self.exchange not in (*_FOR_REPLICAS, *_FOR_SHARDS):
            raise _core.ConfigError(f"exchange={self.exchange!r} is unknown here; {suggestion(str(self.exchange), _FOR_REPLICAS)}")
        check_flag("raw_vectors", self.raw_vectors)
        if self.total_steps is not None and whole_number("total_steps", self.total_steps) < 1:
            raise _core.ConfigError(f"total_steps={self.total_steps} is too small; a run has at least 1 step")
        if whole_number("threads", self.threads) < 1:
            raise _core.ConfigError(f"threads={self.threads} is too small; compression needs at least 1")
        if self.threads > _core.MOST_THREADS:
            raise _core.ConfigError(f"threads={self.threads} is too large; give the number of idle cores, at most {_core.MOST_THREADS}")
        if self.on_nonfinite not in ("error", "skip"):
            raise _core.ConfigError(f"on_nonfinite={self.on_nonfinite!r} is unknown; use 'error' or 'skip'")

    def check_replicated(self, remedy: str = "use gradwire.torch.fsdp.register for such a model, or scatter-reduce") -> None:
        """Refuses an exchange that suits only the shards of a model."""
        if self.exchange in _FOR_SHARDS:
            raise _core.ConfigError(f"{self.exchange} is for models that fully_shard has sharded, not for replicas; {remedy}")

    def reducer(self, named: Iterable[Named], channel: Channel, parts: Optional[Parts] = None) -> _core.Reducer:
        """Creates a reducer for some parameters, or for ``parts`` of them, over the ranks of a
        channel. The types of the parameters are those of the values that it averages."""
        self.check()
        created = _core.Reducer(
            channel,
            [(name, shape_of(parameter), element_type(parameter)) for name, parameter in named],
            self.compressor,
            rules=rules_of(self.rules),
            exchange=self.exchange,
            seed=whole_number("seed", self.seed),
            raw_vectors=self.raw_vectors,
            raw_below=whole_number("raw_below", self.raw_below),
            raw_names=strings("raw_names", self.raw_names),
            skip=self.on_nonfinite == "skip",
            deadline=seconds_of(self.deadline),
            steps=self.total_steps,
            threads=self.threads,
            parts=parts,
        )
        _exit.watch(created)
        _check_matrices(created)
        return created

    def reducer_of_gradients(self, named: Iterable[Named], channel: Channel, parts: Optional[Parts] = None) -> _core.Reducer:
        """Creates a reducer for gradients, which are exchanged at every step."""
        created = self.reducer(named, channel, parts)
        every = max(steps for _, steps in created.stages)
        if every > 1:
            created.close()
            raise _core.ConfigError(
                f"'{self.compressor}' exchanges every {every} steps, but gradients are exchanged at every step; use "
                "gradwire.torch.LocalSteps, or remove 'every'"
            )
        return created

    def reducer_alone(self, named: Iterable[Named], ranks: int = 1) -> _core.Reducer:
        """Creates a reducer that exchanges nothing. It tells how parameters would be sent over a
        number of ranks."""
        return self.reducer(named, Alone(ranks))  # type: ignore[arg-type]

    def stages(self, named: Iterable[Named]) -> List[Tuple[int, int]]:
        """For each compressor of the schedule: its first step, and the number of steps from one
        exchange to the next."""
        reducer = self.reducer_alone(named)
        try:
            return reducer.stages
        finally:
            reducer.close()

    def votes(self, named: Iterable[Named]) -> bool:
        """Whether the compressor, or the compressor of a rule, averages by votes."""
        reducer = self.reducer_alone(named)
        try:
            return reducer.votes
        finally:
            reducer.close()

    def uses_ef21(self) -> bool:
        """Whether the compressor or one of the rules has ``ef=ef21``. With it, receivers keep a sum
        of changes."""
        specs = [str(self.compressor), *(rule.rpartition("->")[2] for rule in rules_of(self.rules))]
        return any(re.search(r"\bef\s*=\s*ef21\b", spec) for spec in specs)


class Alone:
    """Stands for a channel of some ranks that sends nothing."""

    rank = 0

    def __init__(self, size: int) -> None:
        self.size = size

    def close(self) -> None:
        pass


@lru_cache(maxsize=1)
def low_rank() -> FrozenSet[str]:
    """The compressors that need whole matrices."""
    return frozenset(one["id"] for one in _core.compressors() if one["family"] == "low-rank")


def _check_matrices(reducer: _core.Reducer) -> None:
    """Refuses low-rank methods whose matrices would be cut into slices, and closes the reducer."""
    for step, _ in reducer.stages:
        specs = reducer.specs(step) if reducer.exchange_at(step) == "scatter-reduce" else []
        found = next((spec for spec in specs if spec.partition(":")[0] in low_rank()), None)
        if found is not None:
            reducer.close()
            raise _core.ConfigError(
                f"'{found}' needs whole matrices, but scatter-reduce cuts tensors into slices; use exchange='all-gather' or, for methods in "
                "rounds such as powersgd, 'all-reduce'"
            )


def check_given(compressor: Any) -> None:
    """Refuses ``None``, the value of ``Advice.compressor`` if compression does not pay."""
    if compressor is None:
        raise _core.ConfigError(
            "compressor is None: if this is Advice.compressor, compression does not pay, and you can train without gradwire; pass 'none' "
            "to send everything uncompressed"
        )


def check_flag(name: str, value: Any) -> None:
    """Refuses an argument that is neither ``True`` nor ``False``."""
    if not isinstance(value, bool):
        raise _core.ConfigError(f"{name}={value!r} is neither True nor False; give True or False")


def seconds_of(deadline: Any) -> float:
    """A deadline in seconds. Refuses one that is not above 0, or above a day."""
    if not isinstance(deadline, Real) or not 0.0 < float(deadline) <= LONGEST:
        raise _core.ConfigError(f"deadline={deadline!r}: give seconds above 0, at most {LONGEST}")
    return float(deadline)


def listed(name: str, values: Any) -> List[Any]:
    """An argument as a list. Refuses a string, because its letters would become the entries."""
    if isinstance(values, (str, Mapping)) or not isinstance(values, Iterable):
        kind = "a string" if isinstance(values, str) else f"a {type(values).__name__}"
        raise _core.ConfigError(f"{name} is {kind}; give a list")
    return list(values)


def strings(name: str, values: Any) -> List[str]:
    """An argument as a list of strings."""
    found = listed(name, values)
    for one in found:
        if not isinstance(one, str):
            raise _core.ConfigError(f"{name} contains {one!r}, which is not a string; give a list of strings")
    return found


def rules_of(rules: Rules) -> List[str]:
    """Rules as a list of ``TENSORS -> SPEC``."""
    if isinstance(rules, Mapping):
        rules = [f"{tensors} -> {spec}" for tensors, spec in rules.items()]
    return strings("rules", () if rules is None else rules)


def suggestion(name: str, known: Sequence[str]) -> str:
    """The known name that an unknown one may stand for, or all known names."""
    near = get_close_matches(name, known, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"


def compare(reducer: _core.Reducer, settings: Mapping[str, Any]) -> None:
    """Raises ``ConfigError`` if settings differ between ranks. The error names the first that
    differs, with its values."""
    own = {what: str(setting) for what, setting in settings.items()}
    ranks = [json.loads(one) for one in reducer.gather(0, json.dumps(own).encode())]
    # This rank may end now, and the others must have its settings.
    reducer.wait()
    for what in settings:
        values = {str(one.get(what)) for one in ranks}
        if len(values) > 1:
            raise _core.ConfigError(f"{what} differs between ranks: {'; '.join(sorted(values))}")
