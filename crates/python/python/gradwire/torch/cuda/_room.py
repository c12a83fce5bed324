"""Places in an array for tensors that come and go."""

from __future__ import annotations

from typing import List


class Room:
    """Gives tensors places in an array, and the places of tensors that are gone to others."""

    def __init__(self) -> None:
        # The end of the last place.
        self.end = 0
        # The free places before it, in order; no two touch each other.
        self._free: List[range] = []

    def take(self, elements: int) -> int:
        """The first element of a place: of the first free one that is long enough, or behind all
        others."""
        for at, free in enumerate(self._free):
            if elements and len(free) >= elements:
                self._free[at : at + 1] = [free[elements:]] if len(free) > elements else []
                return free.start
        start, self.end = self.end, self.end + elements
        return start

    def give_back(self, start: int, elements: int) -> None:
        """Frees a place."""
        places = sorted([*self._free, range(start, start + elements)], key=lambda place: place.start)
        self._free = []
        for place in places:
            before = self._free[-1] if self._free else range(0)
            if self._free and before.stop == place.start:
                self._free[-1] = range(before.start, place.stop)
            elif len(place):
                self._free.append(place)
        if self._free and self._free[-1].stop == self.end:
            self.end = self._free.pop().start
