"""Trains under each framework, stops, resumes with the framework's own checkpoint, and compares bits with a whole run."""

import os

import pytest
import torch
from torch import nn

import gradwire.torch
from models import Net, data, flat
from world import ranks

STEPS, STOP = 8, 5


def environment(rank, size):
    """What torchrun sets."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size))
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="1", ACCELERATE_USE_CPU="true", NODE_RANK="0")


def together(rank, size, function, *arguments):
    """Trains, and ends no rank before the others have what they need of it."""
    environment(rank, size)
    result = function(rank, size, *arguments)
    torch.distributed.barrier()
    return result


def whole_and_resumed(function, folder):
    """Checks that a stopped and resumed run ends with the bits of a whole one."""
    whole = ranks(2, together, function, str(folder / "whole"), STEPS, False)
    ranks(2, together, function, str(folder / "parts"), STOP, False)
    resumed = ranks(2, together, function, str(folder / "parts"), STEPS, True)
    (one, steps), (two, _) = whole
    assert (one == two).all() and steps == STEPS
    assert (resumed[0][0] == one).all() and (resumed[1][0] == one).all() and resumed[0][1] == STEPS


def with_accelerate(rank, size, folder, steps, resume):
    from accelerate import Accelerator

    accelerator = Accelerator()
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    handle = gradwire.torch.register(model, "3lc")
    accelerator.register_for_checkpointing(handle.all_ranks)
    if resume:
        accelerator.load_state(folder)
    for step in range(handle.step, steps):
        x, labels = data(rank, step)
        optimizer.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(model(x), labels))
        optimizer.step()
    accelerator.save_state(folder)
    return flat(model), handle.step


def test_accelerate(tmp_path):
    pytest.importorskip("accelerate")
    whole_and_resumed(with_accelerate, tmp_path)


def with_lightning(rank, size, folder, steps, resume):
    import lightning.pytorch as pl
    from gradwire.torch.lightning import Compression

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.net = Net()

        def training_step(self, batch, at):
            # Lightning does not skip the batches before the step that it resumes from.
            x, labels = data(rank, self.global_step)
            return nn.functional.cross_entropy(self.net(x), labels)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.net.parameters(), lr=0.01)

    compression, module = Compression("3lc"), Module()
    loader = torch.utils.data.DataLoader(torch.zeros(STEPS * size), batch_size=1)
    trainer = pl.Trainer(
        accelerator="cpu", strategy="ddp", devices=size, max_steps=steps, logger=False, default_root_dir=folder,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[compression],
    )
    trainer.fit(module, loader, ckpt_path=f"{folder}/last.ckpt" if resume else None)
    trainer.save_checkpoint(f"{folder}/last.ckpt")
    return flat(module), compression.state_dict()["step"]


def test_lightning(tmp_path):
    pytest.importorskip("lightning")
    whole_and_resumed(with_lightning, tmp_path)


def with_transformers(rank, size, folder, steps, resume):
    from transformers import Trainer, TrainingArguments
    from gradwire.torch.transformers import Compression

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def forward(self, x, labels):
            scores = self.net(x)
            return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}

    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return STEPS * size

        def __getitem__(self, at):
            x, labels = data(0, at, 1)
            return {"x": x[0], "labels": labels[0]}

    torch.manual_seed(0)
    model = Classifier()
    arguments = TrainingArguments(
        output_dir=folder, max_steps=steps, save_strategy="steps", save_steps=1, per_device_train_batch_size=1, use_cpu=True, report_to=[],
        disable_tqdm=True, ddp_backend="gloo", learning_rate=0.01, lr_scheduler_type="constant", max_grad_norm=0.0,
    )
    trainer = Trainer(model, arguments, train_dataset=Samples())
    compression = Compression(trainer, "3lc")
    trainer.add_callback(compression)
    trainer.train(resume_from_checkpoint=resume)
    return flat(model), torch.load(f"{folder}/checkpoint-{steps}/gradwire-rank{rank}.pt")["step"]


def test_transformers(tmp_path):
    pytest.importorskip("transformers")
    whole_and_resumed(with_transformers, tmp_path)


class Node:
    """Flower's context of a client."""

    def __init__(self):
        from flwr.app import Context, RecordDict

        self.context = Context(0, 5, {}, RecordDict(), {})

    def round(self, compression, start, step):
        """Sends `start` and has the app add `step`; returns the change that the server receives."""
        from flwr.app import ArrayRecord, Message, RecordDict
        from gradwire.flower import unpack

        def app(message, context):
            end = [values + step for values in message.content["arrays"].to_numpy_ndarrays()]
            return Message(RecordDict({"arrays": ArrayRecord(end)}), reply_to=message)

        message = Message(RecordDict({"arrays": ArrayRecord([start])}), dst_node_id=5, message_type="train")
        (change,) = unpack(compression(message, self.context, app).content["arrays"]).values()
        return change


def test_flower_sends_later_what_a_message_leaves_out():
    pytest.importorskip("flwr")
    import numpy
    from flwr.supercore.task_identity import TaskIdentity
    from gradwire.flower import Compression

    # Flower's own processes would set these.
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 0
    node, compression = Node(), Compression("topk:ratio=0.25")
    start = numpy.zeros((4, 8), "float32")
    step = numpy.arange(32, dtype="float32").reshape(4, 8)
    sent = [node.round(compression, start, step) for _ in range(3)]
    assert all(numpy.count_nonzero(change) == 8 for change in sent)
    residual = node.context.state["gradwire.residual"].to_numpy_ndarrays()[0]
    numpy.testing.assert_allclose(sum(sent) + residual, 3 * step, rtol=1e-6)
    # Without error feedback each message is the same.
    alone, plain = Node(), Compression("topk:ratio=0.25", error_feedback=False)
    assert (alone.round(plain, start, step) == alone.round(plain, start, step)).all()
    assert len(alone.context.state.array_records) == 0
    # A vector is sent whole.
    assert (Node().round(compression, start[0], step[0]) == step[0]).all()
