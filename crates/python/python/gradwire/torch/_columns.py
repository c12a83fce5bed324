"""Cuts a model into the slices that the ranks of a node own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Sequence, Set, Tuple

import torch

from ._options import Options, Parts, low_rank
from ._tensors import Named, shape_of

# The fewest elements of a slice. A tensor with fewer for each rank stays whole.
SLICE = 4096


@dataclass(frozen=True)
class Slice:
    """A part of a parameter, or a whole one, that one rank of each node averages with the other
    nodes."""

    # The parameter's name, or for a part of it ``name[start..stop]``.
    name: str
    shape: Tuple[int, ...]
    # The place of its first element in the parameter, and the number of elements.
    start: int
    elements: int
    # The local rank of its owner.
    owner: int


# The slices of each parameter, in the order of its elements.
Cut = Dict[str, List[Slice]]


@dataclass(frozen=True)
class Model:
    """The parameters of a model, and how nodes exchange them."""

    shapes: Dict[str, Tuple[int, ...]]
    # The parameters that need a low-rank compressor at some step.
    whole: Set[str]
    exchange: str
    spec: str
    votes: bool
    stages: List[Tuple[int, int]]

    def cut(self, ranks: int) -> Cut:
        """Cuts each parameter for the ranks of a node, whatever its bucket.

        Large parameters are cut into equal runs of elements. Small ones, and those of low-rank
        methods, have one owner; the largest are given first, each to the rank with the fewest
        elements.
        """
        cut: Cut = {}
        owned = [0] * ranks
        for name, shape in sorted(self.shapes.items(), key=lambda one: (-_elements(one[1]), one[0])):
            elements = _elements(shape)
            if name in self.whole or elements < ranks * SLICE:
                owner = owned.index(min(owned))
                owned[owner] += elements
                cut[name] = [Slice(name, shape, 0, elements, owner)]
            else:
                cut[name] = list(_runs(name, shape, ranks))
        return {name: cut[name] for name in self.shapes}


def model_of(named: Iterable[Named], options: Options, nodes: int) -> Model:
    """The parameters of a model that ``nodes`` nodes exchange with these options."""
    shapes = {name: shape_of(parameter) for name, parameter in named}
    alone = options.reducer_alone([(name, torch.empty(shape, dtype=torch.float32, device="meta")) for name, shape in shapes.items()], nodes)
    try:
        stages: List[Tuple[int, int]] = alone.stages
        by_stage = [alone.specs(first) for first, _ in stages]
        exchanges = {alone.exchange_at(first) for first, _ in stages}
        spec, votes = alone.spec, alone.votes
    finally:
        alone.close()
    specs = {name: list(of_stages) for name, of_stages in zip(shapes, zip(*by_stage))}
    whole = {name for name, of_stages in specs.items() if any(one.partition(":")[0] in low_rank() for one in of_stages)}
    # Several stages may have several exchanges, which the reducers of columns choose, too.
    exchange = exchanges.pop() if len(exchanges) == 1 else options.exchange
    return Model(shapes, whole, exchange, spec, votes, stages)


def parts_of(cut: Cut, local_rank: int, ranks: int) -> Parts:
    """The parts of parameters that one of the ranks of a node owns."""
    parts: List[Tuple[int, Tuple[int, ...]]] = []
    for slices in cut.values():
        own = next((one for one in slices if one.owner == local_rank), None)
        nothing = (0, *(1,) * (len(slices[0].shape) - 1))
        parts.append((0, nothing) if own is None else (own.start, own.shape))
    return Parts(local_rank, ranks, parts)


def _elements(shape: Sequence[int]) -> int:
    elements = 1
    for size in shape:
        elements *= size
    return elements


def _runs(name: str, shape: Tuple[int, ...], ranks: int) -> Iterable[Slice]:
    elements = _elements(shape)
    for owner in range(ranks):
        start, stop = (elements * border // ranks for border in (owner, owner + 1))
        # As many dimensions as the parameter: some compressors use them to tell the kind of the
        # layer.
        ones: Any = (1,) * (len(shape) - 1)
        yield Slice(f"{name}[{start}..{stop}]", (stop - start, *ones), start, stop - start, owner)
