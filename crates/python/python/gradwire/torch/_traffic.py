"""Whether an exchange saves traffic."""

from __future__ import annotations

import warnings

from .. import _core

# No warning for ratios up to this one, because the message sizes are only expected values.
_MARGIN = 1.05


def warn_of_more(reducer: _core.Reducer, plain_bytes: int, what: str, stacklevel: int) -> None:
    """Warns on rank 0, with the remedy, if ``what`` takes more bytes than an uncompressed
    all-reduce of its ``plain_bytes``.

    Over n ranks, each rank sends in an all-reduce 2 (n - 1) / n times the size of the gradients. In
    an all-gather it sends n - 1 times the size of its message, in a scatter-reduce 2 (n - 1) / n
    times. Of several stages, the warning names the one that sends most.
    """
    if reducer.rank > 0 or reducer.size < 2:
        return
    sizes = [(step, reducer.fewest_bytes(step) / max(plain_bytes, 1)) for step, _ in reducer.stages]
    gathers = {step: reducer.size / 2 if reducer.exchange_at(step) == "all-gather" else 1.0 for step, _ in sizes}
    first, size = max(sizes, key=lambda stage: stage[1] * gathers[stage[0]])
    each = gathers[first]
    if each * size <= _MARGIN:
        return
    later = [step for step, _ in reducer.stages if step > first]
    steps = f" in its steps {first} to {later[0] - 1}" if later else f" from step {first} on" if first else ""
    remedy = f"exchange='scatter-reduce' sends {size:.2g} times as many" if size <= _MARGIN else "use a compressor that sends less, such as bf16"
    warnings.warn(
        f"'{reducer.spec}' by {reducer.exchange_at(first)} over {reducer.size} ranks sends about {each * size:.2g} times the bytes of an uncompressed "
        f"all-reduce of {what}{steps}; {remedy}",
        RuntimeWarning,
        stacklevel=stacklevel,
    )
