"""Time per step and time to a fixed accuracy of gradient hooks on one link.

Run as every rank by scripts/links; rank 0 appends a JSON line for each hook to --out.
"""

import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from tasks import TASKS

PYTORCH = ("no hook", "fp16_compress_hook", "powerSGD_hook")
GRADWIRE = ("int8", "3lc", "sbc:p=0.01", "topk:ratio=0.1", "topk:ratio=0.01", "powersgd:rank=1")


def register(model, hook):
    """Gives a model a hook by name; gradwire's handle, if it is one of its."""
    if hook == "no hook":
        return None
    if hook == "fp16_compress_hook":
        return model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    if hook == "powerSGD_hook":
        # Its defaults, but that it compresses from the tenth step on and not from the thousandth.
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=10)
        return model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return gradwire.torch.register(model, hook)


def measure(task, hook, seconds, limit):
    """Trains until the target, the cap of steps or of time; evaluation is not in the time."""
    torch.manual_seed(0)
    # The collectives that PowerSGD's hook chains to one another must not meet those of another bucket: over gloo
    # they then wait for one another for good. A limit that is given makes one bucket of all.
    buckets = {"bucket_cap_mb": 26} if hook == "powerSGD_hook" else {}
    model = DistributedDataParallel(task.model(), **buckets)
    handle, optimizer = register(model, hook), task.optimizer(model)
    rank, steps, total, best, reached = dist.get_rank(), [], 0.0, 0.0, None
    for step in range(limit or task.cap_steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        task.loss(model, rank, step).backward()
        optimizer.step()
        steps.append(time.perf_counter() - start)
        total += steps[-1]
        if limit is None and (step + 1) % task.every == 0:
            with torch.no_grad():
                best = max(best, task.measure(model.module))
            # One rank's clock decides for all.
            verdict = torch.tensor([best, total])
            dist.broadcast(verdict, 0)
            if verdict[0] >= task.target:
                reached = step + 1
                break
            if verdict[1] > seconds:
                break
    del model
    return {
        "steps": len(steps),
        "step_ms": 1e3 * statistics.median(steps[12:]),
        "seconds": total,
        "steps_to_target": reached,
        "best": best,
        "stats": handle.stats() if isinstance(handle, gradwire.torch.Hook) else None,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=sorted(TASKS), default="cnn")
    parser.add_argument("--rate", default="none", help="what the link was throttled to, for the record")
    parser.add_argument("--seconds", type=float, default=60.0, help="training time after which a hook is given up")
    parser.add_argument("--hooks", nargs="*", default=[*PYTORCH, *GRADWIRE])
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--steps", type=int, help="time so many steps and do not look at the target")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    task = TASKS[options.task]()
    for _ in range(options.repeat):
        for hook in options.hooks:
            found = measure(task, hook, options.seconds, options.steps)
            record = {"task": options.task, "rate": options.rate, "ranks": dist.get_world_size(), "hook": hook, **found}
            if dist.get_rank() == 0:
                print(f"{options.task} {options.rate} {hook}: {found['step_ms']:.1f} ms a step, "
                      f"best {found['best']:.3f}, target after {found['steps_to_target']} steps, {found['seconds']:.1f} s", flush=True)
                with open(options.out, "a") as file:
                    file.write(json.dumps(record) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
