"""Decides which sites form the next group. A site comes and goes with all its ranks."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Optional

from ._channel import Groups
from ._deadlines import SURVIVOR_DEADLINES
from ._membership import Meeting, Membership, Record, Store, record_of
from ._process import OfOneProcess
from ._site import Site


class SiteMembership(OfOneProcess):
    """A site's contact to the lighthouse: its first rank asks, and tells the others.

    Each rank connects to the ranks of other sites that hold the same shard. The arguments are those
    of ``Membership``.
    """

    def __init__(self, site: Site, lighthouse: str, least: int, deadline: float) -> None:
        super().__init__()
        self._site = site
        self._first: Optional[Membership] = None
        self.longest = SURVIVOR_DEADLINES * deadline
        with site.agreed("the lighthouse"):
            if site.rank == 0:
                self._first = Membership(lighthouse, least, deadline)
            self._store = self._first.store if self._first is not None else Store(lighthouse, deadline)
        self.name = site.gather(self._first.name.encode() if self._first is not None else b"", "the name of the site")[0].decode()
        self._stores = [one.decode() for one in site.gather(self._store.address.encode(), "stores")]

    def meet(self, record: Record) -> Meeting:
        """As ``Membership.meet``, on all ranks of the site."""
        meeting: Optional[Meeting] = None
        try:
            with self._site.agreed("a meeting"):
                if self._first is not None:
                    meeting = self._first.meet(replace(record, stores=self._stores))
            told = self._site.gather(json.dumps(meeting and asdict(meeting)).encode(), "the result of a meeting")[0]
        except BaseException:
            # Without a heartbeat, other sites do not wait for this one.
            self.close()
            raise
        fields = json.loads(told)
        return Meeting(**{**fields, "records": [record_of(one) for one in fields["records"]]})

    def connect(self, meeting: Meeting) -> Groups:
        """The group of the ranks that hold the same shard; see ``Store.connect``."""
        return self._store.connect(meeting, meeting.records[0].stores[self._site.rank])

    def close(self) -> None:
        """Leaves the run."""
        if self._first is not None:
            self._first.close()
