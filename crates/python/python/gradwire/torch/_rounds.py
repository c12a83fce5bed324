"""Decides when the fragments of a replica are exchanged, and when their means are applied."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from .. import _core
from . import _agreement, _buffers
from ._agreement import Plan
from ._gathering import Gathering
from ._joining import Joining
from ._local_options import LocalOptions
from ._replica import Replica, Sent

# First steps, ascending from 0, with numbers of steps.
Lengths = List[Tuple[int, int]]


@dataclass
class Pending:
    """A fragment's exchange under way, or its mean before it is applied."""

    fragment: int
    # At first the change of this replica; once the exchange is done, the mean over all.
    change: torch.Tensor
    number: int
    # The step after which the mean is applied.
    due: int
    # The elements that this replica sent, from a saved state; otherwise the reducer knows them.
    sent: Optional[Sent] = None


def lengths_of(options: LocalOptions, stages: Lengths) -> Lengths:
    """The steps from which rounds have another length, with that length: ``every``, or the length
    of each stage, or 50.

    ``stages`` are the steps from which another compressor is used, with the steps from one of its
    exchanges to the next.
    """
    if options.every is not None:
        return [(0, options.every)]
    if len({steps for _, steps in stages}) > 1:
        return stages
    _, steps = stages[0]
    # A stage has every=1 even if the compressor does not mention it.
    given = steps > 1 or re.search(r"\bevery\s*=", options.compressor)
    return [(0, steps if given else 50)]


