"""Folders on a shared disk, through which a trainer publishes its updates."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Iterable, Iterator, List, Optional, Set, Tuple, Union

from .. import _core
from .._arrays import whole_number
from ._progress import Meter, Progress, checked, listening
from ._weights import Base, in_place, on_host, once, pairs, path_of

if TYPE_CHECKING:
    from ._sender import Sender


def join(shares: Iterable[Union[bytes, Iterable[bytes]]]) -> bytes:
    """Joins the streams of all ranks of an update, each of its own rows, into one.

    One rank gathers them, for example with ``torch.distributed.gather_object``, and publishes the
    result.
    """
    return _core.join_deltas(_whole(shares))


def fold(
    base: Base,
    deltas: Iterable[Union[bytes, Iterable[bytes]]],
    *,
    threads: int = 1,
    portable: bool = False,
    max_bytes: Optional[int] = None,
    progress: Optional[Progress] = None,
) -> bytes:
    """One delta that leads to where ``deltas`` lead one after another.

    It has fewer bytes than they have together. A folder takes it beside them, so receivers that are
    behind read one stream.

    Args:
        base: the weights that the first delta changes, as for a ``Sender``. Needs memory for a
            copy.
        deltas: the streams, the oldest first.
        threads: the threads that decode and code.
        portable: as for a ``Sender``.
        max_bytes: the limit for each of the streams, as for a ``Receiver``.
        progress: as for a ``Receiver``.
    """
    path, memories = path_of(base), []
    if path is None:
        memories = [on_host(memory) for memory in once(in_place(name, tensor) for name, tensor in pairs(base))]  # type: ignore[arg-type]
    return _core.fold_deltas(
        path if path is not None else [memory.description for memory in memories],
        _whole(deltas),
        threads=whole_number("threads", threads, 16),
        portable=bool(portable),
        max_bytes=None if max_bytes is None else whole_number("max_bytes", max_bytes),
        progress=checked(progress),
    )


def _whole(streams: Iterable[Union[bytes, Iterable[bytes]]]) -> List[bytes]:
    return [stream if isinstance(stream, bytes) else b"".join(stream) for stream in streams]


# The folders to which publications are open, and the threads that write them.
_open: Set[Tuple[str, int]] = set()

# Bytes that are written at once.
_BLOCK = 16 << 20


def _blocks(stream: bytes) -> Iterator[bytes]:
    return (stream[start : start + _BLOCK] for start in range(0, len(stream), _BLOCK))


class Frames:
    """The stream that a sender writes: an iterator of bytes that knows its sender, and reports the
    bytes done and the total to its listeners. Both count bytes of the weights."""

    def __init__(self, sender: Sender, frames: Iterator[bytes], listeners: List[Progress], size: int) -> None:
        self.sender, self._frames, self.listeners, self.size = sender, frames, listeners, size

    def __iter__(self) -> Iterator[bytes]:
        return self._frames

    def __next__(self) -> bytes:
        return next(self._frames)


class Folder:
    """A folder of published streams. The trainer publishes, receivers read.

    Args:
        path: the folder, which need not exist yet. Each run needs its own.
        timeout: for how many seconds ``publish`` waits for another process that publishes.
    """

    def __init__(self, path: Union[str, os.PathLike[str]], *, timeout: float = 60.0) -> None:
        self.path = os.fspath(path)
        self.core = _core.DeltaFolder(self.path, float(timeout))

    @property
    def latest(self) -> Optional[int]:
        """The newest published version; ``None`` if there is none."""
        latest = self.core.latest()
        return None if latest is None else latest[1]

    def publish(
        self,
        frames: Union[bytes, Iterable[bytes]],
        *,
        keep: int = 200,
        snapshot_every: int = 50,
        progress: Optional[Progress] = None,
    ) -> int:
        """Publishes a stream: writes it, syncs it, and only then names it as the newest. Returns
        its bytes. A delta of ``fold`` may also lead between versions that are published already.

        If the newest snapshot is ``snapshot_every`` versions old, or more, a snapshot of the
        sender's kept weights is published first; for this ``frames`` must come from
        ``Sender.diff``. 0 means no snapshots. Receivers that are at most ``keep`` versions behind
        need no snapshot; older streams are removed, unless a snapshot that stays needs them.

        ``progress(done, total)`` is called about ten times a second, and at last before the stream
        is made visible. It counts bytes of the weights for the frames of ``Sender.diff``, twice if
        there is a snapshot, and otherwise bytes of the stream. The total is known beforehand for
        these frames and for ``bytes``; for other iterables it is that of the bytes done. If the
        function raises an exception, the stream is not published. It must not publish to the same
        folder. Waiting for another process ends at Ctrl-C.

        Raises ``StateError`` if another trainer has published here, or publishes for longer than
        ``timeout``; the error names its process. Raises ``MessageError`` if the stream is damaged
        or not complete. No stream is removed then. Raises ``OSError`` if the folder cannot be
        written. In all these cases the stream is not published.
        """
        limits = whole_number("keep", keep), whole_number("snapshot_every", snapshot_every)
        listeners = listening(progress)
        if not isinstance(frames, Frames):
            meter = Meter(listeners, len(frames) if isinstance(frames, bytes) else 0)
            return self._write(_blocks(frames) if isinstance(frames, bytes) else frames, limits[0], meter)
        has_snapshot = self.core.is_snapshot_due(*limits)
        meter = Meter(listeners, frames.size * (1 + has_snapshot))
        if has_snapshot:
            self._write([frames.sender.snapshot(progress=meter.after(0))], None, Meter([], 0))
        frames.listeners.append(meter.after(frames.size * has_snapshot))
        return self._write(frames, limits[0], meter, counts=False)

    def _write(self, frames: Iterable[bytes], keep: Optional[int], meter: Meter, *, counts: bool = True) -> int:
        this = os.path.realpath(self.path), threading.get_ident()
        if this in _open:
            raise _core.ConfigError(
                f"this thread publishes to {self.path!r} already; publish after that, not in its progress function or its frames"
            )
        publication, sent = self.core.begin(), 0
        try:
            _open.add(this)
            for frame in frames:
                publication.write(frame)
                sent += len(frame)
                if counts:
                    meter.add(len(frame))
            # After the stream is visible nothing must fail.
            meter.end()
            publication.finish(keep)
        finally:
            _open.discard(this)
            publication.close()
        return sent
