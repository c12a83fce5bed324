"""FSDP2's own gather of parameters, with an error if a rank is missing at the deadline."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import Any, List, Sequence

import torch
import torch.distributed as dist

from .. import _core
from ._deadlines import TELL
from ._rendezvous import named
from ._sharded import Communication, Sharded
from ._units import Unit

_NUMBERS = count()


class TimedAllGather(Communication):
    """The all-gather of a unit's parameters by ``present``, over gloo.

    Between two steps no rank waits for a message of gradwire: the ranks wait for this gather. Gloo
    would wait for the whole timeout of the process group.
    """

    def __init__(self, handle: Sharded, unit: Unit, present: Any) -> None:
        super().__init__(handle, unit)
        self._present = present
        # The number of this object, and the number of gathers of the unit. Both are the same on all
        # ranks of the group.
        self._own, self._number = next(_NUMBERS), 0

    @staticmethod
    def suits(unit: Unit) -> bool:
        """Whether the host waits for the gather, as with gloo. With NCCL the GPU waits, and PyTorch
        watches it."""
        group = unit.param_group.mesh_info.shard_process_group
        return isinstance(group._get_backend(unit.param_group.device), dist.ProcessGroupGloo)

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        memory: torch.Tensor = self._present.allocate(size, dtype=dtype, device=device)
        return memory

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, async_op: bool = False) -> Any:
        """Fills ``output_tensor`` with the shards of all ranks."""
        self._number += 1
        work = self._present(output_tensor, input_tensor, group, async_op=True)
        if async_op or work is None:
            return work
        self._wait(work, group)
        return None

    def _wait(self, work: Any, group: Any) -> None:
        deadline = self._handle.deadline
        if _ends(work, TELL * deadline):
            return
        ranks = dist.get_process_group_ranks(group)
        store: Any = dist.distributed_c10d._get_default_store()
        keys = [f"gradwire/gather/{self._own}/{self._number}/{rank}" for rank in ranks]
        store.set(keys[group.rank()], "")
        wait = (1.0 - TELL) * deadline
        while not _ends(work, wait):
            missing = [rank for rank, key in zip(ranks, keys) if not store.check([key])]
            if missing:
                self._fail(missing, deadline)
            # All ranks are present, and the link is slow.
            wait = deadline

    def _fail(self, missing: List[int], deadline: float) -> None:
        self._handle.fail()
        raise _core.DeadlineError(
            f"{named(missing)} did not gather the parameters of {self._unit} within {deadline:g} s; if a rank works alone for longer, as "
            "in an evaluation, give a longer deadline"
        )


def _ends(work: Any, seconds: float) -> bool:
    """Whether a collective ends within some seconds. Raises its error."""
    try:
        work.wait(timedelta(seconds=max(seconds, 0.001)))
    except RuntimeError as error:
        if "imed out" not in str(error):
            raise
        if not work.is_completed():
            return False
        # It ended in the meantime.
        work.wait()
    return True
