"""The places of collectives in a step, to which residuals and random draws belong."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Set, Tuple

# A residual whose place has not come up for this number of steps is dropped, unless it has a name.
LONGEST_ABSENCE = 100


class Kind(NamedTuple):
    """What the collectives at several places have in common."""

    collective: str
    element_type: str
    elements: int

    def place(self, number: int) -> str:
        """The name of the place with this number, from 0, among those of this kind."""
        return f"{self.collective} {self.element_type}[{self.elements}] #{number}"

    def named(self, name: str) -> str:
        """The name of the place of a tensor with a name."""
        return f"{name} {self.element_type}[{self.elements}]"


def is_named(place: str) -> bool:
    """Whether a place is one of a tensor with a name."""
    return place.endswith("]")


class Changes(NamedTuple):
    """The places whose residuals may belong to other tensors from now on, and those that have not
    come up for many steps, without and with names. ``early`` are those that only the first step
    had, such as the first buckets of DistributedDataParallel, which makes others then."""

    uncertain: List[str]
    absent: List[str]
    early: List[str]
    unused: List[str]


class Places:
    """Gives each call of a step its place: its collective, type and size, and its number among the
    calls of this kind.

    If the owner of the tensor is known, such as the parameter whose gradient it is, the owner keeps
    its place. Otherwise the order of calls decides. All ranks call the same collectives in the same
    order, so they find the same places. A call that a step leaves out changes only places of its
    own kind. A call without an owner never takes the place of one that has an owner.
    """

    def __init__(self) -> None:
        # Of the present step: the numbers in use, and those of calls whose owners are unknown.
        self._used: Dict[Kind, Set[int]] = {}
        self._unowned: Set[Tuple[Kind, int]] = set()
        # Of the last step that had calls of this kind: how many; and which step it was.
        self._known: Dict[Kind, int] = {}
        self._last: Dict[Kind, int] = {}
        # The kinds that only the first step had.
        self._early: Set[Kind] = set()
        self._numbers: Dict[Tuple[Kind, int], int] = {}
        self._owned: Set[Tuple[Kind, int]] = set()
        # Of places with names, unless they were in ``Changes.unused``: the last step with a call.
        self._named: Dict[str, int] = {}
        self._steps = 0

    def next(self, kind: Kind, owner: Optional[int] = None) -> int:
        """The number of the place of a call. ``owner`` stands for the owner of the tensor."""
        used = self._used.setdefault(kind, set())
        number = None if owner is None else self._numbers.get((kind, owner))
        if number is None or number in used:
            number = 0
            while number in used or (kind, number) in self._owned:
                number += 1
            if owner is None:
                self._unowned.add((kind, number))
            else:
                self.bind(kind, number, owner)
        used.add(number)
        return number

    def bind(self, kind: Kind, number: int, owner: int) -> None:
        """Gives a place to the owner of the tensor that it had in the present step, unless the
        owner has a place: in some frameworks the owner is unknown when the call comes."""
        if (kind, owner) not in self._numbers:
            self._numbers[kind, owner] = number
            self._owned.add((kind, number))
            self._unowned.discard((kind, number))

    def note(self, place: str) -> None:
        """Notes a call in a place with a name, or a loaded state of it."""
        self._named[place] = self._steps

    def end(self) -> Changes:
        """Ends a step. If it had another number of calls of one kind than the last one, and not all
        owners are known, nobody knows which of them were left out or are new."""
        differs = lambda kind: self._known.get(kind, len(self._used[kind])) != len(self._used[kind])
        unowned = {kind for kind, _ in self._unowned}
        uncertain = [place for kind in self._used if kind in unowned and differs(kind) for place in self._places(kind)]
        self._steps += 1
        self._early = self._early - self._used.keys() if self._last else set(self._used)
        for kind, used in self._used.items():
            self._known[kind], self._last[kind] = len(used), self._steps
        self._used.clear()
        self._unowned.clear()
        gone = [kind for kind, step in self._last.items() if self._steps - step > LONGEST_ABSENCE]
        early, absent = [], []
        for kind in gone:
            (early if kind in self._early else absent).extend(self._places(kind))
        for kind in gone:
            del self._known[kind], self._last[kind]
        unused = [place for place, step in self._named.items() if self._steps - step > LONGEST_ABSENCE]
        for place in unused:
            del self._named[place]
        return Changes(uncertain, absent, early, unused)

    def _places(self, kind: Kind) -> List[str]:
        numbers = {number for other, number in self._owned if other == kind}
        most = max(self._known.get(kind, 0), max(self._used.get(kind, ()), default=-1) + 1, max(numbers, default=-1) + 1)
        return [kind.place(number) for number in range(most)]
