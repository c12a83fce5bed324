"""Reads and writes safetensors files as bit patterns, and rounds float32 to bfloat16 and float8.

A tensor is a pair: the type as safetensors names it ("BF16", "F32", "F8_E4M3"), and a numpy array
of unsigned integers with the tensor's shape, which holds the bits of its elements.
"""

import json
import os
from pathlib import Path

import numpy

BITS = {"F32": numpy.uint32, "BF16": numpy.uint16, "F16": numpy.uint16, "F8_E4M3": numpy.uint8}


def folder():
    """The folder of all pairs: GRADWIRE_DELTA_DATA, or gradwire/delta in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("GRADWIRE_DELTA_DATA") or Path(cache) / "gradwire" / "delta")


def write(path, tensors):
    """Writes a dict of name: (type, bits) through a temporary file, so that no file is half
    written."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    header, start = {}, 0
    for name in sorted(tensors):
        kind, bits = tensors[name]
        header[name] = {"dtype": kind, "shape": list(bits.shape), "data_offsets": [start, start + bits.nbytes]}
        start += bits.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in sorted(tensors):
            file.write(numpy.ascontiguousarray(tensors[name][1]).data)
    part.rename(path)


def read(path):
    """The tensors of a file, which is mapped into memory; float32 files come as F32."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    data = numpy.memmap(path, "uint8", "r", 8 + length)
    header.pop("__metadata__", None)
    return {
        name: (at["dtype"], data[slice(*at["data_offsets"])].view(BITS[at["dtype"]]).reshape(at["shape"]))
        for name, at in header.items()
        if at["dtype"] in BITS
    }


def bfloat16(values):
    """The bits of float32 values rounded to bfloat16, ties to even. The values must be finite."""
    bits = numpy.ascontiguousarray(values, numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


def from_bfloat16(bits):
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


def float8(values):
    """The bits of float32 values rounded to float8 e4m3fn, ties to even, saturated at ±448."""
    steps = numpy.arange(127)
    exponents, mantissas = steps >> 3, steps & 7
    grid = numpy.where(exponents == 0, mantissas / 512, (8 + mantissas) / 8 * 2.0 ** (exponents - 7))
    middles = (grid[1:] + grid[:-1]) / 2
    sizes = numpy.abs(values)
    # A tie belongs to the even one of its two neighbours: the upper one if its number is even.
    below, above = numpy.searchsorted(middles, sizes, "left"), numpy.searchsorted(middles, sizes, "right")
    codes = numpy.where(above % 2 == 0, above, below).astype(numpy.uint8)
    return codes | (numpy.signbit(values).astype(numpy.uint8) << 7)
