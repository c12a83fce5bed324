"""Prints the chart of results/pytorch-links from its runs.jsonl: seconds to the target at 100
Mbit/s, of DistributedDataParallel, PyTorch's fastest hook and gradwire's default.

    python benchmarks/links_chart.py runs.jsonl > bars.svg
"""

import json
import statistics
import sys

from hooks import DEFAULT, PYTORCH
from targets import Targets, spread

RATE, RANKS = "100mbit", 2
# The name of a task, and its target.
TASKS = {
    "gpt": ("GPT with AdamW", "to a loss of 2.3"),
    "lstm": ("LSTM with Adam", "to 35 % of next characters right"),
    "cnn": ("CNN with momentum", "to an accuracy of 95 %"),
}
NAMES = {"no hook": "DDP", "fp16_compress_hook": "PyTorch's fp16 hook", "powerSGD_hook": "PyTorch's PowerSGD hook", DEFAULT: "gradwire"}
# Colours of Okabe and Ito, which people with any kind of colour vision can tell apart.
COLOURS = "#999999", "#E69F00", "#0072B2"
WIDTH, LEFT, LONGEST = 720, 230, 330
TOP, BAR, BETWEEN = 66, 20, 24


def main():
    with open(sys.argv[1]) as file:
        records = [json.loads(line) for line in file]
    groups = [(task, bars_of(Targets(records, task, RANKS))) for task in TASKS]
    print(chart(groups))


def bars_of(targets):
    """The hooks of the bars, and their seconds with each seed. PyTorch's fastest hook has the
    smallest mean of those that reached the target with all seeds."""
    plain, *others = PYTORCH
    seconds = {hook: targets.of_all_seeds(hook, RATE) for hook in (*PYTORCH, DEFAULT)}
    reached = [hook for hook in others if len(seconds[hook]) == len(targets.seeds)]
    best = min(reached, key=lambda hook: statistics.mean(seconds[hook]))
    return [(hook, seconds[hook]) for hook in (plain, best, DEFAULT)]


def chart(groups):
    """The chart; the longest bar of each group has the same length."""
    shapes, at = [], TOP
    for task, bars in groups:
        shapes += group(TASKS[task], bars, at)
        at += len(bars) * BAR + BETWEEN
    height = at + 4
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" aria-labelledby="title desc" \
font-family="sans-serif" font-size="13" fill="currentColor">
<title id="title">Seconds to the same quality at 100 Mbit/s, two workers</title>
<desc id="desc">{described(groups)}</desc>
<style>svg{{color:#222}}@media(prefers-color-scheme:dark){{svg{{color:#ddd}}}}</style>
<text x="14" y="26" font-size="16" font-weight="bold">Seconds to the same quality at 100 Mbit/s, two workers</text>
<text x="14" y="46">shorter is better; mean ± standard deviation of three seeds</text>
{chr(10).join(shapes)}
</svg>"""


def group(about, bars, at):
    """The shapes of a task."""
    (task, target), longest = about, max(statistics.mean(seconds) for _, seconds in bars)
    shapes = [f'<text x="14" y="{at + 27}" font-weight="bold">{task}</text>', f'<text x="14" y="{at + 45}">{target}</text>']
    for number, (hook, seconds) in enumerate(bars):
        y, mean = at + number * BAR, statistics.mean(seconds)
        length = round(LONGEST * mean / longest, 1)
        shapes.append(f'<rect x="{LEFT}" y="{y}" width="{length}" height="{BAR - 3}" fill="{COLOURS[number]}"/>')
        shapes.append(f'<text x="{LEFT + length + 6}" y="{y + 13}">{label(hook, seconds)}</text>')
    return shapes


def label(hook, seconds):
    return f"{NAMES[hook]}: {spread(seconds, 1)} s"


def described(groups):
    """The chart in words, for screen readers."""
    return "; ".join(f"{' '.join(TASKS[task])}: {', '.join(label(*bar) for bar in bars)}" for task, bars in groups)


if __name__ == "__main__":
    main()
