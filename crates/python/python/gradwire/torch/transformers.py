"""Compression in the Trainer of Hugging Face's Transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import torch
import torch.distributed as dist
from transformers import Trainer, TrainerCallback

from .. import _core
from ._handle import Handle
from ._hook import register

__all__ = ["Compression"]


class Compression(TrainerCallback):
    """A callback that compresses the gradients of a Trainer that uses DistributedDataParallel.

    The arguments after the trainer are those of ``gradwire.torch.register``. Every rank writes its residuals to the folder of
    each checkpoint, as ``gradwire-rank0.pt`` and so on; ``trainer.train(resume_from_checkpoint=True)`` restores them from the
    folder ``checkpoint-STEP`` in the output folder, on any number of ranks::

        trainer.add_callback(gradwire.torch.transformers.Compression(trainer, "eden"))
        trainer.train()
    """

    def __init__(self, trainer: Trainer, compressor: Any = "eden", **options: Any) -> None:
        self._trainer, self._compressor, self._options = trainer, compressor, options
        self.handle: Optional[Handle] = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Registers with the model that the Trainer has wrapped, and restores what a checkpoint contains."""
        self.handle = register(self._trainer.model_wrapped, self._compressor, **self._options)
        if state.global_step:
            self._resume(self._folder(args, state))

    def _resume(self, folder: Path) -> None:
        assert self.handle is not None
        saved = sorted(folder.glob("gradwire-rank*.pt"))
        if not saved:
            raise _core.StateError(
                f"{folder} has no gradwire-rank*.pt: the checkpoint was saved without gradwire, or is in another output "
                "folder; resume from a checkpoint of output_dir that was saved with gradwire"
            )
        self.handle.load_state_dict([torch.load(file, weights_only=True, map_location="cpu") for file in saved])

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Writes this rank's residuals to the folder of the checkpoint."""
        if self.handle is not None:
            folder = self._folder(args, state)
            # The Trainer of another rank, or of another node, may not have made it.
            folder.mkdir(parents=True, exist_ok=True)
            torch.save(self.handle.state_dict(), folder / f"gradwire-rank{dist.get_rank()}.pt")

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Ends the exchange. A later ``train`` wraps the model again, and begins with empty residuals."""
        if self.handle is not None:
            self.handle.close()
            self.handle = None
            # The Trainer would take its DistributedDataParallel again, which has a hook.
            self._trainer.model_wrapped = self._trainer.model

    def _folder(self, args: Any, state: Any) -> Path:
        """The folder of the checkpoint; in a search of hyperparameters it is that of the trial."""
        trial = getattr(self._trainer, "_trial", None)
        of = getattr(self._trainer, "_get_output_dir", None)
        return Path(args.output_dir if of is None else of(trial=trial)) / f"checkpoint-{state.global_step}"
