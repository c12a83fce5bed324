"""Tensors that files store as they are."""

from __future__ import annotations

from typing import Any, Sequence

from . import _core

# The element types of frames by their PyTorch names. NumPy has the same names, but no small floats.
_NAMES = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f64": "float64",
    "c64": "complex64",
    "bool": "bool",
    "u8": "uint8",
    "i8": "int8",
    "u16": "uint16",
    "i16": "int16",
    "u32": "uint32",
    "i32": "int32",
    "u64": "uint64",
    "i64": "int64",
    "f8_e4m3": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
    "f8_e8m0": "float8_e8m0fnu",
    "f8_e4m3fnuz": "float8_e4m3fnuz",
    "f8_e5m2fnuz": "float8_e5m2fnuz",
}


def restore(data: bytes, element: str, shape: Sequence[int], to: str) -> Any:
    """The stored tensor as a numpy array or a PyTorch tensor. In numpy, bfloat16 becomes float32.

    Raises ``ConfigError`` for element types that numpy, or this PyTorch, does not have.
    """
    name = _NAMES.get(element, "")
    if to == "torch":
        import torch

        dtype = getattr(torch, name, None)
        if dtype is None:
            raise _missing(element, "this PyTorch")
        # frombuffer refuses an empty buffer.
        return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)
    import numpy

    if name == "bfloat16":
        wide = numpy.frombuffer(data, "<u2").astype("<u4") << 16
        return wide.view("<f4").reshape(shape)
    if not name or name.startswith("float8"):
        raise _missing(element, "numpy")
    return numpy.frombuffer(bytearray(data), name).reshape(shape)


def _missing(element: str, library: str) -> Exception:
    return _core.ConfigError(
        f"the tensor has elements of type {element}, which {library} lacks; write it to a .safetensors file with the command gradwire "
        "decompress"
    )
