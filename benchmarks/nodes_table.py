"""Prints the table of results/nodes/README.md from its steps.jsonl."""

import json
import statistics
import sys


def main():
    with open(sys.argv[1]) as file:
        records = [json.loads(line) for line in file]
    places = dict.fromkeys((one["nodes"], one["ranks_a_node"], one["rate"]) for one in records)
    print("| nodes × ranks | link | hook | median step, ms | least, ms | MB on the link a step | two levels: bytes | speed, median | speed, least |")
    print("|---|---|---|---:|---:|---:|---:|---:|---:|")
    for place in places:
        own = [one for one in records if (one["nodes"], one["ranks_a_node"], one["rate"]) == place]
        hooks = list(dict.fromkeys(one["hook"] for one in own))
        of = lambda hook, key, choose: choose(one[key] for one in own if one["hook"] == hook)
        values = lambda hook: (of(hook, "step_ms", statistics.median), of(hook, "least_ms", min), of(hook, "link_bytes", statistics.median))
        for hook in hooks:
            step, least, link = values(hook)
            ratios = "| | |"
            if hook.endswith("two levels"):
                step_of_one, least_of_one, link_of_one = values(hook.replace("two levels", "one level"))
                ratios = f"{link / link_of_one:.3f} | {step_of_one / step:.2f} × | {least_of_one / least:.2f} × |"
            print(f"| {place[0]} × {place[1]} | {place[2]} | {hook} | {step:.0f} | {least:.0f} | {link / 1e6:.3f} | {ratios}")


if __name__ == "__main__":
    main()
