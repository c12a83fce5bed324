"""Checks of a compressor written in Python, before it trains."""

from __future__ import annotations

import copy
import random
from typing import Any, Iterator, Tuple

import torch

from .. import _core
from ._custom import Codec

# Steps of a constant gradient with error feedback, and the largest residual afterwards, in norms of
# the gradient. If nothing is ever sent, it is the number of steps.
_STEPS = 200
_LARGEST_RESIDUAL = 100.0


def check(compressor: Any) -> None:
    """Checks an object with ``compress(tensor) -> bytes`` and ``decompress(bytes, shape) ->
    tensor`` without ranks, in a second.

    It must encode tensors of different shapes and sizes, zeros and large numbers, and leave its
    input unchanged. A copy of it, as on another rank, must decode the same bits, whatever random
    numbers and messages came before. Residuals of a constant gradient must stay bounded, unless it
    has ``error_feedback = False``.

    Raises ``ConfigError``, which names the first fault. The object itself decodes and encodes
    nothing: all is done with copies.
    """
    codec, other = (Codec(copy.deepcopy(compressor)) for _ in range(2))
    for what, tensor in _tensors():
        before = tensor.clone()
        message = codec.compress(tensor)
        if not torch.equal(tensor, before):
            raise _core.ConfigError(f"{codec.name}.compress changes the tensor that it is given ({what}); work on a copy")
        torch.manual_seed(1)
        random.seed(1)
        decoded = codec.decompress(message, tensor.shape)
        torch.manual_seed(2)
        random.seed(2)
        # The other has decoded other messages, and encoded nothing.
        again = other.decompress(message, tensor.shape)
        if not _same(decoded, again):
            raise _core.ConfigError(
                f"{codec.name}.decompress gives two copies of the compressor different tensors from one message ({what}), so ranks would "
                "drift apart; decode from the message and the shape alone, without random numbers or earlier messages"
            )
        # Only one of them decodes it twice.
        codec.decompress(message, tensor.shape)
    if codec.has_feedback:
        _check_residual(codec)


def _tensors() -> Iterator[Tuple[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    for shape in [(1,), (7,), (1000,), (33, 31), (4, 3, 3, 3)]:
        values = torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")
        for what, tensor in [("normal", values), ("zeros", torch.zeros_like(values)), ("large", 1e30 * values), ("small", 1e-30 * values)]:
            yield f"{what} values of shape {shape}", tensor


def _check_residual(codec: Codec) -> None:
    gradient = torch.randn(120, generator=torch.Generator().manual_seed(1), dtype=torch.float32, device="cpu")
    residual = torch.zeros_like(gradient)
    for _ in range(_STEPS):
        corrected = gradient + residual
        residual = corrected - codec.decompress(codec.compress(corrected), corrected.shape)
    largest = (residual.norm() / gradient.norm()).item()
    if not largest <= _LARGEST_RESIDUAL:
        raise _core.ConfigError(
            f"with error feedback, {codec.name} leaves a residual of {largest:.0f} times a constant gradient after {_STEPS} steps; set "
            "error_feedback = False, or let what it decodes come closer to the tensor"
        )


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have the same bits."""
    return torch.equal(a.contiguous().view(torch.int32), b.contiguous().view(torch.int32))
