"""Compression in Lightning's Trainer."""

from __future__ import annotations

from typing import Any, Dict, Optional

import lightning.pytorch as pl

from ._handle import Handle
from ._hook import register

__all__ = ["Compression"]


class Compression(pl.Callback):
    """A callback that compresses the gradients of a Trainer with ``strategy="ddp"``.

    The arguments are those of ``gradwire.torch.register`` after the model. Checkpoints of the Trainer contain the residuals of
    all ranks, and a resumed run continues with them::

        trainer = pl.Trainer(strategy="ddp", devices=8, callbacks=[Compression("eden")])
    """

    def __init__(self, compressor: Any = "eden", **options: Any) -> None:
        self._compressor, self._options = compressor, options
        self.handle: Optional[Handle] = None
        self._saved: Dict[str, Any] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Registers with the model that the strategy has wrapped, and restores what a checkpoint contained."""
        self.handle = register(trainer.strategy.model, self._compressor, **self._options)
        # What is left of a training before is not of one that begins.
        if self._saved and trainer.global_step > 0:
            self.handle.load_state_dict(self._saved)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Ends the exchange. A later ``fit`` wraps the model again."""
        if self.handle is not None:
            self._saved = self.handle.state_dict(all_ranks=True)
            self.handle.close()
            self.handle = None

    def state_dict(self) -> Dict[str, Any]:
        """The states of all ranks, which Lightning saves in its checkpoints."""
        return self.handle.state_dict(all_ranks=True) if self.handle is not None else self._saved

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Keeps the states of a checkpoint until training starts."""
        self._saved = state_dict
