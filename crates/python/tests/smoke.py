"""Tries an installed package, without PyTorch and pytest: ``python smoke.py``."""

import subprocess
import sys
from pathlib import Path

import numpy

import gradwire


def compresses():
    values = numpy.sin(numpy.arange(10_000, dtype="float32")).reshape(100, 100)
    for spec, ratio, error in [("none", 0.9, 0.0), ("fp16", 1.9, 1e-3), ("int8", 3.5, 0.01), ("topk:ratio=0.01", 50.0, 1.0)]:
        message = gradwire.compress(values, spec)
        restored = gradwire.decompress(message)
        assert restored.shape == values.shape
        assert values.nbytes > ratio * len(message), spec
        assert numpy.linalg.norm(restored - values) <= error * numpy.linalg.norm(values), spec


def runs_commands():
    scripts = Path(sys.executable).parent
    for start in ([sys.executable, "-m", "gradwire"], [str(scripts / "gradwire")]):
        found = subprocess.run([*start, "--version"], stdout=subprocess.PIPE, check=True)
        # The commit follows, if the wheel was built in a checkout.
        assert found.stdout.decode().startswith(f"gradwire {gradwire.__version__}")
    # The last evaluation takes all test images: minutes with a larger model under emulation.
    train = "train --model mlp --workers 2 --steps 3 --compressor 3lc".split()
    subprocess.run([sys.executable, "-m", "gradwire", *train], stdout=subprocess.DEVNULL, check=True)


def asks_for_pytorch():
    try:
        import gradwire.torch  # noqa: F401
    except ImportError as error:
        assert "torch" in str(error)


compresses()
runs_commands()
asks_for_pytorch()
print(f"gradwire {gradwire.__version__} works with Python {sys.version.split()[0]}")
