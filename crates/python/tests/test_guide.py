"""Tests that the guide documents the arguments as the package declares them."""

import inspect
from pathlib import Path

import pytest

import gradwire.torch


def documented(guide, first, names):
    """The default of each argument in the table of the guide that begins with ``first``."""
    rows = [line.strip("|").split(" | ") for line in guide.split(first)[1].split("\n\n")[0].splitlines()]
    return {row[0].strip(" `"): row[2].strip(" `") for row in rows if row[0].strip(" `") in names}


@pytest.mark.parametrize(
    "callable_, first",
    [
        (gradwire.torch.register, "| `model` | `DistributedDataParallel` "),
        (gradwire.torch.LocalSteps.__init__, "| `model` | `Module` "),
    ],
)
def test_the_guide_has_every_argument_with_its_default(callable_, first):
    guide = (Path(__file__).parents[3] / "docs/pytorch.md").read_text()
    parameters = list(inspect.signature(callable_).parameters.values())
    expected = {
        one.name: "required" if one.default is one.empty else repr(one.default).replace("'", '"')
        for one in parameters
        if one.name != "self" and one.kind is not one.VAR_KEYWORD
    }
    # The row of `model` begins the table, and is left out when it is cut off there.
    del expected["model"]
    assert documented(guide, first, expected) == expected
