"""Compares the step times that gradwire.torch.advise predicts with measured ones.

scripts/links runs it as every rank; rank 0 appends a JSON line for each candidate to --out. With
--table it only prints such a file as tables.
"""

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from tasks import TASKS

CANDIDATES = ("none", "fp16", "int8", "eden", "3lc", "topk:ratio=0.01", "powersgd:rank=4", "eden:every=10")
# Steps before the first timed one: DistributedDataParallel rebuilds its buckets, and caches settle.
WARM_UP = 12


def trainer(task, candidate):
    """A step of training with a candidate; None is DistributedDataParallel alone."""
    torch.manual_seed(0)
    model = task.model()
    spec, _, every = (candidate or "").partition(":every=")
    if every:
        steps = gradwire.torch.LocalSteps(model, task.optimizer(model), every=int(every), compressor=spec)
        optimizer = steps
    else:
        model = DistributedDataParallel(model)
        if candidate:
            gradwire.torch.register(model, candidate)
        optimizer = task.optimizer(model)

    def step(number):
        optimizer.zero_grad()
        task.loss(model, dist.get_rank(), number).backward()
        optimizer.step()

    return step


def measure(task, candidate, count):
    """The seconds of a step: the median over rounds of ten steps, the length of the longest round
    of local steps."""
    step, times = trainer(task, candidate), []
    for number in range(WARM_UP + count):
        start = time.perf_counter()
        step(number)
        times.append(time.perf_counter() - start)
    rounds = [statistics.mean(times[at : at + 10]) for at in range(WARM_UP, len(times) - 9, 10)]
    return statistics.median(rounds)


def predict(task, candidates):
    torch.manual_seed(0)
    model = task.model()
    optimizer, number = task.optimizer(model), iter(range(10**9))

    def step():
        optimizer.zero_grad()
        task.loss(model, dist.get_rank(), next(number)).backward()
        optimizer.step()

    return gradwire.torch.advise(model, step, optimizer=optimizer, candidates=candidates).data


def table(path):
    """The lines of a file as Markdown: a table for each task, ranks and rate."""
    records = [json.loads(line) for line in open(path)]
    near = sum(abs(one["predicted"] / one["measured"] - 1) <= 0.15 for one in records)
    print(f"{near} of {len(records)} predictions are within 15 % of the measured time.")
    settings = dict.fromkeys((one["task"], one["ranks"], one["rate"]) for one in records)
    for setting in settings:
        rows = [one for one in records if (one["task"], one["ranks"], one["rate"]) == setting]
        task, ranks, rate = setting
        link = f"{rate.replace('bit', 'bit/s')}, measured {rows[0]['link'] / 1e6:.0f}" if rate != "none" else "unthrottled"
        print(f"\n### {task}, {ranks} ranks, {link}; a step without exchange {1e3 * rows[0]['compute']:.1f} ms\n")
        print("| candidate | predicted | measured | off |\n|---|---:|---:|---:|")
        for one in rows:
            name = "no hook" if one["candidate"] is None else f"`{one['candidate']}`"
            name += ", recommended" * one["recommended"]
            off = f"{one['predicted'] / one['measured'] - 1:+.0%}".replace("%", " %").replace("-", "−")
            print(f"| {name} | {1e3 * one['predicted']:.1f} ms | {1e3 * one['measured']:.1f} ms | {off} |")


def measured(options):
    """Whether the file has records of this task and link."""
    if not os.path.exists(options.out):
        return False
    place = (options.task, options.rate, int(os.environ["WORLD_SIZE"]))
    with open(options.out) as file:
        records = [json.loads(line) for line in file]
    return place in {(record["task"], record["rate"], record["ranks"]) for record in records}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=sorted(TASKS), default="cnn")
    parser.add_argument("--rate", default="none", help="the rate of the link, for the record")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--candidates", nargs="*", default=CANDIDATES)
    parser.add_argument("--out", help="the file that a line for each candidate is appended to; required without --table")
    parser.add_argument("--table", metavar="FILE")
    options = parser.parse_args()
    if options.table:
        return table(options.table)
    if not options.out:
        parser.error("give --out, or --table and a file")
    # Before ranks wait for one another: rank 0 writes to the file later.
    if measured(options):
        parser.error(f"{options.out} has this task on this link already; remove its lines, or give another file")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    task = TASKS[options.task]()
    advice = predict(task, options.candidates)
    best = advice["recommended"][0]
    best = None if best is None else options.candidates[best]
    rows = [(None, advice["plain"])] + list(zip(options.candidates, advice["predictions"]))
    for candidate, predicted in rows:
        seconds = measure(task, candidate, options.steps)
        record = {
            "task": options.task,
            "rate": options.rate,
            "ranks": dist.get_world_size(),
            "candidate": candidate,
            "predicted": predicted["on_links"][0]["seconds"],
            "measured": seconds,
            "link": advice["links"][0],
            "compute": advice["compute"],
            "recommended": candidate == best,
            "doubted": predicted["doubt"] is not None,
        }
        if dist.get_rank() == 0:
            off = record["predicted"] / seconds - 1.0
            print(f"{options.task} {options.rate} {candidate}: predicted {1e3 * record['predicted']:.1f} ms, measured "
                  f"{1e3 * seconds:.1f} ms, {off:+.0%}", flush=True)
            with open(options.out, "a") as file:
                file.write(json.dumps(record) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
