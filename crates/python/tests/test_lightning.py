"""Tests the callback for Lightning: repeated training, errors, signals, finetuning."""

import pytest
import torch

import gradwire
from frameworks import lightning, needs, together, warned
from world import ranks


def fitted_twice(rank, size, folder):
    """Fits two times with the same Trainer of Lightning; saves a checkpoint in between, after
    training."""
    from gradwire.torch.lightning import Compression

    gathers = []

    class Counted(Compression):
        def on_train_end(self, trainer, pl_module):
            save = self.handle.state_dict
            self.handle.state_dict = lambda **options: gathers.append(options) or save(**options)
            self.before = save()["exchange"][f"rank{rank}"][0]

        def on_train_batch_start(self, *others):
            self.first = getattr(self, "first", None) or (self.handle.step, self.handle.state_dict()["exchange"][f"rank{rank}"][0])

    compression = Counted("topk:ratio=0.1")
    trainer, task = lightning(compression, 2, strategy="ddp", devices=size)
    trainer.fit(*task)
    at_end, own = list(gathers), compression.before
    trainer.save_checkpoint(f"{folder}/end.ckpt")
    trainer.fit_loop.max_epochs, trainer.fit_loop.epoch_loop.max_steps = -1, 4
    compression.first = None
    trainer.fit(*task)
    (saved,) = torch.load(f"{folder}/end.ckpt", weights_only=False)["callbacks"].values()
    step, again = compression.first
    return at_end, gathers, step, len(saved["exchange"]), bool((again == own).all()), compression._saved


def test_lightning_gathers_states_only_for_checkpoints(tmp_path):
    needs("lightning")
    for at_end, gathers, step, saved, same, kept in ranks(2, together, fitted_twice, str(tmp_path)):
        assert at_end == [] and gathers[:2] == [{"all_ranks": True}, {}]
        assert step == 2 and saved == 2 and same and kept == {}


def lightning_goes_back(rank, size, folder):
    """Fits again, from a checkpoint that was saved without gradwire."""
    from gradwire.torch.lightning import Compression

    trainer, task = lightning(None, 2, strategy="ddp", devices=size)
    trainer.fit(*task)
    trainer.save_checkpoint(f"{folder}/without.ckpt")
    compression, steps = Compression("topk:ratio=0.1"), []
    compression.on_train_batch_start = lambda *others: steps.append(compression.handle.step)
    trainer, task = lightning(compression, 4, strategy="ddp", devices=size)
    trainer.fit(*task)
    return steps, warned(lambda: trainer.fit(*task, ckpt_path=f"{folder}/without.ckpt"))


def test_lightning_does_not_take_residuals_to_the_weights_of_a_checkpoint(tmp_path):
    needs("lightning")
    for steps, (message,) in ranks(2, together, lightning_goes_back, str(tmp_path)):
        assert steps == [0, 1, 2, 3, 0, 1] and "has no state of gradwire" in message


def lightning_closed(rank, size, folder):
    """Fits again after the callback was closed; in between one rank alone asks for the states."""
    from gradwire.torch.lightning import Compression

    compression, steps = Compression("topk:ratio=0.1"), []
    compression.on_train_batch_start = lambda *others: steps.append(compression.handle.step)
    trainer, task = lightning(compression, 2, strategy="ddp", devices=size)
    trainer.fit(*task)
    compression.close()
    saved = len(compression.state_dict()["exchange"]) if rank == 0 else size
    closed = compression.handle is None
    trainer.fit_loop.max_epochs, trainer.fit_loop.epoch_loop.max_steps = -1, 4
    trainer.fit(*task)
    return closed, saved, steps


def test_a_closed_callback_of_lightning_keeps_the_states_of_all_ranks(tmp_path):
    needs("lightning")
    assert ranks(2, together, lightning_closed, str(tmp_path)) == [(True, 2, [0, 1, 2, 3])] * 2


