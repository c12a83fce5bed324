"""Ranks compare their plans when a round begins, so all of them do the same."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Iterator, List, Optional, Sequence, Tuple

from .. import _core

_REMEDY = (
    "give all ranks the same number of batches, or train in a block 'with torch.distributed.algorithms.Join([steps]):', in which a rank "
    "without further batches still takes part in rounds"
)


@dataclass(frozen=True)
class Plan:
    """The plan of a rank for a round."""

    # The number of steps that the rank has taken.
    step: int
    fragments: Tuple[int, ...]
    # Whether training goes on during the exchange.
    delayed: bool


def pack(plan: Optional[Plan], digests: bytes) -> bytes:
    """A rank's message to the others: its plan, or ``None`` if it follows the others, and the
    digests of its buffers."""
    told = None if plan is None else (plan.step, plan.fragments, plan.delayed)
    return json.dumps(told).encode() + b"\n" + digests


def unpack(told: Sequence[bytes]) -> Tuple[List[Optional[Plan]], List[bytes]]:
    """The plans and digests of all ranks."""
    plans: List[Optional[Plan]] = []
    for one in told:
        packed = json.loads(one.partition(b"\n")[0])
        plans.append(None if packed is None else Plan(packed[0], tuple(packed[1]), packed[2]))
    return plans, [one.partition(b"\n")[2] for one in told]


def common(plans: Sequence[Optional[Plan]], rank: int) -> Plan:
    """The plan of all ranks that have one. Raises ``ConfigError`` on all ranks if plans differ."""
    makers = [one for one, plan in enumerate(plans) if plan is not None]
    reference = rank if plans[rank] is not None else makers[0]
    plan = plans[reference]
    assert plan is not None
    who = "this rank" if reference == rank else f"rank {reference}"
    for maker in makers:
        other = plans[maker]
        assert other is not None
        if other.step != plan.step:
            raise _core.ConfigError(
                f"{who} has taken {plan.step} steps, but rank {maker} has taken {other.step}, and ranks must begin a round after the same "
                f"number of steps; {_REMEDY}"
            )
        if other != plan:
            raise _core.ConfigError(
                f"after {plan.step} steps {who} exchanges {_named(plan)}, but rank {maker} exchanges {_named(other)}; call synchronize() "
                "on all ranks after the same number of steps"
            )
    return plan


def _named(plan: Plan) -> str:
    fragments = ", ".join(map(str, plan.fragments))
    return f"fragment{'s' if len(plan.fragments) > 1 else ''} {fragments}"


@contextmanager
def explained(step: int, joined: bool) -> Iterator[None]:
    """Adds the number of this rank's steps to the errors of an exchange, and the remedy if the
    other ranks have taken fewer or more.

    ``joined`` is whether ranks already use that remedy, ``Join``.
    """
    try:
        yield
    except (_core.MessageError, _core.PeerLostError, _core.DeadlineError) as error:
        taken = f"{error}. This rank has taken {step} steps"
        remedy = "" if joined else f"; ranks must begin a round after the same number of steps. If other ranks take fewer or more steps, {_REMEDY}"
        raise type(error)(taken + remedy) from error
