"""Measures communication hooks and local steps: the number of steps to a fixed accuracy or loss,
and the time of a step on a link.

scripts/links runs it as every rank; rank 0 appends a JSON line for each hook to --out. Without
--turn it trains on an unthrottled link until it reaches the target, because the number of steps
does not depend on the link. With --turn it times steps, without evaluation. It skips measurements
that the file already has.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from hooks import DEFAULT, GRADWIRE, LOCAL, PLAIN_STEPS, PYTORCH, PYTORCH_LOCAL
from tasks import MOST_STEPS, TASKS

# The first steps, which are not timed. DistributedDataParallel forms its buckets after the first.
WARM_STEPS = 3
# The fewest and the most steps to time (rounds, for local steps), and the seconds to time in
# between.
TIMED_STEPS, TIMED_ROUNDS, TIMED_SECONDS = (5, 60), (3, 6), 1.2
# The key of a record.
PLACE = ("task", "rate", "ranks", "hook", "seed", "turn")


def register(model, hook):
    """Registers a hook by name; returns the handle of a gradwire hook."""
    if hook == "no hook":
        return None
    if hook == "fp16_compress_hook":
        return model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    if hook == "powerSGD_hook":
        # The defaults, except that it does not wait for the thousandth step.
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=PLAIN_STEPS)
        return model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return gradwire.torch.register(model, hook)


def local_steps(model, optimizer, name):
    """The optimizer of local steps by name, around the model's optimizer."""
    every = LOCAL[name]
    if name == PYTORCH_LOCAL:
        # It averages after the last step of its warm-up, and after each further period.
        return PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(every, warmup_steps=every - 1))
    outer = gradwire.torch.Nesterov(lr=0.7, momentum=0.5)
    return gradwire.torch.LocalSteps(model, optimizer, every, DEFAULT, outer=outer)


class Training:
    """Training of a task with a hook, or with local steps. Each seed has its own weights and
    batches."""

    def __init__(self, task, hook, seed):
        torch.manual_seed(seed)
        # PowerSGD's hook chains collectives, and over gloo the collectives of two buckets deadlock.
        # An explicit limit puts all parameters into one bucket.
        buckets = {"bucket_cap_mb": 26} if hook == "powerSGD_hook" else {}
        self.task, self.seed, self.steps = task, seed, 0
        self.module, self.round = task.model(), LOCAL.get(hook, 1)
        if hook in LOCAL:
            self.model = self.module
            self.handle = self.optimizer = local_steps(self.model, task.optimizer(self.model), hook)
        else:
            self.model = DistributedDataParallel(self.module, **buckets)
            self.handle, self.optimizer = register(self.model, hook), task.optimizer(self.model)

    def step(self):
        """Takes a step; returns its seconds."""
        start = time.perf_counter()
        self.optimizer.zero_grad()
        self.task.loss(self.model, dist.get_rank(), MOST_STEPS * self.seed + self.steps).backward()
        self.optimizer.step()
        self.steps += 1
        return time.perf_counter() - start

    def stats(self):
        return self.handle.stats() if isinstance(self.handle, gradwire.torch.Hook) else None


def to_target(training, seconds):
    """Trains to the target, or for at most this time; evaluation is not timed."""
    task, times, best, reached = training.task, [], None, None
    while training.steps < task.cap_steps:
        times.append(training.step())
        if training.steps % task.every:
            continue
        with torch.no_grad():
            found = task.measure(training.module)
            best = found if best is None else max(best, found)
        if of_first([best])[0] >= task.target:
            reached = training.steps
            break
        if of_first([sum(times)])[0] > seconds:
            break
    return {"steps": training.steps, "step_ms": 1e3 * statistics.median(times), "steps_to_target": reached, "best": best}


def timed(training):
    """Times steps. Returns the median; for local steps, from the mean of each round."""
    step_of_round = lambda: sum(training.step() for _ in range(training.round)) / training.round
    if training.round == 1:
        warm, (fewest, most) = WARM_STEPS, TIMED_STEPS
    else:
        warm, (fewest, most) = 1, TIMED_ROUNDS
    last = [step_of_round() for _ in range(warm)][-1]
    count = int(of_first([min(max(TIMED_SECONDS / (last * training.round), fewest), most)])[0])
    times = [step_of_round() for _ in range(count)]
    return {"steps": count * training.round, "step_ms": 1e3 * statistics.median(times), "stats": training.stats()}


def of_first(numbers):
    """The numbers of rank 0, which decide for all ranks."""
    shared = torch.tensor(numbers, dtype=torch.float64)
    dist.broadcast(shared, 0)
    return shared.tolist()


def measured(path):
    """The keys of the records in a file."""
    if not os.path.exists(path):
        return set()
    with open(path) as file:
        return {tuple(json.loads(line).get(key) for key in PLACE) for line in file}


def provenance():
    """The conditions, besides the arguments, that the times depend on."""
    described = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=os.path.dirname(__file__))
    with open("/proc/cpuinfo") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line)
    fields = {key.strip(): value.strip() for key, value in fields.items()}
    cpu = ", ".join(fields[key] for key in ("model name", "cpu family", "model") if key in fields) or platform.processor()
    return {"commit": described.stdout.strip(), "cpu": cpu, "torch": torch.__version__}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=sorted(TASKS), default="cnn")
    parser.add_argument("--rate", default="none", help="the rate of the link, for the record")
    parser.add_argument("--burst", default="64kb", help="the burst of the link, for the record")
    parser.add_argument("--turn", type=int, help="time steps, for the n-th time, in place of training to the target")
    parser.add_argument("--seconds", type=float, default=60.0, help="training time after which a hook has not reached the target")
    parser.add_argument("--hooks", nargs="*", default=[*PYTORCH, *GRADWIRE, *LOCAL])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="not with --turn, whose number is the seed")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    if options.turn is None and options.rate != "none":
        parser.error("training to the target needs no throttled link; give --turn to time steps")
    torch.set_num_threads(1)
    # Before ranks wait for one another: rank 0 writes to the file later.
    done = measured(options.out)
    dist.init_process_group("gloo")
    task = TASKS[options.task]()
    seeds, hooks = options.seeds, options.hooks
    if options.turn is not None:
        # Another hook begins each turn, so no hook always has the same place.
        first = options.turn % len(hooks)
        seeds, hooks = [options.turn], hooks[first:] + hooks[:first]
    for seed in seeds:
        for hook in hooks:
            place = (options.task, options.rate, dist.get_world_size(), hook, seed, options.turn)
            if place in done:
                continue
            training = Training(task, hook, seed)
            found = to_target(training, options.seconds) if options.turn is None else timed(training)
            del training
            record = {**dict(zip(PLACE, place)), "burst": options.burst, **found, **provenance()}
            if dist.get_rank() == 0:
                target = f", target after {found['steps_to_target']} steps" if options.turn is None else ""
                print(f"{options.task} {options.rate} {hook}, seed {seed}: {found['step_ms']:.1f} ms a step{target}", flush=True)
                with open(options.out, "a") as file:
                    file.write(json.dumps(record) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
