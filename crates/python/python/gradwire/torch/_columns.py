"""Cuts a model into the slices that the ranks of a node own, and chooses the compressors of the
slices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Dict, Iterable, List, Sequence, Set, Tuple, TypeVar

import torch

from ._options import Options, low_rank
from ._tensors import Named, shape_of

AnyOptions = TypeVar("AnyOptions", bound=Options)

# The fewest elements of a slice. A tensor with fewer for each rank stays whole.
SLICE = 4096


@dataclass(frozen=True)
class Slice:
    """A part of a parameter, or a whole one, that one rank of each node averages with the other
    nodes."""

    # The parameter's name, or for a part of it ``name[start..stop]``.
    name: str
    shape: Tuple[int, ...]
    elements: int
    # The local rank of its owner.
    owner: int


# The slices of each parameter, in the order of its elements.
Cut = Dict[str, List[Slice]]


@dataclass(frozen=True)
class Model:
    """The parameters of a model, with the compressors of all steps."""

    shapes: Dict[str, Tuple[int, ...]]
    # By name, the compressor of a parameter that does not follow the schedule.
    fixed: Dict[str, str]
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
                cut[name] = [Slice(name, shape, elements, owner)]
            else:
                cut[name] = list(_runs(name, shape, ranks))
        return {name: cut[name] for name in self.shapes}

    def options_of(self, options: AnyOptions, slices: Sequence[Tuple[str, Slice]]) -> AnyOptions:
        """The options of the reducer of some slices, each with the name of its parameter, whose
        compressor it has."""
        rules = [f"{one.name} -> {self.fixed[name]}" for name, one in slices if name in self.fixed]
        return replace(options, rules=rules, exchange=self.exchange, raw_vectors=False, raw_below=0, raw_names=())


def model_of(named: Iterable[Named], options: Options, nodes: int) -> Model:
    """The parameters of a model that ``nodes`` nodes exchange with these options."""
    shapes = {name: shape_of(parameter) for name, parameter in named}
    alone = options.reducer_alone([(name, torch.empty(shape, device="meta")) for name, shape in shapes.items()], nodes)
    try:
        stages: List[Tuple[int, int]] = alone.stages
        by_stage = [alone.specs(first) for first, _ in stages]
        exchanges = {alone.exchange_at(first) for first, _ in stages}
        spec, votes = alone.spec, alone.votes
    finally:
        alone.close()
    specs = {name: list(of_stages) for name, of_stages in zip(shapes, zip(*by_stage))}
    # Rules have no stages.
    follows = lambda of_stages: len(set(of_stages)) > 1 if len(stages) > 1 else of_stages[0] == spec
    fixed = {name: of_stages[0] for name, of_stages in specs.items() if not follows(of_stages)}
    whole = {name for name, of_stages in specs.items() if any(one.partition(":")[0] in low_rank() for one in of_stages)}
    # Several stages may have several exchanges, which the reducers of columns choose, too.
    exchange = exchanges.pop() if len(exchanges) == 1 else options.exchange
    return Model(shapes, fixed, whole, exchange, spec, votes, stages)


def slices_of(cut: Cut, local_rank: int) -> List[Tuple[str, Slice]]:
    """The slices that a rank of a node owns, each with the name of its parameter."""
    return [(name, one) for name, slices in cut.items() for one in slices if one.owner == local_rank]


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
        yield Slice(f"{name}[{start}..{stop}]", (stop - start, *ones), stop - start, owner)
