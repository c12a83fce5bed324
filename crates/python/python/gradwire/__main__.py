"""The command line: ``gradwire``, or ``python -m gradwire``."""

import platform
import sys
from importlib import metadata

from . import _core

# Packages whose versions a bug report needs.
_PACKAGES = ("torch", "triton", "numpy", "safetensors", "torchft", "lightning", "transformers", "accelerate", "flwr")


def main() -> int:
    """Runs the command line with the arguments of this process; returns its exit code."""
    code: int = _core.main(["gradwire", *sys.argv[1:]])
    if code == 0 and sys.argv[1:] in (["env"], ["env", "--markdown"]):
        print(f"\n Python {platform.python_version()}: {', '.join(_versions())}")
    return code


def _versions() -> "list[str]":
    """The packages that are installed, with their versions."""
    found = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            pass
    return found


if __name__ == "__main__":
    sys.exit(main())
