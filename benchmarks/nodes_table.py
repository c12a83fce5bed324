"""Prints the table of results/nodes/README.md from its runs.jsonl."""

import json
import statistics
import sys


def main():
    with open(sys.argv[1]) as file:
        records = [json.loads(line) for line in file]
    places = dict.fromkeys((one["nodes"], one["ranks_a_node"], one["rate"]) for one in records)
    print("| nodes × ranks | link | hook | step, ms | MB on the link a step | bytes against one level | speed against one level |")
    print("|---|---|---|---:|---:|---:|---:|")
    for place in places:
        own = [one for one in records if (one["nodes"], one["ranks_a_node"], one["rate"]) == place]
        hooks = list(dict.fromkeys(one["hook"] for one in own))
        median = lambda hook, key: statistics.median(one[key] for one in own if one["hook"] == hook)
        flat = next(hook for hook in hooks if "one level" in hook)
        for hook in hooks:
            step, link = median(hook, "step_ms"), median(hook, "link_bytes")
            ratios = f"{link / median(flat, 'link_bytes'):.3f} | {median(flat, 'step_ms') / step:.2f} ×"
            print(f"| {place[0]} × {place[1]} | {place[2]} | {hook} | {step:.0f} | {link / 1e6:.3f} | {ratios} |")


if __name__ == "__main__":
    main()
