"""Launches that are the same at every step."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="PyTorch came without Triton")

from gradwire.torch.cuda._config import Config
from gradwire.torch.cuda._kernel import Dense
from gradwire.torch.cuda.kernels import KERNELS, kernel_and_memory

FIXED = [name for name in KERNELS if isinstance(kernel_and_memory(Config.of(name))[0], Dense)]


def test_repeated_launches_give_triton_the_arguments_that_it_gives_itself():
    script = Path(__file__).with_name("check_launches.py")
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, script, *FIXED, "int8:momentum=0.9"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
