"""Whether a reducer's compressors run on a device."""

from __future__ import annotations

from typing import Iterable, Optional, Set, Tuple

import torch

from ... import _core
from ..._arrays import buffer
from .._staging import Stream
from ._batch import Batch, Slot
from ._config import Config
from ._forms import Forms
from ._kernel import Kernel
from ._rounds import Rounds
from .halves import Uncompressed
from .kernels import kernel_and_memory

# The shape of the tensor that tries a kernel.
_PROBE = (9, 12)
# The kernels that work in this process: the compressor, the device and the type of the values.
_works_there: Set[Tuple[str, torch.device, torch.dtype]] = set()


def reason_against(reducer: _core.Reducer) -> Optional[str]:
    """Why the compressors of a reducer cannot run on a device; ``None`` if they can."""
    useful = False
    for step, _ in reducer.stages:
        exchange = reducer.exchange_at(step)
        if exchange not in ("all-gather", "all-reduce"):
            return (
                f"ranks exchange by {exchange}, but kernels need exchange='all-gather', or 'all-reduce' with powersgd or gradzip"
            )
        for spec in sorted(set(reducer.specs(step))):
            found = kernel_and_memory(Config.of(spec))
            if found is None:
                return f"there is no kernel for '{spec}'"
            kernel, _ = found
            useful |= exchange == "all-gather" or isinstance(kernel, Rounds)
            if not _works(kernel, exchange):
                return f"the kernel for '{spec}' does not work with {exchange}"
    if not useful:
        return "ranks exchange by all-reduce, but no compressor is a multi-round method"
    return None


def _works(kernel: Kernel, exchange: str) -> bool:
    """Whether an exchange can use a kernel. All-reduce does not return this rank's messages, so the
    kernel must compute the residual without them."""
    if exchange == "all-gather":
        return not isinstance(kernel, Rounds)
    return isinstance(kernel, (Rounds, Uncompressed))


def reason_against_device(reducer: _core.Reducer, device: torch.device, dtypes: Iterable[torch.dtype]) -> Optional[str]:
    """Why Triton cannot run a reducer's kernels on a device, such as a missing C compiler; ``None``
    if it can.

    Each kernel compresses and adds a small tensor, which compiles the kernel. The sum is compared
    with the host's.
    """
    specs = {spec for step, _ in reducer.stages for spec in (*reducer.specs(step), *reducer.message_specs(step))}
    for spec in sorted(specs):
        for dtype in dtypes:
            if (spec, device, dtype) in _works_there:
                continue
            try:
                # Triton launches on the current device, which may differ from this one.
                with Stream(device).entered():
                    right = _adds_what_it_sends(spec, device, dtype)
            except Exception as error:
                return f"Triton cannot run the kernel for '{spec}' there: {type(error).__name__}: {error}"
            if not right:
                return f"the kernel for '{spec}' computes wrong numbers there"
            _works_there.add((spec, device, dtype))
    return None


def _adds_what_it_sends(spec: str, device: torch.device, dtype: torch.dtype) -> bool:
    """Compresses a tensor on the device. Checks that the device and the host decode its message to
    the same values."""
    config = Config.of(spec)
    found = kernel_and_memory(config)
    assert found is not None, spec
    kernel, memory = found
    batch = Batch([Slot("probe", _PROBE, 0, 0)], device)
    elements = batch.slots[0].elements
    values = torch.arange(elements, dtype=torch.float32, device=device).sub(elements // 3).div(elements).to(dtype)
    arrays = {kind: torch.zeros(elements, dtype=torch.float32, device=device) for kind in memory.kept}
    source = memory.source(batch, values, arrays)
    encoded = kernel.start(batch, source, 0)()
    if isinstance(kernel, Rounds):
        # There is no message without other ranks.
        return True
    codec, (start, end) = _core.Codec(spec, config.seed, config.rank, config.ranks), encoded.ranges[0]
    message = codec.pack("probe", _PROBE, 0, encoded.forms.bytes[start:end].cpu().numpy().tobytes())
    form = codec.unpack("probe", _PROBE, 0, 0, message)
    padded = torch.frombuffer(bytearray(form + bytes(4 + -len(form) % 4)), dtype=torch.uint8).to(device)
    received = Forms(padded, batch.vector([0]))
    sums, expected = (torch.zeros(elements, dtype=torch.float32, device=place) for place in (device, "cpu"))
    kernel.clear_sent(batch, received, source)
    memory.clear_sent(batch, received, arrays)
    kernel.add(batch, received, sums, 0.5, 0, 0)
    kernel.aggregate(batch, sums)
    codec.decode_add("probe", _PROBE, 0, 0, message, 0.5, buffer(expected, "a sum"))
    codec.aggregate("probe", buffer(expected, "a sum"))
    return bool((sums.cpu().view(torch.int32) == expected.view(torch.int32)).all())
