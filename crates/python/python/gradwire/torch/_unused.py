"""Errors for steps in which ranks use different modules or parameters of a sharded model."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import Iterator, List, Sequence, Set, Tuple

from .. import _core
from ._units import Unit

_REMEDY = (
    "FSDP2 reduces gradients module by module, and all ranks must have the same ones; call model.set_reduce_scatter_unused_params(True), "
    "which counts missing gradients as zeros, and let all ranks run every module that fully_shard was applied to"
)


class SameGradients:
    """Makes sure that ranks exchange the gradients of the same parameters: their size alone does
    not tell them apart."""

    def __init__(self, reducer: _core.Reducer, units: Sequence[Unit]) -> None:
        self._reducer, self._units = reducer, units
        # Parameters that ranks have exchanged together before.
        self._known: Set[Tuple[str, ...]] = set()

    def check(self, step: int, unit: Unit, reduced: List[str]) -> None:
        """Compares this rank's ``reduced`` parameters of a unit with the other ranks'.

        If they are all trained parameters of the unit, compares only the first time, so normal
        steps cost nothing. If ranks do not compare at the same time, an error of the exchange says
        so; see ``explained``.

        Raises ``ConfigError`` if ranks differ.
        """
        unused = unit.unused(reduced)
        if not unused and tuple(reduced) in self._known:
            return
        own = json.dumps([self._units.index(unit), unused])
        reports = [json.loads(one) for one in self._reducer.gather(step, own.encode())]
        for rank, report in enumerate(reports):
            if report != reports[0]:
                first, other = (_described(self._units[at], places) for at, places in (reports[0], report))
                raise _core.ConfigError(
                    f"in this step rank 0 has gradients of {first}, but rank {rank} has gradients of {other}; {_REMEDY}"
                )
        self._known.add(tuple(reduced))


@contextmanager
def explained(unit: Unit, reduced: Sequence[str]) -> Iterator[None]:
    """If ranks do not do the same, replaces the error by one that names this rank's gradients."""
    try:
        yield
    except (_core.MessageError, _core.PeerLostError) as error:
        unused = unit.unused(reduced)
        if isinstance(error, _core.PeerLostError) and not unused:
            # Most likely the other rank has failed.
            raise
        raise _core.ConfigError(
            f"in this step this rank has gradients of {_described(unit, unused)}, but another rank has other gradients; {_REMEDY}"
        ) from error


def _described(unit: Unit, unused: List[int]) -> str:
    """A unit, with the first of its unused parameters and the number of the others."""
    if not unused:
        return str(unit)
    more = f" and {len(unused) - 1} more" if len(unused) > 1 else ""
    return f"{unit} without '{unit.names[unused[0]]}'{more}"
