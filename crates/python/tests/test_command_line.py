"""Tests the command line of the package."""

import re
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import gradwire
from world import PATIENCE

MODULE = [sys.executable, "-m", "gradwire"]


def test_the_module_and_the_command_are_the_same_program():
    command = [str(Path(sys.executable).with_name("gradwire"))]
    listings = [subprocess.run([*start, "list", "--json"], capture_output=True, text=True, check=True) for start in (MODULE, command)]
    assert listings[0].stdout == listings[1].stdout
    assert all(f'"{entry["id"]}"' in listings[0].stdout for entry in gradwire.list())
    version = subprocess.run([*MODULE, "--version"], capture_output=True, text=True, check=True)
    # Built in a clone, it also names the commit.
    number, _, commit = version.stdout.partition("+")
    assert number.strip() == f"gradwire {gradwire.__version__}"
    assert re.fullmatch(r"([0-9a-f]{10,}(\.modified)?\n)?", commit), commit


def test_the_environment_has_the_versions_of_packages():
    for form in ([], ["--json"], ["--csv"]):
        shown = subprocess.run([*MODULE, "env", *form], capture_output=True, text=True, check=True).stdout
        words = " ".join(shown.split())
        assert "variables" in words, words
        assert f"torch {metadata.version('torch')}" in words and f"Python {sys.version.split()[0]}" in words


def test_wrong_usage_is_an_error_on_standard_error():
    wrong = subprocess.run([*MODULE, "train", "--compressor", "3cl"], capture_output=True, text=True)
    assert (wrong.returncode, wrong.stdout) == (2, "") and "3lc" in wrong.stderr


def test_ctrl_c_stops_a_run_cleanly():
    with subprocess.Popen([*MODULE, "train", "--steps", "1000000"], stderr=subprocess.PIPE, text=True) as run:
        # Its first line of progress: the handler is installed.
        assert run.stderr.readline()
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=PATIENCE)
    assert run.returncode == 130 and "interrupted" in errors
