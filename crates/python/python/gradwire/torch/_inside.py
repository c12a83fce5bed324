"""What the ranks of a node send each other: the values of a bucket, in one chunk for each rank."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from .. import _core
from ._channel import new_group, private_groups_of
from ._columns import Cut

_INFINITE = float("inf")


class NodeBucket:
    """Where the values of a bucket lie in the chunks of a node's ranks.

    A chunk has the slices that one rank owns, in the order of the bucket. One more value is a flag:
    NaN if something is wrong with the chunk's sender, otherwise 0.
    """

    def __init__(self, names: Sequence[str], cut: Cut, ranks: int, own: int) -> None:
        slices = [(name, one) for name in names for one in cut[name]]
        self.ranks = ranks
        # The names of the parameters, and of the slices of this rank.
        self.parameters = [name for name, _ in slices]
        self.names = [one.name for _, one in slices if one.owner == own]
        self._lengths = [one.elements for _, one in slices]
        self._of_owner = [[at for at, (_, one) in enumerate(slices) if one.owner == owner] for owner in range(ranks)]
        owned = [sum(self._lengths[at] for at in places) for places in self._of_owner]
        self.elements = owned[own]
        # The lengths of the chunks of all ranks.
        self.chunks = [one + 1 for one in owned]
        # In the chunks of all ranks: the lengths of slices and of flags, the places of the slices
        # among them, in the order of the bucket, and the places of the flags.
        self._lengths_in_chunks: List[int] = []
        self._flags: List[int] = []
        places: Dict[int, int] = {}
        for of_owner in self._of_owner:
            places.update((at, len(self._lengths_in_chunks) + number) for number, at in enumerate(of_owner))
            self._flags.append(len(self._lengths_in_chunks) + len(of_owner))
            self._lengths_in_chunks += [*(self._lengths[at] for at in of_owner), 1]
        self._places = [places[at] for at in range(len(slices))]
        # The values that this rank sends to the others of its node, which are as many as it
        # receives: their chunks, and its own chunk to each of them.
        self.sent = sum(self.chunks) - self.chunks[own] + (ranks - 1) * self.chunks[own]

    def pack(self, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The chunks of all ranks. Their flags say whether the sum of the values over all ranks may
        not be finite."""
        if values.numel():
            largest = torch.linalg.vector_norm(values, _INFINITE, dtype=torch.float32)
        else:
            largest = torch.zeros((), device=values.device)
        flag = (largest * self.ranks * 0.0).to(values.dtype).view(1)
        slices = values.split(self._lengths)
        parts: List[torch.Tensor] = []
        for of_owner in self._of_owner:
            parts += [*(slices[at] for at in of_owner), flag]
        chunks = torch.empty(sum(self.chunks), dtype=dtype, device=values.device)
        torch.cat(parts, out=chunks)
        return chunks

    def mean_of(self, chunks: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        """Writes the mean of the chunks for this rank from all ranks, added by rank, to ``mean``;
        returns their flags."""
        rows = chunks.view(self.ranks, -1)
        mean.copy_(rows[0, : self.elements])
        for row in rows[1:]:
            mean.add_(row[: self.elements])
        mean.div_(self.ranks)
        return rows[:, -1].clone()

    def chunk(self, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The chunk of this rank, with the averages of its slices and the flag 0."""
        chunk = torch.zeros(self.elements + 1, dtype=dtype, device=values.device)
        if dtype != torch.float32:
            limit = torch.finfo(dtype).max
            # NaN marks a skipped step, and stays.
            values = values.clamp(-limit, limit)
        chunk[: self.elements] = values
        return chunk

    def unpack(self, chunks: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Replaces the values of the bucket by the chunks of all ranks; returns their flags."""
        parts = chunks.split(self._lengths_in_chunks)
        if self._places:
            torch.cat([parts[at] for at in self._places], out=values)
        return torch.cat([parts[at] for at in self._flags])

    def not_finite(self, chunks: torch.Tensor) -> Optional[str]:
        """The first parameter of the bucket whose values in ``chunks``, a result of ``pack``, are
        not all finite."""
        parts = chunks.split(self._lengths_in_chunks)
        for name, at in zip(self.parameters, self._places):
            if not bool(torch.isfinite(parts[at]).all()):
                return name
        return None


class Inside:
    """Sends values between the ranks of a node.

    Chunks may have different lengths; ``chunks`` has the lengths of the chunks of all ranks.
    """

    def __init__(self, groups: Sequence[Any]) -> None:
        self.groups = groups

    def scatter(self, received: torch.Tensor, sent: torch.Tensor, chunks: Sequence[int]) -> Any:
        """Sends each rank its chunk. Returns what the caller must ``wait`` for."""
        raise NotImplementedError

    def gather(self, received: torch.Tensor, chunk: torch.Tensor, chunks: Sequence[int]) -> Any:
        """Sends the chunk of this rank to all ranks. Returns what the caller must ``wait`` for."""
        raise NotImplementedError


class DeviceInside(Inside):
    """Sends values on devices, by the default backend of the job. Waiting makes only the current
    stream wait.

    All ranks must call it in the same order, as NCCL requires: it has one process group.
    """

    def __init__(self, ranks: List[int], deadline: float) -> None:
        """``ranks`` are the ranks of the node in the job."""
        super().__init__([group_on_devices(ranks, deadline)])

    def scatter(self, received: torch.Tensor, sent: torch.Tensor, chunks: Sequence[int]) -> Any:
        own = received.numel() // len(chunks)
        return self.groups[0].alltoall_base(received, sent, [own] * len(chunks), list(chunks))

    def gather(self, received: torch.Tensor, chunk: torch.Tensor, chunks: Sequence[int]) -> Any:
        if len(set(chunks)) == 1:
            return self.groups[0]._allgather_base(received, chunk)
        # NCCL sends chunks of different lengths by one broadcast of each.
        return self.groups[0].allgather([list(received.split(list(chunks)))], [chunk])


def group_on_devices(ranks: List[int], deadline: float) -> Any:
    """A process group of some ranks of the job, with the job's default backend."""
    return new_group(ranks, timeout=timedelta(seconds=deadline), use_local_synchronization=True)


class HostInside(Inside):
    """Sends values in main memory, as single messages of gloo: they have deadlines, tell which rank
    is lost, and are faster than gloo's collectives.

    It has two process groups: the backward pass sends gradients, and the thread of the reducer
    averages, so their order may differ between ranks.
    """

    def __init__(self, ranks: List[int], deadline: float, caller: str) -> None:
        """``ranks`` are the ranks of the node in the job."""
        super().__init__(private_groups_of(ranks, deadline, f"{caller}, on a node"))
        self._ranks, self._deadline = ranks, deadline
        self._own: int = self.groups[0].rank()

    def scatter(self, received: torch.Tensor, sent: torch.Tensor, chunks: Sequence[int]) -> Any:
        return self._swap(self.groups[0], list(received.chunk(len(chunks))), list(sent.split(list(chunks))))

    def gather(self, received: torch.Tensor, chunk: torch.Tensor, chunks: Sequence[int]) -> Any:
        return self._swap(self.groups[1], list(received.split(list(chunks))), [chunk] * len(chunks))

    def _swap(self, group: Any, into: Sequence[torch.Tensor], sent: Sequence[torch.Tensor]) -> Swap:
        into[self._own].copy_(sent[self._own])
        others = [at for at in range(len(self._ranks)) if at != self._own]
        receives = [(self._ranks[at], group.recv([into[at]], at, 0)) for at in others]
        return Swap(receives + [(self._ranks[at], group.send([sent[at]], at, 0)) for at in others], self._deadline, sent)


class Swap:
    """Messages from and to the ranks of a node."""

    def __init__(self, works: Sequence[Tuple[int, Any]], deadline: float, sent: Sequence[torch.Tensor]) -> None:
        """``works`` have the rank in the job that each message comes from or goes to."""
        self._works, self._deadline = works, deadline
        # Their memory must stay until they are sent.
        self._sent = sent

    def wait(self) -> None:
        """Waits for all messages. Raises ``PeerLostError`` or ``DeadlineError``, which names the
        rank."""
        until = time.monotonic() + self._deadline
        for rank, work in self._works:
            # Gloo closes every connection when a message is late, so wait briefly even if the time
            # has passed.
            left = timedelta(seconds=max(until - time.monotonic(), 0.005))
            try:
                work.wait(left)
            except RuntimeError as error:
                if "imed out" in str(error) or "timeout" in str(error):
                    text = f"no gradients from rank {rank}, on the same node, within {self._deadline:g} s; look at that rank, or raise the deadline"
                    raise _core.DeadlineError(text) from error
                raise _core.PeerLostError(f"rank {rank}, on the same node, is gone; see the message of that rank for the reason") from error


class NodeExchange:
    """The exchange of a bucket's values inside the node: ``scatter`` gives each rank the chunks of
    its slices, and ``gather`` their averages to all."""

    def __init__(self, inside: Inside, bucket: NodeBucket, values: torch.Tensor, dtype: torch.dtype) -> None:
        """``dtype`` is the type of the values on their way."""
        self.bucket, self.values = bucket, values
        self._inside, self._dtype = inside, dtype
        # The mean of this rank's slices, as float32. Its memory is free once it was sent.
        self.mean = torch.empty(0)

    def scatter(self) -> Any:
        """Begins to swap chunks. Returns what the caller must ``wait`` for."""
        bucket, device = self.bucket, self.values.device
        self._sent = bucket.pack(self.values, self._dtype)
        self._received = torch.empty(bucket.ranks * (bucket.elements + 1), dtype=self._dtype, device=device)
        self.mean = torch.empty(bucket.elements, dtype=torch.float32, device=device)
        return self._inside.scatter(self._received, self._sent, bucket.chunks)

    def add(self) -> torch.Tensor:
        """Adds up the received chunks. Returns the flags of the node's ranks."""
        return self.bucket.mean_of(self._received, self.mean)

    def not_finite(self) -> Optional[str]:
        """The first parameter of this rank with a value that is not finite."""
        return self.bucket.not_finite(self._sent)

    def free_chunks(self) -> None:
        """Frees the memory of the chunks of ``scatter``."""
        self._sent = self._received = torch.empty(0)

    def gather(self, flag: Optional[torch.Tensor] = None) -> Any:
        """Begins to send the averages of this rank's slices to the ranks of the node, with a flag
        that is NaN or 0; by default it is 0. Returns what the caller must ``wait`` for."""
        bucket = self.bucket
        chunk = bucket.chunk(self.mean, self._dtype)
        if flag is not None:
            chunk[bucket.elements :] = flag
        self.mean = torch.empty(0)
        self._averages = torch.empty(sum(bucket.chunks), dtype=self._dtype, device=chunk.device)
        return self._inside.gather(self._averages, chunk, bucket.chunks)

    def unpack(self) -> torch.Tensor:
        """Replaces the bucket's values by the averages of all ranks. Returns their flags."""
        return self.bucket.unpack(self._averages, self.values)
