"""Compressors written in Python, for prototypes."""

from __future__ import annotations

import hashlib
import io
import math
import struct
import time
from dataclasses import fields
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
from torch.futures import Future

from .. import _core
from . import _saved
from ._options import Options
from ._staging import write

# The arguments of ``register`` that only gradwire's own compressors support, with their defaults.
_FOREIGN: Dict[str, Any] = {
    "scaler": None,
    "optimizer": None,
    "device": "auto",
    "transport": "auto",
    "nodes": None,
    "inside": None,
    "lighthouse": None,
    **{one.name: one.default for one in fields(Options) if one.name not in ("compressor", "deadline")},
}


# The cost of a step before its first bucket.
_NO_COST: Dict[str, float] = {
    "elements": 0,
    "message_bytes": 0,
    "bytes_up": 0,
    "bytes_down": 0,
    "messages_up": 0,
    "messages_down": 0,
    "compress_seconds": 0.0,
    "decompress_seconds": 0.0,
    "wire_seconds": 0.0,
}


# Averages from the first one on whose digests are compared over ranks, and then one of this many.
_FIRST_COMPARED, _COMPARED = 20, 500
# The digest of an average that is not compared.
_NO_DIGEST = bytes(8)


class Codec:
    """A compressor written in Python, with its results checked."""

    def __init__(self, compressor: Any) -> None:
        for method in ("compress", "decompress"):
            if not callable(getattr(compressor, method, None)):
                raise _core.ConfigError(
                    f"{type(compressor).__name__} has no method {method}(); a compressor is a spec string or an object "
                    "with compress(tensor) -> bytes and decompress(bytes, shape) -> tensor"
                )
        self._compressor = compressor
        self.has_feedback: bool = getattr(compressor, "error_feedback", True)

    @property
    def name(self) -> str:
        """The name of the compressor's class."""
        return type(self._compressor).__name__

    def compress(self, values: torch.Tensor) -> bytes:
        """The compressor's message. Refuses other types than bytes."""
        message = self._compressor.compress(values)
        try:
            return bytes(memoryview(message))
        except TypeError:
            raise _core.ConfigError(f"{self.name}.compress returned a {type(message).__name__}; return bytes") from None

    def decompress(self, message: bytes, shape: torch.Size) -> torch.Tensor:
        """The tensor that the compressor decodes from a message, in float32. Refuses another shape,
        and numbers that are not finite."""
        decoded = self._compressor.decompress(message, shape)
        what = f"{self.name}.decompress returned"
        if hasattr(decoded, "__array__") and not isinstance(decoded, torch.Tensor):
            # A copy, because arrays that numpy.frombuffer makes of a message cannot be written.
            decoded = torch.tensor(decoded, device="cpu")
        if not isinstance(decoded, torch.Tensor):
            raise _core.ConfigError(f"{what} a {type(decoded).__name__}; return a tensor or a NumPy array")
        if decoded.shape != shape:
            raise _core.ConfigError(f"{what} the shape {tuple(decoded.shape)} for {tuple(shape)}; return a tensor of the given shape")
        decoded = decoded.to(torch.float32)
        if not torch.isfinite(decoded).all():
            raise _core.ConfigError(f"{what} NaN or infinity, for finite gradients; return finite numbers")
        return decoded


