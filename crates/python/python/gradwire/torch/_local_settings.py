"""The settings of local steps: their rounds, what ranks compare of them, and what cannot be combined."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from .. import _core
from . import _setup
from ._forms import forms
from ._fragments import Named
from ._replica import Replica


def fingerprint(model: torch.nn.Module, replica: Replica, settings: Tuple[Any, ...]) -> str:
    """Equal for two workers if their models, except values, and settings are."""
    return hashlib.sha256(repr((forms(model), outer_settings(replica), settings)).encode()).hexdigest()


def optimized(optimizer: torch.optim.Optimizer) -> List[torch.Tensor]:
    """The parameters of an optimizer."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def outer_settings(replica: Replica) -> Optional[str]:
    """The outer optimizer with its settings."""
    if replica.outer is None:
        return None
    plain = (bool, int, float, str, tuple, torch.Tensor)
    settings = {name: value for name, value in replica.outer.defaults.items() if isinstance(value, plain) and value is not False}
    # A tensor's text would contain its device.
    settings = {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in settings.items()}
    return f"{type(replica.outer).__name__} {settings}"


def keeps_what_all_have(reducer: _core.Reducer) -> bool:
    """Whether a rank keeps something that must be the same on all ranks, such as a factor of a low-rank method."""
    specs = {spec for step, _ in reducer.stages for spec in reducer.specs(step)}
    rounds = {one["id"] for one in _core.compressors() if one["aggregation"] == "rounds"}
    return any("ef=ef21" in spec or spec.partition(":")[0] in rounds for spec in specs)


def round_lengths(every: Optional[int], compressor: str, stages: List[Tuple[int, int]]) -> List[Tuple[int, int]]:
    """The steps from which rounds have another length, with the length: ``every``, or that of each stage, or 50."""
    if every is not None:
        return [(0, every)]
    if len({steps for _, steps in stages}) > 1:
        return stages
    _, steps = stages[0]
    # A stage has every=1 also if the compressor says nothing of it.
    given = steps > 1 or re.search(r"\bevery\s*=", compressor)
    return [(0, steps if given else 50)]


def check_votes(named: Sequence[Named], compressor: str, options: Dict[str, Any], lighthouse: Optional[str]) -> None:
    """Refuses compressors that average by votes."""
    if not _setup.votes(named, compressor, **options):
        return
    if lighthouse is not None:
        raise _core.ConfigError(
            f"'{compressor}' averages by votes, and with lighthouse a round may have workers without local steps, whose zeros would vote; "
            "use another compressor, such as efsignsgd"
        )
    raise _core.ConfigError(
        f"'{compressor}' averages by votes, which are +1 or -1, and without outer would change each weight by 1; give an outer optimizer "
        "with a small rate, such as outer=partial(torch.optim.SGD, lr=1e-3), or use another compressor, such as efsignsgd"
    )


def check_elastic(
    compressor: str, options: Dict[str, Any], min_workers: Optional[int], process_group: Optional[Any]
) -> None:
    """Refuses arguments that cannot be combined with ``lighthouse``, and sets the exchange."""
    if process_group is not None:
        raise _core.ConfigError("with lighthouse, LocalSteps makes its own process groups; remove process_group")
    if _setup.uses_ef21(compressor, options.get("rules")):
        raise _core.ConfigError(
            "with lighthouse ef=ef21 is impossible: the sum of changes contains those of lost workers; use ef=on"
        )
    if min_workers is not None and min_workers < 1:
        raise _core.ConfigError(f"min_workers={min_workers} is too small; a round has at least 1 worker")
    # A rank's state may not depend on which other ranks there are.
    if options.setdefault("exchange", "all-gather") not in ("auto", "all-gather"):
        raise _core.ConfigError(
            f"with lighthouse the exchange is all-gather, not {options['exchange']!r}; remove exchange"
        )
    options["exchange"] = "all-gather"
