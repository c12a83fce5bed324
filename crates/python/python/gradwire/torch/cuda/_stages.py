"""How the tensors of a model are sent at each step, in messages that stay on the device."""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Set, Tuple

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
        self._reducer, self._shapes, self._device, self._peers, self._narrow = reducer, shapes, device, peers, narrow
        names = dict.fromkeys(reducer.exchange_at(first) for first, _ in reducer.stages)
        self._exchanges = {name: self._exchange(name) for name in names}
        # The arrays of all exchanges.
        self.kept = [kept for exchange in self._exchanges.values() for kept in exchange.kept]
        self._all = [self._stage(first, self._exchanges[reducer.exchange_at(first)]) for first, _ in reducer.stages]

    def at(self, step: int) -> Stage:
        """The stage of a step."""
        return next(stage for stage in reversed(self._all) if stage.first <= step)

    def add(self, name: str, place: int, skips: bool) -> None:
        """Adds a tensor, which ``shapes`` has now and which is at this place among the reducer's.
        The streams must not use the kept arrays meanwhile; see ``Kept.add``."""
        for exchange in self._exchanges.values():
            for kept, slices in zip(exchange.kept, self._cut(exchange, name)):
                users = users_of(self._reducer, {one.name: place for one in slices}, exchange.name, plain=kept is not exchange.kept[0])
                kept.add([(one.name, one.shape) for one in slices], users, skips)
        for stage in self._all:
            specs, sent = self._specs(stage.first)
            stage.specs[name] = sent[place]
            if sent[place] != specs[place]:
                stage.keep_scale.add(name)

    def forget(self, name: str) -> None:
        """Forgets a tensor, and what is kept for it; as ``add``."""
        for exchange in self._exchanges.values():
            for kept, slices in zip(exchange.kept, self._cut(exchange, name)):
                for one in slices:
                    kept.forget(one.name)
            exchange.slices.pop(name, None)
        for stage in self._all:
            del stage.specs[name]
            stage.keep_scale.discard(name)

    def _cut(self, exchange: _Exchange, name: str) -> List[List[Slice]]:
        """The slices of a tensor in the arrays of gradients, and in those of means."""
        shape = self._shapes[name]
        if exchange.name in ("all-gather", "all-reduce"):
            return [[Slice(name, shape, 0, 0)]]
        cut_one = cut_tensor if exchange.name == "scatter-reduce" else cut_rows
        slices = exchange.slices[name] = cut_one(name, shape, self._peers.size)
        return [slices, [one for one in slices if one.owner == self._peers.rank]]

    def _specs(self, first: int) -> Tuple[List[str], List[str]]:
        """The compressor of each tensor, and of its messages."""
        specs = self._reducer.specs(first)
        # Means of 16-bit gradients are rounded to 16 bits in the bucket anyway.
        return specs, self._reducer.message_specs(first) if self._narrow else specs

    def _stage(self, first: int, exchange: _Exchange) -> Stage:
        specs, sent = self._specs(first)
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
