"""The receiving end."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Iterable, Iterator, List, Optional, Tuple, Union

from .. import _core
from .._arrays import whole_number
from ._progress import Progress, checked
from ._update import Update, local_shape
from ._weights import Base, Memory, empty, library, once, pairs, path_of, to_write

if TYPE_CHECKING:
    from ._folder import Folder


class Receiver:
    """Holds weights, and brings them from version to version.

    Args:
        base: the weights that the sender started from: a ``.safetensors`` file or a folder, which
            is copied to main memory, or a dictionary of your arrays or CPU tensors, which updates
            then change in place.
        threads: the threads that decode.
        to: ``"torch"`` or ``"numpy"``: what ``tensors()`` and updates yield. By default as the base
            is; for files PyTorch if it is installed. numpy has no bfloat16 and no float8, and gets
            their bits as unsigned integers.
        max_bytes: the most bytes of new tensors in one update, and of parts of tensors that change
            throughout; by default 1 GiB, or 1024 times the bytes of the stream if that is more.
        progress: called with the bytes that are done and with all bytes, about ten times a second
            and at the end. The weights of a file are copied and then hashed, so their bytes count
            twice. An exception, as Ctrl-C, ends the operation. The function may read the receiver
            whose operation has called it; to stage, verify and commit there raises
            ``ConfigError``.
    """

    def __init__(
        self,
        base: Base,
        *,
        threads: int = 1,
        to: Optional[str] = None,
        max_bytes: Optional[int] = None,
        progress: Optional[Progress] = None,
    ) -> None:
        path = path_of(base)
        # Keeps the memory of the user's tensors alive.
        self._memories = [] if path is not None else list(once(to_write(name, tensor) for name, tensor in pairs(base)))  # type: ignore[arg-type]
        _check_apart(self._memories)
        self.to = library(to, base if path is not None else self._memories)
        self.core = _core.DeltaReceiver(
            path if path is not None else [memory.description for memory in self._memories],
            threads=whole_number("threads", threads, 16),
            max_bytes=None if max_bytes is None else whole_number("max_bytes", max_bytes),
            progress=checked(progress),
        )

    @property
    def version(self) -> int:
        """The version of the weights; 0 for a base model."""
        return self.core.state[1]

    @property
    def run(self) -> Optional[str]:
        """The name of the run that made the weights; ``None`` for a base model."""
        return self.core.state[0]

    def tensors(self) -> Iterator[Tuple[str, Any]]:
        """All weights: pairs of a name and a new array or tensor, in the order of their names."""
        for number, description in enumerate(self.core.tensors()):
            tensor, address = empty(description[1], local_shape(description), self.to)
            self.core.copy(number, description, address)
            yield description[0], tensor

    def stage(
        self,
        frames: Union[bytes, Iterable[bytes]],
        *shares: Union[bytes, Iterable[bytes]],
        progress: Optional[Progress] = None,
    ) -> Update:
        """Decodes a stream, and proves that it fits these weights and gives the sender's. Changes
        nothing.

        ``frames`` is what ``Sender.diff`` or ``Sender.snapshot`` gave: bytes, or an iterable of
        bytes. If several ranks have sent their own rows, give the streams of all. ``progress`` is
        as for the receiver itself, and counts bytes of the streams.

        Raises ``MessageError`` if a stream is damaged, truncated or larger than ``max_bytes``
        allows, and ``StateError`` if it leads from other weights, or does not give the sender's.
        Raises ``ConfigError`` if it describes a tensor that cannot be, or one twice.
        """
        streams = [frames if isinstance(frames, bytes) else b"".join(frames) for frames in (frames, *shares)]
        return Update(self, self.core.stage(streams, checked(progress)))

    def updates(self, folder: Folder, *, progress: Optional[Progress] = None) -> Iterator[Update]:
        """Stages the updates that lead to the newest version of a folder, one after the other.

        Load each into the engine, then commit it. Ends at the newest version, or after an update
        that was not committed. Starts with a snapshot if links are missing, or if the weights are
        of another run.

        Streams that are damaged, or give other weights than they state, are left out with a
        warning if others lead to the newest version: a delta of ``fold`` beside those that it
        joins, or a snapshot.

        ``progress`` is as for the receiver itself. It counts bytes of a stream, for each update
        anew. If it raises an exception, the weights are those of the last commit.

        Raises ``StateError`` if nothing has been published yet; if no published stream helps: it
        names the missing link; if streams are of another trainer; if an update adds, removes or
        reshapes tensors of your own; or if a commit has failed halfway and a delta comes next.
        Raises ``MessageError`` if a stream is damaged that no others can stand in for, or is larger
        than ``max_bytes`` allows. Raises ``OSError`` if the folder or a file cannot be read.
        """
        while (update := self.core.stage_next(folder.core, checked(progress))) is not None:
            for refused in folder.core.refused():
                warnings.warn(f"a stream is left out: {refused}", RuntimeWarning, stacklevel=2)
            before = self.core.state
            yield Update(self, update)
            if self.core.state == before:
                return

    def follow(self, folder: Folder, *, progress: Optional[Progress] = None) -> int:
        """Brings the weights to the newest version of a folder, and returns it. ``progress`` is as
        for ``updates``.

        Raises as ``updates`` does. The weights are then those of the last update that was
        committed.
        """
        for update in self.updates(folder, progress=progress):
            update.commit()
        return self.version

    def verify(self, *, progress: Optional[Progress] = None) -> None:
        """Hashes all weights again. Raises ``StateError`` if others have changed them.
        ``progress`` is as for the receiver itself."""
        self.core.verify(checked(progress))


def _check_apart(memories: List[Memory]) -> None:
    """Refuses tensors that share memory: an update would be written to both."""
    spans = sorted((memory.description[4], memory.size, memory.name) for memory in memories if memory.size)
    for (address, size, name), (after, _, other) in zip(spans, spans[1:]):
        if address + size > after:
            raise _core.ConfigError(
                f"'{name}' and '{other}' share memory; give one of them, or a receiver that has a copy of the checkpoint"
            )
