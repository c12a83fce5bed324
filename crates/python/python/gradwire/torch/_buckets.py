"""The gradients in a bucket of DistributedDataParallel."""

from __future__ import annotations

from itertools import accumulate
from typing import Any, List, NamedTuple, Sequence, Tuple

import torch

from ._tensors import as_reals

# Equal for buckets of the same parameters.
Key = Tuple[int, ...]


class Part(NamedTuple):
    """The gradients of a bucket that share a message: their tensor group, their names,
    and their place in the bucket."""

    tensor_group: int
    names: List[str]
    place: slice


def key_of(bucket: Any) -> Key:
    """The key of a bucket."""
    return tuple(map(id, bucket.parameters()))


def ends_of(parameters: Sequence[torch.Tensor]) -> List[int]:
    """Where the gradients of parameters begin and end in their bucket, which holds complex numbers
    as pairs of reals."""
    return [0, *accumulate(as_reals(parameter).numel() for parameter in parameters)]


def gradients_of(bucket: Any, tensor: torch.Tensor) -> List[torch.Tensor]:
    """The gradients in a bucket with the floats ``tensor``. ``bucket.gradients()`` returns complex
    ones with wrong addresses and types."""
    parameters, gradients = bucket.parameters(), bucket.gradients()
    for at, (parameter, start) in enumerate(zip(parameters, ends_of(parameters))):
        if parameter.is_complex():
            floats = tensor[start : start + 2 * parameter.numel()]
            gradients[at] = torch.view_as_complex(floats.view(*parameter.shape, 2))
    return gradients  # type: ignore[no-any-return]
