"""Descriptions of tensors, for the Rust side."""

from __future__ import annotations

import os
import weakref
from typing import Any, Callable, Container, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from .. import _core
from .._arrays import is_torch

# Element types of numpy and PyTorch by their names in safetensors files.
ELEMENTS = {
    "uint8": "U8",
    "int8": "I8",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "uint16": "U16",
    "int16": "I16",
    "float16": "F16",
    "bfloat16": "BF16",
    "uint32": "U32",
    "int32": "I32",
    "float32": "F32",
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
}
_DTYPES = {element: dtype for dtype, element in ELEMENTS.items()}
# Bits of the types that numpy lacks.
_BITS = {"BF16": "uint16", "F8_E4M3": "uint8", "F8_E5M2": "uint8"}

Weights = Union[Mapping[str, Any], Iterable[Tuple[str, Any]]]
Base = Union[str, "os.PathLike[str]", Weights]
Description = Tuple[str, str, List[int], Optional[Tuple[int, int]], int]


class Memory(NamedTuple):
    """A tensor in memory, and what keeps its memory alive."""

    description: Description
    owner: Any
    # Whether something still holds this memory.
    is_held: Callable[[], bool]

    @property
    def name(self) -> str:
        return self.description[0]

    @property
    def size(self) -> int:
        """Bytes, as far as batches need them."""
        size: int = getattr(self.owner, "nbytes", 0)
        return size

    @property
    def place(self) -> Tuple[Any, ...]:
        """Equal for names of the same memory: tied weights."""
        _, element, shape, rows, address = self.description
        return address, element, tuple(shape), rows


def pairs(weights: Weights) -> Iterator[Tuple[str, Any]]:
    """Names and tensors of a mapping or of an iterable of pairs."""
    items = weights.items() if isinstance(weights, Mapping) else weights
    for item in items:
        try:
            name, tensor = item
        except (TypeError, ValueError):
            raise _core.ConfigError(
                f"the weights contain {type(item).__name__}; give a dictionary of tensors, or pairs of a name and a tensor"
            ) from None
        if not isinstance(name, str):
            raise _core.ConfigError(f"{name!r} is not a name of a tensor; give a string")
        yield name, tensor


def in_place(name: str, tensor: Any) -> Memory:
    """A tensor to be read where it is, made contiguous."""
    tensor, shape, rows = _own_rows(name, tensor)
    if is_torch(tensor):
        if tensor.device.type == "meta":
            raise _core.ConfigError(f"'{name}' is on the meta device, without values; give a tensor with values")
        tensor = tensor.detach().contiguous()
    else:
        import numpy

        tensor = numpy.ascontiguousarray(_array(name, tensor))
        # A contiguous copy of a scalar has a dimension.
        tensor = tensor.reshape(shape) if rows is None else tensor
    return _memory(name, tensor, shape, rows)


def on_host(memory: Memory) -> Memory:
    """The tensor in main memory: a copy if it is on a device."""
    if not is_torch(memory.owner) or memory.owner.device.type == "cpu":
        return memory
    copy = pinned(memory.owner).copy_(memory.owner)
    return memory._replace(description=(*memory.description[:4], copy.data_ptr()), owner=copy)


def pinned(tensor: Any) -> Any:
    """New main memory for the values of a tensor. Copies from and to a GPU are several times faster
    if it is pinned."""
    import torch

    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")


def to_write(name: str, tensor: Any) -> Memory:
    """A tensor that a receiver writes to in place."""
    tensor, shape, rows = _own_rows(name, tensor)
    if is_torch(tensor):
        tensor = tensor.detach()
        if tensor.device.type != "cpu":
            raise _core.ConfigError(
                f"'{name}' is on {tensor.device}; give a receiver tensors in main memory, and load update.patches() or "
                "update.tensors() into the model"
            )
        contiguous = tensor.is_contiguous()
    else:
        tensor = _array(name, tensor)
        contiguous = tensor.flags["C_CONTIGUOUS"]
        if not tensor.flags["WRITEABLE"]:
            raise _core.ConfigError(f"'{name}' is read-only; give the receiver a copy")
    if not contiguous:
        raise _core.ConfigError(f"'{name}' is not contiguous, and the receiver writes in place; give it a contiguous copy")
    return _memory(name, tensor, shape, rows)


def once(memories: Iterable[Memory], known: Container[str] = ()) -> Iterator[Memory]:
    """Leaves out further names of the same memory, except names in ``known``, which come first."""
    seen: Dict[Tuple[Any, ...], Callable[[], bool]] = {}
    others: List[Memory] = []
    for memory in memories:
        if memory.name in known:
            seen[memory.place] = memory.is_held
            yield memory
        else:
            others.append(memory)
            if not known:
                yield from _first(others, seen)
    yield from _first(others, seen)


def _first(memories: List[Memory], seen: Dict[Tuple[Any, ...], Callable[[], bool]]) -> Iterator[Memory]:
    """Takes memories out of the list, and yields those that are not seen yet."""
    while memories:
        memory = memories.pop(0)
        # Memory that nothing held may be used again, for another tensor.
        is_tied = memory.size > 0 and memory.place in seen and seen[memory.place]()
        if not is_tied:
            seen[memory.place] = memory.is_held
            yield memory


