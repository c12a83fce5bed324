"""Rounds in which some ranks have no further batches, under
``torch.distributed.algorithms.Join``."""

from __future__ import annotations

from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook

from .. import _core
from ._modes import without_gradients


class Joining(Joinable):
    """The interface that ``Join`` requires of local steps. Ranks report once in a round, not in
    each step, that they go on."""

    def __init__(self, device: torch.device, process_group: Optional[Any]) -> None:
        super().__init__()
        self._device, self._group = device, process_group

    def join_hook(self, **kwargs: Any) -> JoinHook:
        raise NotImplementedError("LocalSteps makes the hook")

    @property
    def join_device(self) -> torch.device:
        return self._device

    @property
    def join_process_group(self) -> Any:
        return self._group if self._group is not None else dist.group.WORLD

    def configure(self, config: Any) -> None:
        """Takes the configuration that ``Join`` sets when a block is created. Raises
        ``ConfigError`` for a second object in the block.

        In each round of the first object, ``Join`` would wait for a round of the second, which may
        begin later.
        """
        if config.enable and not config.is_first_joinable:
            raise _core.ConfigError(
                "LocalSteps is not the first object in Join([...]). Join asks only its first object, once per round, whether ranks go "
                "on, and other objects may begin rounds at other steps; train in a block 'with "
                "torch.distributed.algorithms.Join([steps]):' with one LocalSteps and nothing else"
            )
        self._join_config = config

    @property
    def active(self) -> bool:
        """Whether this rank is in a ``with Join(...)`` block."""
        return bool(self._join_config.enable)

    def notify(self) -> None:
        """Tells ranks without further batches that this one begins a round."""
        work = Join.notify_join_context(self)
        if work is not None:
            work.wait()

    def end(self) -> None:
        """Ends the block; ``Join`` itself does not."""
        self._join_config = self._join_config._replace(enable=False)


class Shadow(JoinHook):
    """Takes part in the rounds of the others: first with the change of this rank's last steps, then
    with a change of zero."""

    def __init__(self, rounds: Any, joining: Joining) -> None:
        self._rounds, self._joining = rounds, joining

    @without_gradients
    def main_hook(self) -> None:
        """Takes part in a round of the others."""
        self._rounds.follow()

    @without_gradients
    def post_hook(self, is_last_joiner: bool) -> None:
        """Makes all ranks equal."""
        self._joining.end()
        self._rounds.finish_together()
