"""The options of local steps: their types, ranges, and impossible combinations."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Optional, Sequence

from .. import _core
from .._arrays import whole_number
from ._device import Request
from ._options import Options
from ._outer import Outer, check_outer
from ._tensors import Named


@dataclass(frozen=True)
class LocalOptions(Options):
    """The options of ``LocalSteps``, which documents them."""

    every: Optional[int] = None
    outer: Optional[Outer] = None
    sync_until: int = 0
    mask: bool = True
    median_clip: bool = False
    buffers: str = "first"
    fragments: int = 1
    fragment_sync_delay: int = 0
    fragment_update_alpha: Optional[float] = None
    common_device: str = field(default="cpu", compare=False)
    min_workers: Optional[int] = None
    lighthouse: Optional[str] = field(default=None, compare=False)
    # All ranks compare it with the nodes of the others.
    nodes: Optional[Any] = field(default=None, compare=False)
    # All ranks compare it when they choose.
    transport: str = field(default="auto", compare=False)

    def check(self) -> None:
        """Refuses options of a wrong type, out of range, or in an impossible combination."""
        if self.every is not None and whole_number("every", self.every) < 1:
            raise _core.ConfigError(f"every={self.every} is too small; a round has at least 1 step")
        if self.on_nonfinite != "error":
            refuse_scaler()
        whole_number("sync_until", self.sync_until)
        whole_number("fragments", self.fragments)
        whole_number("fragment_sync_delay", self.fragment_sync_delay)
        alpha = self.fragment_update_alpha
        if alpha is not None and not (isinstance(alpha, Real) and 0.0 <= alpha < 1.0):
            raise _core.ConfigError(f"fragment_update_alpha={alpha!r} is out of range; give a number from 0 to below 1")
        if alpha is not None and self.fragment_sync_delay == 0:
            raise _core.ConfigError(
                "fragment_update_alpha mixes parameters after a delay, but fragment_sync_delay is 0; give a delay, or leave out fragment_update_alpha"
            )
        if self.common_device not in ("cpu", "model"):
            raise _core.ConfigError(f"common_device={self.common_device!r} is unknown; use 'cpu' or 'model'")
        check_outer(self.outer)
        self._check_workers()
        self._check_transport()
        super().check()
        self.check_replicated()

    def _check_transport(self) -> None:
        Request("auto", self.transport, None).check()
        reason = self.reason_for_host()
        if self.transport == "device" and reason is not None:
            raise _core.ConfigError(f"messages cannot stay on the device: {reason}; transport='auto' sends them through the host")

    def reason_for_host(self) -> Optional[str]:
        """Why other options need messages that pass through the host; ``None`` if they do not."""
        if self.lighthouse is not None:
            return "with lighthouse, workers come and go, and the process group does not follow them"
        if self.nodes is not None:
            return "with nodes, changes are in main memory"
        return None

    def _check_workers(self) -> None:
        """Refuses options that need ``lighthouse``, or cannot be combined with it."""
        if self.lighthouse is None:
            if self.min_workers is not None:
                raise _core.ConfigError("min_workers needs lighthouse; pass the address of torchft_lighthouse, such as http://host:port")
            return
        if (self.fragments, self.fragment_sync_delay, self.fragment_update_alpha) != (1, 0, None):
            raise _core.ConfigError(
                "with lighthouse, a round exchanges the whole model at once; remove fragments, fragment_sync_delay and fragment_update_alpha"
            )
        if self.nodes is not None:
            raise _core.ConfigError("with lighthouse, workers come and go, so nodes may have different numbers of ranks; remove nodes")
        if self.uses_ef21():
            raise _core.ConfigError(
                "with lighthouse, ef=ef21 cannot work: its sum of changes would contain the changes of lost workers; use ef=on"
            )
        if self.min_workers is not None and whole_number("min_workers", self.min_workers) < 1:
            raise _core.ConfigError(f"min_workers={self.min_workers} is too small; a round has at least 1 worker")
        # The state of a rank must not depend on the group's other ranks.
        if self.exchange not in ("auto", "all-gather"):
            raise _core.ConfigError(f"with lighthouse, the exchange is all-gather, not {self.exchange!r}; remove exchange")

    def resolved(self) -> LocalOptions:
        """These options with the exchange that ``lighthouse`` needs."""
        return self if self.lighthouse is None else replace(self, exchange="all-gather")

    def check_votes(self, named: Sequence[Named]) -> None:
        """Refuses compressors that average by votes, unless all workers vote and an outer optimizer
        scales the result."""
        if (self.outer is not None and self.lighthouse is None) or not self.votes(named):
            return
        if self.lighthouse is not None:
            raise _core.ConfigError(
                f"'{self.compressor}' averages by votes, and with lighthouse, a round may have workers without local steps, whose zeros "
                "would vote; use another compressor, such as efsignsgd"
            )
        raise _core.ConfigError(
            f"'{self.compressor}' averages by votes of +1 or -1, so without outer each round would change every weight by 1; give an "
            "outer optimizer with a small learning rate, such as outer=partial(torch.optim.SGD, lr=1e-3), or use another compressor, "
            "such as efsignsgd"
        )


def refuse_scaler() -> None:
    """Raises ``ConfigError`` for the arguments of ``register`` that skip steps."""
    raise _core.ConfigError(
        "LocalSteps supports neither scaler nor on_nonfinite: skipping a round cannot repair parameters that are not finite; skip the "
        "local step that overflows"
    )
