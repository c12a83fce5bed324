"""Checks that all ranks have tensors of the same names, types and shapes."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, List, Tuple

import torch

from .. import _core
from ._tensors import plain

# The kind and name of a tensor, such as "buffer 'mean'", and its form.
Form = Tuple[str, str]


def forms(model: torch.nn.Module) -> List[Form]:
    """The forms of all parameters and buffers of a model, in order. They do not depend on devices,
    except on the meta device."""
    parameters = [("parameter", name, one) for name, one in model.named_parameters()]
    buffers = [("buffer", name, one) for name, one in model.named_buffers()]
    return [(f"{kind} '{plain(name)}'", _form(one)) for kind, name, one in [*parameters, *buffers]]


def fingerprint(model: torch.nn.Module, settings: Dict[str, Any]) -> str:
    """Equal for two workers if their settings and their models, apart from values, are equal."""
    return hashlib.sha256(repr((forms(model), settings)).encode()).hexdigest()


def _form(tensor: torch.Tensor) -> str:
    frozen = isinstance(tensor, torch.nn.Parameter) and not tensor.requires_grad
    where = " on the meta device" if tensor.device.type == "meta" else ""
    return f"type {tensor.dtype} and shape {tuple(tensor.shape)}{where}{', frozen' if frozen else ''}"


def check_same(reducer: _core.Reducer, model: torch.nn.Module) -> None:
    """Raises ``ConfigError`` on all ranks if the forms of a model differ between ranks. All ranks
    call it at the same time.

    Ranks send their forms only if the digests of the forms differ.
    """
    own = json.dumps(forms(model)).encode()
    ranks: List[List[Form]] = []
    if len(set(reducer.gather(0, hashlib.sha256(own).digest()))) > 1:
        ranks = [[(what, form) for what, form in json.loads(one)] for one in reducer.gather(0, own)]
    # Ranks that end now must have sent their forms.
    reducer.wait()
    for rank, other in enumerate(ranks):
        if other != ranks[0]:
            raise _core.ConfigError(f"{_difference(ranks[0], other, rank)}; create the same model on all ranks")


def _difference(first: List[Form], other: List[Form], rank: int) -> str:
    """The first difference between the models of rank 0 and another rank."""
    known = dict(other)
    for what, form in first:
        if what not in known:
            return f"rank 0 has the {what} with {form}, and rank {rank} does not have it"
        if known[what] != form:
            return f"rank 0 has the {what} with {form}, and rank {rank} has it with {known[what]}"
    for what, form in other:
        if what not in dict(first):
            return f"rank {rank} has the {what} with {form}, and rank 0 does not have it"
    one, two = next((one, two) for (one, _), (two, _) in zip(first, other) if one != two)
    return f"rank 0 has the {one} where rank {rank} has the {two}: their tensors are in different orders"
