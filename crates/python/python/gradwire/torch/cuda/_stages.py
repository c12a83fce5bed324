"""How the tensors of a model are sent at each step, in messages that stay on the device."""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Set

import torch

from ... import _core
from ._collectives import Peers
from ._kept import Kept, users_of
from ._slices import Shape, Slice, cut_rows, cut_tensor


class _Exchange(NamedTuple):
    """An exchange, with its slices of each tensor, or none if messages carry whole tensors, and the
    arrays that it keeps from step to step: of gradients and, if owners compress means, of means."""

    name: str
    slices: Dict[str, List[Slice]]
    kept: List[Kept]


class Stage(NamedTuple):
    """How the tensors of a model are sent from the step ``first`` on."""

    first: int
    exchange: _Exchange
    # The compressor of each tensor's messages.
    specs: Dict[str, str]
    # The tensors whose messages are gradients of 16 bits as they are, with the factor of a scaler.
    keep_scale: Set[str]


class Stages:
    """The stages of a reducer's schedule. ``shapes`` are those of the tensors, by name, and
    ``narrow`` is whether the values of a 16-bit tensor have its type."""

    def __init__(self, reducer: _core.Reducer, shapes: Mapping[str, Shape], device: torch.device, peers: Peers, narrow: bool) -> None:
        self._reducer, self._shapes, self._device, self._peers = reducer, dict(shapes), device, peers
        names = dict.fromkeys(reducer.exchange_at(first) for first, _ in reducer.stages)
        exchanges = {name: self._exchange(name) for name in names}
        # The arrays of all exchanges.
        self.kept = [kept for exchange in exchanges.values() for kept in exchange.kept]
        self._all = [self._stage(first, exchanges[reducer.exchange_at(first)], narrow) for first, _ in reducer.stages]

    def at(self, step: int) -> Stage:
        """The stage of a step."""
        return next(stage for stage in reversed(self._all) if stage.first <= step)

    def _stage(self, first: int, exchange: _Exchange, narrow: bool) -> Stage:
        specs = self._reducer.specs(first)
        # Means of 16-bit gradients are rounded to 16 bits in the bucket anyway.
        sent = self._reducer.message_specs(first) if narrow else specs
        keep_scale = {name for name, spec, of in zip(self._shapes, specs, sent) if of != spec}
        return Stage(first, exchange, dict(zip(self._shapes, sent)), keep_scale)

    def _exchange(self, exchange: str) -> _Exchange:
        reducer, device, shapes, peers = self._reducer, self._device, self._shapes, self._peers
        if exchange in ("all-gather", "all-reduce"):
            used = users_of(reducer, {name: place for place, name in enumerate(shapes)}, exchange)
            return _Exchange(exchange, {}, [Kept(reducer, list(shapes.items()), device, used)])
        cut_one = cut_tensor if exchange == "scatter-reduce" else cut_rows
        slices = {name: cut_one(name, shape, peers.size) for name, shape in shapes.items()}
        cut = [(one, place) for place, of_tensor in enumerate(slices.values()) for one in of_tensor]
        own = [(one, place) for one, place in cut if one.owner == peers.rank]
        kept = []
        for of in (cut, own) if exchange == "scatter-reduce" else (cut,):
            used = users_of(reducer, {one.name: place for one, place in of}, exchange, plain=of is own)
            kept.append(Kept(reducer, [(one.name, one.shape) for one, _ in of], device, used, averages=of is own))
        return _Exchange(exchange, slices, kept)
