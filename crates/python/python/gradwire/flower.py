"""Compressed federated rounds with Flower.

Clients send the compressed change of the model that they received, with error feedback, and the server the compressed
model. On the client a mod compresses, and the app does not change; on the server a mixin for a strategy does::

    client = ClientApp(mods=[gradwire.flower.CompressionMod("topk:ratio=0.05")])

    class Strategy(gradwire.flower.CompressedStrategy, FedAvg):
        pass
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Optional, Tuple

import numpy
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord
from flwr.clientapp.typing import ClientAppCallable

from . import _core
from ._arrays import compress, decompress
from ._specs import check_quantizer, has_error_feedback, sample_side

__all__ = ["CompressedStrategy", "CompressionMod", "pack", "unpack"]

# The serialization type of an array that is a frame.
_FRAME = "gradwire.frame"
# Where a client keeps its residual and the number of its rounds.
_RESIDUAL, _ROUNDS = "gradwire.residual", "gradwire.rounds"

Named = Dict[str, numpy.ndarray]


class CompressionMod:
    """A client mod that sends the compressed change of the model, and keeps what a message leaves out for the next.

    The app receives and returns whole models as usual. ``key`` is the array record of the model in both messages, and
    ``error_feedback`` says whether a residual is kept, in the state of Flower's node; ``None``: as the compressor does. With
    ``raw_vectors``, arrays of one dimension are sent uncompressed; arrays that are not of floats always are. ``seed`` is that of random
    draws.

    The residual is stored before the reply leaves the client: what a reply carries is lost if it does not arrive.
    """

    def __init__(
        self,
        compressor: str = "topk:ratio=0.05",
        *,
        key: str = "arrays",
        error_feedback: Optional[bool] = None,
        raw_vectors: bool = True,
        seed: int = 0,
    ) -> None:
        # Refuses what no message can be compressed with, such as a schedule, before the first round.
        compress(numpy.zeros(1, "float32"), compressor)
        self._compressor, self._key = compressor, key
        self._error_feedback = has_error_feedback(compressor) if error_feedback is None else error_feedback
        self._raw_vectors, self._seed = raw_vectors, seed

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Decompresses the model in a message, calls the app, and compresses the change in its reply to training."""
        key = self._key
        if key not in message.content:
            return call_next(message, context)
        start = unpack(message.content[key])
        message.content[key] = _record(start)
        reply = call_next(message, context)
        trains = message.metadata.message_type.split(".")[0] == "train"
        if trains and not reply.has_error() and key in reply.content:
            reply.content[key] = self._pack(start, _arrays(reply.content[key]), message, context)
        return reply

    def _pack(self, start: Named, end: Named, message: Message, context: Context) -> ArrayRecord:
        if start.keys() != end.keys():
            raise _core.ConfigError(
                "the app returned arrays of other names than it received; return the same names, or leave out the mod"
            )
        state = context.state
        left = _arrays(state[_RESIDUAL]) if _RESIDUAL in state else {}
        rounds = int(state[_ROUNDS]["rounds"]) if _ROUNDS in state else 0
        # Without a frame in the reply the server would take changes for models.
        if any(map(_adds, end.values())) and not any(map(_is_float, end.values())):
            raise _core.ConfigError(
                "the model has no arrays of float32 or float16, so that nothing can be compressed; convert it, or leave out the mod"
            )
        changes = {name: _change(values, start[name], left.get(name)) for name, values in end.items()}
        key = {"step": rounds, "seed": self._seed, "rank": _rank(message)}
        packed = pack(changes, self._compressor, raw_vectors=self._raw_vectors, **key)
        state[_ROUNDS] = MetricRecord({"rounds": rounds + 1})
        if self._error_feedback:
            sent = unpack(packed, changes)
            floats = {name: change for name, change in changes.items() if name in left or _is_float(change)}
            state[_RESIDUAL] = _record({name: change - sent[name] for name, change in floats.items()})
        return packed


