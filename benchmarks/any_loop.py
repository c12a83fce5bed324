"""Trains a GPT with a framework whose process group compresses, beside the same without: bytes on
the link, elapsed and CPU time of a step, and loss. scripts/links runs it as every rank; rank 0
appends a JSON line to --out, and skips a run that the file already has. --table prints the table.

    scripts/links -n 2 -r 100mbit -b 16kb python benchmarks/any_loop.py --framework zero2
    python benchmarks/any_loop.py --table any-loop.jsonl

Frameworks: zero1, zero2 and zero3 (DeepSpeed, which must be installed), fsdp2, ddp, and hook,
which is DistributedDataParallel with the hook of gradwire.torch.register. Compressors: none is the
backend gloo. benchmarks/run-any-loop runs them all.
"""

import argparse
import json
import os
import resource
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from tasks import MOST_STEPS, TASKS

FRAMEWORKS = ("zero1", "zero2", "zero3", "fsdp2", "ddp", "hook")
KEY = ("framework", "compressor", "rate", "seed", "steps")
# The first steps, which are not timed and whose bytes do not count: groups connect.
WARM = 3


def sent():
    """The bytes that have left this rank's end of the link."""
    return int(Path("/sys/class/net/wire/statistics/tx_bytes").read_text())


def cpu_seconds():
    """The CPU time of this rank so far, with all its threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def sharded(model):
    """FSDP2 on all ranks, block by block."""
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class Wrapped:
    """Training of a wrapped model."""

    def __init__(self, model, task):
        self.model, self.optimizer = model, task.optimizer(model)

    def step(self, loss):
        self.optimizer.zero_grad()
        loss(self.model).backward()
        # As DeepSpeed does by default.
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()


class Zero:
    """DeepSpeed's ZeRO."""

    def __init__(self, model, stage):
        import deepspeed

        # An operation of inference, which is compiled at run time.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        config = {
            "train_micro_batch_size_per_gpu": 12,
            "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "weight_decay": 0.01, "torch_adam": True}},
            "zero_optimization": {"stage": stage},
            "zero_allow_untested_optimizer": True,
            "steps_per_print": 10**9,
        }
        self.model, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config, dist_init_required=False)

    def step(self, loss):
        with gradwire.torch.gradients():
            self.model.backward(loss(self.model))
        self.model.step()


def training_of(options, task, model):
    """The training of a model with a framework."""
    if options.framework.startswith("zero"):
        return Zero(model, int(options.framework[-1]))
    if options.framework == "fsdp2":
        return Wrapped(sharded(model), task)
    model = DistributedDataParallel(model)
    if options.framework == "hook" and options.compressor != "none":
        gradwire.torch.register(model, options.compressor, seed=options.seed)
    return Wrapped(model, task)


def run(options):
    backend = "gloo" if options.compressor == "none" or options.framework == "hook" else "gradwire"
    if backend == "gradwire":
        gradwire.torch.configure(options.compressor, seed=options.seed)
    dist.init_process_group(backend)
    task = TASKS["gpt"]()
    torch.manual_seed(options.seed)
    model = task.model()
    training = training_of(options, task, model)
    times, before, cpu_before = [], 0, 0.0
    for number in range(options.steps):
        if number == WARM:
            dist.barrier()
            before, cpu_before = sent(), cpu_seconds()
        start = time.perf_counter()
        training.step(lambda trained: task.loss(trained, dist.get_rank(), MOST_STEPS * options.seed + number))
        times.append(time.perf_counter() - start)
    cpu = (cpu_seconds() - cpu_before) / (options.steps - WARM)
    dist.barrier()
    found = (sent() - before) / (options.steps - WARM)
    training.model.eval()
    with torch.no_grad():
        loss = task.test_loss(training.model)
    own = {key: getattr(options, key) for key in KEY}
    record = {**own, "step_ms": 1e3 * statistics.median(times[WARM:]), "cpu_ms": 1e3 * cpu, "bytes_per_step": found, "loss": loss}
    if backend == "gradwire":
        rows = [row for group in gradwire.torch.describe() for row in group.sites]
        record["calls"] = [[row.collective, row.elements, row.element_type, row.calls, row.compressor, row.reason] for row in rows]
    return record


def known(options):
    path = Path(options.out)
    lines = path.read_text().splitlines() if path.exists() else []
    own = [getattr(options, key) for key in KEY]
    return any([json.loads(line)[key] for key in KEY] == own for line in lines)


def table(path):
    """Prints means over seeds, and the differences from the runs of `none` with the same seeds."""
    records = [json.loads(line) for line in Path(path).read_text().splitlines()]
    print("| framework | compressor | seeds | MB a step and rank | step, ms | of `none` | CPU a step, ms | test loss | from `none` |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for framework, compressor in dict.fromkeys((one["framework"], one["compressor"]) for one in records):
        own = {one["seed"]: one for one in records if (one["framework"], one["compressor"]) == (framework, compressor)}
        # The hook is one of DistributedDataParallel.
        baseline = "ddp" if framework == "hook" else framework
        none = {one["seed"]: one for one in records if (one["framework"], one["compressor"]) == (baseline, "none")}
        mean = lambda what: statistics.mean(one[what] for one in own.values())
        ratio, change = "", ""
        if compressor != "none":
            ratio = f"{statistics.mean(one['step_ms'] / none[seed]['step_ms'] for seed, one in own.items()):.2f}"
            change = difference([one["loss"] - none[seed]["loss"] for seed, one in own.items()])
        numbers = f"{mean('bytes_per_step') / 1e6:.2f} | {mean('step_ms'):.0f} | {ratio} | {mean('cpu_ms'):.0f} | {mean('loss'):.3f}"
        print(f"| {framework} | {compressor} | {len(own)} | {numbers} | {change} |")


def difference(paired):
    """A mean and, of several, the standard deviation."""
    spread = f" ± {statistics.stdev(paired):.3f}" if len(paired) > 1 else ""
    return f"{statistics.mean(paired):+.3f}{spread}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", choices=FRAMEWORKS, default="fsdp2")
    parser.add_argument("--compressor", default="eden")
    parser.add_argument("--rate", default="none", help="of the link, for the record")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--out", default="any-loop.jsonl")
    parser.add_argument("--table", metavar="FILE", help="print the table of this file")
    options = parser.parse_args()
    if options.table:
        return table(options.table)
    torch.set_num_threads(1)
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    if known(options):
        return None
    record = run(options)
    if dist.get_rank() == 0:
        with open(options.out, "a") as file:
            file.write(json.dumps(record) + "\n")
    dist.barrier()
    # DeepSpeed leaves threads behind.
    os._exit(0)


if __name__ == "__main__":
    main()
