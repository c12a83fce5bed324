"""Whether a reducer's compressors run on a device."""

from __future__ import annotations

from typing import Optional

import torch

from ... import _core
from .._staging import Stream
from . import _source
from ._batch import Batch, Slot
from ._config import Config
from ._kernel import Kernel
from ._rounds import Rounds
from ._source import Source
from .halves import Uncompressed
from .kernels import kernel_and_memory


def reason_against(reducer: _core.Reducer) -> Optional[str]:
    """Why the compressors of a reducer cannot run on a device; ``None`` if they can."""
    exchange, rounds = reducer.exchange, False
    if exchange not in ("all-gather", "all-reduce"):
        return f"ranks exchange by {exchange}, and kernels work with all-gather, or for methods in rounds all-reduce"
    for step, _ in reducer.stages:
        for spec in sorted(set(reducer.specs(step))):
            found = kernel_and_memory(Config.of(spec))
            if found is None:
                return f"there is no kernel for '{spec}'"
            kernel, _ = found
            rounds |= isinstance(kernel, Rounds)
            if not _works(kernel, exchange):
                return f"the kernel for '{spec}' does not work with {exchange}"
    if exchange == "all-reduce" and not rounds:
        return "ranks exchange by all-reduce, and no compressor is a method in rounds"
    return None


def _works(kernel: Kernel, exchange: str) -> bool:
    """Whether an exchange can use a kernel. Messages that all-reduce averages do not come back, so what they leave out must
    be known without them."""
    if exchange == "all-gather":
        return not isinstance(kernel, Rounds)
    return isinstance(kernel, (Rounds, Uncompressed))


def reason_against_device(device: torch.device) -> Optional[str]:
    """Why Triton cannot run kernels on a device, such as a missing C compiler; ``None`` if it can."""
    try:
        # Triton launches on the current device, which may be another.
        with Stream(device).entered():
            batch = Batch([Slot("probe", (1,), 0, 0)], device)
            source = Source(torch.ones(1, device=device), batch.starts, None)
            found = int(_source.maxima(batch, source)[0])
    except Exception as error:
        return f"Triton cannot run a kernel there: {type(error).__name__}: {error}"
    return None if found == 0x3F800000 else "a kernel of Triton returns wrong numbers there"