def path_of(base: Any) -> Optional[str]:
    """The path, if a file or folder is meant."""
    return os.fspath(base) if isinstance(base, (str, os.PathLike)) else None


def library(to: Optional[str], base: Any) -> str:
    """Whether results are "numpy" arrays or "torch" tensors."""
    if to is not None:
        if to not in ("numpy", "torch"):
            raise _core.ConfigError(f"to={to!r} is unknown; use 'numpy' or 'torch'")
        return to
    if path_of(base) is None:
        return "torch" if any(is_torch(memory.owner) for memory in base) else "numpy"
    try:
        import torch  # noqa: F401
    except ImportError:
        return "numpy"
    return "torch"


def empty(element: str, shape: Sequence[int], to: str) -> Tuple[Any, int]:
    """A new array or tensor and its address. Arrays of numpy hold the bits of bfloat16 and float8
    numbers, which numpy lacks, as unsigned integers."""
    if to == "torch":
        import torch

        tensor = torch.empty(tuple(shape), dtype=getattr(torch, _DTYPES[element]))
        return tensor, tensor.data_ptr()
    import numpy

    array = numpy.empty(tuple(shape), _BITS.get(element, _DTYPES[element]))
    return array, array.__array_interface__["data"][0]


def view(data: bytes, element: str, to: str) -> Any:
    """Bytes of elements as a flat array or tensor, as ``empty`` makes them."""
    import numpy

    if to == "torch":
        import torch

        if not data:
            return torch.empty(0, dtype=getattr(torch, _DTYPES[element]))
        return torch.frombuffer(bytearray(data), dtype=getattr(torch, _DTYPES[element]))
    return numpy.frombuffer(data, _BITS.get(element, _DTYPES[element]))


def _own_rows(name: str, tensor: Any) -> Tuple[Any, List[int], Optional[Tuple[int, int]]]:
    """The part of a tensor that is here, the shape of the whole, and the rows of the part; none for
    a whole tensor."""
    if not hasattr(tensor, "shape"):
        raise _core.ConfigError(f"'{name}' is a {type(tensor).__name__}; give numpy arrays or PyTorch tensors")
    shape = list(tensor.shape)
    if not _is_dtensor(tensor):
        return tensor, shape, None
    sharded = [placement for placement in tensor.placements if not placement.is_replicate()]
    if not sharded:
        return tensor.to_local(), shape, None
    if len(sharded) > 1 or not sharded[0].is_shard(0) or type(sharded[0]).__name__ != "Shard":
        raise _core.ConfigError(
            f"'{name}' is a DTensor with placements {tuple(tensor.placements)}; deltas take rows of one mesh dimension, Shard(0), as "
            "fully_shard makes them: pass tensor.full_tensor()"
        )
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    local_shape, offsets = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    # A rank without rows must not claim the first one, whose owner hashes the description.
    start = offsets[0] if local_shape[0] else shape[0]
    rows = (start, start + local_shape[0])
    return tensor.to_local(), shape, rows


def _is_dtensor(tensor: Any) -> bool:
    return any(base.__name__ == "DTensor" for base in type(tensor).__mro__)


def is_sharded(tensor: Any) -> bool:
    """Whether each rank has its own rows of the tensor. If there are no rows, the tensor is the
    same on all ranks."""
    return _is_dtensor(tensor) and tensor.shape[:1] != (0,) and not all(placement.is_replicate() for placement in tensor.placements)


def _array(name: str, array: Any) -> Any:
    if not hasattr(array, "__array_interface__"):
        raise _core.ConfigError(f"'{name}' is a {type(array).__name__}; give numpy arrays or PyTorch tensors")
    import numpy

    if isinstance(array, numpy.ma.MaskedArray):
        raise _core.ConfigError(f"'{name}' is masked, and a delta has no mask; give array.filled(value)")
    if array.dtype.byteorder == ">":
        raise _core.ConfigError(f"'{name}' is big-endian; give array.astype(array.dtype.newbyteorder('<'))")
    return numpy.asarray(array)


def _memory(name: str, tensor: Any, shape: List[int], rows: Optional[Tuple[int, int]]) -> Memory:
    dtype = str(tensor.dtype).replace("torch.", "")
    if dtype not in ELEMENTS:
        raise _core.ConfigError(f"'{name}' has elements of type {dtype}; deltas take {', '.join(ELEMENTS)}")
    address = tensor.data_ptr() if is_torch(tensor) else tensor.__array_interface__["data"][0]
    return Memory((name, ELEMENTS[dtype], shape, rows, address), tensor, _holder(tensor))


def _holder(tensor: Any) -> Callable[[], bool]:
    """A function that tells whether something holds the memory of a tensor, and does not hold it
    itself."""
    if is_torch(tensor):
        from torch.multiprocessing.reductions import StorageWeakRef

        storage = StorageWeakRef(tensor.untyped_storage())
        return lambda: not storage.expired()
    try:
        array = weakref.ref(tensor if tensor.base is None else tensor.base)
    except TypeError:
        # Memory of another library.
        return lambda: False
    return lambda: array() is not None
