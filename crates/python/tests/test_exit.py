"""Tests that no thread of an exchange that nobody has closed outlives the interpreter, which would
end the process by SIGABRT."""

import subprocess
import sys

import pytest

# Three ranks that end as scripts do. Two of them begin an exchange in the background, which waits
# for the third.
SCRIPT = """
import atexit, os, sys, tempfile
from pathlib import Path

def threads():
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    say("at the end", names.count("gradwire"))

def say(*words):
    # In one piece, because all ranks write to one pipe.
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

# Runs after what is registered later.
atexit.register(lambda: threads() if rank is not None else None)
import torch, torch._dynamo, torch.distributed as dist
from torch import nn
import gradwire.torch

rank, folder, ranks = None, tempfile.mkdtemp(), []
for number in range(3):
    ranks.append(os.fork())
    if ranks[-1] == 0:
        rank = number
        break
if rank is None:
    say("codes", [os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in ranks])
    sys.exit()
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=3)
layer = nn.Linear(4, 4)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
steps = gradwire.torch.LocalSteps(layer, optimizer, every=4, fragment_sync_delay=3)
for _ in range(3 if rank == 2 else 4):
    layer(torch.ones(1, 4)).sum().backward()
    steps.step()
names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
say("before", names.count("gradwire"))
dist.destroy_process_group()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="names of threads are read as on Linux")
def test_no_thread_outlives_the_interpreter():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, timeout=600)
    lines = sorted(line for line in done.stdout.splitlines() if line.startswith(("at", "before", "codes")))
    assert lines == ["at the end 0"] * 3 + ["before 1"] * 3 + ["codes [0, 0, 0]"], (lines, done.stderr[-2000:])
