"""Whether an exchange saves traffic."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Iterable, NamedTuple, Optional

from .. import _core
from ._tensors import Named

# No warning for ratios up to this one, because the message sizes are only expected values.
_MARGIN = 1.05


class Plain(NamedTuple):
    """The uncompressed exchange that is the measure of traffic."""

    # The size of what is exchanged, in the types in which PyTorch exchanges it.
    size: int
    what: str
    collective: str = "all-reduce"
    # What to use instead of a compressor that sends more.
    remedy: str = "use a compressor that sends less, such as eden"


class _Stage(NamedTuple):
    """A stage of a schedule."""

    first: int
    exchange: str
    # The size of one rank's messages, and the bytes that it sends, as a part of the plain exchange.
    size: float
    sent: float


def bytes_of(named: Iterable[Named]) -> int:
    """The size of all tensors."""
    return sum(tensor.numel() * tensor.element_size() for _, tensor in named)


def sizes_of(transport: Optional[Any]) -> Optional[Callable[[int], float]]:
    """The argument ``sizes`` of ``warn_of_more`` for messages that stay on the device; ``None`` if
    none do."""
    return None if transport is None else transport.message_bytes


def warn_of_more(
    reducer: _core.Reducer,
    plain: Plain,
    stacklevel: int,
    *,
    only_gathers: bool = False,
    sizes: Optional[Callable[[int], float]] = None,
) -> bool:
    """Warns on rank 0, with the remedy, if an exchange sends more bytes than the plain one. Returns
    whether it has warned.

    Over n ranks, each rank sends in an all-reduce 2 (n - 1) / n times the size of the gradients. In
    an all-gather it sends n - 1 times the size of its message, in a scatter-reduce 2 (n - 1) / n
    times. The exchanges of shards send what the plain ones send, in compressed form. Of several
    stages, the warning names the one that sends most. ``only_gathers`` says that the exchange must
    be an all-gather. ``sizes`` gives the size of one rank's messages at a step, if they differ from
    the host's, as those that stay on a device do.
    """
    if reducer.rank > 0 or reducer.size < 2:
        return False
    size_at = sizes or reducer.fewest_bytes
    stages = [_stage(reducer.exchange_at(step), reducer.size, step, size_at(step) / max(plain.size, 1)) for step, _ in reducer.stages]
    worst = max(stages, key=lambda stage: stage.sent)
    if worst.sent <= _MARGIN:
        return False
    later = [stage.first for stage in stages if stage.first > worst.first]
    steps = f" in its steps {worst.first} to {later[0] - 1}" if later else f" from step {worst.first} on" if worst.first else ""
    may_change = worst.exchange == "all-gather" and not only_gathers and worst.size <= _MARGIN
    remedy = f"exchange='scatter-reduce' sends {worst.size:.2g} times as many" if may_change else plain.remedy
    warnings.warn(
        f"'{reducer.spec}' by {worst.exchange} over {reducer.size} ranks sends about {worst.sent:.2g} times the bytes of an uncompressed "
        f"{plain.collective} of {plain.what}{steps}; {remedy}",
        RuntimeWarning,
        stacklevel=stacklevel,
    )
    return True


def _stage(exchange: str, ranks: int, first: int, size: float) -> _Stage:
    return _Stage(first, exchange, size, size * (ranks / 2 if exchange == "all-gather" else 1.0))
