"""Measures the loss of a GPT after the same training time over a link: with gradients at every
step, uncompressed and compressed, and with local steps.

scripts/links runs it as every rank, for example
`scripts/links -n 2 -r 10mbit -b 4kb python benchmarks/budget.py`. Rank 0 prints a table. The first
steps give an estimate of the number of steps that fit into the time. So all ranks know it, and the
learning rate goes through its whole schedule. Evaluation is not timed.
"""

import argparse
import math
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from tasks import MOST_STEPS, TASKS

# The compressor, and the local steps of a round; 0 sends gradients.
MODES = (("none", 0), ("eden", 0), ("eden", 50))
PEAK, LAST, WARM_UP = 0.004, 0.0004, 0.05


def rate(part):
    """The learning rate after this part of the training."""
    cosine = LAST + (PEAK - LAST) * (1 + math.cos(math.pi * part)) / 2
    return cosine * min(1.0, part / WARM_UP)


class Gradients:
    """Training with a communication hook."""

    def __init__(self, model, optimizer, compressor):
        self.model, self.optimizer = DistributedDataParallel(model), optimizer
        self.handle = gradwire.torch.register(self.model, compressor)

    def step(self, loss):
        self.optimizer.zero_grad()
        loss(self.model).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def close(self):
        pass


class Local:
    """Training with local steps and an outer optimizer."""

    def __init__(self, model, optimizer, compressor, every):
        self.model, outer = model, gradwire.torch.Nesterov(lr=0.7, momentum=0.5)
        self.steps = gradwire.torch.LocalSteps(model, optimizer, every, compressor, outer=outer)

    def step(self, loss):
        self.steps.zero_grad()
        loss(self.model).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.steps.step()

    def close(self):
        self.steps.close()


def trainer(task, compressor, every, seed):
    torch.manual_seed(seed)
    model = task.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK, betas=(0.9, 0.99), weight_decay=0.1)
    training = Local(model, optimizer, compressor, every) if every else Gradients(model, optimizer, compressor)
    return model, optimizer, training


def run(task, training, optimizer, steps, schedule, seed):
    """Trains for this number of steps; returns the seconds. Each seed has its own batches."""
    rank, start = dist.get_rank(), time.perf_counter()
    for number in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = schedule(number)
        training.step(lambda model: task.loss(model, rank, MOST_STEPS * seed + number))
    dist.barrier()
    return time.perf_counter() - start


def measure(task, compressor, every, seconds, seed):
    """Steps, seconds and the loss on the test text."""
    # Two rounds show the time that an exchange adds to a step; without local steps, a few steps do.
    trial = 2 * every or 6
    _, optimizer, training = trainer(task, compressor, every, seed)
    run(task, training, optimizer, trial // 2, lambda _: LAST, seed)
    taken = run(task, training, optimizer, trial, lambda _: LAST, seed)
    training.close()
    # Whole rounds: after the last exchange each rank would have its own model.
    length = every or 1
    steps = torch.tensor([length * max(1, round(seconds * trial / taken / length))])
    dist.broadcast(steps, 0)
    steps = steps.item()
    model, optimizer, training = trainer(task, compressor, every, seed)
    taken = run(task, training, optimizer, steps, lambda number: rate((number + 1) / steps), seed)
    training.close()
    with torch.no_grad():
        return steps, taken, task.test_loss(model)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    task = TASKS["gpt"]()
    show = print if dist.get_rank() == 0 else lambda *_, **__: None
    show("| sent | compressor | seed | steps | seconds | a step | loss |\n|---|---|---:|---:|---:|---:|---:|", flush=True)
    for seed in options.seeds:
        for compressor, every in MODES:
            steps, taken, loss = measure(task, compressor, every, options.seconds, seed)
            sent = f"{every} local steps, outer step" if every else "gradients"
            step = f"{1e3 * taken / steps:.0f} ms"
            show(f"| {sent} | `{compressor}` | {seed} | {steps} | {taken:.0f} | {step} | {loss:.3f} |", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
