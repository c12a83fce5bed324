"""Compressed federated rounds with Flower.

Clients send the compressed change of the model that they received, with error feedback. The server
sends the compressed model. On the client a mod compresses, and the app does not change. On the
server a mixin for a strategy compresses::

    client = ClientApp(mods=[gradwire.flower.CompressionMod("topk:ratio=0.05")])

    class Strategy(gradwire.flower.CompressedStrategy, FedAvg):
        pass

A client may return a part of the model, such as adapters, or all but its batch norm. numpy has no
bfloat16: such arrays travel as float32. For a model that contains them, make the record with
``from_torch_state_dict``.
"""

from __future__ import annotations

from typing import Any, Collection, Dict, Iterable, List, Mapping, Optional, Tuple

import numpy
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord
from flwr.clientapp.typing import ClientAppCallable

from . import _core
from ._arrays import compress, decompress
from ._specs import check_quantizer, has_error_feedback, sample_side

__all__ = ["CompressedStrategy", "CompressionMod", "from_torch_state_dict", "pack", "unpack"]

# The serialization types of frames, and of Flower's own arrays.
_FRAME, _NUMPY = "gradwire.frame", "numpy.ndarray"
# numpy knows only the bytes of arrays of this type.
_BFLOAT16 = "bfloat16"
# Where a client keeps its residual and the number of its rounds.
_RESIDUAL, _ROUNDS = "gradwire.residual", "gradwire.rounds"

Named = Dict[str, numpy.ndarray]


class CompressionMod:
    """A client mod that sends the compressed change of the model. It keeps the part that a message
    does not carry for the next one.

    The app receives the model and returns it, or a part of it, as usual. ``key`` names the array
    record of the model in both messages. ``error_feedback`` says whether to keep a residual in the
    state of Flower's node; ``None`` follows the compressor. With ``raw_vectors``, arrays of one
    dimension are sent uncompressed. Arrays of other types than floats always are. ``seed`` is the
    seed of random draws.

    The residual is stored before the reply leaves the client. If the reply does not arrive, its
    content is lost.
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
        # Before the first round, refuses specs that cannot compress a message, such as a schedule.
        compress(numpy.zeros(1, "float32"), compressor)
        self._compressor, self._key = compressor, key
        self._error_feedback = has_error_feedback(compressor) if error_feedback is None else error_feedback
        self._raw_vectors, self._seed = raw_vectors, seed

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Decompresses the model in a message, calls the app, and compresses the change in its
        reply to training."""
        key = self._key
        if key not in message.content:
            return call_next(message, context)
        start = unpack(message.content[key])
        message.content[key] = _record(start)
        reply = call_next(message, context)
        trains = message.metadata.message_type.split(".")[0] == "train"
        if trains and not reply.has_error() and key in reply.content:
            reply.content[key] = self._pack(start, reply.content[key], message, context)
        return reply

    def _pack(self, start: Named, record: ArrayRecord, message: Message, context: Context) -> ArrayRecord:
        end = _arrays(record)
        _check_returned(start, end)
        # A bfloat16 model started from rounded numbers.
        start = {name: _rounded(start[name]) if record[name].dtype == _BFLOAT16 else start[name] for name in end}
        state = context.state
        left = _arrays(state[_RESIDUAL]) if _RESIDUAL in state else {}
        # An array with another shape belongs to another model.
        left = {name: values for name, values in left.items() if name not in end or values.shape == end[name].shape}
        rounds = int(state[_ROUNDS]["rounds"]) if _ROUNDS in state else 0
        # Without a frame in the reply, the server would mistake changes for models.
        if any(map(_adds, end.values())) and not any(map(_is_float, end.values())):
            raise _core.ConfigError(
                "the app returned no array of type float32, float16 or bfloat16, so there is nothing to compress; convert the arrays, or "
                "remove the mod"
            )
        changes = {name: _change(values, start[name], left.get(name)) for name, values in end.items()}
        key = {"step": rounds, "seed": self._seed, "rank": _rank(message)}
        packed = pack(changes, self._compressor, raw_vectors=self._raw_vectors, **key)
        state[_ROUNDS] = MetricRecord({"rounds": rounds + 1})
        if self._error_feedback:
            sent = unpack(packed, changes)
            floats = {name: change for name, change in changes.items() if name in left or _is_float(change)}
            # The residuals of arrays that were not returned wait for a round that returns them.
            state[_RESIDUAL] = _record({**left, **{name: change - sent[name] for name, change in floats.items()}})
        return packed


