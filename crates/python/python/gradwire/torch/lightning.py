"""Compression in Lightning's Trainer."""

from __future__ import annotations

import warnings
from typing import Any, Dict, Optional, Sequence

import lightning.pytorch as pl

from . import _framework
from ._finetuning import check_unfreezing
from ._handle import Handle
from ._onebit_adam import OneBitAdam
from ._options import Rules
from ._register import register

__all__ = ["Compression"]


class Compression(pl.Callback):
    """A callback that compresses the gradients of a Trainer with ``strategy="ddp"``.

    Takes the arguments of ``gradwire.torch.register`` after the model. Checkpoints of the Trainer
    contain the residuals of all ranks, and a resumed run continues with them::

        trainer = pl.Trainer(strategy="ddp", devices=8, callbacks=[Compression("eden")])

    After ``fit`` a checkpoint still asks all ranks for their states. ``close()`` collects the
    states for later checkpoints, and ends the exchange. A checkpoint that is saved after an error
    (``OnExceptionCheckpoint``) contains no residuals, with a warning, because the other ranks may
    not save one.

    With ``precision="16-mixed"``, ``scaler="auto"`` is the Trainer's ``GradScaler``, and
    ``on_nonfinite`` defaults to ``"skip"``. When training starts, finetuning callbacks that
    unfreeze parameters later are refused, because DistributedDataParallel would not average these
    parameters. If it is not known whether a callback unfreezes parameters, there is a warning. If
    Lightning does not wrap a run of a single process in DistributedDataParallel, the run goes on
    without compression, with a warning.
    """

    def __init__(
        self,
        compressor: Any = "eden",
        *,
        rules: Rules = None,
        exchange: str = "auto",
        seed: int = 0,
        deadline: float = 300.0,
        on_nonfinite: Optional[str] = None,
        scaler: Optional[Any] = "auto",
        raw_vectors: bool = True,
        raw_below: int = 256,
        raw_names: Sequence[str] = (),
        total_steps: Optional[int] = None,
        optimizer: Optional[OneBitAdam] = None,
        device: str = "auto",
        transport: str = "auto",
        threads: int = 1,
        nodes: Optional[Any] = None,
        inside: Optional[str] = None,
    ) -> None:
        self._arguments = _framework.arguments_of(locals())
        self.handle: Optional[Handle] = None
        # The states for the start of the next training, if a checkpoint was read or the last
        # exchange was closed.
        self._saved: Dict[str, Any] = {}
        # Whether the last training ended with an error. Its ranks may have ended in different
        # steps, so their states may not fit together.
        self._failed = False
        # Whether a checkpoint was read since training last started.
        self._read = False
        self._trainer: Optional[pl.Trainer] = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Registers with the model that the strategy has wrapped, and restores the states of a
        checkpoint."""
        where = "the training before, which ended with an error," if self._failed and not self._read else "the checkpoint"
        single = _framework.is_single_process(trainer.strategy.model)
        if not single:
            check_unfreezing(trainer, pl_module)
        saved, self._trainer = self._take_saved(), trainer
        if single:
            return
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        self.handle = register(trainer.strategy.model, **_framework.with_scaler(self._arguments, scaler))
        # A new training uses no states of an earlier one.
        if trainer.global_step > 0:
            _framework.load(self.handle, lambda: saved or None, where)

    def _take_saved(self) -> Dict[str, Any]:
        """The states to begin with: from the checkpoint that was read, or from the last training,
        whose exchange ends. Empty after an error."""
        saved, self._saved = self._saved, {}
        read, self._read = self._read, False
        failed, self._failed = self._failed, False
        last, self.handle = self.handle, None
        if last is not None:
            if not read:
                saved = {} if failed else last.state_dict()
            last.close()
        return saved

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Notes that a training with compression ends with an error."""
        self._failed = self._failed or self.handle is not None

    def close(self) -> None:
        """Ends the exchange after ``fit``; all ranks must call it at the same time.

        Later checkpoints contain the states of all ranks without asking for them, and a later
        ``fit`` begins with them. If training ended with an error, there are no states: later
        checkpoints contain none, and a later ``fit`` begins with empty residuals, both with a
        warning.
        """
        if self.handle is not None:
            if not self._failed:
                self._saved = self.state_dict()
            self.handle.close()
            self.handle = None

    def state_dict(self) -> Dict[str, Any]:
        """The states of all ranks, which Lightning saves in its checkpoints.

        Lightning asks all ranks at the same time, even for a checkpoint that is saved after
        training. So the exchange ends only when the next training starts, with ``close``, or with
        this callback. After an error the result is empty, with a warning. The same holds in a
        signal handler, as on preemption by SLURM, if the compressor keeps residuals.
        """
        if self._read:
            return self._saved
        # Another callback may save a checkpoint before this one learns of the error.
        if self._failed or (self.handle is not None and self._trainer is not None and self._trainer.interrupted):
            warnings.warn(
                "this checkpoint has no state of gradwire: after an error the other ranks may not answer; a run that resumes from it begins "
                "with empty residuals, and schedules at step 0",
                RuntimeWarning,
                stacklevel=2,
            )
            return {}
        return self._saved if self.handle is None else self.handle.all_ranks.state_dict()

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: Dict[str, Any]
    ) -> None:
        """Discards the states of the last training, because the weights now come from the
        checkpoint."""
        self._saved, self._read = {}, True

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Keeps the states of a checkpoint until training starts. Lightning calls it only if the
        checkpoint has some."""
        self._saved, self._read = state_dict, True
