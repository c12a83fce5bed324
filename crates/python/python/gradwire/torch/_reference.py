"""Gathers of parameters as compressed changes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Optional, Sequence

import torch

from ._sharded import AllGather, Sharded, own_place
from ._tensors import as_reals
from ._units import Unit


class GatherChanges(AllGather):
    """The all-gather of a unit's parameters as the changes of a reference, which has the same bits
    on all ranks.

    Every rank sends the compressed difference of its shard and the reference, and all add it to the
    reference, which is the result. So what a message leaves out is in the next difference, and
    errors do not add up. Gathers in the backward pass send nothing: they take the reference that
    the forward pass has used. The first gather, ``exact``, is uncompressed.
    """

    def __init__(self, handle: Sharded, unit: Unit, exact: Any) -> None:
        super().__init__(handle, unit)
        self._exact = exact
        # The parameters of the unit as they were gathered last, in the type of the gather.
        self._reference: Optional[torch.Tensor] = None
        # When the last gather will have used the reference; ``None`` on a CPU.
        self._used: Any = None

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        memory: torch.Tensor = self._exact.allocate(size, dtype=dtype, device=device)
        return memory

    def forget(self) -> None:
        self._reference = None

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, async_op: bool = False) -> None:
        self.check_type(output_tensor)
        with self._in_order(output_tensor.device):
            known = self._reference
            if known is None or (known.dtype, known.numel()) != (output_tensor.dtype, output_tensor.numel()):
                self._exact(output_tensor, input_tensor, group)
                # The first use may be a forward pass in inference mode, and later passes change it.
                with torch.inference_mode(False):
                    self._reference = output_tensor.clone()
                return
            if torch._C._current_graph_task_id() == -1:
                shard = as_reals(input_tensor).view(-1)
                self._send(as_reals(known).view(-1), shard, own_place(group, shard.numel()))
            output_tensor.copy_(known)

    def _send(self, reference: torch.Tensor, shard: torch.Tensor, own: slice) -> None:
        """Adds the changes of all ranks to the reference."""
        changes = torch.empty_like(reference, dtype=torch.float32)
        torch.sub(shard.float(), reference[own], out=changes[own])
        self._handle.fill(self._unit, changes, own)
        reference.copy_(changes.add_(reference))

    @contextmanager
    def _in_order(self, device: torch.device) -> Iterator[None]:
        """Lets gathers use the reference one after the other, in whichever stream FSDP2 calls
        them."""
        if device.type != "cuda":
            yield
            return
        stream = torch.cuda.current_stream(device)
        if self._used is not None:
            stream.wait_event(self._used)
        if self._reference is not None:
            self._reference.record_stream(stream)
        yield
        self._used = stream.record_event()
