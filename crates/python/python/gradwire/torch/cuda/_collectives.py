"""Exchanges of tensors between the devices of ranks, by the collectives of a process group. The
host waits for nothing.

The caller cuts tensors into pieces and decides where their elements are:

- ``Piece``: a tensor, or a slice of one, that a rank owns. ``whole`` is its place in the buffer
  with the pieces of all owners, ``own`` its place in its owner's buffer. In both, ``start`` is its
  place in the values and ``kept`` its place in the kept arrays.
- ``Scatter``: ``pack`` compresses all pieces of a buffer, and ``means`` returns the means of this
  rank's own pieces over all ranks. A reduce-scatter.
- ``Gather``: ``pack`` compresses this rank's own pieces, and ``add`` writes the pieces of all
  owners to a buffer. An all-gather.
- ``Average``: ``pack`` compresses all pieces, and ``add`` writes their means over all ranks to a
  buffer. An all-reduce by an all-gather, for a few ranks. Owners and ``own`` do not matter.
- ``Sum``: the same for messages that are floats, which the backend's all-reduce adds up.

``means`` and ``add`` multiply results by ``factor``. If some element of the step was not finite on
a rank, they make all results NaN.

``pack`` takes the kept arrays with the names ``kept``. It and the other method may run in two
streams. A scatter-reduce is a ``Scatter`` and then a ``Gather`` of the means. Messages are added in
the order of ranks, so sums have the same bits on all ranks and equal the host's; but the backend
chooses the order of a ``Sum``, which are the same bits on all ranks, and the host's up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Callable, List, Optional, Sequence

import torch
from torch.distributed.distributed_c10d import AllgatherOptions, AllreduceOptions, AllToAllOptions

from ._batch import Slot
from ._memory import Arrays
from .halves import Uncompressed
from ._nonfinite import NonFinite, note
from ._packed import ALIGNMENT, Coding, Layout, Packer, Sender, Unpacker
from ._repeated import RepeatedBy


# The types of values that are summed.
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Piece:
    """A tensor, or a slice of one, that a rank owns; see the module."""

    spec: str
    owner: int
    whole: Slot
    own: Slot
    # Whether its messages keep the factor of a scaler; see ``_scaled``.
    keeps_scale: bool = False


@dataclass
class Traffic:
    """The bytes and messages that this rank sent to others and received from others, by the
    lengths of the collectives' buffers; how a backend divides them does not count."""

    bytes_up: int = 0
    bytes_down: int = 0
    messages_up: int = 0
    messages_down: int = 0


class CollectiveError(RuntimeError):
    """A collective failed, for example because a rank has ended."""


