"""Trains with Transformers' Trainer and compressed gradients, saves checkpoints, and resumes from
the last with --resume.

    torchrun --nproc-per-node 2 examples/pytorch/with_transformers.py --steps 100
"""

import task
import torch
from transformers import Trainer, TrainingArguments

from gradwire.torch.transformers import Compression


class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, at):
        x, labels = task.batch(0, at, 1)
        return {"x": x[0], "labels": labels[0]}


def train(folder, steps, resume, compressor="eden"):
    arguments = TrainingArguments(
        output_dir=folder, max_steps=steps, save_strategy="steps", save_steps=max(1, steps // 4), per_device_train_batch_size=1,
        use_cpu=True, ddp_backend="gloo", lr_scheduler_type="constant", max_grad_norm=0.0, report_to=[],
        disable_tqdm=True,
    )
    net = task.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    trainer = Trainer(net, arguments, train_dataset=Points(), optimizers=(optimizer, None))
    # Each checkpoint contains the number of steps and, with compressors that have error feedback,
    # the residuals of every rank.
    trainer.add_callback(Compression(trainer, compressor))
    trainer.train(resume_from_checkpoint=resume)
    return trainer.model


if __name__ == "__main__":
    task.run(train, __doc__)
