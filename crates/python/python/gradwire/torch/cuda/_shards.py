"""Exchanges of the shards of a model that FSDP2 has sharded; see ``_transport``.

The values of a bucket are the shards of all ranks, one after the other. A shard has a chunk of rows
of each tensor. Chunks with fewer rows are padded to the length of the others, as in
``gradwire_exchange::collectives::slices``.
"""

from __future__ import annotations

from itertools import accumulate
from math import prod
from typing import Dict, List, NamedTuple, Sequence

import torch

from ._batch import Slot
from ._collectives import Gather, Peers, Piece, Scatter
from ._kept import Kept
from ._nonfinite import NonFinite
from ._outcomes import Names
from ._packed import Coding
from ._scaled import Scaled
from ._slices import Shape, Slice, chunk_of


class Cut(NamedTuple):
    """A tensor: its compressor, whether its messages keep the factor of a scaler, its shape, and
    its slices."""

    spec: str
    keeps_scale: bool
    shape: Shape
    slices: Sequence[Slice]


class _Shards:
    """The pieces of a bucket, and the elements of a shard."""

    def __init__(self, cut: Sequence[Cut], ranks: int, kept: Dict[str, int]) -> None:
        ends = list(accumulate((prod(chunk_of(one.shape, ranks)) for one in cut), initial=0))
        self.elements = ends[-1]
        self.pieces: List[Piece] = []
        for of, start in zip(cut, ends):
            for one in of.slices:
                place = kept.get(one.name, 0)
                whole = Slot(one.name, one.shape, one.owner * self.elements + start, place)
                self.pieces.append(Piece(of.spec, one.owner, whole, Slot(one.name, one.shape, start, place), of.keeps_scale))


class ScatterShards:
    """Averages each shard at its rank. Other shards in the bucket stay as they are."""

    def __init__(self, coding: Coding, peers: Peers, cut: Sequence[Cut], kept: Kept) -> None:
        self._kept = kept
        shards = _Shards(cut, peers.size, kept.starts)
        self._scatter = Scatter(coding, peers, shards.pieces, shards.elements)
        divided = [one.own for one in shards.pieces if one.owner == peers.rank and not one.keeps_scale]
        self.scaled = Scaled([one.whole for one in shards.pieces if one.keeps_scale], divided)
        self._own = slice(peers.rank * shards.elements, (peers.rank + 1) * shards.elements)
        self.names: List[Names] = [lambda sender: self._scatter.names]
        self.message_bytes = self._scatter.message_bytes

    def pack(self, values: torch.Tensor, step: int) -> torch.Tensor:
        return self._scatter.pack(values, self._kept.named(self._scatter.kept), step)

    def place(self, bucket: torch.Tensor) -> torch.Tensor:
        return bucket[self._own]

    def results(self, messages: torch.Tensor, place: torch.Tensor, step: int, non_finite: NonFinite, exchange: int, factor: float) -> torch.Tensor:
        return self._scatter.means(messages, step, non_finite, exchange, factor)


class GatherShards:
    """Sends each shard from its rank to all others. Every rank also decodes its own messages, so
    all have the same bits."""

    def __init__(self, coding: Coding, peers: Peers, cut: Sequence[Cut]) -> None:
        shards = _Shards(cut, peers.size, {})
        self._gather = Gather(coding, peers, shards.pieces)
        # Parameters have no scale.
        self.scaled = Scaled([], [])
        self._own = slice(peers.rank * shards.elements, (peers.rank + 1) * shards.elements)
        self.names: List[Names] = [self._gather.names]
        self.message_bytes = self._gather.message_bytes

    def pack(self, values: torch.Tensor, step: int) -> torch.Tensor:
        return self._gather.pack(values[self._own], {}, step)

    def place(self, bucket: torch.Tensor) -> torch.Tensor:
        return bucket

    def results(self, messages: torch.Tensor, place: torch.Tensor, step: int, non_finite: NonFinite, exchange: int, factor: float) -> torch.Tensor:
        # Between the tensors of a shard there may be gaps. The memory of a float32 bucket is free,
        # because its values were packed.
        values = place.zero_() if place.dtype == torch.float32 else torch.zeros_like(place, dtype=torch.float32)
        self._gather.add(messages, values, step, non_finite, exchange, factor)
        return values
