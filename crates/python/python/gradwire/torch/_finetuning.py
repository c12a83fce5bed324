"""Checks Lightning callbacks that unfreeze parameters in the middle of training."""

from __future__ import annotations

import warnings
from math import ceil
from typing import List

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import BackboneFinetuning, BaseFinetuning

from .. import _core

_REMEDY = (
    "Do not change requires_grad during training: let freeze_before_training freeze nothing, leave these parameters out of "
    "configure_optimizers, and add them in finetune_function with optimizer.add_param_group. Or train twice: first with the parameters "
    "frozen and without the callback, then with a new Trainer after requires_grad_()"
)


def check_unfreezing(trainer: pl.Trainer, module: pl.LightningModule) -> None:
    """Refuses a ``BackboneFinetuning`` that will unfreeze parameters unknown to
    DistributedDataParallel, and warns of other callbacks that may.

    DistributedDataParallel averages the parameters that required gradients when it wrapped the
    model. It silently leaves out parameters that are unfrozen later, so ranks train them apart.
    """
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, BackboneFinetuning):
            frozen = _frozen(module.backbone)
            epoch = callback.unfreeze_backbone_at_epoch
            if frozen and _reaches(trainer, epoch):
                raise _core.ConfigError(
                    f"{type(callback).__name__} unfreezes '{_name(module, frozen[0])}' at epoch {epoch}, but DistributedDataParallel "
                    f"averages only parameters that required gradients when it wrapped the model. {_REMEDY}"
                )
        elif isinstance(callback, BaseFinetuning) and _frozen(module):
            name = _name(module, _frozen(module)[0])
            warnings.warn(
                f"if {type(callback).__name__} unfreezes a parameter such as '{name}' during training, gradwire will raise an error: "
                f"DistributedDataParallel averages only parameters that required gradients when it wrapped the model. {_REMEDY}",
                RuntimeWarning,
                stacklevel=3,
            )


def _frozen(module: torch.nn.Module) -> List[torch.Tensor]:
    return [parameter for parameter in module.parameters() if not parameter.requires_grad]


def _name(module: torch.nn.Module, parameter: torch.Tensor) -> str:
    return next(name for name, one in module.named_parameters() if one is parameter)


def _reaches(trainer: pl.Trainer, epoch: int) -> bool:
    """Whether this training begins an epoch. True if the number of batches is not known."""
    if epoch < trainer.current_epoch:
        return False
    if trainer.max_epochs is not None and 0 <= trainer.max_epochs <= epoch:
        return False
    batches = trainer.num_training_batches
    if trainer.max_steps < 0 or batches == float("inf"):
        return True
    steps = ceil(batches / trainer.accumulate_grad_batches)
    return trainer.global_step + (epoch - trainer.current_epoch) * steps < trainer.max_steps
