"""Rounds that follow the steps of the user's own optimizer."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import List

import torch

from .. import _core
from . import _local_optimizer
from ._mid_step import Stepping


class Attaching:
    """Begins and ends local steps by hooks of the local optimizer."""

    _optimizer: torch.optim.Optimizer
    # The number of parameters of the local optimizer.
    _parameters: int
    _stepping: Stepping
    # Removes the hooks of ``attach``. Wrappers of frameworks share the list.
    _attached: List[ExitStack]

    def _advance(self) -> None:
        """Counts a local step, and exchanges updates if a round is due."""
        raise NotImplementedError

    def attach(self) -> ExitStack:
        """In a ``with`` block, rounds follow ``step`` of the local optimizer instead of ``step`` of
        this object.

        Schedulers, frameworks and ``get_optimizer_state_dict`` then work with the user's
        optimizer::

            with steps.attach():
                for x, y in batches:
                    ...
                    optimizer.step()

        Without a ``with`` block, this ends with ``close()`` of the returned object, or of
        ``LocalSteps``. Do not attach with a ``GradScaler``: the steps that it skips would not be
        counted. Pass it this object instead. Steps that ``get_optimizer_state_dict`` takes to
        create the state of an optimizer do not count.
        """
        optimizer = _local_optimizer.with_hooks(self._optimizer)
        if self._attached or optimizer is None:
            reason = "is attached already" if self._attached else "has no hooks for its steps"
            raise _core.ConfigError(f"attach(): the local optimizer {reason}; call step() of LocalSteps, or attach once")
        with ExitStack() as stack:
            stack.callback(self._detach)
            for register, follow in (
                (optimizer.register_step_pre_hook, partial(self._begin, local=True)),
                (optimizer.register_step_post_hook, self._advance),
            ):
                stack.callback(register(_local_optimizer.counting(follow)).remove)
            self._attached.append(stack.pop_all())
        return self._attached[0]

    def _detach(self) -> None:
        """Forgets the hooks of ``attach``, and a local step that an exception has ended."""
        self._attached.clear()
        self._stepping.abandon_local()

    def _begin(self, local: bool = False) -> None:
        """Begins a local step; see ``Stepping.begin`` for ``local``."""
        if len(_local_optimizer.parameters(self._optimizer)) != self._parameters:
            raise _core.ConfigError(
                "the local optimizer has other parameters than when LocalSteps was created, and rounds would not average all of them; "
                "create LocalSteps again"
            )
        self._stepping.begin(local)