class CompressedStrategy:
    """A mixin for strategies such as Flower's ``FedAvg``: the server sends compressed models and takes compressed changes.

    Not for strategies that read the model before they send it (``FedOpt``, ``FedAdam``, ``FedAdagrad``, ``FedYogi``, ``FedAvgM``,
    ``QFedAvg``), nor inside the wrappers ``DifferentialPrivacy…``, which read the changes.

    Put it before the strategy among the base classes. ``compressor`` is that of the models, a quantizer such as ``fp16``, ``8bit`` or
    ``int8``. Clients start from the model that they decompress, and the server adds the mean of their changes to its exact model, so that
    small changes are not lost.
    """

    compressor = "fp16"
    # The exact model of the round.
    _model: Optional[Named] = None

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: Any, grid: Any) -> Iterable[Message]:
        """Sends the model of a round, compressed."""
        self._model = _arrays(arrays)
        check_quantizer("compressor", self.compressor, _sample(self._model))
        packed = pack(self._model, self.compressor, step=server_round)
        messages: Iterable[Message] = super().configure_train(server_round, packed, config, grid)  # type: ignore[misc]
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Tuple[Any, Any]:
        """Adds the changes of the clients to the exact model, and lets the strategy aggregate."""
        replies, model = list(replies), self._model
        assert model is not None
        for reply in replies:
            if reply.has_error():
                continue
            for key, record in reply.content.array_records.items():
                if any(array.stype == _FRAME for array in record.values()):
                    changes = unpack(record, model)
                    ends = {name: model[name] + change if _adds(change) else change for name, change in changes.items()}
                    reply.content[key] = _record(ends)
        result: Tuple[Any, Any] = super().aggregate_train(server_round, replies)  # type: ignore[misc]
        return result


def pack(arrays: Named, compressor: str, *, raw_vectors: bool = True, **key: int) -> ArrayRecord:
    """An array record with the frames of named arrays; ``key`` is that of ``gradwire.compress``."""

    def packed(name: str, values: numpy.ndarray) -> Array:
        if values.dtype not in (numpy.float32, numpy.float16):
            # The difference of two scalars is not an array.
            return Array(numpy.asarray(values))
        spec = "none" if raw_vectors and values.ndim < 2 else compressor
        frame = compress(numpy.require(values, requirements="C"), spec, name=name, **key)
        return Array(str(values.dtype), tuple(values.shape), _FRAME, frame)

    return ArrayRecord({name: packed(name, values) for name, values in arrays.items()})


def unpack(record: ArrayRecord, like: Optional[Named] = None) -> Named:
    """The arrays of a record, of which some may be frames.

    A short frame can hold a huge array of zeros. Frames of arrays that are in ``like`` may decode to the size that they have there;
    others, to that of ``gradwire.decompress``.
    """

    def of(name: str, array: Array) -> numpy.ndarray:
        if array.stype != _FRAME:
            values: numpy.ndarray = array.numpy()
            return values
        most = None if like is None or name not in like else max(4 * like[name].size, 1)
        return decompress(array.data, max_bytes=most)

    return {name: of(name, array) for name, array in record.items()}


def _arrays(record: ArrayRecord) -> Named:
    return {name: array.numpy() for name, array in record.items()}


def _record(arrays: Named) -> ArrayRecord:
    return ArrayRecord({name: Array(numpy.require(values, requirements="C")) for name, values in arrays.items()})


def _sample(model: Named) -> numpy.ndarray:
    """Normally distributed values, about as many as the largest array of a model has."""
    side = sample_side(max((values.size for values in model.values()), default=0))
    return numpy.random.default_rng(0).standard_normal((side, side), "float32")


def _adds(values: numpy.ndarray) -> bool:
    """Whether changes of such values can be added; booleans are sent as they are."""
    return values.dtype != numpy.bool_


def _is_float(values: numpy.ndarray) -> bool:
    return values.dtype in (numpy.float32, numpy.float16)


def _change(end: numpy.ndarray, start: numpy.ndarray, left: Optional[numpy.ndarray]) -> numpy.ndarray:
    """What a client sends of an array: the change in training, and what earlier messages left out."""
    if not _adds(end):
        return end
    return end - start if left is None else end - start + left


def _rank(message: Message) -> int:
    """A number for a node, for random draws that differ between nodes."""
    return int(message.metadata.dst_node_id) % (1 << 32)
