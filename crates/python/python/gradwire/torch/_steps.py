"""Decides which exchanges of a sharded model belong to the same optimizer step."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Set

import torch

from ._optimizer_steps import after_steps
from ._units import Unit


class Steps:
    """Groups the reductions of gradients, which FSDP2 calls for one unit after the other, into
    optimizer steps.

    A step begins with the first reduction after an optimizer has used the gradients of the last
    step: one of the parameters has changed, or a gradient is gone, as after ``zero_grad()``. It
    also begins if a unit is reduced again, as when gradients are accumulated with synchronization.
    No step begins in the middle of a backward pass, although optimizers may run there.

    It does not matter whether autograd, reentrant checkpointing or a pipeline schedule calls the
    reductions.
    """

    def __init__(self, units: Sequence[Unit]) -> None:
        self._units = units
        # The backward pass of the last reduction, as autograd counts them; outside of one, -1.
        self._pass = -1
        # The units that have been reduced in the present step.
        self._reduced: List[Unit] = []
        self._stepped = False
        # The step number of each unit's last gather of parameters, and the units that have been
        # reduced since.
        self._gathered: Dict[Unit, int] = {}
        self._finished: Set[Unit] = set()
        # Ends the calls of ``_note``.
        self.close = after_steps(self._note)

    def begins_pass(self) -> bool:
        """Whether the next reduction is the first of its backward pass, or outside of one."""
        present = torch._C._current_graph_task_id()
        return present == -1 or present != self._pass

    def reduce(self, unit: Unit) -> bool:
        """Notes that a unit's gradients are being reduced. Returns whether this begins a step."""
        begins = not self._reduced or self.begins_pass() and self._is_over(unit)
        if begins:
            self.forget()
        self._pass = torch._C._current_graph_task_id()
        if unit not in self._reduced:
            self._reduced.append(unit)
        self._finished.add(unit)
        return begins

    def forget(self) -> None:
        """Ends the present step: the next reduction begins one."""
        self._reduced.clear()
        self._stepped = False

    def _is_over(self, unit: Unit) -> bool:
        return unit in self._reduced or self._stepped or any(one.is_cleared for one in self._reduced)

    def number_of_gather(self, unit: Unit, step: int) -> int:
        """The step number for a gather of a unit's parameters, given the number of the next step to
        begin.

        All gathers of a unit for one step have the same number, and so the same random draws:
        before the forward passes of all micro-batches, again before their backward passes, and when
        checkpointing repeats a forward pass.
        """
        known = self._gathered.get(unit, -2)
        in_backward = torch._C._current_graph_task_id() != -1 and known >= 0
        if not in_backward and (unit in self._finished or not step - 1 <= known <= step):
            known = self._gathered[unit] = step
            self._finished.discard(unit)
        return known

    def _note(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Notes that an optimizer has taken a step after the backward pass."""
        if not self._stepped and torch._C._current_graph_task_id() == -1:
            own = {id(parameter) for unit in self._units for parameter in unit.shards}
            self._stepped = any(id(parameter) in own for group in optimizer.param_groups for parameter in group["params"])
