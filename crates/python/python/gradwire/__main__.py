"""The command line: ``gradwire``, or ``python -m gradwire``."""

import sys

from . import _core


def main() -> int:
    """Runs the command line with the arguments of this process; returns its exit code."""
    return _core.main(["gradwire", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
