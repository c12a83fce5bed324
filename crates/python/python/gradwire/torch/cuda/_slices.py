"""Slices of tensors that ranks own, with the names and borders of the host's exchanges.

Names decide random draws and the keys of saved states, so they must be the host's; see
``gradwire_exchange::collectives::slices``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import List, Tuple

from ._philox import fnv1a

# The fewest elements of a slice.
SLICE = 4096

Shape = Tuple[int, ...]

# The name of a part of a tensor, whose first element is the second group. No parameter of PyTorch
# has such a name, because names of modules are neither empty nor have dots.
_PART = re.compile(r"(.*)\[(\d+)\.\.\d+\]")


@dataclass(frozen=True)
class Slice:
    """A tensor, or a part of its elements, and the rank that averages it."""

    name: str
    shape: Shape
    # The index of its first element in the tensor.
    start: int
    owner: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


def cut_tensor(name: str, shape: Shape, ranks: int) -> List[Slice]:
    """The slices of a tensor, one for each rank, of equal length up to one element. A small tensor
    stays whole, and its name determines its owner."""
    elements = prod(shape)
    if elements < ranks * SLICE:
        return [Slice(name, shape, 0, fnv1a(name.encode()) % ranks)]
    borders = [elements * rank // ranks for rank in range(ranks + 1)]
    # As many dimensions as the tensor has.
    rest = (1,) * (len(shape) - 1)
    cut = [(start, end, owner) for owner, (start, end) in enumerate(zip(borders, borders[1:]))]
    return [slice_of(name, shape, start, (end - start, *rest), owner) for start, end, owner in cut]


def cut_rows(name: str, shape: Shape, ranks: int) -> List[Slice]:
    """The slices of a tensor whose rows FSDP2 shards: a chunk of whole rows for each rank, as
    ``torch.chunk`` cuts them. The last chunks have fewer rows, or none, and then there is no
    slice."""
    chunk, row = chunk_of(shape, ranks)
    borders = [min(rank * chunk, _rows(shape)) for rank in range(ranks + 1)]
    cut = [(start, end, owner) for owner, (start, end) in enumerate(zip(borders, borders[1:])) if (end - start) * row > 0]
    return [slice_of(name, shape, start * row, (end - start, *shape[1:]), owner) for start, end, owner in cut]


def chunk_of(shape: Shape, ranks: int) -> Tuple[int, int]:
    """The number of rows of the longest chunk of ``cut_rows``, and the number of elements of a
    row."""
    return -(-_rows(shape) // ranks), prod(shape[1:])


def _rows(shape: Shape) -> int:
    return shape[0] if shape else 1


def slice_of(name: str, whole: Shape, start: int, shape: Shape, owner: int) -> Slice:
    """The slice of a tensor of shape ``whole`` that has its own ``shape`` and begins at element
    ``start``. The name of a slice of a part has its place in the whole tensor."""
    elements = prod(shape)
    if elements == prod(whole):
        return Slice(name, whole, 0, owner)
    part = _PART.fullmatch(name)
    of, first = (name, start) if part is None else (part[1], int(part[2]) + start)
    return Slice(f"{of}[{first}..{first + elements}]", shape, start, owner)
