"""The command line: ``gradwire``, or ``python -m gradwire``."""

import platform
import sys
from importlib import metadata

from . import _core

# Packages whose versions a bug report needs.
_PACKAGES = ("torch", "triton", "numpy", "safetensors", "torchft", "lightning", "transformers", "accelerate", "flwr")


def main() -> int:
    """Runs the command line with the arguments of this process; returns its exit code."""
    verb, rest = sys.argv[1:2], sys.argv[2:]
    packages = [f"--package={version}" for version in _versions()] if verb == ["env"] else []
    code: int = _core.main(["gradwire", *verb, *packages, *rest])
    return code


def _versions() -> "list[str]":
    """Python and the packages that are installed, with their versions."""
    found = [f"Python {platform.python_version()}"]
    for package in _PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            pass
    return found


if __name__ == "__main__":
    sys.exit(main())
