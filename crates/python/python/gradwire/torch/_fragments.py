"""Fragments of a model: layers whose changes are exchanged together, as in Streaming DiLoCo."""

from __future__ import annotations

from typing import Dict, List, Sequence

from .. import _core
from ._tensors import Named


def strided(named: Sequence[Named], count: int) -> List[List[Named]]:
    """Deals the layers of a model out to ``count`` fragments: the first layer to the first
    fragment, the second to the second, and so on in turn (Douillard et al. 2025, section 2.3).

    A layer is the common part of its parameters' names up to their first number, such as
    ``transformer.h.3``. If a name has no number, the layer is the parameter's module, such as
    ``lm_head``.
    """
    layers: Dict[str, List[Named]] = {}
    for name, parameter in named:
        layers.setdefault(_layer(name), []).append((name, parameter))
    if not 1 <= count <= len(layers):
        raise _core.ConfigError(
            f"fragments={count} is impossible: this model has {len(layers)} layers with trainable parameters, from '{next(iter(layers))}' "
            f"to '{next(reversed(layers))}', and a fragment needs at least one; give 1 to {len(layers)}"
        )
    layers_in_order = list(layers.values())
    return [[one for layer in layers_in_order[at::count] for one in layer] for at in range(count)]


def _layer(name: str) -> str:
    parts = name.split(".")
    numbers = [at for at, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[0] + 1] if numbers else parts[:-1])
