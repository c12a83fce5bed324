"""Measures how long training waits for the exchanges of LocalSteps: for the whole model, for
fragments, and for both in the background.

scripts/links runs it as every rank, for example
`scripts/links -n 2 -r 10mbit -b 4kb python benchmarks/streaming.py`. Rank 0 prints a table.
"""

import argparse
import time

import torch
import torch.distributed as dist

import gradwire.torch
from tasks import TASKS

# fragments and fragment_sync_delay; -1 is the largest delay without overlapping exchanges.
MODES = ((1, 0), (3, 0), (1, -1), (3, -1))


def measure(task, compressor, every, rounds, fragments, delay):
    """The seconds of a step, the part of them that training waits, and the loss of the last round
    on this rank."""
    torch.manual_seed(0)
    model = task.model()
    steps = gradwire.torch.LocalSteps(
        model,
        task.optimizer(model),
        every,
        compressor,
        outer=gradwire.torch.Nesterov(lr=0.7, momentum=0.5),
        fragments=fragments,
        fragment_sync_delay=delay,
    )
    waited, last, losses = 0.0, None, []
    # The first round warms caches up.
    for number in range(every * (rounds + 1)):
        if number == every:
            waited, start = 0.0, time.perf_counter()
        steps.zero_grad()
        loss = task.loss(model, dist.get_rank(), number)
        loss.backward()
        steps.step()
        losses.append(loss.item())
        stats = steps.stats()
        if stats["wait_seconds"] != last:
            last = stats["wait_seconds"]
            waited += last
    seconds = time.perf_counter() - start
    count = every * rounds
    steps.close()
    return seconds / count, waited / count, sum(losses[-every:]) / every


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=sorted(TASKS), default="gpt")
    parser.add_argument("--every", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--compressors", nargs="*", default=["int8", "eden"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    task = TASKS[options.task]()
    show = print if dist.get_rank() == 0 else lambda *_, **__: None
    show("| compressor | fragments | delay in steps | a step | of it waiting | loss, training |\n|---|---:|---:|---:|---:|---:|")
    for compressor in options.compressors:
        for fragments, delay in MODES:
            delay = options.every // fragments - 1 if delay < 0 else delay
            step, waited, loss = measure(task, compressor, options.every, options.rounds, fragments, delay)
            show(f"| `{compressor}` | {fragments} | {delay} | {1e3 * step:.1f} ms | {1e3 * waited:.1f} ms | {loss:.3f} |", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
