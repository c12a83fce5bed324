"""Prints the table of results/phases/README.md from the JSON lines of phases.py.

    python benchmarks/phases_table.py results/phases/steps.jsonl
"""

import json
import statistics
import sys
from pathlib import Path

PLAIN = "DistributedDataParallel"
# The columns of the table, in ms but for the last two: key, and heading.
COLUMNS = {
    "step": "step",
    "processor": "processor time",
    "compress": "compress",
    "add": "add",
    "wire": "send and wait for others",
    "reducer": "copies and calls",
    "gloo": "gloo",
    "python": "Python",
    "waited": "waited",
    "fresh": "new pages, MB",
    "peak": "peak, MB",
}


def table(turns):
    """The medians, a row for each compressor."""
    steps = {}
    for turn in turns:
        steps.setdefault(turn["spec"], []).extend(turn["steps"])
    median = lambda spec, key: statistics.median(step[key] for step in steps[spec])
    lines = ["| ms a step | of plain | " + " | ".join(COLUMNS.values()) + " |", "|---|---:" + "|---:" * len(COLUMNS) + "|"]
    for spec in steps:
        ratio = f"{median(spec, 'step') / median(PLAIN, 'step'):.2f}" if PLAIN in steps else ""
        lines.append(f"| {spec} | {ratio} | " + " | ".join(f"{median(spec, key):.0f}" for key in COLUMNS) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(map(json.loads, Path(sys.argv[1]).read_text().splitlines())))
