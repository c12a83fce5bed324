"""Trainers of Lightning and Transformers for tests, and the warnings of a call."""

import importlib
import os
import sys
import warnings
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[3] / "examples" / "pytorch"))


def needs(framework):
    """Skips a test if its framework is missing. Imports the framework's example here, so that ranks
    need not import it again."""
    pytest.importorskip(framework)
    importlib.import_module(f"with_{framework}")


def environment(rank, size):
    """Sets the variables that torchrun sets."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size))
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="1", ACCELERATE_USE_CPU="true", NODE_RANK="0")


def together(rank, size, function, *arguments):
    """Trains; no rank ends before all have finished."""
    environment(rank, size)
    result = function(rank, size, *arguments)
    torch.distributed.barrier()
    return result


def warned(function):
    """The warnings of gradwire in a call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [str(one.message) for one in caught if "gradwire" in str(one.message)]


def lightning(compression, steps, **options):
    """A Trainer of Lightning, and the arguments of its ``fit``."""
    import lightning.pytorch as pl
    import with_lightning

    trainer = pl.Trainer(
        accelerator="cpu", max_steps=steps, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[compression] if compression else [], **options,
    )
    batches = torch.utils.data.DataLoader(torch.zeros(100_000), batch_size=1)
    return trainer, (with_lightning.Module(), batches)


def transformers(compressor, folder, steps, save=True):
    """A Trainer of Transformers with its callback, if a compressor is given."""
    import task
    import with_transformers
    from gradwire.torch.transformers import Compression
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=folder, max_steps=steps, per_device_train_batch_size=1, use_cpu=True, report_to=[],
        disable_tqdm=True, ddp_backend="gloo" if torch.distributed.is_initialized() else None,
        save_strategy="steps" if save else "no", save_steps=steps,
    )
    trainer = Trainer(task.model(), arguments, train_dataset=with_transformers.Points())
    compression = Compression(trainer, compressor or "none")
    if compressor:
        trainer.add_callback(compression)
    return trainer, compression