def _check_returned(start: Named, end: Named) -> None:
    """Refuses arrays that the server did not send, or sent in another shape."""
    unknown = _quoted(end.keys() - start.keys())
    if unknown:
        raise _core.ConfigError(
            f"the app returned {unknown}, which the server did not send; return only arrays that the server sent, or let the server send these, too"
        )
    for name, values in end.items():
        if values.shape != start[name].shape:
            raise _core.ConfigError(
                f"the app returned '{name}' in the shape {values.shape}, and received it in the shape {start[name].shape}; return arrays "
                "in the shapes in which the app receives them"
            )


class CompressedStrategy:
    """A mixin for strategies such as Flower's ``FedAvg``: the server sends compressed models and
    takes compressed changes.

    Does not suit strategies that read the model before they send it (``FedOpt``, ``FedAdam``,
    ``FedAdagrad``, ``FedYogi``, ``FedAvgM``, ``QFedAvg``). Nor does it suit the wrappers
    ``DifferentialPrivacy…``, which read the changes.

    Put it before the strategy among the base classes. ``compressor`` compresses the models: a
    quantizer such as ``fp16``, ``8bit`` or ``int8``. Clients start from the decompressed model. The
    server adds the mean of their changes to its exact model, so small changes are not lost. The
    mean is over all clients: an array that a client did not return has not changed there. As with
    Flower's strategies, the model of the next round has the arrays that any client returned.
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
        records = _compressed(replies)
        changes = [unpack(record, model) for _, _, record in records]
        returned = [name for name in model if any(name in one for one in changes)]
        for (reply, key, _), one in zip(records, changes):
            unknown = _quoted(one.keys() - model.keys())
            if unknown:
                raise _core.ConfigError(
                    f"node {reply.metadata.src_node_id} returned {unknown}, which the server did not send; return only arrays that the server sent"
                )
            reply.content[key] = _record({name: _changed(model[name], one.get(name)) for name in returned})
        result: Tuple[Any, Any] = super().aggregate_train(server_round, replies)  # type: ignore[misc]
        return result


def _compressed(replies: Iterable[Message]) -> List[Tuple[Message, str, ArrayRecord]]:
    """The replies whose records contain frames, with the keys of these records. All arrays of such
    a record are changes."""
    completed = [reply for reply in replies if not reply.has_error()]
    records = [(reply, key, record) for reply in completed for key, record in reply.content.array_records.items()]
    return [one for one in records if any(array.stype == _FRAME for array in one[2].values())]


def from_torch_state_dict(state_dict: Mapping[str, Any]) -> ArrayRecord:
    """An array record of a state dict, like ``ArrayRecord(state_dict)``. Also accepts bfloat16
    tensors, which Flower refuses.

    The record holds the bits of these tensors. The app receives them as float32, which
    ``load_state_dict`` converts.
    """

    def of(tensor: Any) -> Array:
        if str(tensor.dtype) != "torch.bfloat16":
            return Array(tensor)
        import torch

        held = Array(tensor.detach().cpu().contiguous().view(torch.int16).numpy().view("V2"))
        return Array(_BFLOAT16, held.shape, held.stype, held.data)

    return ArrayRecord({name: of(tensor) for name, tensor in state_dict.items()})


def pack(arrays: Named, compressor: str, *, raw_vectors: bool = True, **key: int) -> ArrayRecord:
    """An array record with the frames of named arrays; ``key`` is passed to
    ``gradwire.compress``."""

    def packed(name: str, values: numpy.ndarray) -> Array:
        if values.dtype not in (numpy.float32, numpy.float16):
            # The difference of two scalars is not an array.
            return Array(numpy.asarray(values))
        spec = "none" if raw_vectors and values.ndim < 2 else compressor
        frame = compress(numpy.require(values, requirements="C"), spec, name=name, **key)
        return Array(str(values.dtype), tuple(values.shape), _FRAME, frame)

    return ArrayRecord({name: packed(name, values) for name, values in arrays.items()})


def unpack(record: ArrayRecord, like: Optional[Named] = None) -> Named:
    """The arrays of a record, some of which may be frames.

    A short frame can hold a huge array of zeros. A frame may decode to the size of its array in
    ``like``. Frames of other arrays have the limit of ``gradwire.decompress``.
    """

    def of(name: str, array: Array) -> numpy.ndarray:
        if array.stype != _FRAME:
            return _numbers(name, array)
        most = None if like is None or name not in like else max(4 * like[name].size, 1)
        return decompress(array.data, max_bytes=most)

    return {name: of(name, array) for name, array in record.items()}


def _arrays(record: ArrayRecord) -> Named:
    return {name: _numbers(name, array) for name, array in record.items()}


def _numbers(name: str, array: Array) -> numpy.ndarray:
    """The values of an array that is not a frame. numpy loads bfloat16 as pairs of bytes, which
    become float32."""
    if array.stype != _NUMPY:
        raise _core.ConfigError(
            f"the array '{name}' is serialized as '{array.stype}', which gradwire cannot read; create it from a NumPy array, or for "
            "bfloat16 with gradwire.flower.from_torch_state_dict"
        )
    values: numpy.ndarray = array.numpy()
    if array.dtype == _BFLOAT16:
        return numpy.asarray(values.view("uint16").astype("uint32") << 16).view("float32")
    return values


def _rounded(values: numpy.ndarray) -> numpy.ndarray:
    """float32 rounded to the nearest bfloat16, ties to even."""
    bits = numpy.asarray(values, "float32").view("uint32")
    return numpy.asarray((bits + (0x7FFF + ((bits >> 16) & 1))) & 0xFFFF0000).astype("uint32").view("float32")


def _quoted(names: Collection[str]) -> str:
    """Names for a message, at most three."""
    shown = ", ".join(f"'{name}'" for name in sorted(names)[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _record(arrays: Named) -> ArrayRecord:
    return ArrayRecord({name: Array(numpy.require(values, requirements="C")) for name, values in arrays.items()})


def _sample(model: Named) -> numpy.ndarray:
    """Normally distributed values, about as many as the largest array of a model has."""
    side = sample_side(max((values.size for values in model.values()), default=0))
    return numpy.random.default_rng(0).standard_normal((side, side), "float32")


def _adds(values: numpy.ndarray) -> bool:
    """Whether changes of such values can be added. Other values, such as booleans, are sent as they
    are."""
    return bool(numpy.issubdtype(values.dtype, numpy.number))


def _is_float(values: numpy.ndarray) -> bool:
    return values.dtype in (numpy.float32, numpy.float16)


def _change(end: numpy.ndarray, start: numpy.ndarray, left: Optional[numpy.ndarray]) -> numpy.ndarray:
    """The array that a client sends: the change in training, plus the residual of earlier
    messages."""
    if not _adds(end):
        return end
    return end - start if left is None else end - start + left


def _changed(values: numpy.ndarray, change: Optional[numpy.ndarray]) -> numpy.ndarray:
    """The values of an array with the change of a client, if it sent one."""
    if change is None:
        return values
    return values + change if _adds(change) else change


def _rank(message: Message) -> int:
    """A number for a node, so random draws differ between nodes."""
    return int(message.metadata.dst_node_id) % (1 << 32)
