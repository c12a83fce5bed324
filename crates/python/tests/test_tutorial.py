"""Runs the files of the tutorial, as it tells its reader to write and change them."""

import contextlib
import io
import os
import re
import runpy
import sys
from pathlib import Path

import torch
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


def on_rank(rank, size, folder, *arguments):
    """Runs the training script on a rank in a folder; returns what it prints."""
    os.chdir(folder)
    sys.path.insert(0, folder)
    sys.argv = ["train.py", *arguments]
    dist.init_process_group = lambda backend: None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path("train.py", run_name="__main__")
    return printed.getvalue()


def test_the_training_script_compresses_and_resumes(tmp_path):
    write_files(tmp_path)

    def trained(*arguments):
        """What rank 0 prints, and the model that it saves."""
        printed = ranks(2, on_rank, str(tmp_path), *arguments)[0]
        return printed, torch.load(tmp_path / "rank0.pt")["model"]

    printed, _ = trained("--steps", "2")
    assert float(re.search(r"gradwire: step 1, ([0-9.]+)x", printed)[1]) > 20
    _, whole = trained("--compressor", "3lc", "--steps", "4")
    _, half = trained("--compressor", "3lc", "--steps", "2")
    _, resumed = trained("--compressor", "3lc", "--steps", "4", "--resume")
    assert all(torch.equal(resumed[name], one) for name, one in whole.items())
    assert not all(torch.equal(half[name], one) for name, one in whole.items())


def test_the_script_for_advice_names_each_link(tmp_path, monkeypatch, capsys):
    write_files(tmp_path)
    script = tmp_path / "advise.py"
    script.write_text(script.read_text().replace("range(200)", "range(2)"))
    monkeypatch.syspath_prepend(str(tmp_path))
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    assert all(f"At {link}: " in printed for link in ("100 Mbit/s", "1 Gbit/s", "10 Gbit/s"))
