"""Tests that the guide documents the arguments as the package declares them."""

import inspect
import re
from pathlib import Path

import pytest

import gradwire.torch


def documented(guide, first, names):
    """The default of each argument in the table of the guide that begins with ``first``."""
    rows = [line.strip("|").split(" | ") for line in guide.split(first)[1].split("\n\n")[0].splitlines()]
    return {row[0].strip(" `"): row[2].strip(" `") for row in rows if row[0].strip(" `") in names}


def defaults(callable_):
    """The default of each argument as the guide writes it."""
    return {
        one.name: "required" if one.default is one.empty else repr(one.default).replace("'", '"')
        for one in inspect.signature(callable_).parameters.values()
        if one.name != "self"
    }


def test_the_page_of_process_groups_has_every_argument_with_its_default():
    guide = (Path(__file__).parents[3] / "docs/any-loop.md").read_text()
    expected = defaults(gradwire.torch.configure)
    assert documented(guide, "| argument | value | default | |", expected) == expected


@pytest.mark.parametrize(
    "callable_, first",
    [
        (gradwire.torch.register, "| `model` | `DistributedDataParallel` "),
        (gradwire.torch.LocalSteps.__init__, "| `model` | `Module` "),
    ],
)
def test_the_guide_has_every_argument_with_its_default(callable_, first):
    guide = (Path(__file__).parents[3] / "docs/pytorch-reference.md").read_text()
    expected = defaults(callable_)
    if callable_ is not gradwire.torch.register:
        shared = guide.split("It also takes these keyword arguments of `register`:")[1].split("\n\n")[0]
        for name in re.findall(r"`(\w+)`", shared):
            assert expected.pop(name) == defaults(gradwire.torch.register)[name]
    # The row of `model` begins the table, and is left out when it is cut off there.
    del expected["model"]
    assert documented(guide, first, expected) == expected


def test_troubleshooting_quotes_errors_as_the_source_has_them():
    root = Path(__file__).parents[3]
    python = "".join(path.read_text() for path in sorted((root / "crates/python/python").rglob("*.py")))
    rust = "".join(path.read_text() for crate in ("core", "exchange") for path in sorted((root / f"crates/{crate}/src").rglob("*.rs")))
    # A literal may continue on the next line. The page writes an ellipsis for an inserted value.
    source = re.sub(r'"\n\s*f?"', "", python) + re.sub(r"\\\n\s*", "", rust)
    page = (root / "docs/troubleshooting.md").read_text()
    quoted = re.findall(r"```text\n(.*?)\n```", page, re.DOTALL)
    assert len(quoted) > 10
    for text in quoted:
        pieces = [re.escape(piece) for piece in text.split("…")]
        assert re.search(r"[^\"\n]{0,80}".join(pieces), source), text
