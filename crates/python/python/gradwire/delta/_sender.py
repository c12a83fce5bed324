"""The sending end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, List, Optional, Tuple, Type

from .. import _core
from .._arrays import whole_number
from ._folder import Folder, Frames
from ._progress import Meter, Progress, checked, listening
from ._weights import Base, Memory, Weights, in_place, is_sharded, on_host, once, pairs, path_of

if TYPE_CHECKING:
    from ._device import Changed, DeviceBase

# Bytes of tensors that are coded at once, so that small ones share the threads.
BATCH = 256 << 20


class Sender:
    """Keeps a copy of the weights that all receivers hold, and writes the changes to new ones.

    Args:
        base: the weights that the receivers start from: a ``.safetensors`` file, a folder with
            ``model.safetensors.index.json`` or one such file, or a dictionary of arrays or tensors.
        threads: the threads that code. The bytes do not depend on it.
        portable: whether positions are coded without the base: 1.4 to 2.4 times the bytes, but
            receivers find the positions without reading all of their weights, so ``stage`` takes
            about half of the time or less.
        absent: what becomes of tensors of the base that ``diff`` is not given: ``"refuse"``,
            ``"keep"`` or ``"remove"``.
        share: the number of this rank and the number of ranks, if each rank sends its own rows. The
            base is then a dictionary of the rank's DTensors. Tensors that are not sharded are sent
            by rank 0 alone.
        run: the name of the run, 32 hexadecimal digits; by default a new random name. Ranks that
            send shares need the same: broadcast the ``run`` of rank 0.
        device_base: whether tensors that ``diff`` is given on a GPU are compared there, with a copy
            of the kept weights on the same GPU. So the GPU needs memory for the weights once more,
            but only positions and values of changes are copied to main memory. The copy is made
            when ``diff`` first gets a tensor, and again after ``rollback()``. A tensor of which
            more than a quarter changed is copied whole. The stream is the same.
        progress: called with the bytes that are done and with all bytes, about ten times a second
            and at the end. The base is copied and then hashed, so its bytes count twice. An
            exception, as Ctrl-C, ends the operation. Of the sender whose operation has called it,
            the function may read ``version`` and ``run``; other calls raise ``ConfigError``.
    """

    def __init__(
        self,
        base: Base,
        *,
        threads: int = 1,
        portable: bool = False,
        absent: str = "refuse",
        share: Tuple[int, int] = (0, 1),
        run: Optional[str] = None,
        device_base: bool = False,
        progress: Optional[Progress] = None,
    ) -> None:
        comparer = _comparer(device_base)
        _check_share(share, base, run)
        self._start(None, base, threads, portable, absent, share, run, progress)
        self._devices = comparer and comparer(self._core)

    @classmethod
    def resume(
        cls,
        folder: Folder,
        base: Base,
        *,
        threads: int = 1,
        portable: bool = False,
        absent: str = "refuse",
        share: Tuple[int, int] = (0, 1),
        device_base: bool = False,
        progress: Optional[Progress] = None,
    ) -> Sender:
        """Continues a run, for example after a crash: starts from the newest version that the
        folder has, or from ``base`` if nothing is published yet. Other arguments are as above.

        With ``share`` the base is the rank's rows of the newest version, because the rows of one
        rank cannot be proven alone: bring a ``Receiver`` to this version, and load its weights into
        the model. If they are others, ``publish`` refuses the first update.
        """
        comparer = _comparer(device_base)
        _check_rows(share, base)
        sender = cls.__new__(cls)
        sender._start(folder, base, threads, portable, absent, share, None, progress)
        sender._devices = comparer and comparer(sender._core)
        return sender

    def _start(
        self,
        folder: Optional[Folder],
        base: Base,
        threads: int,
        portable: bool,
        absent: str,
        share: Tuple[int, int],
        run: Optional[str],
        progress: Optional[Progress],
    ) -> None:
        # The iterator of the update that is neither committed nor rolled back.
        self._open: Optional[object] = None
        path, memories, self._share = path_of(base), [], share
        if path is None:
            given = (in_place(name, tensor) for name, tensor in self._own(base, share))  # type: ignore[arg-type]
            memories = [on_host(memory) for memory in once(given)]
        self._core = _core.DeltaSender(
            path if path is not None else [memory.description for memory in memories],
            None if folder is None else folder.core,
            run,
            threads=whole_number("threads", threads, 16),
            portable=bool(portable),
            absent=absent,
            share=share,
            progress=checked(progress),
        )
        self._elements = {name: element for name, element, _, _ in self._core.tensors()}

    @property
    def version(self) -> int:
        """The version that the receivers hold."""
        return self._core.state[1]

    @property
    def run(self) -> str:
        """The name of the run: 32 hexadecimal digits that no other run has."""
        run = self._core.state[0]
        assert run is not None
        return run

    def diff(self, weights: Weights, *, progress: Optional[Progress] = None) -> Frames:
        """Writes the changes from the kept weights to ``weights``, a dictionary or pairs of name
        and tensor with the element types of the base.

        Yields bytes as they are ready; together they are one stream. Weights must keep their values
        until it has ended, also those that an iterable of pairs yields. A DTensor contributes its
        own rows. Call ``commit()`` when the stream is safe, else ``rollback()``; an iterator that
        is dropped before its end is rolled back.

        ``progress(done, total)`` is called about ten times a second with bytes of the weights, and
        at last before the last bytes of the stream. If it raises an exception, the stream ends and
        is rolled back.
        """
        listeners, size = listening(progress), self._core.size
        return Frames(self, self._written(weights, Meter(listeners, size)), listeners, size)

    def _written(self, weights: Weights, meter: Meter) -> Iterator[bytes]:
        self._core.begin()
        complete, self._open = False, (this := object())
        try:
            own = (self._same_type(in_place(name, tensor)) for name, tensor in self._own(weights, self._share))
            for batch in _batches(once(own, self._elements)):
                whole, changed = self._compare(batch)
                written = self._core.add([one.description for one in whole], [one.description for one in changed])
                meter.add(sum(memory.size for memory in batch))
                if written:
                    yield written
            last = self._core.finish()
            meter.end()
            yield last
            complete = True
        finally:
            # Unless the user has rolled back and begun another update meanwhile.
            if not complete and self._open is this:
                self.rollback()

    def _same_type(self, memory: Memory) -> Memory:
        """Refuses other types than the base's: float32 weights would be sent whole."""
        name, element = memory.description[:2]
        before = self._elements.get(name, element)
        if element != before:
            raise _core.ConfigError(
                f"'{name}' has elements of type {element}, but the base has {before}; convert it, for example with .to(torch.bfloat16), "
                "or begin a new run with another base"
            )
        return memory

    @staticmethod
    def _own(weights: Weights, share: Tuple[int, int]) -> Iterator[Tuple[str, Any]]:
        """Names and tensors that this rank sends."""
        return ((name, tensor) for name, tensor in pairs(weights) if not share[0] or is_sharded(tensor))

    def _compare(self, batch: List[Memory]) -> Tuple[List[Memory], List[Changed]]:
        """The tensors of a batch in main memory, but of those that are compared on a device only
        the changes."""
        return ([on_host(memory) for memory in batch], []) if self._devices is None else self._devices.compare(batch)

    def snapshot(self, *, progress: Optional[Progress] = None) -> bytes:
        """All kept weights as a stream, for receivers that hold none or others. ``progress`` is as
        for the sender itself."""
        return self._core.snapshot(checked(progress))

    def commit(self, *, progress: Optional[Progress] = None) -> None:
        """Advances the kept weights by the written changes: the receivers have them, or will.

        The changes are decoded and proven first, as by a receiver; ``progress`` is as for the
        sender itself, and counts bytes of the stream. If it raises an exception, the kept weights
        are as before, and ``commit()`` may be called again.
        """
        # Before the core: after an exception in between, the devices would be behind.
        if self._devices is not None:
            self._devices.commit()
        self._core.commit(checked(progress))
        self._open = None

    def rollback(self) -> None:
        """Forgets the written changes."""
        if self._devices is not None:
            self._devices.rollback()
        self._core.rollback()
        self._open = None


def _check_share(share: Tuple[int, int], base: Base, run: Optional[str]) -> None:
    if share[1] > 1 and run is None:
        raise _core.ConfigError(
            f"share={share} needs run=: all ranks need the same name of the run; broadcast one from rank 0, such as secrets.token_hex(16)"
        )
    _check_rows(share, base)


def _check_rows(share: Tuple[int, int], base: Base) -> None:
    if share[1] > 1 and path_of(base) is not None:
        raise _core.ConfigError(f"share={share} needs the rows of this rank as its base, not a file; give model.state_dict()")


def _comparer(device_base: bool) -> Optional[Type[DeviceBase]]:
    """What compares tensors on their devices, if that is wanted."""
    if not device_base:
        return None
    try:
        from ._device import DeviceBase
    except ImportError as error:
        raise _core.ConfigError(f"device_base=True needs PyTorch and Triton: {error}") from None
    return DeviceBase


def _batches(memories: Iterator[Memory]) -> Iterator[List[Memory]]:
    batch: List[Memory] = []
    size = 0
    for memory in memories:
        batch.append(memory)
        size += memory.size
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
