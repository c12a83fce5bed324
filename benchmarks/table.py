"""Prints the tables of results/pytorch-links/README.md and results/pytorch-steps/README.md from
their runs.jsonl."""

import json
import statistics
import sys

from hooks import DEFAULT, GRADWIRE, GRADWIRE_LOCAL, PYTORCH, PYTORCH_LOCAL
from targets import Targets, spread


def main():
    with open(sys.argv[1]) as file:
        records = [json.loads(line) for line in file]
    timed = [record for record in records if record.get("turn") is not None]
    for ranks, task in sorted({(record["ranks"], record["task"]) for record in timed}):
        if len(timed) < len(records):
            to_target(Targets(records, task, ranks), task, ranks)
        else:
            overhead([record for record in timed if (record["ranks"], record["task"]) == (ranks, task)], task, ranks)


def to_target(targets, task, ranks):
    """Milliseconds per step on each link, and seconds to the target."""
    steps, seeds, rates = targets.steps, targets.seeds, targets.rates

    def cell(hook, rate):
        found = [targets.times[hook, rate, seed] for seed in seeds if (hook, rate, seed) in targets.times]
        if not found:
            return ""
        reached = targets.of_all_seeds(hook, rate)
        step = f"{statistics.median(found):.1f}"
        if len(reached) < len(seeds):
            return f"{step}, not reached" + (f" in {len(seeds) - len(reached)} of {len(seeds)}" if reached else "")
        return f"{step}, {spread(reached, 1)} s"

    def ratio(rate, others, other_rate, theirs=PYTORCH):
        """PyTorch's shortest time on a link, divided by the shortest time of some hooks on another
        link, by seed."""
        shortest = lambda hooks, rate, seed: min((time for hook in hooks if (time := targets.seconds(hook, rate, seed))), default=None)
        pairs = [(shortest(theirs, rate, seed), shortest(others, other_rate, seed)) for seed in seeds]
        if not all(slow and fast for slow, fast in pairs):
            return "–"
        return f"{spread([slow / fast for slow, fast in pairs], 2)} ×"

    print(f"\n### {task}, {ranks} ranks: ms a step, and seconds to the target\n")
    print("| hook | steps |", " | ".join(rates), "|")
    print("|---|---:|" + "---:|" * len(rates))
    for hook in targets.hooks:
        needed = [steps[hook, seed] for seed in seeds if steps.get((hook, seed))]
        print(f"| {hook} | {round(statistics.mean(needed)) if needed else '–'} |", " | ".join(cell(hook, rate) for rate in rates), "|")
    ours = [hook for hook in targets.hooks if hook in GRADWIRE]
    for name, some in ((f"`{DEFAULT}` against PyTorch's best", [DEFAULT]), ("gradwire's best against PyTorch's best", ours)):
        print(f"| {name} | |", " | ".join(ratio(rate, some, rate) for rate in rates), "|")
    print("| PyTorch's best without a limit | |", " | ".join(ratio(rate, PYTORCH, "none") for rate in rates), "|")
    if GRADWIRE_LOCAL in targets.hooks:
        for name, theirs in (("PyTorch's best hook", PYTORCH), (PYTORCH_LOCAL, [PYTORCH_LOCAL])):
            print(f"| {GRADWIRE_LOCAL} against {name} | |", " | ".join(ratio(rate, [GRADWIRE_LOCAL], rate, theirs) for rate in rates), "|")


def overhead(timed, task, ranks):
    """The time that a hook adds to a step on an unthrottled link."""
    print(f"\n### A step on an unthrottled link, {task}, {ranks} ranks: ms, over turns\n")
    print("| hook | least | median | against no hook | paired difference | compress | decompress | wait |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    hooks = list(dict.fromkeys(record["hook"] for record in timed))
    of = {hook: {record["turn"]: record for record in timed if record["hook"] == hook} for hook in hooks}
    plain = of["no hook"]
    for hook, turns in of.items():
        step = [record["step_ms"] for record in turns.values()]
        row = [hook, f"{min(step):.1f}", f"{statistics.median(step):.1f}"]
        if hook != "no hook":
            change = statistics.median(step) / statistics.median(record["step_ms"] for record in plain.values()) - 1
            both = [turn for turn in turns if turn in plain]
            row += [f"{change:+.1%}", spread([turns[turn]["step_ms"] - plain[turn]["step_ms"] for turn in both], 1)]
            for key in ("compress_seconds", "decompress_seconds", "wait_seconds"):
                row.append(f"{1e3 * statistics.median(record['stats'][key] for record in turns.values()):.1f}")
        else:
            row += [""] * 5
        print("|", " | ".join(row), "|")


if __name__ == "__main__":
    main()
