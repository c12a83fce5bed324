"""Conversion of arrays and tensors to frames and back."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any, Callable, Optional, Sequence, Tuple, Union

from . import _core
from ._stored import restore

DTYPES = ("float32", "float16", "bfloat16")


def is_torch(array: Any) -> bool:
    """Whether ``array`` is a PyTorch tensor, without importing PyTorch."""
    return type(array).__module__.split(".")[0] == "torch" or hasattr(array, "data_ptr")


def buffer(array: Any, what: str = "the tensor") -> Tuple[int, int, str]:
    """The address, number of elements and element type of an array, for the Rust side.

    The array must outlive every use of the address. Raises ``ConfigError`` for arrays that are not
    dense, contiguous floats in main memory.
    """
    if is_torch(array):
        dtype = str(array.dtype).replace("torch.", "")
        if array.device.type == "meta":
            raise _core.ConfigError(f"{what} is on the meta device, without values; pass a tensor with values")
        if array.device.type != "cpu":
            raise _core.ConfigError(
                f"{what} is on {array.device}, but gradwire takes only tensors in main memory and gradients on CUDA devices; copy it with "
                ".cpu(), or let PyTorch communicate it"
            )
        if array.layout.__str__() != "torch.strided":
            raise _core.ConfigError(f"{what} is {array.layout}, not dense; call .to_dense() first")
        if array.is_quantized:
            raise _core.ConfigError(f"{what} is quantized; call .dequantize() first")
        if array.is_neg():
            raise _core.ConfigError(f"{what} is a negated view, so its memory holds the opposite sign; call .resolve_neg()")
        contiguous, elements = array.is_contiguous(), array.numel()
        address = _address(array, what) if contiguous else 0
    elif hasattr(array, "__array_interface__"):
        dtype = str(array.dtype)
        contiguous = array.flags["C_CONTIGUOUS"]
        address, elements = array.__array_interface__["data"][0], array.size
    else:
        raise _core.ConfigError(f"{what} is a {type(array).__name__}; pass a numpy array or a PyTorch tensor")
    if dtype.startswith("complex"):
        raise _core.ConfigError(
            f"{what} has type {dtype}; pass pairs of reals: torch.view_as_real(tensor), or array.view('float32') for complex64"
        )
    if dtype not in DTYPES:
        raise _core.ConfigError(f"{what} has type {dtype}; convert it to {', '.join(DTYPES[:-1])} or {DTYPES[-1]}")
    if not contiguous:
        raise _core.ConfigError(f"{what} is not contiguous; call .contiguous() or numpy.ascontiguousarray")
    return address, elements, dtype


def _address(tensor: Any, what: str) -> int:
    """The address of a tensor's first element. Raises ``ConfigError`` if not all of its elements
    are in memory."""
    try:
        memory = tensor.untyped_storage().nbytes() - tensor.storage_offset() * tensor.element_size()
        address: int = tensor.data_ptr()
    except RuntimeError:
        memory, address = 0, 0
    if tensor.numel() and (not address or memory < tensor.numel() * tensor.element_size()):
        raise _core.ConfigError(
            f"{what} is a {type(tensor).__name__} without elements in memory: it belongs to torch.compile, torch.func or FakeTensorMode, "
            "or its storage was freed; pass a tensor with values"
        )
    return address


def check_class(array: Any) -> None:
    """Refuses arrays and tensors of special classes, such as masked ones: a frame cannot hold their
    meaning."""
    kind = type(array).__name__
    if is_torch(array):
        _check_tensor_class(array, kind)
    elif hasattr(array, "__array_interface__"):
        import numpy

        if isinstance(array, numpy.ma.MaskedArray):
            raise _core.ConfigError(
                "the array is masked, but a frame stores no mask; pass array.filled(value), and the mask as another array if you need it"
            )
        # A memory map is a plain array wherever it lies.
        if type(array) not in (numpy.ndarray, numpy.memmap) and not isinstance(array, numpy.generic):
            raise _core.ConfigError(
                f"the array is a {kind}, but a frame stores only plain arrays; pass numpy.asarray(array)"
            )


def _check_tensor_class(tensor: Any, kind: str) -> None:
    import torch

    if torch.nn.parameter.is_lazy(tensor):
        raise _core.ConfigError("the tensor is a parameter of a lazy module and has no shape yet; run the module on a batch first")
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        if tensor.is_nested:
            raise _core.ConfigError("the tensor is nested and has no single shape; pass each tensor of .unbind()")
        return
    names = {base.__name__ for base in type(tensor).__mro__}
    remedies = {
        "MaskedTensor": "pass .to_tensor(value), and .get_mask() as another tensor if you need it",
        "DTensor": "pass .full_tensor(), or .to_local() for the part of this rank",
        "NestedTensor": "pass each of the tensors of .unbind()",
        "FakeTensor": "it has no values: pass a real tensor",
    }
    remedy = next((text for name, text in remedies.items() if name in names), "pass .as_subclass(torch.Tensor), or the tensors that it contains")
    raise _core.ConfigError(f"the tensor is a {kind}, but a frame stores only plain tensors; {remedy}")


def _snapshot(array: Any) -> Any:
    """A copy of an array that ``buffer`` takes. Other threads cannot write to it while it is
    compressed."""
    check_class(array)
    if is_torch(array):
        array = array.detach().resolve_neg()
        buffer(array)
        return array.clone()
    buffer(array)
    import numpy

    # A numpy scalar does not own the memory at its address, and its copy is a scalar again.
    return numpy.array(array)


def whole_number(name: str, value: Any, bits: int = 64) -> int:
    """An argument as an integer. Raises ``ConfigError`` unless it is one from 0 to ``2**bits -
    1``."""
    try:
        number = operator.index(value)
    except TypeError:
        raise _core.ConfigError(f"{name}={value!r} is not an integer; give one from 0 to 2**{bits} - 1") from None
    if not 0 <= number < 1 << bits:
        raise _core.ConfigError(f"{name}={number} is out of range; give an integer from 0 to 2**{bits} - 1")
    return number


def keeping(array: Any) -> Callable[[], None]:
    """A callback that does nothing and keeps an array alive for the averaging thread, even if
    Ctrl-C ends the wait."""
    return partial(_nothing, array)


def _nothing(array: Any) -> None:
    pass


def compress(
    array: Any, spec: str, *, name: str = "tensor", step: int = 0, seed: int = 0, rank: int = 0
) -> bytes:
    """Compresses an array or CPU tensor of float32, float16 or bfloat16 to a frame.

    A frame contains the message, its compressor, name and shape, and a checksum. Masked arrays and
    other special classes are refused, because a frame cannot hold their meaning. There is no error
    feedback: the part that the message does not carry is lost. ``seed``, ``rank``, ``step`` and
    ``name`` are the key of the random draws of stochastic compressors. The array is copied first,
    so other threads may write to it meanwhile.
    """
    array = _snapshot(array)
    key = whole_number("step", step), whole_number("seed", seed), whole_number("rank", rank, 32)
    return _core.encode(buffer(array), tuple(array.shape), spec, name, *key)


def decompress(data: Union[bytes, bytearray, memoryview], *, to: str = "numpy", max_bytes: Optional[int] = None) -> Any:
    """Decompresses a frame to a numpy array or, with ``to="torch"``, to a tensor.

    The result has the type of the original, except that bfloat16 becomes float32 in numpy, which
    lacks it. Frames that ``gradwire compress`` wrote with a stored array of any type can be read,
    too.

    A short frame can hold a huge tensor of zeros. ``max_bytes`` limits the size of the decoded
    tensor, as float32. The default is 1024 times the length of the frame, and at least 256 MiB. A
    stored array counts with its own bytes.
    """
    if not isinstance(data, bytes):
        if not isinstance(data, (bytearray, memoryview)):
            raise _core.ConfigError(f"the frame is a {type(data).__name__}; pass the bytes that compress returned")
        data = bytes(data)
    frame = _core.Frame(data, 0, None if max_bytes is None else whole_number("max_bytes", max_bytes))
    if frame.end != len(data):
        raise _core.MessageError(f"{len(data) - frame.end} bytes follow the frame; pass a single frame")
    if to not in ("numpy", "torch"):
        raise _core.ConfigError(f"to={to!r} is unknown; use 'numpy' or 'torch'")
    try:
        if frame.stored is not None:
            return restore(frame.stored, frame.dtype, frame.shape, to)
        array = _empty(frame.shape, frame.dtype, to)
    except (MemoryError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise _core.MessageError(f"{to} cannot hold a tensor of shape {tuple(frame.shape)}: {error}") from error
    frame.decode(buffer(array))
    return array


def _empty(shape: Sequence[int], dtype: str, to: str) -> Any:
    if to == "torch":
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype), device="cpu")
    import numpy

    return numpy.empty(shape, "float32" if dtype == "bfloat16" else dtype)
