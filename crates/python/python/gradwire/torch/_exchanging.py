"""The common base of hooks, sharded models and local steps: reports, ``with`` blocks, and the state
of all ranks."""

from __future__ import annotations

import warnings
from typing import Any, Dict, Iterator, List, Optional, Tuple, Type, TypeVar

from ._description import Description, TensorPlan, summary
from ._mid_step import NO_STATE, state_or_nothing
from ._states import State

Self = TypeVar("Self", bound="Exchanging")


class Exchanging:
    """Reports how a reducer sends tensors, and the cost of the last step or round."""

    _reducer: Any
    # The number of steps so far.
    _step: int
    # See ``Description``.
    _compressed_on = "the host"
    _nodes = ""
    # Averages by messages that stay on the device; ``None`` if they pass through the host.
    _on_device: Optional[Any] = None
    # ``Description.transport``, if messages pass through the host.
    _through_host = "the host"

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], *error: Any) -> None:
        if kind is not None:
            self._hurry()
        self.close()

    def _hurry(self) -> None:
        """Makes ``close`` wait only a moment, because of an exception: the other ranks may never
        answer."""
        self._reducer.hurry()

    def close(self) -> None:
        """Ends the exchange."""
        raise NotImplementedError

    def stats(self) -> Dict[str, Any]:
        """The cost of the last step or round."""
        raise NotImplementedError

    def summary(self) -> str:
        """The cost of the last step or round in a line, for progress bars and logs."""
        return summary(self.stats())

    def describe(self) -> Description:
        """How every tensor is sent at the next step, or in a round that ends with it: its
        compressor and the expected size of its message. Also whether gradients on a GPU are
        compressed there, or why not.

        The expected size holds for normally distributed values; gradients of other distributions
        differ. With ``nodes``, it describes the slices that this rank owns. Ratios compare message
        sizes, not traffic: with all-gather over n ranks, divide by n / 2 to compare with an
        all-reduce. Call it between two steps.
        """
        plan = [TensorPlan(*one) for one in self._plan()]
        exchange, ranks = self._reducer.exchange_at(self._step), self._reducer.size
        return Description(exchange, ranks, self._step, self._compressed_on, plan, self._transport, self._nodes, self._parameter_transport)

    @property
    def _transport(self) -> str:
        """See ``Description``."""
        return self._through_host if self._on_device is None else self._on_device.described(self._step)

    @property
    def _parameter_transport(self) -> str:
        """See ``Description``."""
        return ""

    def _plan(self) -> List[Tuple[str, int, str, float, int]]:
        plan: List[Tuple[str, int, str, float, int]] = (self._on_device or self._reducer).plan(self._step)
        return plan

    @property
    def _spec(self) -> str:
        spec: str = self._reducer.spec
        return spec

    def __repr__(self) -> str:
        reducer = self._reducer
        return f"<{type(self).__name__} {self._spec} by {reducer.exchange_at(self._step)} over {reducer.size} ranks, step {self._step}>"

    def scalars(self, prefix: str = "gradwire/") -> Iterator[Tuple[str, float, int]]:
        """The statistics of the last step or round as arguments of ``SummaryWriter.add_scalar``:
        tag, value, step."""
        stats = self.stats()
        step = stats.pop("step")
        for name, value in stats.items():
            yield prefix + name, float(value), -1 if step is None else step

    @property
    def all_ranks(self) -> AllRanks:
        """The state of all ranks as one object, for frameworks that save the state of one process.

        ``accelerator.register_for_checkpointing(handle.all_ranks)`` saves and restores it with
        everything else.
        """
        return AllRanks(self)


class AllRanks:
    """The states of all ranks of an exchange. All ranks must call its methods at the same time."""

    def __init__(self, exchanging: Any) -> None:
        self._exchanging = exchanging

    def state_dict(self) -> State:
        """The states of all ranks, on every rank. In the middle of a step the result is empty, with
        a warning; see ``state_dict``."""
        return state_or_nothing(lambda: self._exchanging.state_dict(all_ranks=True))

    def load_state_dict(self, state: State) -> None:
        """Restores a result of ``state_dict``, on any number of ranks. If it is empty, residuals
        begin empty, with a warning."""
        if not state:
            warnings.warn(NO_STATE.format("the checkpoint"), RuntimeWarning, stacklevel=2)
            return
        self._exchanging.load_state_dict(state)
