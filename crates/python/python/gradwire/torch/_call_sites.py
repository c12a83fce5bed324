"""The table of the collectives that a process group has seen."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Dict, List, Tuple

# The most rows. Frameworks send objects of many lengths, which share a row from then on.
_MOST = 500


@dataclass
class CallSite:
    """Calls of one collective with tensors of one size."""

    collective: str
    # Of the type ``element_type``, in one call.
    elements: int
    element_type: str
    # The compressor, or "" if the calls were passed on.
    compressor: str
    # Why they were passed on.
    reason: str
    calls: int = 0
    # Of this rank's last message, or of the tensors of a call that was passed on.
    bytes_per_call: int = 0
    # Of the last call in its step, if it was compressed.
    place: str = ""

    @property
    def compressed(self) -> bool:
        """Whether the calls are compressed."""
        return bool(self.compressor)

    def of(self, compressor: str, bytes_per_call: int) -> CallSite:
        """The same calls with the compressor of a step, and the bytes of a message."""
        return replace(self, compressor=compressor, bytes_per_call=bytes_per_call)


class CallSites:
    """Counts calls."""

    def __init__(self) -> None:
        self._rows: Dict[Tuple[str, int, str, str], CallSite] = {}

    def compressed(self, collective: str, elements: int, element_type: str, compressor: str, place: str) -> None:
        """Counts a compressed call."""
        row = self._rows.get((collective, elements, element_type, ""))
        if row is None:
            row = self._add(CallSite(collective, elements, element_type, compressor, ""))
        row.calls += 1
        if row.elements:
            row.place = place

    def passed_on(self, collective: str, elements: int, element_type: str, reason: str, size: int) -> None:
        """Counts a call that is passed on, with tensors of ``size`` bytes."""
        row = self._rows.get((collective, elements, element_type, reason))
        if row is None:
            row = self._add(CallSite(collective, elements, element_type, "", reason, 0, size))
        row.calls += 1

    def _add(self, site: CallSite) -> CallSite:
        """The row of a new site."""
        key = (site.collective, site.elements, site.element_type, site.reason)
        if len(self._rows) >= _MOST:
            site = CallSite(site.collective.partition(" '")[0], 0, "", site.compressor, "of other sizes")
            key = (site.collective, 0, "", site.compressor)
        return self._rows.setdefault(key, site)

    def rows(self) -> List[CallSite]:
        """The rows, in the order of the first calls."""
        return list(self._rows.values())


@dataclass(frozen=True)
class GroupDescription:
    """The collectives that a process group has seen; prints as a table."""

    group: str
    ranks: int
    step: int
    sites: List[CallSite]
    # Where the messages of compressed calls travel, by kind of exchange.
    transports: Dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        rows = [("collective", "elements", "type", "calls", "sent as", "bytes a call")]
        for site in self.sites:
            to_all = ", to all ranks" if site.collective == "reduce" else ""
            how = f"{site.compressor}{to_all}" if site.compressor else f"passed on: {site.reason}"
            rows.append((site.collective, str(site.elements), site.element_type, str(site.calls), how, str(site.bytes_per_call)))
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        head = [f"process group '{self.group}' of {self.ranks} ranks, step {self.step}"]
        head += [f"messages of {kind} travel through {transport}" for kind, transport in self.transports.items()]
        return "\n".join([*head, *lines])