def lightning_fails(rank, size, folder):
    """Has an error on one rank, on which, and on the others for want of it, Lightning saves a
    checkpoint."""
    import lightning.pytorch as pl
    from gradwire.torch.lightning import Compression
    from lightning.pytorch.callbacks import OnExceptionCheckpoint

    class Fails(pl.Callback):
        def on_train_batch_start(self, trainer, *others):
            if rank == 0 and trainer.global_step == 2:
                raise ValueError("out of luck")

    compression = Compression("topk:ratio=0.1", deadline=3.0)
    trainer, task = lightning(compression, 4, strategy="ddp", devices=size)
    trainer.callbacks += [Fails(), OnExceptionCheckpoint(folder, f"failed{rank}")]
    # It removes its file when training ends; here that is too early.
    OnExceptionCheckpoint.teardown = lambda *others: None

    def fit():
        with pytest.raises(Exception) as failure:
            trainer.fit(*task)
        raised.append(type(failure.value).__name__)

    raised = []
    found = warned(fit)
    saved = torch.load(f"{folder}/failed0.ckpt", weights_only=False)
    return raised, found, saved["global_step"], list(saved["callbacks"])


def test_a_checkpoint_after_an_error_of_one_rank_waits_for_no_other(tmp_path):
    needs("lightning")
    failed, waited = ranks(2, together, lightning_fails, str(tmp_path))
    assert failed[0] == ["ValueError"] and waited[0] == ["DeadlineError"]
    for _, (message,), steps, callbacks in (failed, waited):
        assert "no state of gradwire: after an error" in message and steps == 2 and callbacks == []


def lightning_fits_again(rank, size, folder, closes):
    """Fits again after an error of one rank, which the others notice in a later step than it."""
    import lightning.pytorch as pl
    from gradwire.torch.lightning import Compression

    class Fails(pl.Callback):
        def on_train_batch_start(self, trainer, *others):
            if rank == 0 and trainer.global_step == 2:
                raise ValueError("out of luck")

    compression, steps = Compression("topk:ratio=0.1", deadline=3.0), []
    trainer, task = lightning(compression, 4, strategy="ddp", devices=size)
    trainer.callbacks.append(Fails())
    with pytest.raises((ValueError, gradwire.GradwireError)):
        trainer.fit(*task)
    trainer.callbacks.pop()
    if closes:
        compression.close()
        assert warned(compression.state_dict) and compression.state_dict() == {}
    torch.distributed.barrier()
    compression.on_train_batch_start = lambda *others: steps.append(compression.handle.step)
    return warned(lambda: trainer.fit(*task)), steps, len(compression.state_dict()["exchange"])


@pytest.mark.parametrize("closes", [False, True])
def test_lightning_begins_with_empty_residuals_after_an_error(closes, tmp_path):
    needs("lightning")
    for (message,), steps, saved in ranks(2, together, lightning_fits_again, str(tmp_path), closes):
        assert "ended with an error, has no state of gradwire; residuals begin empty" in message
        assert steps == [0, 1] and saved == 2


def preempted(rank, size, compressor, folder):
    """Saves a checkpoint in a signal handler between the forward and the backward pass, and goes
    on; then resumes from it."""
    import signal

    import lightning.pytorch as pl
    from gradwire.torch.lightning import Compression

    class Preemption(pl.Callback):
        def on_before_backward(self, trainer, *_):
            if trainer.global_step == 2:
                signal.raise_signal(signal.SIGUSR1)

    compression = Compression(compressor)
    trainer, task = lightning(compression, 4, strategy="ddp", devices=size)
    trainer.callbacks.append(Preemption())
    signal.signal(signal.SIGUSR1, lambda *_: trainer.save_checkpoint(f"{folder}/{compressor}.ckpt"))
    told = warned(lambda: trainer.fit(*task))
    went_on = compression.handle.step
    compression = Compression(compressor)
    trainer, task = lightning(compression, 4, strategy="ddp", devices=size)
    told += warned(lambda: trainer.fit(*task, ckpt_path=f"{folder}/{compressor}.ckpt"))
    return told, went_on, compression.handle.step


