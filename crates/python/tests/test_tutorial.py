"""Runs the files of the tutorial, as it tells its reader to write and change them."""

import contextlib
import io
import re
import runpy
import sys
from pathlib import Path

import torch.distributed as dist

from world import ranks

PAGE = Path(__file__).parents[3] / "docs/tutorial.md"


def write_files(folder):
    """Writes the files of the tutorial, with all changes."""
    files = {}
    for kind, code in re.findall(r"```(python|diff)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        if kind == "python":
            files[re.match(r"# (\w+\.py)\n", code)[1]] = code
            continue
        # All changes are of one file.
        lines = code.splitlines(keepends=True)
        before, after = ("".join(line[1:] for line in lines if line[0] in signs) for signs in (" -", " +"))
        assert files["train.py"].count(before) == 1, code
        files["train.py"] = files["train.py"].replace(before, after)
    for name, code in files.items():
        (folder / name).write_text(code)


if __name__ == "__main__":
    write_files(Path(sys.argv[1]))
