"""Conversion of arrays and tensors to frames and back."""

from __future__ import annotations

from typing import Any, Tuple

from . import _core

DTYPES = ("float32", "float16", "bfloat16")


def is_torch(array: Any) -> bool:
    """Whether ``array`` is a PyTorch tensor, without importing PyTorch."""
    return type(array).__module__.split(".")[0] == "torch" or hasattr(array, "data_ptr")


def buffer(array: Any, what: str = "the tensor") -> Tuple[int, int, str]:
    """The address, number of elements and element type of an array, for the Rust side.

    The array must outlive every use of the address. Raises ``ConfigError`` for arrays that are not dense, contiguous
    floats in main memory.
    """
    if is_torch(array):
        dtype = str(array.dtype).replace("torch.", "")
        if array.device.type != "cpu":
            raise _core.ConfigError(f"{what} is on {array.device}; call .cpu() first")
        if array.layout.__str__() != "torch.strided":
            raise _core.ConfigError(f"{what} is {array.layout}, not dense; call .to_dense() first")
        contiguous, address, elements = array.is_contiguous(), array.data_ptr(), array.numel()
    elif hasattr(array, "__array_interface__"):
        dtype = str(array.dtype)
        contiguous = array.flags["C_CONTIGUOUS"]
        address, elements = array.__array_interface__["data"][0], array.size
    else:
        raise _core.ConfigError(f"{what} is a {type(array).__name__}; pass a numpy array or a PyTorch tensor")
    if dtype not in DTYPES:
        raise _core.ConfigError(f"{what} has type {dtype}; convert it to {', '.join(DTYPES[:-1])} or {DTYPES[-1]}")
    if not contiguous:
        raise _core.ConfigError(f"{what} is not contiguous; call .contiguous() or numpy.ascontiguousarray")
    return address, elements, dtype


def compress(
    array: Any, spec: str, *, name: str = "tensor", step: int = 0, seed: int = 0, rank: int = 0
) -> bytes:
    """Compresses an array or CPU tensor of float32, float16 or bfloat16 to a frame.

    A frame contains the message, its compressor, name and shape, and a checksum. There is no error feedback: what the
    message leaves out is lost. ``seed``, ``rank``, ``step`` and ``name`` are the key of the random draws of stochastic
    compressors.
    """
    return _core.encode(buffer(array), tuple(array.shape), spec, name, step, seed, rank)


def decompress(data: bytes, *, to: str = "numpy") -> Any:
    """Decompresses a frame to a numpy array or, with ``to="torch"``, to a tensor.

    The result has the type of the original. numpy has no bfloat16, which becomes float32.
    """
    frame = _core.Frame(data)
    if frame.end != len(data):
        raise _core.MessageError(f"{len(data) - frame.end} bytes follow the frame; pass a single frame")
    if to == "torch":
        import torch

        array = torch.empty(frame.shape, dtype=getattr(torch, frame.dtype))
    elif to == "numpy":
        import numpy

        array = numpy.empty(frame.shape, "float32" if frame.dtype == "bfloat16" else frame.dtype)
    else:
        raise _core.ConfigError(f"to={to!r} is unknown; use 'numpy' or 'torch'")
    frame.decode(buffer(array))
    return array