class Peers:
    """The ranks of a process group, and collectives between their devices.

    The backend must support ``all_to_all_single`` and ``all_gather_into_tensor`` of bytes, and
    ``all_reduce`` of floats of 32 and 16 bits, for tensors on the device: NCCL, or gloo on a CPU.
    With gloo, a collective raises ``CollectiveError`` if a rank has
    ended or does not answer within ``deadline`` seconds. NCCL has the timeout of its group.
    """

    def __init__(self, group: Any, device: torch.device, deadline: float, kind: str = "rank") -> None:
        """``kind`` is what errors call a rank of the group."""
        self._group, self._device, self.kind = group, device, kind
        self.rank, self.size = group.rank(), group.size()
        self.traffic = Traffic()
        self._to_all, self._gather, self._sum = AllToAllOptions(), AllgatherOptions(), AllreduceOptions()
        for options in (self._to_all, self._gather, self._sum):
            options.asyncOp = False
            if device.type == "cpu":
                options.timeout = timedelta(seconds=deadline)

    def all_to_all(self, sent: torch.Tensor, lengths: List[int]) -> torch.Tensor:
        """Sends to rank r the r-th of consecutive blocks of these lengths. Returns the blocks for
        this rank, in the order of ranks."""
        own = lengths[self.rank]
        received = sent.new_empty(own * self.size)
        self._run(self._group.alltoall_base, received, sent, [own] * self.size, lengths, self._to_all)
        self._count(sent.numel() - own, own * (self.size - 1))
        return received

    def all_gather(self, sent: torch.Tensor) -> torch.Tensor:
        """The bytes of all ranks, of equal lengths, in the order of ranks."""
        own = sent.numel()
        received = sent.new_empty(own * self.size)
        self._run(self._group._allgather_base, received, sent, self._gather)
        self._count(own * (self.size - 1), own * (self.size - 1))
        return received

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Replaces a tensor of floats by its sum over all ranks."""
        self._run(self._group.allreduce, [tensor], self._sum)
        # Backends divide the tensor into a part for each rank, as a ring does.
        of_others = tensor.numel() * tensor.element_size() * (self.size - 1) // self.size
        for _ in ("to the owners of parts", "from them"):
            self._count(of_others, of_others)

    def reason_against(self) -> Optional[str]:
        """Why the collectives do not work; ``None`` if they do. Waits for the device. All ranks
        must call it."""
        # Rank r sends r and s to rank s.
        pairs = [[one % 256, self.rank % 256] for one in range(self.size)]
        sent = torch.tensor([[pair[1], pair[0]] for pair in pairs], dtype=torch.uint8, device=self._device)
        try:
            to_all = self.all_to_all(sent.flatten(), [2] * self.size)
            gathered = self.all_gather(sent[self.rank])
            # The first and the last rank send 1, the others 0.
            own = float(self.rank in (0, self.size - 1))
            sums = [torch.full((1,), own, dtype=dtype, device=self._device) for dtype in _FLOATS]
            for one in sums:
                self.all_reduce(one)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        expected = [number for pair in pairs for number in pair], [pair[0] for pair in pairs for _ in range(2)]
        right = (to_all.tolist(), gathered.tolist()) == expected and all(one.item() == min(self.size, 2) for one in sums)
        self.traffic = Traffic()
        return None if right else "the collectives of the process group deliver wrong bytes"

    @staticmethod
    def _run(collective: Callable[..., Any], *arguments: Any) -> None:
        """Runs a collective; on a GPU, in the current stream."""
        try:
            work = collective(*arguments)
            if work is not None:
                work.wait()
        except RuntimeError as error:
            raise CollectiveError(f"a collective of the process group failed: {error}") from error

    def _count(self, up: int, down: int) -> None:
        self.traffic.bytes_up += up
        self.traffic.bytes_down += down
        self.traffic.messages_up += self.size - 1
        self.traffic.messages_down += self.size - 1


class Scatter:
    """Averages each piece at its owner; see the module. ``own_elements`` is the length of an
    owner's buffer."""

    def __init__(self, coding: Coding, peers: Peers, pieces: Sequence[Piece], own_elements: int) -> None:
        # The blocks of a message are in the order of owners.
        self._pieces = sorted(pieces, key=lambda piece: piece.owner)
        self._peers, self._own_elements = peers, own_elements
        specs, owners = [piece.spec for piece in self._pieces], [piece.owner for piece in self._pieces]
        slots = [piece.whole for piece in self._pieces]
        self._layout = layout = Layout(coding, [slot.elements for slot in slots], specs, owners, peers.size)
        self._packer = Packer(coding, slots, layout, Sender(specs, peers.rank))
        self.kept = self._packer.kept
        own = [place for place, owner in enumerate(owners) if owner == peers.rank]
        # Elements between the pieces must be 0.
        self._new = torch.empty if sum(self._pieces[place].own.elements for place in own) == own_elements else torch.zeros
        self._unpack = RepeatedBy(self._launch, ["step", "exchange"])
        places, own_specs = [layout.places[place] for place in own], [specs[place] for place in own]
        self._unpacker = Unpacker(coding, [self._pieces[place].own for place in own], places, own_specs, [0] * len(own))

    @property
    def names(self) -> List[str]:
        """The names of the pieces, in the order of ``Found.place``."""
        return [piece.whole.name for piece in self._pieces]

    @property
    def message_bytes(self) -> int:
        """The length of this rank's forms, each counted once."""
        return sum(self._layout.forms)

    def pack(self, values: torch.Tensor, arrays: Arrays, step: int) -> torch.Tensor:
        """The messages of a step for all owners; see ``Packer.pack``."""
        return self._packer.pack(values, arrays, step)

    def means(self, messages: torch.Tensor, step: int, non_finite: NonFinite, exchange: int, factor: float = 1.0) -> torch.Tensor:
        """Sends the messages of ``pack``. Returns an owner's buffer of float32 with the means of
        this rank's pieces, and 0 elsewhere."""
        received = self._peers.all_to_all(messages, self._layout.lengths)
        means = self._new(self._own_elements, dtype=torch.float32, device=received.device)
        self._unpack(factor, received, means, non_finite.state, step, exchange)
        return means

    def _launch(self, factor: float, received: torch.Tensor, means: torch.Tensor, state: torch.Tensor, step: int, exchange: int) -> None:
        ranks, stride = self._peers.size, self._layout.lengths[self._peers.rank]
        self._unpacker.add(received, means, step, ranks, stride, factor)
        self._unpacker.aggregate(means)
        note(received, stride, ranks, exchange, state, means)


