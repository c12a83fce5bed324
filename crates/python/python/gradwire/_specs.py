"""Properties of compressors, read from their spec strings. Imports no PyTorch."""

from __future__ import annotations

import math
from typing import Any

from . import _core
from ._arrays import compress, decompress, is_torch

# The largest allowed change of a model, relative to its norm. 2 bits per element change it by 0.37,
# 1 bit by 0.60 or more.
_LARGEST_ERROR = 0.5


def sample_side(elements: int) -> int:
    """The side of the square sample for ``check_quantizer``, for a model whose largest tensor has
    ``elements``."""
    return min(max(math.isqrt(elements), 64), 1024)


def check_quantizer(what: str, spec: str, sample: Any, changes: bool = False) -> None:
    """Refuses compressors that change a model too much, since no later message corrects the error;
    with ``changes``, those that change the changes of a model too much, which then follow late.

    ``sample`` is a square matrix of normally distributed float32, an array or a tensor. Its size
    matters: methods with one norm per tensor change larger ones more.
    """
    for stage in _core.canonical(spec).split(" then "):
        error = _error(stage.split()[0], sample)
        # An error that is NaN is refused, too.
        if not error <= _LARGEST_ERROR:
            percent = f"{100 * error:.0f} %"
            if changes:
                raise _core.ConfigError(
                    f"{what}={spec!r} would leave out {percent} of each change of the parameters; give a quantizer with more bits, such as "
                    "int4 or int8"
                )
            raise _core.ConfigError(
                f"{what}={spec!r} would change parameters by {percent} of their norm, and no later message corrects this; give a "
                "quantizer with more bits, such as int8 or fp16"
            )


def _error(spec: str, values: Any) -> float:
    """The norm of the compression error, divided by the norm of the values."""
    error = decompress(compress(values, spec), to="torch" if is_torch(values) else "numpy") - values
    return math.sqrt((error * error).sum() / (values * values).sum())


def has_error_feedback(spec: str) -> bool:
    """Whether a compressor keeps a residual: the ``ef`` of its spec, or else its default."""
    name, _, parameters = _core.canonical(spec).partition(":")
    given = dict(one.split("=") for one in parameters.split(",") if one)
    if "ef" in given:
        return given["ef"] != "off"
    return any(one["error_feedback"] for one in _core.compressors() if one["id"] == name)
