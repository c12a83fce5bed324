"""Compressors of other crates, which every rank must have."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Iterable, List, Sequence, Set

import torch.distributed as dist

from .. import _core
from ._deadlines import DEADLINE
from ._options import Options, rules_of
from ._rendezvous import Rendezvous, named

# The name of a compressor of another crate.
_NAME = re.compile(r"[a-z0-9_-]+/[a-z0-9_-]+")


def check_crates(options: Options, group: Any, caller: str, others: Iterable[Any] = ()) -> None:
    """Raises ``ConfigError`` on all ranks of a group if some of them lack a compressor of another
    crate that the options, or ``others``, name; else that rank alone would refuse the name, and the
    others would wait for it. ``group`` is a process group, a list of ranks, or ``None`` for all
    ranks of the job.

    Ranks meet only if there is such a name. If no rank has the compressor, nothing is raised.
    """
    names = _names([options.compressor, *(rule.rpartition("->")[2] for rule in rules_of(options.rules)), *others])
    if not names or not dist.is_available() or not dist.is_initialized():
        return
    ranks = _ranks_of(group)
    usable = isinstance(options.deadline, (int, float)) and 0.0 < options.deadline < 1e9
    rendezvous = Rendezvous(ranks, f"{caller} with {', '.join(names)}", float(options.deadline) if usable else DEADLINE)
    lacking = _shared(rendezvous, ranks, [name for name in names if name not in _known()])
    rendezvous.leave()
    for name in names:
        without = [rank for rank in ranks if name in lacking[rank]]
        having = [rank for rank in ranks if rank not in without]
        if without and having:
            lack, have = ("does not have" if len(without) == 1 else "do not have"), ("has" if len(having) == 1 else "have")
            raise _core.ConfigError(
                f"{named(without)} {lack} the compressor {name!r}, but {named(having)} {have} it; on every rank, import the package of the "
                f"crate {name.partition('/')[0]!r} before gradwire"
            )


def _ranks_of(group: Any) -> List[int]:
    if group is None:
        return list(range(dist.get_world_size()))
    return group if isinstance(group, list) else dist.get_process_group_ranks(group)


def _names(specs: Iterable[Any]) -> List[str]:
    return sorted({name for spec in specs if isinstance(spec, str) for name in _NAME.findall(spec)})


def _known() -> Set[str]:
    """The names of the compressors of this rank."""
    return {one["id"] for one in _core.compressors()}


def _shared(rendezvous: Rendezvous, ranks: Sequence[int], own: List[str]) -> Dict[int, List[str]]:
    """What each rank lacks."""
    store: Any = dist.PrefixStore(f"{rendezvous.prefix}/lacks", dist.distributed_c10d._get_default_store())
    store.set(str(dist.get_rank()), json.dumps(own))
    return {rank: json.loads(store.get(str(rank))) for rank in ranks}
