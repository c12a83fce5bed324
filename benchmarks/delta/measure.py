"""Measures sizes and speeds of codes for updates of weights, and fills a page's tables.

    python benchmarks/delta/measure.py --gradwire target/release/gradwire --core 1 \\
        --out results/weights

Each code runs on each pair that pairs.py and grpo.py have made, in a process of its own that is
pinned to one core. The result must have the new bits. Figures go to OUT/measured.json, where they
replace those of an earlier run of the same code and pair; then the tables of OUT/README.md are
printed anew from this file. --table only prints them.

Times are CPU time, the least of several repetitions; so is the time of a copy of the whole model in
memory, which alternates with them. Memory is what a code allocates at most beside the two models.
Needs the packages numpy, zstandard, xxhash, pcodec, zipnn, zstd, fireworks-delta-compression and
torch; a code whose package is missing is left out.
"""

import argparse
import ctypes
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy

import bounds
import pairs
import peers
import store
import tables

CODES = {**peers.PEERS, **peers.DENSE}
# The pairs whose new files are also coded alone: bfloat16, float8 and float32.
DENSE_PAIRS = "minilm-late-1e-6", "minilm-fp8-1e-6", "gpt-float32"


def load(path):
    """The tensors of a file in memory, flat, in the order of their names."""
    tensors = store.read(path)
    return [numpy.array(tensors[name][1]).ravel() for name in sorted(tensors)]


def resident(reset):
    """The resident and the highest resident memory in bytes; `reset` begins a new highest."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return tuple(int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))


def timed(action):
    start = time.process_time()
    result = action()
    return time.process_time() - start, result


def measure(code, pair, quick):
    """Figures of one code on a pair: bytes, seconds, bytes of memory."""
    old, new = (load(path) for path in pairs.paths(pair))
    if code.whole_model:
        old, new = ([numpy.concatenate(tensors)] for tensors in (old, new))
    base = [tensor.copy() for tensor in old]

    def copy(source):
        for to, tensor in zip(base, source):
            numpy.copyto(to, tensor)

    def encode():
        return [code.encode(*both) for both in zip(old, new)]

    def apply(messages):
        for tensor, message in zip(base, messages):
            if message:
                code.apply(tensor, message)

    encode_memory, (encoded, messages) = peak(lambda: timed(encode))
    apply_memory, (applied, _) = peak(lambda: timed(lambda: apply(messages)))
    if any((tensor != right).any() for tensor, right in zip(base, new)):
        raise SystemExit("the decoded model differs")
    times = [(timed(lambda: copy(old))[0], encoded, applied)]
    while not quick and (len(times) < 3 or (len(times) < 20 and sum(map(sum, times)) < 2)):
        copied, _ = timed(lambda: copy(old))
        encoded, messages = timed(encode)
        applied, _ = timed(lambda: apply(messages))
        times.append((copied, encoded, applied))
    copied, encoded, applied = (min(column) for column in zip(*times))
    return {
        "bytes": sum(len(message) for message in messages), "copy_s": copied, "encode_s": encoded,
        "apply_s": applied, "encode_memory": encode_memory, "apply_memory": apply_memory,
    }


def peak(action):
    # Memory that was freed but not returned would hide new allocations.
    ctypes.CDLL(None).malloc_trim(0)
    before, _ = resident(reset=True)
    result = action()
    return resident(reset=False)[1] - before, result


def single(name, pair, quick):
    """What a child process prints for one code and pair."""
    try:
        code = CODES[name]()
        print(json.dumps(measure(code, pair, bool(quick))))
    except ImportError as error:
        print(json.dumps({"skipped": str(error)}))


def child(name, pair, core, quick):
    command = ["taskset", "-c", str(core), sys.executable, __file__, "--single", name, pair, "quick" if quick else ""]
    threads = {variable: "1" for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **threads})
    if done.returncode:
        return {"skipped": (done.stderr.strip().splitlines() or ["failed"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def gradwire(program, pair, core):
    """Figures of gradwire by code, from its own benchmark of two files. It measures elapsed
    time."""
    rows = run_gradwire(program, core, "bench", "--delta", *pairs.paths(pair), "--json")
    figures = {}
    for row in json.loads(rows):
        seconds = {name: row["raw_bytes"] / 1e9 / row[f"{name}_gbps"] for name in ("copy", "encode", "stage", "commit")}
        figures["gradwire portable" if row["portable"] else "gradwire"] = {
            "bytes": row["delta_bytes"], "copy_s": seconds["copy"], "encode_s": seconds["encode"],
            "apply_s": seconds["stage"] + seconds["commit"], "commit_s": seconds["commit"],
        }
    return figures


def gradwire_pack(program, pair, core):
    """The size of the new file as gradwire packs it, with names, shapes and hashes."""
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "packed.gwd"
        run_gradwire(program, core, "pack", pairs.paths(pair)[1], "-o", packed)
        return {"gradwire pack": {"bytes": packed.stat().st_size}}


def run_gradwire(program, core, *arguments):
    command = ["taskset", "-c", str(core), program, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def machine():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return {"processor": model, "cores": os.cpu_count(), "load": os.getloadavg()[0], "date": time.strftime("%Y-%m-%d")}


def add(found, pair, arguments):
    """Measures all codes on a pair; yields after each one."""
    entry = found["pairs"].setdefault(pair, {"codes": {}})
    entry["bounds"] = bounds.bounds(*pairs.paths(pair))
    yield "entropy"
    standard = CODES if pair in DENSE_PAIRS else peers.PEERS
    for name in standard if arguments.codes is None else arguments.codes:
        entry["codes"][name] = child(name, pair, arguments.core, arguments.quick)
        yield name
    if arguments.gradwire:
        entry["codes"] |= gradwire(arguments.gradwire, pair, arguments.core)
        if pair in DENSE_PAIRS:
            entry["codes"] |= gradwire_pack(arguments.gradwire, pair, arguments.core)
        yield "gradwire"


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/weights"), help="the folder of the page")
    parser.add_argument("--core", type=int, default=0, help="the core that measures")
    parser.add_argument("--gradwire", help="the program; without it gradwire is not measured")
    parser.add_argument("--pairs", nargs="*", metavar="PAIR", default=pairs.NAMES, help="pairs instead of all")
    parser.add_argument("--codes", nargs="*", metavar="CODE", help="codes of others instead of all")
    parser.add_argument("--quick", action="store_true", help="time everything once: for sizes")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    parser.add_argument("--single", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    arguments = options()
    if arguments.single:
        return single(*arguments.single)
    file = arguments.out / "measured.json"
    found = json.loads(file.read_text()) if file.exists() else {"pairs": {}}
    for pair in [] if arguments.table else arguments.pairs:
        if not pairs.made(pair):
            print(f"{pair}: not made; see pairs.py and grpo.py", file=sys.stderr)
            continue
        for name in add(found, pair, arguments):
            found["machine"] = machine()
            file.write_text(json.dumps(found, indent=1) + "\n")
            print(f"{pair}, {name}: {found['pairs'][pair]['codes'].get(name, 'done')}", file=sys.stderr, flush=True)
    tables.fill(arguments.out / "README.md", found)


if __name__ == "__main__":
    main()