class Gather:
    """Sends each piece from its owner to all ranks; see the module.

    The random draws of owner r are those of the rank ``drawn_from`` + r, and residuals are plain.
    """

    def __init__(self, coding: Coding, peers: Peers, pieces: Sequence[Piece], drawn_from: int = 0) -> None:
        self._peers = peers
        by_owner: List[List[Piece]] = [[] for _ in range(peers.size)]
        for piece in pieces:
            by_owner[piece.owner].append(piece)
        layouts = [_alone(coding, of_one) for of_one in by_owner]
        # All ranks send as many bytes as the longest message has.
        self._length = max(layout.lengths[0] for layout in layouts)
        self._message_bytes = sum(layouts[peers.rank].forms)
        own, specs = by_owner[peers.rank], [piece.spec for piece in by_owner[peers.rank]]
        sender = Sender(specs, drawn_from + peers.rank, plain=True)
        self._packer = Packer(coding, [piece.own for piece in own], layouts[peers.rank], sender)
        self.kept = self._packer.kept
        self._names = [[piece.whole.name for piece in of_one] for of_one in by_owner]
        ordered = [piece for of_one in by_owner for piece in of_one]
        starts = [owner * self._length + place for owner, layout in enumerate(layouts) for place in layout.places]
        drawn_as = [drawn_from + piece.owner for piece in ordered]
        self._unpacker = Unpacker(coding, [piece.whole for piece in ordered], starts, [piece.spec for piece in ordered], drawn_as)
        self._unpack = RepeatedBy(self._launch, ["step", "exchange"])

    @property
    def message_bytes(self) -> int:
        """The length of this rank's forms, each counted once."""
        return self._message_bytes

    def names(self, owner: int) -> List[str]:
        """The names of an owner's pieces, in the order of ``Found.place``."""
        return self._names[owner]

    def pack(self, values: torch.Tensor, arrays: Arrays, step: int) -> torch.Tensor:
        """The messages of a step, from an owner's buffer; see ``Packer.pack``."""
        return self._packer.pack(values, arrays, step, self._length)

    def add(self, messages: torch.Tensor, out: torch.Tensor, step: int, non_finite: NonFinite, exchange: int, factor: float = 1.0) -> None:
        """Sends the messages of ``pack``, and writes the pieces of all owners to a buffer of
        float32."""
        received = self._peers.all_gather(messages)
        self._unpack(factor, received, out, non_finite.state, step, exchange)

    def _launch(self, factor: float, received: torch.Tensor, out: torch.Tensor, state: torch.Tensor, step: int, exchange: int) -> None:
        self._unpacker.add(received, out, step, factor=factor)
        note(received, self._length, self._peers.size, exchange, state, out)


