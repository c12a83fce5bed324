"""Prints the tables of results/pytorch-links/README.md and results/pytorch-steps/README.md from their runs.jsonl."""

import json
import statistics
import sys

RATES = ("10mbit", "100mbit", "1gbit", "none")
PYTORCH = ("no hook", "fp16_compress_hook", "powerSGD_hook")
# The number of steps before PowerSGD compresses (start_powerSGD_iter in links.py).
PLAIN_STEPS = 10


def main():
    runs = [json.loads(line) for line in open(sys.argv[1])]
    timed = [run for run in runs if not run["best"]]
    runs = [run for run in runs if run["best"]]
    for task, ranks in sorted({(run["task"], run["ranks"]) for run in runs}, key=lambda key: key[::-1]):
        table([run for run in runs if (run["task"], run["ranks"]) == (task, ranks)], task, ranks)
    for task in sorted({run["task"] for run in timed}):
        overhead([run for run in timed if run["task"] == task], task)


def table(runs, task, ranks):
    hooks = list(dict.fromkeys(run["hook"] for run in runs))
    seeds = sorted({run.get("seed", 0) for run in runs})
    rates = [rate for rate in RATES if any(run["rate"] == rate for run in runs)]
    at = {(run["hook"], run["rate"], run.get("seed", 0)): run for run in runs}
    seconds = {key: time_to_target(run, runs) for key, run in at.items()}
    print(f"\n### {task}, {ranks} ranks: ms a step, and seconds to the target\n")
    print("| hook | steps |", " | ".join(rates), "|")
    print("|---|---:|" + "---:|" * len(rates))
    for hook in hooks:
        steps = [needed for seed in seeds if (needed := steps_to_target(hook, seed, runs))]
        cells = []
        for rate in rates:
            found = [(at[key], *seconds[key]) for seed in seeds if (key := (hook, rate, seed)) in at]
            cells.append(cell(found))
        print(f"| {hook} | {round(statistics.mean(steps)) if steps else '–'} |", " | ".join(cells), "|")
    ratios = [ratio([best(seconds, rate, seed) for seed in seeds]) for rate in rates]
    print("| gradwire's best against PyTorch's | |", " | ".join(ratios), "|")


def cell(found):
    """Runs of one hook on one link, with the seconds of each and whether they are reckoned."""
    if not found:
        return ""
    step = f"{statistics.median(run['step_ms'] for run, _, _ in found):.1f}"
    reached = [time for _, time, _ in found if time]
    if len(reached) < len(found):
        return f"{step}, not reached" + (f" in {len(found) - len(reached)} of {len(found)}" if reached else "")
    sign = "~" if any(reckoned for _, _, reckoned in found) else ""
    return f"{step}, {sign}{spread(reached, 1)} s"


def spread(values, digits):
    """The mean, and the standard deviation if there are several."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def best(seconds, rate, seed):
    """The shortest times of PyTorch's hooks and of gradwire's compressors with one seed."""
    times = [
        min((time for (hook, *place), (time, _) in seconds.items() if time and place == [rate, seed] and (hook in PYTORCH) == theirs),
            default=None)
        for theirs in (True, False)
    ]
    return times if all(times) else None


def ratio(found):
    return "–" if None in found else f"{spread([theirs / ours for theirs, ours in found], 2)} ×"


def steps_to_target(hook, seed, runs):
    """The steps to the target, which a seed reaches after the same number on every link."""
    same = [run for run in runs if (run["hook"], run.get("seed", 0)) == (hook, seed)]
    return min((run["steps_to_target"] for run in same if run["steps_to_target"]), default=None)


def time_to_target(run, runs):
    """The seconds to the target, and whether they are reckoned from the steps on another link; ``None`` if it was reached on none."""
    if run["steps_to_target"]:
        return run["seconds"], False
    steps = steps_to_target(run["hook"], run.get("seed", 0), runs)
    return (reckon(run, steps, runs) if steps else None), True


def reckon(run, steps, runs):
    """Estimates the seconds of a number of steps; the first ones of PowerSGD take as long as without a hook."""
    same = [r for r in runs if (r["hook"], r["rate"], r.get("seed", 0)) == ("no hook", run["rate"], run.get("seed", 0))]
    plain = same[0] if same else run
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
