"""Measures time per step and time to a fixed accuracy or loss of communication hooks on a link.

scripts/links runs it as every rank; rank 0 appends a JSON line for each hook to --out.
"""

import argparse
import json
import math
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from tasks import MOST_STEPS, TASKS

# The first steps, which are not in the median, and the fewest that a run has.
WARM_STEPS, FEWEST_STEPS = 12, 20
# What tells one run from another.
PLACE = ("task", "rate", "ranks", "hook", "seed", "turn")
PYTORCH = ("no hook", "fp16_compress_hook", "powerSGD_hook")
GRADWIRE = ("fp16", "int8", "eden:bits=2", "eden", "3lc", "topk:ratio=0.01", "powersgd:rank=1")


def register(model, hook):
    """Registers a hook by name; returns the handle of a gradwire hook."""
    if hook == "no hook":
        return None
    if hook == "fp16_compress_hook":
        return model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    if hook == "powerSGD_hook":
        # The defaults, except that it compresses from the tenth step on, not from the thousandth.
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=10)
        return model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return gradwire.torch.register(model, hook)


def measure(task, hook, seconds, limit, seed):
    """Trains until the target or the limit of steps or time is reached; evaluation is not timed. Each seed has its own
    weights and batches."""
    torch.manual_seed(seed)
    # PowerSGD's hook chains collectives, and over gloo those of two buckets deadlock. An explicit limit puts all
    # parameters into one bucket.
    buckets = {"bucket_cap_mb": 26} if hook == "powerSGD_hook" else {}
    model = DistributedDataParallel(task.model(), **buckets)
    handle, optimizer = register(model, hook), task.optimizer(model)
    rank, steps, total, best, reached = dist.get_rank(), [], 0.0, None, None
    for step in range(limit or task.cap_steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        task.loss(model, rank, MOST_STEPS * seed + step).backward()
        optimizer.step()
        steps.append(time.perf_counter() - start)
        total += steps[-1]
        if limit is None and (step + 1) % task.every == 0:
            with torch.no_grad():
                found = task.measure(model.module)
                best = found if best is None else max(best, found)
            # The clock of rank 0 decides for all ranks.
            verdict = torch.tensor([best, total])
            dist.broadcast(verdict, 0)
            if verdict[0] >= task.target:
                reached = step + 1
                break
            if verdict[1] > seconds and step + 1 >= FEWEST_STEPS:
                break
    del model
    return {
        "steps": len(steps),
        "step_ms": 1e3 * statistics.median(steps[WARM_STEPS:]),
        "seconds": total,
        "steps_to_target": reached,
        "best": best,
        "stats": handle.stats() if isinstance(handle, gradwire.torch.Hook) else None,
    }


def measured(path):
    """The runs that a file has: each with its place, and the seconds up to which it would have gone on."""
    if not os.path.exists(path):
        return {}
    with open(path) as file:
        runs = [json.loads(line) for line in file]
    # Older records do not have their limit. A run that reached its target had no need of one.
    limit = lambda run: math.inf if run["steps_to_target"] else run.get("limit", math.inf)
    # Neither do older timings have their turn.
    return {tuple(run.get(key) for key in PLACE): limit(run) for run in runs if run["best"] or run.get("turn") is not None}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=sorted(TASKS), default="cnn")
    parser.add_argument("--rate", default="none", help="the rate of the link, for the record")
    parser.add_argument("--seconds", type=float, default=60.0, help="training time after which a hook is stopped")
    parser.add_argument("--hooks", nargs="*", default=[*PYTORCH, *GRADWIRE])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, help="time this number of steps, without evaluation")
    parser.add_argument("--turn", type=int, help="a number for each repetition of --steps")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    # Before ranks wait for one another: rank 0 writes to the file later.
    done = measured(options.out)
    dist.init_process_group("gloo")
    task = TASKS[options.task]()
    for seed in options.seeds:
        for hook in options.hooks:
            place = (options.task, options.rate, dist.get_world_size(), hook, seed, options.turn)
            if done.get(place, 0.0) >= options.seconds and (options.steps is None or options.turn is not None):
                continue
            found = measure(task, hook, options.seconds, options.steps, seed)
            record = {**dict(zip(PLACE, place)), "limit": options.seconds, **found}
            if dist.get_rank() == 0:
                print(f"{options.task} {options.rate} {hook}, seed {seed}: {found['step_ms']:.1f} ms per step, "
                      f"best {found['best']}, target after {found['steps_to_target']} steps, {found['seconds']:.1f} s", flush=True)
                with open(options.out, "a") as file:
                    file.write(json.dumps(record) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
