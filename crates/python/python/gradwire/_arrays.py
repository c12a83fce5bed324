"""Arrays and tensors to frames and back."""

from __future__ import annotations

from typing import Any, Tuple

from . import _core

DTYPES = ("float32", "float16", "bfloat16")


def is_torch(array: Any) -> bool:
    """Whether it is a PyTorch tensor, without importing PyTorch."""
    return type(array).__module__.split(".")[0] == "torch" or hasattr(array, "data_ptr")


def buffer(array: Any, what: str = "the tensor") -> Tuple[int, int, str]:
    """Where an array lies, how many elements it has and of what type, for the Rust side.

    The array must outlive every use of the address.
    """
    if is_torch(array):
        dtype = str(array.dtype).replace("torch.", "")
        if array.device.type != "cpu":
            raise _core.ConfigError(f"{what} is on {array.device}; give a CPU tensor: call .cpu()")
        if array.layout.__str__() != "torch.strided":
            raise _core.ConfigError(f"{what} is {array.layout}; give a dense tensor: call .to_dense()")
        contiguous, address, elements = array.is_contiguous(), array.data_ptr(), array.numel()
    elif hasattr(array, "__array_interface__"):
        dtype = str(array.dtype)
        contiguous = array.flags["C_CONTIGUOUS"]
        address, elements = array.__array_interface__["data"][0], array.size
    else:
        raise _core.ConfigError(f"{what} is a {type(array).__name__}; give a numpy array or a tensor")
    if dtype not in DTYPES:
        raise _core.ConfigError(f"{what} is of type {dtype}; give {', '.join(DTYPES)}: convert it first")
    if not contiguous:
        raise _core.ConfigError(f"{what} is not contiguous; call .contiguous() or numpy.ascontiguousarray")
    return address, elements, dtype


def compress(
    array: Any, spec: str, *, name: str = "tensor", step: int = 0, seed: int = 0, rank: int = 0
) -> bytes:
    """An array or CPU tensor of float32, float16 or bfloat16 as a frame: a message that tells its own
    compressor, name and shape, with a checksum. Nothing is kept of what it leaves out.

    ``seed``, ``rank``, ``step`` and ``name`` choose the random draws of compressors that make some.
    """
    return _core.encode(buffer(array), tuple(array.shape), spec, name, step, seed, rank)


def decompress(data: bytes, *, to: str = "numpy") -> Any:
    """The array in a frame, as ``to`` says a numpy array or a ``"torch"`` tensor, of the original's type
    (numpy has no bfloat16 and gets float32)."""
    frame = _core.Frame(data)
    if frame.end != len(data):
        raise _core.MessageError(f"{len(data) - frame.end} bytes follow the frame; give one frame")
    if to == "torch":
        import torch

        array = torch.empty(frame.shape, dtype=getattr(torch, frame.dtype))
    elif to == "numpy":
        import numpy

        array = numpy.empty(frame.shape, "float32" if frame.dtype == "bfloat16" else frame.dtype)
    else:
        raise _core.ConfigError(f"to={to!r}; give 'numpy' or 'torch'")
    frame.decode(buffer(array))
    return array
