"""Exchanges of the gradients of replicas; see ``_transport``."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Sequence

import torch

from ._batch import Slot
from ._collectives import Average, Gather, Piece, Scatter, Sum
from ._nonfinite import NonFinite
from ._outcomes import Names
from ._scaled import Scaled

if TYPE_CHECKING:
    from ._stages import Stage
    from ._transport import DeviceTransport


class AtAllRanks:
    """Averages the messages of a bucket at all ranks: by an all-gather of them, or by the backend's
    all-reduce if they add up."""

    def __init__(self, transport: DeviceTransport, names: Sequence[str], stage: Stage) -> None:
        self._kept = stage.exchange.kept[0]
        starts = transport.starts(names)
        slots = [Slot(name, transport.shapes[name], start, self._kept.starts[name]) for name, start in zip(names, starts)]
        pieces = [Piece(stage.specs[slot.name], 0, slot, slot, slot.name in stage.keep_scale) for slot in slots]
        average = Sum if stage.exchange.name == "all-reduce" else Average
        self._average = average(transport.coding, transport.peers, pieces)
        self.scaled = _scaled(pieces)
        self.names: List[Names] = [lambda sender: self._average.names]
        self.message_bytes = self._average.message_bytes

    def pack(self, values: torch.Tensor, step: int) -> torch.Tensor:
        return self._average.pack(values, self._kept.named(self._average.kept), step)

    def place(self, bucket: torch.Tensor) -> torch.Tensor:
        return bucket

    def results(self, messages: torch.Tensor, place: torch.Tensor, step: int, non_finite: NonFinite, exchange: int, factor: float) -> torch.Tensor:
        means = _room_for(place)
        self._average.add(messages, means, step, non_finite, exchange, factor)
        return means


class ScatterReduce:
    """Averages each slice of a bucket at its owner, which then sends the mean to all."""

    def __init__(self, transport: DeviceTransport, names: Sequence[str], stage: Stage) -> None:
        self._of_gradients, self._of_means = stage.exchange.kept
        own_end, pieces = [0] * transport.peers.size, []
        for name, start in zip(names, transport.starts(names)):
            for one in stage.exchange.slices[name]:
                whole = Slot(one.name, one.shape, start + one.start, self._of_gradients.starts[one.name])
                own = Slot(one.name, one.shape, own_end[one.owner], self._of_means.starts.get(one.name, 0))
                pieces.append(Piece(stage.specs[name], one.owner, whole, own, name in stage.keep_scale))
                own_end[one.owner] += one.elements
        coding, peers = transport.coding, transport.peers
        self.scaled = _scaled(pieces)
        self._scatter = Scatter(coding, peers, pieces, own_end[peers.rank])
        self._gather = Gather(coding, peers, pieces, drawn_from=peers.size)
        self.names: List[Names] = [lambda sender: self._scatter.names, self._gather.names]
        self.message_bytes = self._scatter.message_bytes

    def pack(self, values: torch.Tensor, step: int) -> torch.Tensor:
        return self._scatter.pack(values, self._of_gradients.named(self._scatter.kept), step)

    def place(self, bucket: torch.Tensor) -> torch.Tensor:
        return bucket

    def results(self, messages: torch.Tensor, place: torch.Tensor, step: int, non_finite: NonFinite, exchange: int, factor: float) -> torch.Tensor:
        own = self._scatter.means(messages, step, non_finite, exchange)
        packed = self._gather.pack(own, self._of_means.named(self._gather.kept), step)
        means = _room_for(place)
        self._gather.add(packed, means, step, non_finite, exchange + 1, factor)
        return means


def _room_for(bucket: torch.Tensor) -> torch.Tensor:
    """Room for the means of a bucket, between whose tensors there are no gaps: the memory of a
    float32 bucket, whose values were packed."""
    return bucket if bucket.dtype == torch.float32 else torch.empty_like(bucket, dtype=torch.float32)


def _scaled(pieces: Sequence[Piece]) -> Scaled:
    """All pieces are in the bucket and in the results."""
    return Scaled([one.whole for one in pieces if one.keeps_scale], [one.whole for one in pieces if not one.keeps_scale])
