"""Trains with Lightning and compressed gradients, saves a checkpoint, and resumes from it with
--resume.

    torchrun --nproc-per-node 2 examples/pytorch/with_lightning.py --steps 100
"""

import os

import lightning.pytorch as pl
import task
import torch

from gradwire.torch.lightning import Compression


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = task.model()

    def training_step(self, batch, at):
        # Lightning does not skip the batches before the step that it resumes from.
        return self.net(*task.batch(self.global_rank, self.global_step))["loss"]

    def configure_optimizers(self):
        return torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)


def train(folder, steps, resume):
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    trainer = pl.Trainer(
        accelerator="cpu", strategy="ddp", devices=ranks, max_steps=steps, logger=False, default_root_dir=folder,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        # Lightning's checkpoints contain the residuals of all ranks.
        callbacks=[Compression("3lc")],
    )
    module = Module()
    batches = torch.utils.data.DataLoader(torch.zeros(100_000), batch_size=1)
    trainer.fit(module, batches, ckpt_path=f"{folder}/last.ckpt" if resume else None)
    trainer.save_checkpoint(f"{folder}/last.ckpt")
    return module.net


if __name__ == "__main__":
    task.run(train, __doc__)