class Average:
    """Averages all pieces at every rank; see the module."""

    def __init__(self, coding: Coding, peers: Peers, pieces: Sequence[Piece]) -> None:
        self._peers = peers
        slots, specs = [piece.whole for piece in pieces], [piece.spec for piece in pieces]
        self._layout = self._layout_of(coding, pieces)
        self._packer = Packer(coding, slots, self._layout, Sender(specs, peers.rank))
        self.kept = self._packer.kept
        self._unpacker = Unpacker(coding, slots, self._layout.starts, specs, [0] * len(slots))
        self._unpack = RepeatedBy(self._launch, ["step", "exchange"])
        self.names = [slot.name for slot in slots]

    def _layout_of(self, coding: Coding, pieces: Sequence[Piece]) -> Layout:
        return _alone(coding, pieces)

    @property
    def message_bytes(self) -> int:
        """The length of this rank's forms, each counted once."""
        return sum(self._layout.forms)

    def pack(self, values: torch.Tensor, arrays: Arrays, step: int) -> torch.Tensor:
        """The messages of a step; see ``Packer.pack``."""
        return self._packer.pack(values, arrays, step)

    def add(self, messages: torch.Tensor, out: torch.Tensor, step: int, non_finite: NonFinite, exchange: int, factor: float = 1.0) -> None:
        """Sends the messages of ``pack``, and writes the means of all ranks to a buffer of
        float32."""
        received = self._peers.all_gather(messages)
        self._unpack(factor, received, None, out, non_finite.state, step, exchange)

    def _launch(
        self,
        factor: float,
        received: torch.Tensor,
        heads: Optional[torch.Tensor],
        out: torch.Tensor,
        state: torch.Tensor,
        step: int,
        exchange: int,
    ) -> None:
        ranks, (stride,) = self._peers.size, self._layout.lengths
        self._unpacker.add(received, out, step, ranks, stride, factor)
        self._unpacker.aggregate(out)
        note(received, stride, ranks, exchange, state, out)


class Sum(Average):
    """An ``Average`` by the backend's all-reduce. The compressors are ``none``, ``fp16`` and
    ``bf16``, whose messages are floats."""

    def _layout_of(self, coding: Coding, pieces: Sequence[Piece]) -> Layout:
        # The messages of a type are a block.
        dtypes = [_dtype_of(coding, piece.spec) for piece in pieces]
        self._dtypes = list(dict.fromkeys(dtypes))
        elements, specs = [piece.whole.elements for piece in pieces], [piece.spec for piece in pieces]
        return Layout(coding, elements, specs, [self._dtypes.index(dtype) for dtype in dtypes], len(self._dtypes))

    def add(self, messages: torch.Tensor, out: torch.Tensor, step: int, non_finite: NonFinite, exchange: int, factor: float = 1.0) -> None:
        # The words of the ranks do not add up.
        heads, size = self._peers.all_gather(messages[:ALIGNMENT]), self._peers.size
        for block, dtype in zip(messages.split(self._layout.lengths), self._dtypes):
            # As DistributedDataParallel, which multiplies before the sum, so it does not overflow.
            sums = block.view(dtype).mul_(1.0 / size)
            self._peers.all_reduce(sums)
            if size & (size - 1):
                # The products were rounded, perhaps up, but no mean exceeds the largest number.
                sums.clamp_(-torch.finfo(dtype).max, torch.finfo(dtype).max)
        self._unpack(factor, messages, heads, out, non_finite.state, step, exchange)

    def _launch(
        self,
        factor: float,
        received: torch.Tensor,
        heads: Optional[torch.Tensor],
        out: torch.Tensor,
        state: torch.Tensor,
        step: int,
        exchange: int,
    ) -> None:
        assert heads is not None
        self._unpacker.add(received, out, step, factor=factor)
        note(heads, ALIGNMENT, self._peers.size, exchange, state, out)


def _dtype_of(coding: Coding, spec: str) -> torch.dtype:
    kernel, _ = coding.compressor(spec)
    assert isinstance(kernel, Uncompressed), spec
    return kernel.DTYPE


def _alone(coding: Coding, pieces: Sequence[Piece]) -> Layout:
    """The layout of pieces in one block."""
    elements, specs = [piece.whole.elements for piece in pieces], [piece.spec for piece in pieces]
    return Layout(coding, elements, specs, [0] * len(pieces), 1)