class Rounds:
    """Exchanges each fragment of a replica once in a round, the fragments evenly spaced in between.

    ``lengths`` are the steps at which the number of steps of a round changes, with the new number.
    All fragments are exchanged just before such a step, without delay.

    The exchange of a fragment runs in the background. Its mean is applied ``fragment_sync_delay``
    steps after the exchange began; ``fragment_update_alpha`` of the replica's own parameters stays.
    At the first ``sync_until`` steps all fragments are exchanged, without delay.

    Buffers are made equal once in a round, when the exchange of the last fragment begins. Before an
    exchange, ranks compare the numbers of their steps. With a delay, training would wait for the
    answer, so they do this only to compare buffers, or under ``Join``.
    """

    def __init__(self, replica: Replica, joining: Joining, lengths: Lengths, options: LocalOptions) -> None:
        fragments, delay, alpha = replica.fragments, options.fragment_sync_delay, options.fragment_update_alpha
        every = min(steps for _, steps in lengths)
        if every < fragments:
            raise _core.ConfigError(
                f"{fragments} fragments need a round of at least as many steps, and it has {every}; give fewer fragments, or every of at "
                f"least {fragments}"
            )
        if delay >= every // fragments:
            raise _core.ConfigError(
                f"fragment_sync_delay={delay} is impossible: {fragments} fragments in {every} steps begin {every // fragments} steps "
                f"apart; give 0 to {every // fragments - 1}"
            )
        self._replica, self._lengths, self._sync_until, self._delay = replica, lengths, options.sync_until, delay
        self._alpha = alpha if alpha is not None else 0.5 if delay else 0.0
        self._joining = joining
        self._pending: Optional[Pending] = None
        # The exchange of bytes other than averages.
        self.gathering = Gathering()
        # The seconds that training waited for the last exchange.
        self.waited = 0.0

    def starting(self) -> List[int]:
        """The fragments whose exchange begins after the present step."""
        fragments = self._replica.fragments
        if self._all_at_once():
            return list(range(fragments))
        first, every = self._length(self._replica.step - 1)
        done = self._replica.step - max(first, self._sync_until)
        starts = lambda at: (done - (at + 1) * every // fragments) % every == 0
        return [at for at in range(fragments) if starts(at)]

    def _length(self, step: int) -> Tuple[int, int]:
        """The length of rounds at ``step``, preceded by the first step with this length."""
        return [one for one in self._lengths if one[0] <= step][-1]

    def _all_at_once(self) -> bool:
        """Whether all fragments are exchanged after the present step, without delay."""
        step = self._replica.step
        return step <= self._sync_until or self._length(step) != self._length(step - 1)

    def advance(self) -> None:
        """Applies the mean that is due after the present step, and begins the exchange that is
        due."""
        with self._explained():
            if self._pending is not None and self._replica.step >= self._pending.due:
                self._finish()
            starting = self.starting()
            if starting:
                self._begin(starting, delayed=self._delay > 0 and not self._all_at_once())

    def exchange(self, fragments: Sequence[int]) -> None:
        """Exchanges these fragments now, after any exchange under way, and applies their means."""
        with self._explained():
            self._begin(fragments, delayed=False)

    def follow(self) -> None:
        """Takes part in the exchange that other ranks begin, after the same number of steps."""
        with self._explained():
            if self._pending is not None:
                self._finish()
            self.gathering.start()
            self._carry_out(self._follow)

    def finish_together(self) -> None:
        """Exchanges all fragments after the last step of all ranks, which have taken part in each
        other's exchanges."""
        own = str(self._replica.step).encode()
        with self._explained():
            self._replica.step = max(map(int, self.gathering.gather(self._replica.reducer, own)))
        self.exchange(range(self._replica.fragments))

    def _explained(self) -> ContextManager[None]:
        return _agreement.explained(self._replica.step, self._joining.active)

    def _begin(self, fragments: Sequence[int], delayed: bool) -> None:
        if self._pending is not None:
            self._finish()
        self.gathering.start()
        self._carry_out(partial(self._plan, Plan(self._replica.step, tuple(fragments), delayed)))

    def _plan(self, plan: Plan) -> Plan:
        """The common plan of all ranks, given this rank's."""
        self._joining.notify()
        self._meet_other_sites(plan)
        if plan.delayed and not self._joining.active and not self._compares(plan):
            return plan
        return self._agree(plan)

    def _follow(self) -> Plan:
        """The common plan of the other ranks."""
        self._meet_other_sites(None)
        return self._agree(None)

    def _meet_other_sites(self, plan: Optional[Plan]) -> None:
        """Waits for the ranks with the same shard, if this round makes ranks of a site wait for
        each other before they send their changes. Otherwise the neighbours of a lost rank would
        seem to other sites to be lost, too."""
        replica = self._replica
        if replica.site.size > 1 and (replica.clips or self._compares(plan)):
            self.gathering.gather(replica.reducer, b"", self._announced_as)
            # This rank may end now, and the others must have its message.
            replica.reducer.wait()

    @property
    def _announced_as(self) -> int:
        """The number of the message that announces an exchange. With a delay, a rank may begin an
        exchange without announcing it. The error then has the steps of both."""
        return 0 if self._delay == 0 or self._joining.active else self._replica.number

    def _compares(self, plan: Optional[Plan]) -> bool:
        """Whether ranks compare their buffers in this exchange. A rank that follows others does not
        know their fragments."""
        last = self._replica.fragments - 1
        return self._replica.buffers.shared and (plan is None or self._joining.active or last in plan.fragments)

    def _agree(self, plan: Optional[Plan]) -> Plan:
        """Sends this rank's plan to the others, makes buffers equal, and returns the common
        plan."""
        replica, buffers = self._replica, self._replica.buffers
        compares = self._compares(plan)
        if compares:
            buffers.make_equal_in(replica.site)
        own = _agreement.pack(plan, buffers.digests() if compares else b"")
        told = self.gathering.gather(replica.reducer, own, self._announced_as)
        with self._told():
            plans, digests = _agreement.unpack(told)
            plan = _agreement.common(plans, replica.reducer.rank)
            if compares and replica.fragments - 1 in plan.fragments:
                _buffers.apply(buffers.settle(digests, replica.reducer.rank, self._gather))
        return plan

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Before it raises ``ConfigError``, waits until the others have this rank's message,
        because the rank may end now."""
        try:
            yield
        except _core.ConfigError:
            self._replica.reducer.wait()
            raise

    def _gather(self, own: bytes) -> List[bytes]:
        return self.gathering.gather(self._replica.reducer, own)

    def _carry_out(self, make_plan: Callable[[], Plan]) -> None:
        """Makes the common plan of all ranks, and exchanges what it says. Parameters change after
        all ranks of this site have the means."""
        replica = self._replica
        with replica.site.agreed(f"round {replica.round}"):
            plan = make_plan()
            replica.step = plan.step
            with self._told():
                changes = [(at, replica.change(at)) for at in plan.fragments]
            sent = [(at, change, replica.send(change, at)) for at, change in changes]
            if not plan.delayed:
                self._wait()
        if plan.delayed:
            [(at, change, number)] = sent
            self._pending = Pending(at, change, number, plan.step + self._delay)
            return
        for at, change, number in sent:
            replica.apply(change, number, at)

    def _finish(self) -> None:
        pending, self._pending = self._pending, None
        assert pending is not None
        with self._replica.site.agreed(f"the mean of round {pending.number}"):
            self._wait()
        self._replica.apply(pending.change, pending.number, pending.fragment, self._alpha, pending.sent)

    def _wait(self) -> None:
        start = time.perf_counter()
        self._replica.wait()
        self.waited = time.perf_counter() - start

    def pack(self) -> Optional[Dict[str, Any]]:
        """The mean that is not applied yet, after waiting for its exchange."""
        if self._pending is None:
            return None
        with self._explained():
            self._replica.wait()
        one = self._pending
        return {"fragment": one.fragment, "mean": one.change.clone(), "number": one.number, "due": one.due}

    def sent(self) -> Sent:
        """The elements that this replica sent for a mean that is not applied yet, if there is one;
        call ``pack`` first."""
        if self._pending is None:
            return {}
        return self._replica.sent(self._pending.fragment) if self._pending.sent is None else self._pending.sent

    @staticmethod
    def unpack(packed: Optional[Dict[str, Any]], sent: Sent) -> Optional[Pending]:
        """The argument of ``load``, from the results of ``pack`` and ``sent``."""
        if packed is None:
            return None
        return Pending(packed["fragment"], packed["mean"].clone(), packed["number"], packed["due"], sent)

    def load(self, pending: Optional[Pending]) -> None:
        """Goes on with a mean that is not applied yet, if there is one."""
        self._pending = pending
