"""The memories that run on a device."""

from __future__ import annotations

from typing import Optional

from ._config import Config
from ._memory import Memory
from .long_term import LongTerm
from .velocity import Average, Momentum


def memory(config: Config) -> Optional[Memory]:
    """The memory of a compressor with these parameters; ``None`` if it works on the host only."""
    if config.word("ef") == "ef21":
        return None
    if config.id in ("dgc", "sgc"):
        own = Momentum if config.id == "dgc" else LongTerm
        return own(config) if config.weights is not None else Memory(config)
    averages = config.id == "signum" or config.real("momentum") > 0
    return Average(config) if averages else Memory(config)


def plain_memory(config: Config) -> Memory:
    """The plain residual with weights 1, for values that are not gradients, such as means."""
    plain = Memory(config)
    if plain.weights is not None:
        plain.weights = (1.0, 1.0)
    return plain