class Custom:
    """Averages gradients with a compressor written in Python.

    The compressor has ``compress(tensor) -> bytes`` and ``decompress(bytes, shape) -> tensor``;
    both may return NumPy arrays instead. Messages travel by all-gather, with error feedback unless
    the compressor has ``error_feedback = False``. Runs in the thread of backward(), not in the
    background. Call ``check`` first.
    """

    def __init__(self, compressor: Any, reducer: _core.Reducer, shapes: Optional[Dict[str, torch.Size]]) -> None:
        # The shape of each tensor, if they are known before the first step, or those seen so far.
        self._knows_shapes = shapes is not None
        self._shapes = shapes or {}
        self._codec = Codec(compressor)
        self._reducer = reducer
        self._residuals: Dict[str, torch.Tensor] = {}
        self._stats: Dict[str, Any] = {"step": None, "skipped": False, **_NO_COST}
        self._totals = {"total_steps": 0, "total_skipped": 0, "total_bytes_up": 0, "total_bytes_down": 0}
        # The number of averages so far, and the digest of the last one.
        self._averages, self._digest = 0, _NO_DIGEST
        # The bytes of each tensor's last message.
        self._sizes: Dict[str, int] = {}

    @property
    def spec(self) -> str:
        """The name of the compressor's class."""
        return self._codec.name

    @property
    def has_feedback(self) -> bool:
        """Whether residuals are kept."""
        return self._codec.has_feedback

    @staticmethod
    def check(compressor: Any, arguments: Mapping[str, Any]) -> None:
        """Refuses an object that is not a compressor, and arguments of the user that it does not
        support."""
        Codec(compressor)
        foreign = [name for name, default in _FOREIGN.items() if name in arguments and _differs(arguments[name], default)]
        if arguments["exchange"] == "all-gather":
            foreign.remove("exchange")
        if foreign:
            raise _core.ConfigError(
                f"a compressor written in Python does not support {', '.join(foreign)}: it receives all gradients, and "
                "messages travel by all-gather; remove the argument, or use a compressor of gradwire.list()"
            )

    def average(
        self, step: int, names: Sequence[str], gradients: Sequence[torch.Tensor], whole: torch.Tensor
    ) -> Future:
        """Replaces gradients by their mean over ranks."""
        if self._stats["step"] != step:
            self._stats.update(_NO_COST, step=step)
            self._totals["total_steps"] += 1
        if not self._knows_shapes:
            self._shapes.update((name, gradient.shape) for name, gradient in zip(names, gradients))
        times = [time.perf_counter()]
        messages = [self._message(name, gradient) for name, gradient in zip(names, gradients)]
        self._sizes.update(zip(names, map(len, messages)))
        own = self._digest + b"".join(struct.pack("<I", len(message)) + message for message in messages)
        times.append(time.perf_counter())
        before = self._reducer.traffic()
        everyone = self._compared(self._reducer.gather(step, own))
        traffic = [after - earlier for after, earlier in zip(self._reducer.traffic(), before)]
        times.append(time.perf_counter())
        # Sums of 16-bit floats would be rounded once for every rank, and could overflow.
        means = [torch.zeros(one.shape, dtype=torch.float32, device=one.device) for one in gradients]
        for rank, fused in enumerate(everyone):
            self._add(rank, fused, means)
        self._digest = self._digest_of(means)
        for gradient, mean in zip(gradients, means):
            write(mean, 1.0, gradient)
        times.append(time.perf_counter())
        self._count(sum(one.numel() for one in gradients), sum(map(len, messages)), traffic, times)
        future: Future = Future()
        future.set_result(whole)
        return future

    def _digest_of(self, means: Sequence[torch.Tensor]) -> bytes:
        """The digest of an average, which the next message carries to the other ranks."""
        self._averages += 1
        if self._averages > _FIRST_COMPARED and self._averages % _COMPARED:
            return _NO_DIGEST
        digest = hashlib.blake2b(digest_size=len(_NO_DIGEST))
        for mean in means:
            digest.update(mean.detach().cpu().contiguous().numpy().tobytes())
        return digest.digest()

    def _compared(self, everyone: Sequence[bytes]) -> List[bytes]:
        """The messages of all ranks without their digests. Refuses digests that differ, on all
        ranks."""
        digests = [one[: len(_NO_DIGEST)] for one in everyone]
        other = next((rank for rank, digest in enumerate(digests) if digest != digests[0]), None)
        if other is not None:
            raise _core.ConfigError(
                f"{self.spec}.decompress gave ranks 0 and {other} different tensors from the same messages, so their models drift apart; "
                "decode from the message and the shape alone (gradwire.torch.check finds most such faults), and start again from a "
                "checkpoint"
            )
        return [one[len(_NO_DIGEST) :] for one in everyone]

    def _message(self, name: str, gradient: torch.Tensor) -> bytes:
        if not torch.isfinite(gradient).all():
            raise _core.NonFiniteError(
                f"the gradient of '{name}' is not finite; lower the learning rate or clip gradients"
            )
        corrected = gradient.detach().to(torch.float32)
        if self.has_feedback and name in self._residuals:
            corrected = corrected + self._residuals[name].to(corrected.device)
        message = self._codec.compress(corrected)
        if self.has_feedback:
            self._residuals[name] = corrected - self._codec.decompress(message, corrected.shape).to(corrected.device)
        return message

    def _add(self, rank: int, fused: bytes, means: Sequence[torch.Tensor]) -> None:
        """Adds a rank's share of the means."""
        at = 0
        for mean in means:
            (length,) = struct.unpack_from("<I", fused, at)
            message = fused[at + 4 : at + 4 + length]
            at += 4 + length
            mean.add_(self._codec.decompress(message, mean.shape).to(mean.device), alpha=1.0 / self._reducer.size)
        if at != len(fused):
            raise _core.MessageError(f"rank {rank} sent {len(fused) - at} bytes too many")

    def _count(self, elements: int, message_bytes: int, traffic: Sequence[int], times: Sequence[float]) -> None:
        """Adds a bucket to the cost of the step. ``times`` are the start of compression and the end
        of each phase."""
        bytes_up, bytes_down, messages_up, messages_down = traffic
        compress, wire, decompress = (end - start for start, end in zip(times, times[1:]))
        cost = {
            "elements": elements,
            "message_bytes": message_bytes,
            "bytes_up": bytes_up,
            "bytes_down": bytes_down,
            "messages_up": messages_up,
            "messages_down": messages_down,
            "compress_seconds": compress,
            "decompress_seconds": decompress,
            "wire_seconds": wire,
        }
        for name, amount in cost.items():
            self._stats[name] += amount
        self._totals["total_bytes_up"] += bytes_up
        self._totals["total_bytes_down"] += bytes_down

    def stats(self) -> Dict[str, Any]:
        """The cost of the last step, and of all steps, as in ``Reducer.stats``."""
        ratio = 4.0 * self._stats["elements"] / max(self._stats["message_bytes"], 1)
        return {**self._stats, "ratio": ratio, **self._totals}

    def plan(self) -> List[Tuple[str, int, str, float, int]]:
        """Like ``Reducer.plan``. This compressor's messages have unknown sizes."""
        return [(name, shape.numel(), self.spec, math.nan, self._sizes.get(name, 0)) for name, shape in self._shapes.items()]

    def save_unless_kept(self) -> Optional[bytes]:
        """The result of ``save`` if there are no residuals, else ``None``."""
        return None if self._residuals else self.save()

    def save(self) -> bytes:
        """The residuals."""
        file = io.BytesIO()
        own = {"rank": self._reducer.rank, "size": self._reducer.size, "compressor": self.spec}
        torch.save({**own, "residuals": self._residuals}, file)
        return file.getvalue()

    def save_all(self) -> List[bytes]:
        """The residuals of all ranks."""
        states = self._reducer.gather(self._stats["step"] or 0, self.save())
        # This rank may end now, and the others must have its state.
        self._reducer.wait()
        return states

    def load(self, states: Sequence[bytes]) -> None:
        """Restores residuals by the rule of ``Hook.load_state_dict``."""
        # They may come from any device. A residual moves to the device of its gradient when it is
        # used.
        loaded = [self._read(state) for state in states]
        rank, size = self._reducer.rank, self._reducer.size
        if len({state["rank"] for state in loaded}) < len(loaded):
            raise _core.StateError("two states come from the same rank; pass the state that this rank saved, or the states of one process group")
        saved = loaded[0].get("size", len(loaded))
        own = [state["residuals"] for state in loaded if state["rank"] == rank]
        if saved == size and own:
            self._residuals = own[0]
            return
        if len(loaded) != saved or saved == size:
            raise _core.StateError(f"there is no state of rank {rank} of {size}; pass the states of all {saved} ranks")
        residuals: Dict[str, torch.Tensor] = {}
        for state in loaded:
            if state["rank"] % size == rank:
                for name, residual in state["residuals"].items():
                    residuals[name] = residuals.get(name, torch.zeros_like(residual)) + residual * (size / saved)
        self._residuals = residuals

    def _read(self, state: bytes) -> Dict[str, Any]:
        """A state that ``save`` returned. Refuses the states of other compressors and models."""
        try:
            read: Dict[str, Any] = torch.load(io.BytesIO(state), weights_only=True, map_location="cpu")
            compressor, residuals = read.get("compressor", self.spec), read["residuals"]
            _saved.need(read, ["rank"])
        except Exception as error:
            raise _core.StateError(
                f"the state does not come from a compressor written in Python ({type(error).__name__}); was it saved with a spec string?"
            ) from error
        if compressor != self.spec:
            raise _core.StateError(f"the state was saved with {compressor}, but this compressor is {self.spec}; use the same one")
        for name, residual in residuals.items() if self._knows_shapes else ():
            expected = self._shapes.get(name)
            if expected != residual.shape:
                has = "no such tensor" if expected is None else f"{tuple(expected)}"
                raise _core.StateError(
                    f"the residual of '{name}' has the shape {tuple(residual.shape)}, but the model has {has}; the state belongs to "
                    "another model"
                )
        return read


def _differs(option: Any, default: Any) -> bool:
    """Whether an option differs from its default. ``None`` and empty rules are equal."""
    return option != default and bool(option or default)
