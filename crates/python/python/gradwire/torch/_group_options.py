"""How a process group compresses."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Optional

from .. import _core
from .._arrays import whole_number
from .._specs import has_error_feedback
from ._deadlines import DEADLINE
from ._device import Request
from ._options import Options

# The exchanges of a group by the kind of its calls.
REPLICAS, SHARDS, GATHERS = "all-reduce", "reduce-scatter", "all-gather"
_EXCHANGES = {SHARDS: "reduce-scatter", GATHERS: "gather-shards"}


@dataclass(frozen=True)
class GroupOptions(Options):
    """How a process group compresses. ``configure`` documents the fields."""

    # ``None``: the timeout of the group.
    deadline: Optional[float] = field(default=None, compare=False)  # type: ignore[assignment]
    on_nonfinite: str = "skip"
    raw_below: int = 4096
    # What is averaged has one dimension.
    raw_vectors: bool = False
    when: str = "backward"
    transport: str = "auto"

    def within(self, deadline: float) -> GroupOptions:
        """The same options, with a deadline if they have none."""
        return self if self.deadline is not None else replace(self, deadline=deadline)

    def to_meet(self, timeout: float) -> float:
        """How long a rank waits for the others to make a group with this timeout, too. Nothing
        connects them yet, so it does not notice earlier that one is gone."""
        return min(timeout, DEADLINE) if self.deadline is None else float(self.deadline)

    def compared(self) -> Dict[str, Any]:
        """As ``Options.compared``; a spec may be written in several ways."""
        return {**super().compared(), "compressor": _core.canonical(self.compressor)}

    def changes(self, before: GroupOptions) -> List[str]:
        """The names of the options that differ from those of a group."""
        own, other = ({**vars(one), **one.compared()} for one in (self, before))
        return [name for name, value in own.items() if value != other[name] and (name, value) != ("deadline", None)]

    def of_kind(self, kind: str) -> Options:
        """The options of the exchange of a kind of calls."""
        # Short tensors are passed on before. The buffer of a gather has no values yet.
        nonfinite = "error" if kind == GATHERS else self.on_nonfinite
        changed = {"exchange": _EXCHANGES.get(kind, self.exchange), "raw_below": 0, "on_nonfinite": nonfinite}
        return Options.of({**vars(self.within(DEADLINE)), **changed})

    def request(self, group: Any, kind: str) -> Request:
        """Where a kind of calls is compressed and exchanged; ``group`` sends tensors of devices."""
        values = "parameter" if kind == GATHERS else "gradient"
        return Request("auto", self.transport, group, values=values, grows=True)

    def check(self) -> None:
        """Refuses options that do not suit a process group."""
        super().check()
        self.check_replicated("they are chosen by the call")
        if self.when not in ("backward", "always"):
            raise _core.ConfigError(f"when={self.when!r} is unknown; use 'backward' or 'always'")
        self.request(None, REPLICAS).check()
        for stage in _core.canonical(self.compressor).split(" then "):
            name = stage.split()[0].partition(":")[0]
            if _family(stage) == "low-rank":
                raise _core.ConfigError(
                    f"'{name}' factors matrices, but a process group gets buffers without the shapes of their parameters; use "
                    "gradwire.torch.register, or another compressor, such as eden"
                )
        if self.uses_ef21():
            raise _core.ConfigError(
                f"'{self.compressor}' keeps sums of all changes on all ranks, which other tensors in the place of a call would damage; use "
                "ef=on, or gradwire.torch.register"
            )

    def keeps(self) -> bool:
        """Whether something may be kept for a place from step to step."""
        stages = [stage.split()[0] for stage in _core.canonical(self.compressor).split(" then ")]
        return any(has_error_feedback(stage) or "momentum" in stage for stage in stages)

    def check_alone(self) -> None:
        """As ``check``, and also refuses what only a reducer knows, before ranks connect."""
        self.check()
        whole_number("raw_below", self.raw_below)
        alone = self.of_kind(REPLICAS).reducer_alone([])
        votes, every = alone.votes, max(steps for _, steps in alone.stages)
        alone.close()
        if votes:
            raise _core.ConfigError(
                f"'{self.compressor}' averages by votes, which are +1 or -1 and no sums; use another compressor, such as efsignsgd"
            )
        if every > 1:
            raise _core.ConfigError(
                f"'{self.compressor}' exchanges every {every} steps, but gradients are exchanged at every step; remove 'every'"
            )


def _family(stage: str) -> str:
    name = stage.split()[0].partition(":")[0]
    return next((one["family"] for one in _core.compressors() if one["id"] == name), "")
