"""Tests the callbacks of both frameworks: one process, checkpoints without a state, scalers."""

import pytest
import torch

from frameworks import lightning, needs, together, transformers, warned
from world import ranks


def alone(rank, size, function, folder):
    """Trains in a process without a process group."""
    torch.distributed.destroy_process_group()
    return function(folder)


def lightning_alone(folder):
    from gradwire.torch.lightning import Compression

    compression = Compression("3lc")
    compression.load_state_dict({"exchange": {}})
    trainer, task = lightning(compression, 2, devices=1)
    found = warned(lambda: trainer.fit(*task))
    # Not for a later training.
    assert compression.state_dict() == {}
    return trainer.global_step, found


def transformers_alone(folder):
    trainer, _ = transformers("3lc", folder, 2)
    found = warned(trainer.train)
    return trainer.state.global_step, found


@pytest.mark.parametrize("framework, function", [("lightning", lightning_alone), ("transformers", transformers_alone)])
def test_a_single_process_goes_on_without_compression(framework, function, tmp_path):
    needs(framework)
    ((steps, (message,)),) = ranks(1, alone, function, str(tmp_path))
    assert steps == 2 and "a single process" in message and "torchrun" in message


def lightning_resumes(rank, size, folder, saved_with, steps):
    """Saves a checkpoint, perhaps without gradwire, and resumes from it."""
    from gradwire.torch.lightning import Compression

    trainer, task = lightning(Compression("3lc") if saved_with else None, 2, strategy="ddp", devices=size)
    trainer.fit(*task)
    trainer.save_checkpoint(f"{folder}/saved.ckpt")
    compression = Compression("3lc")
    trainer, task = lightning(compression, steps, strategy="ddp", devices=size)
    found = warned(lambda: trainer.fit(*task, ckpt_path=f"{folder}/saved.ckpt"))
    return found, compression.handle.step


def transformers_resumes(rank, size, folder, saved_with, steps):
    trainer, _ = transformers("3lc" if saved_with else None, folder, 2)
    trainer.train()
    torch.distributed.barrier()
    trainer, compression = transformers("3lc", folder, steps, save=False)
    counted = []
    compression.on_step_end = lambda *others, **named: counted.append(compression.handle.step)
    found = warned(lambda: trainer.train(resume_from_checkpoint=True))
    return found, counted[-1]


@pytest.mark.parametrize("framework, function", [("lightning", lightning_resumes), ("transformers", transformers_resumes)])
def test_a_checkpoint_from_before_gradwire_begins_with_empty_residuals(framework, function, tmp_path):
    needs(framework)
    for (message,), steps in ranks(2, together, function, str(tmp_path), False, 5):
        assert steps == 3 and "has no state of gradwire" in message and "schedules begin at step 0" in message
    for messages, steps in ranks(2, together, function, str(tmp_path), True, 5):
        assert steps == 5 and not messages


def lightning_scaled(rank, size, folder):
    from gradwire.torch.lightning import Compression
    from lightning.pytorch.plugins import MixedPrecision

    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    compression = Compression("3lc")
    trainer, task = lightning(
        compression, 3, strategy="ddp", devices=size, plugins=[MixedPrecision("16-mixed", "cpu", scaler)]
    )
    overflow = lambda gradient: gradient * (float("inf") if trainer.global_step == 1 and scaler.get_scale() == 64.0 else 1.0)
    task[0].net.layers[0].weight.register_hook(overflow)
    trainer.fit(*task)
    return compression.handle._scaler is scaler, compression.handle.stats()["total_skipped"], scaler.get_scale()


def transformers_scaled(rank, size, folder):
    trainer, compression = transformers("3lc", folder, 2)
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    found = []
    compression.on_step_end = lambda *others, **named: found.append(compression.handle._scaler is trainer.accelerator.scaler)
    trainer.train()
    return found


@pytest.mark.parametrize("framework, function, found", [
    ("lightning", lightning_scaled, (True, 1, 32.0)),
    ("transformers", transformers_scaled, [True, True]),
])
def test_the_scaler_of_a_framework_is_taken(framework, function, found, tmp_path):
    needs(framework)
    assert ranks(2, together, function, str(tmp_path)) == [found] * 2


def test_options_of_the_user_are_kept():
    from gradwire.torch._framework import with_scaler

    def found(of_framework, compressor="3lc", **given):
        arguments = with_scaler({"compressor": compressor, "scaler": "auto", "on_nonfinite": None, "seed": 1, **given}, of_framework)
        assert arguments.pop("compressor") == compressor and arguments.pop("seed") == 1
        return arguments["scaler"], arguments["on_nonfinite"]

    own, other = object(), object()
    assert found(None) == (None, "error")
    assert found(own) == (own, "skip")
    assert found(own, on_nonfinite="error") == (own, "error")
    assert found(own, scaler=other) == (other, "error")
    assert found(own, scaler=None) == (None, "error")
    assert found(own, compressor=object) == (None, "error")