def test_a_checkpoint_of_a_signal_handler_is_saved_and_resumed(tmp_path):
    needs("lightning")
    for told, went_on, resumed in ranks(2, together, preempted, "3lc", str(tmp_path)):
        assert went_on == 4 and resumed == 2
        assert len(told) == 2 and "no state of gradwire (all ranks must save their states" in told[0] and "residuals begin empty" in told[1], told
    # What keeps nothing loses nothing.
    for told, went_on, resumed in ranks(2, together, preempted, "eden", str(tmp_path)):
        assert went_on == 4 and resumed == 4 and not told, told


def finetuning(late, **options):
    """A Trainer of Lightning with a module that has a backbone, and what its ``fit`` takes."""
    import lightning.pytorch as pl
    from gradwire.torch.lightning import Compression

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.backbone, self.head = torch.nn.Linear(4, 300), torch.nn.Linear(300, 2)

        def training_step(self, batch, at):
            return (self.head(self.backbone(batch).tanh()) - self.global_rank).pow(2).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.head.parameters(), lr=1e-3)

    trainer = pl.Trainer(
        accelerator="cpu", strategy="ddp", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[late, Compression("fp16")], **options,
    )
    rows = torch.utils.data.DataLoader(torch.arange(16.0).view(4, 4), batch_size=1)
    return trainer, (Module(), rows)


def finetunes(rank, size):
    from lightning.pytorch.callbacks import BackboneFinetuning, BaseFinetuning

    class Own(BaseFinetuning):
        """Unfreezes as its arguments say."""

        def __init__(self, freezes, function):
            super().__init__()
            self.freezes, self.function = freezes, function

        def freeze_before_training(self, module):
            if self.freezes:
                self.freeze(module.backbone)

        def finetune_function(self, module, epoch, optimizer):
            if epoch == 1:
                self.function(module, optimizer)

    def fits(late, **options):
        trainer, (module, rows) = finetuning(late, devices=size, **options)
        before, refused = module.backbone.weight.detach().clone(), None
        try:
            said = warned(lambda: trainer.fit(module, rows))
        except gradwire.ConfigError as error:
            said, refused = [], str(error)
        return refused, said, trainer.global_step, (module.backbone.weight - before).detach()

    def adds(module, optimizer):
        optimizer.add_param_group({"params": list(module.backbone.parameters()), "lr": 1e-3})

    return {
        "later": fits(BackboneFinetuning(1), max_epochs=2),
        "by_steps": fits(BackboneFinetuning(1), max_epochs=-1, max_steps=5),
        "never": fits(BackboneFinetuning(1), max_epochs=1),
        "too_late": fits(BackboneFinetuning(1), max_epochs=-1, max_steps=2),
        "frozen": fits(Own(True, lambda *_: None), max_epochs=2),
        "remedy": fits(Own(False, adds), max_epochs=2),
    }


def test_unfreezing_while_training_is_refused_when_it_starts():
    needs("lightning")
    one, two = ranks(2, together, finetunes)
    for name in ("later", "by_steps"):
        refused, _, steps, _ = one[name]
        # Not after an epoch.
        assert steps == 0 and "'backbone.weight' at epoch 1" in refused and "add_param_group" in refused, (name, refused)
    for name in ("never", "too_late"):
        refused, said, steps, _ = one[name]
        assert refused is None and not said and steps > 0, name
    refused, (message,), steps, moved = one["frozen"]
    assert refused is None and steps == 4 and not moved.any() and "if Own unfreezes" in message and "add_param_group" in message
    # What the texts recommend trains the backbone, in the same way on both ranks.
    (refused, said, steps, moved), (*_, other) = one["remedy"], two["remedy"]
    assert refused is None and not said and steps == 4
    assert moved.any() and (moved == other).all()
