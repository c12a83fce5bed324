"""Memory that gradwire takes beside the weights: a sender's and a receiver's steps.

    python benchmarks/delta/memory.py OLD.safetensors NEW.safetensors --threads 1

For each step the growth of the process's resident memory up to its peak. Weights are copied from
their files before, so pages of files do not count. Needs torch and safetensors, and Linux.
"""

import argparse
import ctypes
from pathlib import Path

from safetensors.torch import load_file

import gradwire.delta as delta


def resident():
    """The resident memory and its peak, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return tuple(int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))


def growth(step, action):
    """Prints how much memory an action takes at most; returns its result."""
    # Memory that was freed but not returned would hide new allocations.
    ctypes.CDLL(None).malloc_trim(0)
    # Begins a new peak.
    Path("/proc/self/clear_refs").write_text("5")
    before, _ = resident()
    result = action()
    print(f"{step}: {resident()[1] - before:.0f} MiB")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    old, new = ({name: tensor.clone() for name, tensor in load_file(path).items()} for path in (given.old, given.new))
    sender = growth("Sender", lambda: delta.Sender(old, threads=given.threads))
    frames = growth("diff", lambda: list(sender.diff(new)))
    growth("commit of the sender", sender.commit)
    receiver = growth("Receiver", lambda: delta.Receiver(old, threads=given.threads))
    update = growth("stage", lambda: receiver.stage(frames))
    growth("commit of the update", update.commit)


if __name__ == "__main__":
    main()
