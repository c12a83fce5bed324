"""Sends and receives bytes between the ranks of a process group."""

from __future__ import annotations

import ctypes
import time
from collections import deque
from datetime import timedelta
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple
from weakref import WeakSet

import torch
import torch.distributed as dist

from .. import _core
from ._deadlines import CONNECT, DEADLINE
from ._process import OfOneProcess
from ._rendezvous import Rendezvous

# Two process groups of the same ranks: one for messages to higher ranks, one for messages to lower
# ranks.
#
# Gloo sends a message once its receiver has signalled that it is ready. On one connection this
# signal would wait behind the messages of the other direction, so the link would carry one
# direction at a time. Both connections still share the link, so the signal is sent before a message
# (``Channel.prepare``).
Groups = Tuple[Any, Any]

# The groups that gradwire has made for itself, and that PyTorch lists among the user's.
_own: WeakSet[Any] = WeakSet()


def new_group(*arguments: Any, **options: Any) -> Any:
    """``torch.distributed.new_group``, for gradwire alone."""
    group = dist.new_group(*arguments, **options)
    _own.add(group)
    return group


def is_own(group: Any) -> bool:
    """Whether gradwire has made a group for itself."""
    return group in _own


def private_groups(
    process_group: Optional[Any] = None, deadline: Optional[float] = None, caller: str = "gradwire.torch.register"
) -> Groups:
    """Creates gloo groups of the same ranks for gradwire alone.

    They do not interfere with the user's collectives, and can send bytes even if the user's group
    is NCCL. All ranks must call it at the same time; they wait for each other for ``deadline``
    seconds. ``caller`` is the function that the user called.

    Raises ``DeadlineError``, which names the ranks that have not made the call.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise _core.ConfigError("torch.distributed is not initialized; call init_process_group first")
    whole = process_group is None or process_group is dist.group.WORLD
    ranks = list(range(dist.get_world_size())) if whole else dist.get_process_group_ranks(process_group)
    return private_groups_of(ranks, deadline, caller, whole)


def private_groups_of(ranks: List[int], deadline: Optional[float], caller: str, whole: bool = False) -> Groups:
    """Like ``private_groups``, for these ranks of the job; ``whole`` says that they are all."""
    # Impossible deadlines are refused later, by the reducer.
    usable = isinstance(deadline, (int, float)) and 0.0 < deadline < 1e9
    seconds = float(deadline) if usable else DEADLINE  # type: ignore[arg-type]
    rendezvous = Rendezvous(ranks, caller, seconds)
    patience = timedelta(seconds=max(seconds, CONNECT))
    try:
        if whole:
            groups = new_group(backend="gloo", timeout=patience), new_group(backend="gloo", timeout=patience)
        else:
            groups = _groups_of_some(rendezvous.prefix, ranks, patience)
        # If this rank ended the groups at once, a rank that is still connecting to them would fail.
        groups[1].barrier().wait(patience)
    except RuntimeError as error:
        raise _core.PeerLostError(
            f"ranks cannot connect to each other over gloo: {error}; check that all ranks are running. On several machines, set "
            "GLOO_SOCKET_IFNAME to the network interface between them"
        ) from error
    rendezvous.leave()
    return groups


def _groups_of_some(prefix: str, ranks: List[int], patience: timedelta) -> Groups:
    """Two groups of some ranks, which use keys of the store with ``prefix``.

    Does not call ``new_group``: PyTorch counts the groups of a process to name them. If only some
    ranks created a group, their later groups would have other names, and all ranks would wait for
    each other in vain.
    """
    store = dist.distributed_c10d._get_default_store()

    def create(direction: str) -> Any:
        own = dist.PrefixStore(f"{prefix}/{direction}", store)
        return dist.ProcessGroupGloo(own, ranks.index(dist.get_rank()), len(ranks), patience)

    return create("up"), create("down")


def connect(
    process_group: Optional[Any], make: Callable[[Channel], _core.Reducer], deadline: Optional[float], caller: str
) -> Tuple[_core.Reducer, Groups]:
    """A reducer that ``make`` creates over private groups of some ranks, and the groups. ``caller``
    is the function that the user called."""
    groups = private_groups(process_group, deadline, caller)
    try:
        return make(Channel(groups)), groups
    except BaseException:
        destroy(groups)
        raise


def release(reducer: Any, groups: Sequence[Any]) -> None:
    """Ends a reducer, and the groups that ``private_groups`` created for it, with their threads and
    connections.

    Does nothing in a forked process, which has none of them.
    """
    if reducer.forked:
        return
    try:
        reducer.close()
    finally:
        # After Ctrl-C, too.
        destroy(groups)


def destroy(groups: Sequence[Any]) -> None:
    """Ends process groups."""
    for group in groups:
        try:
            dist.destroy_process_group(group)
        except (AssertionError, RuntimeError, ValueError):
            # The process has already destroyed its groups, or PyTorch does not know this one. It
            # then ends with its last reference.
            pass


class _Outgoing:
    """A message that is being sent. Its bytes must stay until every receiver has them."""

    def __init__(self) -> None:
        self.bytes = torch.empty(0, dtype=torch.uint8, device="cpu")
        self.parts: List[torch.Tensor] = []
        self.works: Dict[int, List[Any]] = {}


class _Incoming:
    """The parts from one rank, and up to two receives that are posted for the next parts."""

    def __init__(self, group: Any, peer: int, part: int) -> None:
        self._receive = lambda buffer: group.recv([buffer], peer, 0)
        self._part = part
        # Memory of the channel, not the caller's: data may still arrive after a receive timed out.
        self._free: Deque[torch.Tensor] = deque()
        self._posted: Deque[Tuple[torch.Tensor, Any]] = deque()

    def expect(self, parts: int) -> None:
        """Posts receives until ``parts`` of them are posted."""
        while len(self._posted) < parts:
            buffer = self._free.popleft() if self._free else torch.empty(self._part, dtype=torch.uint8, device="cpu")
            self._posted.append((buffer, self._receive(buffer)))

    def wait(self, seconds: float) -> int:
        """Waits for the next part; returns its address, valid until a receive is posted."""
        buffer, work = self._posted.popleft()
        work.wait(timedelta(seconds=seconds))
        self._free.append(buffer)
        return buffer.data_ptr()


class Channel(OfOneProcess):
    """Sends and receives bytes for the Rust side, which determines the order of calls.

    A message longer than ``part`` is sent in parts of this length; the first part contains the
    total length. Tensors are reused from message to message. Groups must not get a second channel:
    receives that the first one has posted would take its messages.
    """

    def __init__(self, groups: Groups) -> None:
        super().__init__()
        self.rank: int = groups[0].rank()
        self.size: int = groups[0].size()
        self.part = 1 << 20
        self._up, self._down = groups
        self._outgoing: Dict[Any, _Outgoing] = {}
        self._posting = _Outgoing()
        self._incoming: Dict[int, _Incoming] = {}
        self._notices: List[Tuple[torch.Tensor, Any]] = []

    def outgoing(self, to: Sequence[int], length: int) -> int:
        """The address of a free buffer of ``length`` bytes for a message to the ranks ``to``.

        Call ``prepare`` for each of these ranks first.
        """
        message = self._slot(to)
        if message.bytes.numel() < length:
            message.bytes = torch.empty(length + length // 8, dtype=torch.uint8, device="cpu")
        message.parts = list(message.bytes[:length].split(self.part))
        self._posting = message
        return message.bytes.data_ptr()

    def lend(self, address: int, length: int) -> None:
        """Makes ``length`` bytes at an address the rest of the message of the last ``outgoing``,
        which fills whole parts. They must stay until ``flush``."""
        memory = (ctypes.c_uint8 * length).from_address(address)
        self._posting.parts += torch.frombuffer(memory, dtype=torch.uint8).split(self.part)

    def prepare(self, to: Sequence[int], peer: int, seconds: float) -> None:
        """Waits until the last message to the ranks ``to`` has left for ``peer``.

        Also posts a receive from a rank that has sent before. So the signal that this rank is ready
        does not wait on the link behind the next message. The first receive from a rank is posted
        when this rank waits for it, because by then both are connected.
        """
        if peer in self._incoming:
            self._incoming[peer].expect(1)
        for work in self._slot(to).works.pop(peer, ()):
            work.wait(timedelta(seconds=seconds))

    def flush(self, peer: int, seconds: float) -> None:
        """Waits until all messages to ``peer`` have left."""
        until = time.monotonic() + seconds
        for message in self._outgoing.values():
            for work in message.works.pop(peer, ()):
                work.wait(timedelta(seconds=max(until - time.monotonic(), 0.001)))

    def _slot(self, to: Sequence[int]) -> _Outgoing:
        return self._outgoing.setdefault(to[0] if len(to) == 1 else "all", _Outgoing())

    def send(self, peer: int) -> None:
        """Sends the bytes at the last address that ``outgoing`` returned; does not wait."""
        works = [self._to(peer).send([part], peer, 0) for part in self._posting.parts]
        self._posting.works[peer] = works

    def receive(self, peer: int, more: bool, seconds: float) -> int:
        """Waits for a part from ``peer``; returns its address, valid until the next call for this
        rank.

        ``more`` says that another part follows; its receive is posted before the wait for this one.
        """
        incoming = self._from(peer)
        incoming.expect(2 if more else 1)
        return incoming.wait(seconds)

    def notify(self, notice: bytes, culprit: int) -> None:
        """Sends bytes to all ranks except one, without waiting for them to arrive."""
        for peer in range(self.size):
            if peer in (self.rank, culprit):
                continue
            tensor = torch.tensor(list(notice), dtype=torch.uint8, device="cpu")
            try:
                self._notices.append((tensor, self._to(peer).send([tensor], peer, 0)))
            except RuntimeError:
                pass

    def close(self) -> None:
        """Closes all connections, which the other ranks notice. Nothing can be sent or received
        after it."""
        self._outgoing.clear()
        # Posted receives hold the connections, too.
        self._incoming.clear()
        self._notices.clear()
        self._posting = _Outgoing()
        self._up = self._down = None

    def _to(self, peer: int) -> Any:
        """The group for messages to a rank."""
        return self._up if peer > self.rank else self._down

    def _from(self, peer: int) -> _Incoming:
        """The parts from a rank."""
        if peer not in self._incoming:
            group = self._up if peer < self.rank else self._down
            self._incoming[peer] = _Incoming(group, peer, self.part)
        return self._incoming[peer]
