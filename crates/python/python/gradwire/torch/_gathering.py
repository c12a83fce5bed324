"""Bytes that ranks send each other in addition to the averages of a round."""

from __future__ import annotations

from typing import Any, Dict, List

from .. import _core

# The counts of ``Reducer.traffic``.
_COUNTED = ("bytes_up", "bytes_down", "messages_up", "messages_down")


class Gathering:
    """Gives every rank the bytes of all ranks, and counts the traffic."""

    def __init__(self) -> None:
        # The cost since ``start``, and the cost of everything before.
        self._round, self._earlier = [0] * len(_COUNTED), [0] * len(_COUNTED)

    def start(self) -> None:
        """Begins to count for another round."""
        self._earlier = _sum(self._earlier, self._round)
        self._round = [0] * len(_COUNTED)

    def gather(self, reducer: _core.Reducer, own: bytes, step: int = 0) -> List[bytes]:
        """The bytes of all ranks, by rank. All ranks call it at the same time, with the same
        ``step``."""
        before = reducer.traffic()
        gathered = reducer.gather(step, own)
        self._round = [one + now - then for one, now, then in zip(self._round, reducer.traffic(), before)]
        return gathered

    def add_to(self, stats: Dict[str, Any]) -> Dict[str, Any]:
        """Statistics of a reducer, plus the traffic counted here in the round and in all rounds."""
        counted = dict(zip(_COUNTED, self._round))
        counted.update((f"total_{name}", total) for name, total in zip(_COUNTED, _sum(self._earlier, self._round)))
        return {name: value + counted[name] if name in counted else value for name, value in stats.items()}


def _sum(one: List[int], other: List[int]) -> List[int]:
    return [left + right for left, right in zip(one, other)]
