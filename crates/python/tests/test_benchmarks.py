"""The benchmark scripts compile, and pages have the tables that they print."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("script", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda script: script.name)
def test_script_compiles(script):
    compile(script.read_text(), str(script), "exec")


@pytest.mark.parametrize("page, script, runs", [("pytorch-links", "table.py", "runs"), ("pytorch-steps", "table.py", "runs"), ("nodes", "nodes_table.py", "steps"), ("phases", "phases_table.py", "steps")])
def test_page_has_the_tables_of_its_runs(page, script, runs):
    folder = ROOT / "results" / page
    command = [sys.executable, str(ROOT / "benchmarks" / script), str(folder / f"{runs}.jsonl")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    tables = [line for line in printed.splitlines() if line.startswith(("|", "#"))]
    assert len(tables) > 5
    lines = set((folder / "README.md").read_text().splitlines())
    assert [line for line in tables if line not in lines] == []


def test_chart_is_that_of_its_runs():
    folder = ROOT / "results/pytorch-links"
    command = [sys.executable, str(ROOT / "benchmarks/links_chart.py"), str(folder / "runs.jsonl")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed == (folder / "bars.svg").read_text()
    # The page's tables, which another script makes, have the same seconds.
    page = (folder / "README.md").read_text()
    two_ranks = page[page.index("### cnn, 2 ranks") : page.index("### cnn, 4 ranks")]
    shown = re.findall(r">[^<>]*?([0-9.]+ ± [0-9.]+ s)</text>", printed)
    assert len(shown) == 9 and all(seconds in two_ranks for seconds in shown)
