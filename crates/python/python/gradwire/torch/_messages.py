"""Cuts the tensors of a model into parts that share a message."""

from __future__ import annotations

from typing import Iterable, Iterator

# The most elements of the tensors that share a message, unless one tensor has more. A message has
# at most 4 GiB: four bytes an element uncompressed, and some compressors send more for single
# elements.
MOST_ELEMENTS = 1 << 28


def shared(sizes: Iterable[int]) -> Iterator[slice]:
    """Cuts a sequence of tensors with these numbers of elements into parts that share a message, as
    slices of the sequence."""
    start = end = elements = 0
    for size in sizes:
        if end > start and elements + size > MOST_ELEMENTS:
            yield slice(start, end)
            start, elements = end, 0
        end += 1
        elements += size
    yield slice(start, end)
