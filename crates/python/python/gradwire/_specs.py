"""What spec strings say of their compressors. Imports no PyTorch."""

from __future__ import annotations

from . import _core
from ._arrays import compress, decompress

# The most that a model may change: 2 bits for each element change it by 0.37 of its norm, 1 bit by 0.60 or more.
_LARGEST_ERROR = 0.5


def check_quantizer(what: str, spec: str) -> None:
    """Refuses compressors that do not suit a model: they change much of it, and no later message corrects that."""
    for stage in _core.canonical(spec).split(" then "):
        error = _error(stage.split()[0])
        if error > _LARGEST_ERROR:
            raise _core.ConfigError(
                f"{what}={spec!r} would change parameters by {100 * error:.0f} % of their norm, which no later message corrects; give "
                "a quantizer of more bits, such as int8 or fp16"
            )


def _error(spec: str) -> float:
    """The norm of the error of normally distributed values, divided by their norm."""
    # Imported here: the package needs no numpy.
    import numpy

    values = numpy.random.default_rng(0).standard_normal((64, 64)).astype("float32")
    error = decompress(compress(values, spec)) - values
    return float(numpy.linalg.norm(error) / numpy.linalg.norm(values))


def has_error_feedback(spec: str) -> bool:
    """Whether a compressor keeps a residual: what its spec says with ``ef``, or its default."""
    name, _, parameters = _core.canonical(spec).partition(":")
    given = dict(one.split("=") for one in parameters.split(",") if one)
    if "ef" in given:
        return given["ef"] != "off"
    return any(one["error_feedback"] for one in _core.compressors() if one["id"] == name)
