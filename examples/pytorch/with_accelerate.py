"""Trains with Accelerate and compressed gradients, saves a checkpoint, and resumes from it with
--resume.

    torchrun --nproc-per-node 2 examples/pytorch/with_accelerate.py --steps 100
"""

import task
import torch
from accelerate import Accelerator

import gradwire.torch


def train(folder, steps, resume):
    accelerator = Accelerator(cpu=True)
    net = task.model()
    model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9))
    handle = gradwire.torch.register(model, "3lc")
    # The checkpoint contains the residuals of all ranks.
    accelerator.register_for_checkpointing(handle.all_ranks)
    if resume:
        accelerator.load_state(folder)
    for step in range(handle.step, steps):
        optimizer.zero_grad()
        accelerator.backward(model(*task.batch(accelerator.process_index, step))["loss"])
        optimizer.step()
    accelerator.save_state(folder)
    return net


if __name__ == "__main__":
    task.run(train, __doc__)
