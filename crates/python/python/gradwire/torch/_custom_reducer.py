"""A reducer whose messages a compressor written in Python makes."""

from __future__ import annotations

import itertools
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from ._custom import Custom


class CustomReducer:
    """Averages groups of tensors in main memory with a compressor written in Python.

    It has the methods of ``_core.Reducer`` that sharded models and ``LocalSteps`` use, except that
    ``average_values`` and ``average_whole`` take the place of ``average``. The reducer that it is
    made of connects the ranks. Without the shapes of tensors it only averages whole groups.
    """

    def __init__(self, compressor: Any, reducer: Any, shapes: Optional[Mapping[str, Sequence[int]]] = None) -> None:
        self._reducer, self._shapes = reducer, {name: torch.Size(shape) for name, shape in (shapes or {}).items()}
        self._custom = Custom(compressor, reducer, None if shapes is None else self._shapes)
        self._groups: Dict[int, List[str]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)

    @property
    def spec(self) -> str:
        """The name of the compressor's class."""
        return self._custom.spec

    def tensor_group(self, names: Sequence[str]) -> int:
        """The number of a group of tensors, given in the order of their values."""
        group: int = self._reducer.tensor_group(names)
        self._groups[group] = list(names)
        return group

    def average_values(self, tensor_group: int, step: int, values: torch.Tensor) -> None:
        """Averages the values of a group over all ranks, in place."""
        names = self._groups[tensor_group]
        shapes = [self._shapes[name] for name in names]
        ends = list(itertools.accumulate((shape.numel() for shape in shapes), initial=0))
        parts = [values[start:end].view(shape) for start, end, shape in zip(ends, ends[1:], shapes)]
        self._average(step, names, parts, values)

    def average_whole(self, names: Sequence[str], step: int, values: torch.Tensor) -> None:
        """Averages the values of a group over all ranks, in place, as one tensor."""
        self._average(step, [", ".join(names)], [values], values)

    def _average(self, step: int, names: Sequence[str], parts: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        try:
            self._custom.average(step, names, parts, values)
        except BaseException:
            # The other ranks wait for this one.
            self._reducer.abort()
            raise

    def sent(self, name: str) -> Optional[bytes]:
        """``None``: messages carry whole tensors."""
        return None

    def stats(self) -> Dict[str, Any]:
        """The cost of the last step, as in ``Reducer.stats``."""
        return self._custom.stats()

    def plan(self, step: int) -> List[Tuple[str, int, str, float, int]]:
        """Like ``Reducer.plan``."""
        return self._custom.plan()

    def save(self) -> bytes:
        """The residuals."""
        return self._custom.save()

    def save_unless_kept(self) -> Optional[bytes]:
        """The result of ``save`` if there are no residuals, else ``None``."""
        return self._custom.save_unless_kept()

    def save_all(self) -> List[bytes]:
        """The residuals of all ranks."""
        return self._custom.save_all()

    def load(self, states: Sequence[bytes]) -> None:
        """Restores residuals by the rule of ``Hook.load_state_dict``."""
        self._custom.load(states)
