"""Compression in the Trainer of Hugging Face's Transformers."""

from __future__ import annotations

from functools import partial, wraps
from pathlib import Path
from typing import Any, Callable, Optional, Sequence

import torch.distributed as dist
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from .. import _core
from . import _framework, _state_files
from ._handle import Handle
from ._mid_step import state_or_nothing
from ._onebit_adam import OneBitAdam
from ._options import Rules
from ._register import register

__all__ = ["Compression"]


class Compression(TrainerCallback):
    """A callback that compresses the gradients of a Trainer that uses DistributedDataParallel.

    After the trainer, it takes the arguments of ``gradwire.torch.register``. Every rank writes its
    residuals to the folder of each checkpoint, as ``gradwire-rank0.pt`` and so on;
    ``trainer.train(resume_from_checkpoint=...)`` restores them from that checkpoint, on any number
    of ranks::

        trainer.add_callback(gradwire.torch.transformers.Compression(trainer, "eden"))
        trainer.train()

    With ``fp16=True``, ``scaler="auto"`` is the Trainer's ``GradScaler``, and ``on_nonfinite``
    defaults to ``"skip"``. A run of a single process goes on without compression, with a warning.
    """

    def __init__(
        self,
        trainer: Trainer,
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
        self._trainer = trainer
        self.handle: Optional[Handle] = None
        self._resumed: Any = None
        trainer.train = self._telling(trainer.train)  # type: ignore[method-assign]

    def _telling(self, train: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps ``train`` of the Trainer to learn the checkpoint that it resumes from, which it
        does not tell callbacks."""

        @wraps(train)
        def telling(resume_from_checkpoint: Any = None, *others: Any, **named: Any) -> Any:
            self._resumed = resume_from_checkpoint
            return train(resume_from_checkpoint, *others, **named)

        return telling

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Registers with the model that the Trainer has wrapped, and restores the states of a
        checkpoint."""
        if _framework.is_single_process(self._trainer.model_wrapped):
            return
        scaler = getattr(getattr(self._trainer, "accelerator", None), "scaler", None)
        self.handle = register(self._trainer.model_wrapped, **_framework.with_scaler(self._arguments, scaler))
        if state.global_step:
            folder = self._resumed_folder(args)
            read = partial(_state_files.read, folder, dist.get_rank(), dist.get_world_size())
            _framework.load(self.handle, read, str(folder))

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Writes this rank's residuals to the folder of the checkpoint."""
        if self.handle is not None:
            folder = self._folder(args, state)
            if args.local_process_index == 0:
                _state_files.remove_stale(folder, dist.get_world_size())
            # The Trainer of another rank or node may not have created the folder.
            _state_files.write(folder, dist.get_rank(), state_or_nothing(self.handle.state_dict))

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Ends the exchange. A later ``train`` wraps the model again, and begins with empty
        residuals."""
        if self.handle is not None:
            self.handle.close()
            self.handle = None
            # Otherwise the Trainer would reuse its DistributedDataParallel, which has a hook.
            self._trainer.model_wrapped = self._trainer.model

    def _resumed_folder(self, args: Any) -> Path:
        """The folder of the checkpoint that training resumes from."""
        resumed = get_last_checkpoint(args.output_dir) if self._resumed is True else self._resumed
        if not resumed:
            raise _core.StateError(
                "training resumes from a checkpoint that trainer.train was not given; call trainer.train(resume_from_checkpoint=...)"
            )
        return Path(resumed)

    def _folder(self, args: Any, state: Any) -> Path:
        """The folder of the next checkpoint; in a hyperparameter search, in the folder of the
        trial."""
        trial = getattr(self._trainer, "_trial", None)
        of = getattr(self._trainer, "_get_output_dir", None)
        return Path(args.output_dir if of is None else of(trial=trial)) / f"checkpoint-{state.global_step}"
