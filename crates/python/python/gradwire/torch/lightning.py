"""Compression in Lightning's Trainer."""

from __future__ import annotations

from typing import Any, Dict, Optional

import lightning.pytorch as pl

from . import _framework
from ._handle import Handle
from ._hook import register

__all__ = ["Compression"]


class Compression(pl.Callback):
    """A callback that compresses the gradients of a Trainer with ``strategy="ddp"``.

    The arguments are those of ``gradwire.torch.register`` after the model. Checkpoints of the Trainer contain the residuals of
    all ranks, and a resumed run continues with them::

        trainer = pl.Trainer(strategy="ddp", devices=8, callbacks=[Compression("eden")])

    With ``precision="16-mixed"`` the Trainer's ``GradScaler`` is the ``scaler``, and ``on_nonfinite`` defaults to ``"skip"``.
    A run of a single process that Lightning does not wrap in DistributedDataParallel goes on without compression, with a warning.
    """

    def __init__(self, compressor: Any = "eden", **options: Any) -> None:
        self._compressor, self._options = compressor, options
        self.handle: Optional[Handle] = None
        # The states that the next training begins with.
        self._saved: Dict[str, Any] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Registers with the model that the strategy has wrapped, and restores what a checkpoint contained."""
        self._end_last()
        if _framework.is_single_process(trainer.strategy.model):
            return
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        options = _framework.with_scaler(self._compressor, self._options, scaler)
        self.handle = register(trainer.strategy.model, self._compressor, **options)
        saved, self._saved = self._saved, {}
        # What is left of a training before is not of one that begins.
        if trainer.global_step > 0:
            _framework.load(self.handle, lambda: saved or None, "the checkpoint")

    def _end_last(self) -> None:
        """Ends the exchange of the last training, and keeps this rank's residuals unless a checkpoint was loaded since."""
        last, self.handle = self.handle, None
        if last is not None:
            self._saved = self._saved or last.state_dict()
            last.close()

    def state_dict(self) -> Dict[str, Any]:
        """The states of all ranks, which Lightning saves in its checkpoints.

        Lightning asks all ranks at the same time, also for a checkpoint that is saved after training. So the exchange ends when
        the next training starts, or with this callback.
        """
        return self.handle.state_dict(all_ranks=True) if self.handle is not None else self._saved

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Keeps the states of a checkpoint until training starts."""
        self._saved = state_dict
