"""Staged updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, List, Tuple

from .. import _core
from ._weights import empty, view

if TYPE_CHECKING:
    from ._receiver import Receiver


class Update:
    """New weights that were decoded and proven, and that have changed nothing yet.

    ``Receiver.stage`` makes it. Load ``patches()`` or ``tensors()`` into an engine, then call
    ``commit()``: then the receiver's own weights and its version advance. Values are new elements,
    not differences, so loading them twice does no harm.
    """

    def __init__(self, receiver: Receiver, update: _core.DeltaUpdate) -> None:
        self._receiver, self._update = receiver, update
        self._new, self._removed, self._is_committed = update.added(), update.removed(), False

    @property
    def version(self) -> int:
        """The version that the update gives."""
        return self._update.target[1]

    @property
    def is_applied(self) -> bool:
        """Whether the receiver's weights were those of the update already when it was staged, so
        nothing is to be done."""
        return self._update.is_applied

    @property
    def changed_elements(self) -> int:
        """The number of elements that change, in tensors that keep their type and shape."""
        return self._update.changed_elements

    @property
    def removed(self) -> List[str]:
        """Names of tensors that the new weights no longer have."""
        return self._removed

    def patches(self) -> Iterator[Tuple[str, Any, Any]]:
        """The changes: for each changed tensor its name, the positions of the changed elements
        in the flattened tensor as int64, increasing, and the new elements.

        A tensor that is new or has another type or shape has all its positions. A shard's positions
        count from its own first element.
        """
        for number, (name, element, _, _) in self._update.changed():
            positions, values = self._update.patch(number)
            yield name, view(positions, "I64", self._receiver.to), view(values, element, self._receiver.to)
        for name, tensor in self._added():
            flat = tensor.reshape(-1)
            yield name, _all_positions(len(flat), self._receiver.to), flat

    def tensors(self) -> Iterator[Tuple[str, Any]]:
        """The new weights of each changed tensor, whole: pairs of a name and a new array or tensor,
        in the order of ``patches()``."""
        for number, description in self._update.changed():
            tensor, address = empty(description[1], local_shape(description), self._receiver.to)
            self._receiver.core.copy_updated(self._update, number, address)
            yield description[0], tensor
        yield from self._added()

    def commit(self) -> None:
        """Writes the new weights to the receiver's. If this fails, call it again.

        Read ``patches()`` and ``tensors()`` before: a receiver with weights of its own takes the
        new tensors.
        """
        self._receiver.core.commit(self._update)
        self._is_committed = True

    def _added(self) -> Iterator[Tuple[str, Any]]:
        if self._new and self._is_committed:
            raise _core.ConfigError(
                "the update was committed, and its new tensors belong to the receiver; load an update before its commit, or take "
                "receiver.tensors()"
            )
        for number, description in enumerate(self._new):
            tensor, address = empty(description[1], local_shape(description), self._receiver.to)
            self._update.copy_added(number, address)
            yield description[0], tensor


def local_shape(description: _core.DeltaDescription) -> List[int]:
    """The shape of the rows that are here."""
    _, _, shape, (start, end) = description
    return [end - start, *shape[1:]] if shape else []


def _all_positions(count: int, to: str) -> Any:
    if to == "torch":
        import torch

        return torch.arange(count)
    import numpy

    return numpy.arange(count, dtype="int64")
