"""Makes the buffers that training changes, such as running means, equal on all ranks in rounds of
local steps."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Callable, List, Sequence, Tuple

import torch

from .. import _core
from ._copyable import as_bytes, from_bytes, has_values
from ._modes import write
from ._site import Site
from ._tensors import plain

# Sends a rank's bytes to all ranks of a round, and returns the bytes of all ranks, by rank.
Gather = Callable[[bytes], List[bytes]]
# Buffers with their new values.
Settled = List[Tuple[torch.Tensor, torch.Tensor]]

_KINDS = ("first", "mean", "own")
# The bytes of a digest.
_DIGEST = 16
# The most bytes that a rank sends at once.
_PART = 1 << 26


class Buffers:
    """The buffers of a model, including buffers that are not persistent.

    ``kind`` says what they become in a round: ``first``, the buffers of the first rank; ``mean``,
    the mean over all ranks, but the first rank's for integers and booleans; ``own``, unchanged.

    Ranks compare digests, and send only the buffers that differ. A table that never changes costs
    16 bytes.
    """

    def __init__(self, model: torch.nn.Module, kind: str) -> None:
        if kind not in _KINDS:
            raise _core.ConfigError(f"buffers={kind!r} is unknown; use 'first', 'mean' or 'own'")
        self._model, self._kind = model, kind
        # Whether rounds make them equal.
        self.shared = kind != "own" and any(True for _ in model.buffers())

    def tensors(self) -> List[torch.Tensor]:
        """The buffers. Modules may replace a buffer by another tensor, so they are looked up each
        time."""
        return [tensor for _, tensor in self._named()]

    def _named(self) -> List[Tuple[str, torch.Tensor]]:
        return [(plain(name), one) for name, one in self._model.named_buffers() if has_values(one)]

    def digests(self) -> bytes:
        """A digest of the names, types and shapes of all buffers, then a digest of the elements of
        each."""
        named = self._named()
        parts = [_digest(json.dumps(_forms(named)).encode())]
        parts.extend(_digest(as_bytes(tensor).numpy().data) for _, tensor in named)
        return b"".join(parts)

    def make_equal_in(self, site: Site) -> None:
        """Makes buffers equal on the ranks that share a sharded replica."""
        if site.size > 1:
            gather = lambda own: site.gather(own, "buffers")
            apply(self.settle(gather(self.digests()), site.rank, gather))

    def settle(self, digests: Sequence[bytes], rank: int, gather: Gather) -> Settled:
        """The buffers that differ between ranks, with their new values, given the ``digests`` of
        all ranks."""
        named = self._named()
        if len({one[:_DIGEST] for one in digests}) > 1:
            _refuse(_forms(named), gather)
        differing = []
        for at, (_, tensor) in enumerate(named, 1):
            if len({one[at * _DIGEST : (at + 1) * _DIGEST] for one in digests}) > 1:
                differing.append(tensor)
        if not differing:
            return []
        averaged = [self._kind == "mean" and (one.is_floating_point() or one.is_complex()) for one in differing]
        sent = [(one, mean) for one, mean in zip(differing, averaged) if mean or rank == 0]
        own = b"".join(as_bytes(one).numpy().tobytes() for one, _ in sent)
        # The first rank sends most.
        longest = sum(one.numel() * one.element_size() for one in differing)
        ranks = _gather_in_parts(own, longest, gather)
        return list(zip(differing, _values(differing, averaged, ranks)))


def apply(settled: Settled) -> None:
    """Gives buffers their new values."""
    for tensor, values in settled:
        write(tensor, values)


def _values(differing: Sequence[torch.Tensor], averaged: Sequence[bool], ranks: Sequence[bytes]) -> List[torch.Tensor]:
    """The values of the first rank for each of these buffers, or the mean over all ranks."""
    places, found = [0] * len(ranks), []
    for tensor, mean in zip(differing, averaged):
        length, parts = tensor.numel() * tensor.element_size(), []
        for rank in range(len(ranks) if mean else 1):
            data = ranks[rank][places[rank] : places[rank] + length]
            parts.append(from_bytes(torch.frombuffer(bytearray(data), dtype=torch.uint8), tensor))
            places[rank] += length
        found.append(_mean(parts) if mean else parts[0])
    return found


def _mean(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The mean, summed by rank in double precision, so all ranks get the same bits."""
    double = torch.complex128 if parts[0].is_complex() else torch.float64
    total = torch.zeros(parts[0].shape, dtype=double, device="cpu")
    for part in parts:
        total += part.to(double)
    return (total / len(parts)).to(parts[0].dtype)


def _gather_in_parts(own: bytes, longest: int, gather: Gather) -> List[bytes]:
    """The bytes of all ranks; no rank has more than ``longest``."""
    gathered = [gather(own[start : start + _PART]) for start in range(0, longest, _PART)]
    return [b"".join(parts) for parts in zip(*gathered)]


def _digest(data: Any) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST).digest()


def _forms(named: Sequence[Tuple[str, torch.Tensor]]) -> List[str]:
    return [f"'{name}' of type {one.dtype} and shape {tuple(one.shape)}" for name, one in named]


def _refuse(own: List[str], gather: Gather) -> None:
    """Names a buffer that differs between ranks in its name, type or shape."""
    first, *others = [json.loads(one) for one in gather(json.dumps(own).encode())]
    for rank, forms in enumerate(others, 1):
        for has, lacks, missing in ((0, rank, set(first) - set(forms)), (rank, 0, set(forms) - set(first))):
            if missing:
                raise _core.ConfigError(
                    f"rank {has} has the buffer {min(missing)}, but rank {lacks} does not, so a round cannot make buffers equal; create "
                    "it with the same type and shape on all ranks, or pass buffers='own' on all"
                )
    raise _core.ConfigError("ranks have their buffers in different orders; create them in the same order, or pass buffers='own' on all")
