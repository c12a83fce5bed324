"""The interface of local steps that ``torch.distributed.algorithms.Join`` uses."""

from __future__ import annotations

from typing import Any, Optional

import torch

from .. import _core
from ._elastic import Elastic
from ._joining import Joining, Shadow
from ._replica import Replica
from ._rounds import Rounds


class JoinInterface:
    """Lets ranks without further batches take part in rounds."""

    _joining: Joining
    _replica: Replica
    _rounds: Rounds
    _elastic: Optional[Elastic]

    def join_hook(self, **kwargs: Any) -> Shadow:
        """The hook that ``torch.distributed.algorithms.Join`` calls for a rank without further
        batches.

        Raises ``ConfigError`` with ``lighthouse``, and for compressors that average by votes.
        """
        if self._elastic is not None:
            raise _core.ConfigError(
                "with lighthouse, workers may leave at any time, so Join is not needed; call close() on a worker without further batches"
            )
        if self._replica.reducer.votes:
            raise _core.ConfigError(
                f"'{self._replica.reducer.spec}' averages by votes, and under Join the zeros of a rank without further batches would vote; "
                "use another compressor, such as efsignsgd"
            )
        return Shadow(self._rounds, self._joining)

    @property
    def join_device(self) -> torch.device:
        """The device of the tensors that ``Join`` exchanges."""
        return self._joining.join_device

    @property
    def join_process_group(self) -> Any:
        """The process group that ``Join`` uses."""
        return self._joining.join_process_group

    @property
    def _join_config(self) -> Any:
        return self._joining._join_config

    @_join_config.setter
    def _join_config(self, config: Any) -> None:
        self._joining.configure(config)
