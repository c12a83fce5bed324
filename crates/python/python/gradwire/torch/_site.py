"""A site: the ranks that hold the shards of one replica."""

from __future__ import annotations

import json
import math
import struct
import weakref
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Dict, Iterator, List, Optional, Sequence

import torch
import torch.distributed as dist

from .. import _core
from . import _units
from ._channel import connect, release
from ._checks import is_sharded
from ._copyable import broadcast
from ._deadlines import LONGEST, WAITING_DEADLINES
from ._options import Options
from ._reports import error_of, packed, renumbered, unpacked
from ._rows import Rows
from ._tensors import Named, own_part, plain, trainable

_CALLER = "gradwire.torch.LocalSteps"
# A rank of a site sends the others the purpose of a message and its values, or the kind and text of
# its error.
_VALUES, _ERROR = b"+", b"-"
_END = b"\n"


class Site:
    """A site of one rank, which has a whole replica."""

    rank, size = 0, 1
    is_sharded = False

    def layout(self) -> Any:
        """The rows of all parameters that this rank has, and the number of shards; ``None`` for a
        whole replica."""
        return None

    def rows(self, parameter: torch.Tensor) -> Optional[Rows]:
        """The rows of a parameter that this rank has; ``None`` for a whole parameter."""
        return None

    def exchanged(self, named: Sequence[Named]) -> List[Named]:
        """Some parameters in the whole shape in which ranks exchange them."""
        return list(named)

    def reshard(self) -> None:
        """Frees whole parameters that a forward pass has left, because they are about to change."""

    def connect(self, deadline: float, patience: int = WAITING_DEADLINES) -> None:
        """Connects the ranks of the site. All of them call it at the same time. Later they wait for
        each other for ``patience`` deadlines."""

    def check_places(self, group: Any) -> None:
        """Refuses a process group of replicas in which the ranks of the site have other places."""

    def check_shards(self, reducer: _core.Reducer) -> None:
        """Refuses ranks of a process group of replicas that hold different shards, or shards and
        whole replicas."""
        layouts = [json.loads(one) for one in reducer.gather(0, json.dumps(self.layout()).encode())]
        # This rank may end now, and the others must have its layout.
        reducer.wait()
        first = layouts[0]
        for site, layout in enumerate(layouts):
            if layout != first:
                raise _core.ConfigError(
                    f"process_group has {_holds(layout)} in site {site}, but {_holds(first)} in site 0{_differing(first, layout)}; "
                    "shard the model in the same way and over the same number of ranks in every site, and give process_group the ranks "
                    "that hold the same shard"
                )

    def broadcast(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replaces tensors by those of the site's first rank."""

    def gather(self, own: bytes, purpose: str) -> List[bytes]:
        """The bytes of all ranks of the site, by rank. Raises ``MessageError`` on all if one of
        them calls it for another ``purpose``."""
        return [own]

    @contextmanager
    def agreed(self, purpose: str) -> Iterator[None]:
        """A block that fails on all ranks of the site if it fails on one of them. A rank leaves it
        when all are at its end, with the same ``purpose``."""
        yield

    def norm(self, rows: torch.Tensor, purpose: str) -> float:
        """The norm of a vector of which each rank of the site has some rows."""
        return float(rows.norm().item())

    def hurry(self) -> None:
        """Makes ``close`` wait only a moment."""

    def close(self) -> None:
        """Ends the connections."""


class ShardedSite(Site):
    """The ranks over which ``fully_shard`` has sharded a replica."""

    is_sharded = True

    def __init__(self, model: torch.nn.Module, process_group: Optional[Any]) -> None:
        # Their construction frees whole parameters.
        self._units = _units.of(model)
        _check_units(model, self._units)
        self._group = _units.shard_group(self._units)
        if process_group is not None:
            _units.check_replicas("process_group", process_group, self._units)
        self.rank, self.size = self._group.rank(), self._group.size()
        self._ranks: List[int] = dist.get_process_group_ranks(self._group)
        self._rows: Dict[int, Rows] = {}
        # The ranks that hold the same shard, by site.
        self._same_shard: List[int] = []
        # The error that ended the connections.
        self._broken: Optional[Exception] = None
        self._names: Dict[int, str] = {id(one): plain(name) for name, one in model.named_parameters()}
        for unit in self._units:
            for parameter, of in zip(unit.parameters, unit.param_group.fsdp_params):
                self._rows[id(parameter)] = Rows.of(parameter, of.fsdp_placement.dim, self.rank, self.size)

    def rows(self, parameter: torch.Tensor) -> Optional[Rows]:
        return self._rows.get(id(parameter))

    def exchanged(self, named: Sequence[Named]) -> List[Named]:
        return [(name, torch.empty(self._rows[id(one)].shape, dtype=torch.float32, device="meta")) for name, one in named]

    def reshard(self) -> None:
        for unit in self._units:
            unit.module.reshard()

    def layout(self) -> Any:
        own = {self._names[one]: [list(rows.shape), rows.first, rows.end] for one, rows in self._rows.items()}
        return [self.rank, self.size, own]

    def connect(self, deadline: float, patience: int = WAITING_DEADLINES) -> None:
        # A rank of the site may wait for a rank of another site.
        seconds = min(patience * deadline, LONGEST)
        make = partial(Options("none", deadline=seconds).reducer, [])
        self._reducer, groups = connect(self._group, make, deadline, _CALLER)
        self._groups = groups
        self._release = weakref.finalize(self, release, self._reducer, groups)
        self._release.atexit = False

    def check_places(self, group: Any) -> None:
        own = json.dumps([group.rank(), group.size()]).encode()
        places = [json.loads(one) for one in self.gather(own, "process groups")]
        if len(set(map(tuple, places))) > 1:
            named = "; ".join(f"rank {rank} is number {at} of {size} in its group" for rank, (at, size) in zip(self._ranks, places))
            raise _core.ConfigError(
                f"the ranks of this site, counted from 0, have different places in process_group: {named}; give each rank the ranks that "
                "hold the same shard in all sites, in the order of the sites, such as mesh['sites']"
            )
        self._same_shard = dist.get_process_group_ranks(group)

    def broadcast(self, tensors: Sequence[torch.Tensor]) -> None:
        broadcast(self._groups, tensors)

    def gather(self, own: bytes, purpose: str) -> List[bytes]:
        told = [one.partition(_END) for one in self._exchange(_VALUES + purpose.encode() + _END + own)]
        purposes = [one[0][1:].decode() for one in told]
        if len(set(purposes)) > 1:
            named = "; ".join(f"rank {rank} is at '{one}'" for rank, one in zip(self._ranks, purposes))
            raise _of_site(_core.MessageError(f"the ranks of this site are out of step: {named}; end the run on all of them"))
        return [values for _, _, values in told]

    def _exchange(self, message: bytes) -> List[bytes]:
        try:
            told = self._reducer.gather(0, message)
            # This rank may end now, and the others must have its message.
            self._reducer.wait()
        except _core.GradwireError as error:
            if self._broken is None:
                self._broken = _of_site(renumbered(error, [f"{rank} (shard {shard} of this site)" for shard, rank in enumerate(self._ranks)]))
            # The error of later calls would not tell the cause.
            raise self._broken from error
        for rank, one in zip(self._ranks, told):
            if one.startswith(_ERROR):
                raise _of_site(error_of(*unpacked(one[1:]), f"rank {rank}, which has another shard of this model, failed: "))
        return told

    @contextmanager
    def agreed(self, purpose: str) -> Iterator[None]:
        try:
            yield
            self.gather(b"", purpose)
        except Exception as error:
            # All ranks of the site have the errors of their messages.
            if getattr(error, "is_of_site", False):
                raise
            located = self._located(error)
            # If the connections of the site are broken, the others notice it.
            with suppress(_core.GradwireError):
                self._exchange(_ERROR + packed(located))
            if located is error:
                raise
            raise located from error

    def _located(self, error: Exception) -> Exception:
        """An error of the exchange with other sites, with the rank of the job, the site and the
        shard in place of a number in ``process_group``."""
        if not isinstance(error, _core.GradwireError) or not self._same_shard:
            return error
        names = [f"{rank} (site {site}, shard {self.rank})" for site, rank in enumerate(self._same_shard)]
        return renumbered(error, names)

    def norm(self, rows: torch.Tensor, purpose: str) -> float:
        square = float(rows.norm().item()) ** 2
        return math.sqrt(sum(struct.unpack("<d", one)[0] for one in self.gather(struct.pack("<d", square), purpose)))

    def hurry(self) -> None:
        self._reducer.hurry()

    def close(self) -> None:
        if hasattr(self, "_release"):
            self._release()


def _of_site(error: Exception) -> Exception:
    """Marks an error that the ranks of a site get from their own messages, so no rank tells it to
    the others."""
    error.is_of_site = True  # type: ignore[attr-defined]
    return error


def _holds(layout: Any) -> str:
    return "a model without shards" if layout is None else f"shard {layout[0]} of {layout[1]}"


def _differing(one: Any, other: Any) -> str:
    """Names a parameter of which two layouts have different rows."""
    if one is None or other is None:
        return ""
    names = [name for name, rows in other[2].items() if rows != one[2].get(name)]
    return f", and other rows of '{names[0]}'" if names else ""


def group_of(process_group: Optional[Any]) -> Optional[Any]:
    """The process group of an argument that is one, or a mesh of one dimension."""
    if process_group is None or not hasattr(process_group, "get_group"):
        return process_group
    if process_group.ndim != 1:
        raise _core.ConfigError(
            f"process_group is a mesh of {process_group.ndim} dimensions; give the one along which models are averaged, such as "
            "mesh['sites']"
        )
    return process_group.get_group()


def of(model: torch.nn.Module, process_group: Optional[Any]) -> Site:
    """The site of a model: the ranks that share it if ``fully_shard`` has sharded it, or else this
    rank."""
    return ShardedSite(model, process_group) if is_sharded(model) else Site()


def _check_units(model: torch.nn.Module, units: Sequence[_units.Unit]) -> None:
    """Refuses a mesh of two dimensions, and trained parameters that are not sharded."""
    if _units.replica_rank(list(units)) is not None:
        raise _core.ConfigError(
            "fully_shard got a mesh of two dimensions, so PyTorch averages the replicas in every step, as HSDP does; give it the mesh of the shards of a "
            "site, such as mesh['shards'], and LocalSteps process_group=mesh['sites']"
        )
    for name, parameter in trainable(model):
        if own_part(parameter) is parameter:
            raise _core.ConfigError(
                f"'{name}' is not sharded, as a parameter in ignored_params of fully_shard, so the ranks of a site would train different "
                "copies of it; let fully_shard shard it, or freeze it"
            )
