"""Prints the tables of results/pytorch-links/README.md from its runs.jsonl."""

import json
import statistics
import sys

RATES = ("10mbit", "100mbit", "1gbit", "none")
PYTORCH = ("no hook", "fp16_compress_hook", "powerSGD_hook")
# The number of steps before PowerSGD compresses (start_powerSGD_iter in links.py).
PLAIN_STEPS = 10


def main():
    runs = [json.loads(line) for line in open(sys.argv[1])]
    timed = [run for run in runs if run["best"] == 0.0]
    runs = [run for run in runs if run["best"] > 0.0]
    for task, ranks in sorted({(run["task"], run["ranks"]) for run in runs}, key=lambda key: key[::-1]):
        table([run for run in runs if (run["task"], run["ranks"]) == (task, ranks)], task, ranks)
    for task in sorted({run["task"] for run in timed}):
        overhead([run for run in timed if run["task"] == task], task)


def table(runs, task, ranks):
    hooks = list(dict.fromkeys(run["hook"] for run in runs))
    rates = [rate for rate in RATES if any(run["rate"] == rate for run in runs)]
    steps = {
        hook: min((run["steps_to_target"] for run in runs if run["hook"] == hook and run["steps_to_target"]), default=None)
        for hook in hooks
    }
    print(f"\n### {task}, {ranks} ranks: ms a step, and seconds to the target\n")
    print("| hook | steps |", " | ".join(rates), "|")
    print("|---|---:|" + "---:|" * len(rates))
    seconds = {}
    for hook in hooks:
        cells = []
        for rate in rates:
            run = next((run for run in runs if (run["hook"], run["rate"]) == (hook, rate)), None)
            if run is None:
                cells.append("")
                continue
            measured = run["seconds"] if run["steps_to_target"] else None
            reckoned = reckon(run, steps[hook], runs) if steps[hook] else None
            seconds[hook, rate] = measured or reckoned
            text = f"{measured:.1f} s" if measured else f"~{reckoned:.1f} s" if reckoned else "not reached"
            cells.append(f"{run['step_ms']:.1f}, {text}")
        print(f"| {hook} | {steps[hook] or '–'} |", " | ".join(cells), "|")
    cells = []
    for rate in rates:
        best = {
            ours: min((s for (hook, at), s in seconds.items() if s and at == rate and (hook not in PYTORCH) == ours), default=None)
            for ours in (True, False)
        }
        cells.append(f"{best[False] / best[True]:.2f} ×" if all(best.values()) else "–")
    print("| gradwire's best against PyTorch's | |", " | ".join(cells), "|")


def reckon(run, steps, runs):
    """Estimates the seconds of a number of steps; the first ones of PowerSGD take as long as without a hook."""
    plain = next((r for r in runs if (r["hook"], r["rate"]) == ("no hook", run["rate"])), run)
    first = min(steps, PLAIN_STEPS) if run["hook"] == "powerSGD_hook" else 0
    return (first * plain["step_ms"] + (steps - first) * run["step_ms"]) / 1e3


def overhead(runs, task):
    print(f"\n### A step on an unthrottled link, {task}, 2 ranks: ms, the least and the median of turns\n")
    print("| hook | least | median | against no hook |")
    print("|---|---:|---:|---:|")
    of = lambda hook: [run["step_ms"] for run in runs if run["hook"] == hook]
    for hook in dict.fromkeys(run["hook"] for run in runs):
        found, plain = of(hook), of("no hook")
        print(f"| {hook} | {min(found):.1f} | {statistics.median(found):.1f} | {min(found) / min(plain) - 1:+.1%}, "
              f"{statistics.median(found) / statistics.median(plain) - 1:+.1%} |")


if __name__ == "__main__":
    main()
