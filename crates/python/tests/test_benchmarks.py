"""The benchmark scripts compile, and pages have the tables that they print."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("script", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda script: script.name)
def test_script_compiles(script):
    compile(script.read_text(), str(script), "exec")


@pytest.mark.parametrize("page, script, runs", [("pytorch-links", "table.py", "runs"), ("pytorch-steps", "table.py", "runs"), ("nodes", "nodes_table.py", "steps")])
def test_page_has_the_tables_of_its_runs(page, script, runs):
    folder = ROOT / "results" / page
    command = [sys.executable, str(ROOT / "benchmarks" / script), str(folder / f"{runs}.jsonl")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    tables = [line for line in printed.splitlines() if line.startswith(("|", "#"))]
    assert len(tables) > 8
    lines = set((folder / "README.md").read_text().splitlines())
    assert [line for line in tables if line not in lines] == []
