"""Tests that functions declare and document the options that they share."""

import importlib
import inspect
import re
from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch

import gradwire
import gradwire.torch
from gradwire.torch._local_options import LocalOptions
from gradwire.torch._options import Options

FUNCTIONS = [
    (gradwire.torch.register, Options, gradwire.torch.register.__doc__),
    (gradwire.torch.fsdp.register, Options, gradwire.torch.fsdp.register.__doc__),
    (gradwire.torch.LocalSteps.__init__, LocalOptions, gradwire.torch.LocalSteps.__doc__),
    (gradwire.torch.Hook.__init__, Options, None),
]


@pytest.mark.parametrize("function, options, documentation", FUNCTIONS)
def test_functions_declare_every_option_with_its_default(function, options, documentation):
    parameters = inspect.signature(function).parameters
    assert {one.name: parameters[one.name].default for one in fields(options)} == {one.name: one.default for one in fields(options)}
    assert not any(one.kind is one.VAR_KEYWORD for one in parameters.values())


ADVISE = (gradwire.torch.advise, None, gradwire.torch.advise.__doc__)


@pytest.mark.parametrize("function, options, documentation", [*FUNCTIONS[:3], ADVISE])
def test_docstrings_list_every_argument(function, options, documentation):
    listed = inspect.cleandoc(documentation).split("Args:\n")[1].split("\n\n")[0]
    names = re.findall(r"^    (\w+(?:, \w+)*): ", listed, re.MULTILINE)
    parameters = [name for name in inspect.signature(function).parameters if name != "self"]
    assert sorted(", ".join(names).split(", ")) == sorted(parameters)


@pytest.mark.parametrize("framework", ["lightning", "transformers"])
def test_callbacks_declare_every_argument_of_register(framework):
    pytest.importorskip(framework)
    compression = importlib.import_module(f"gradwire.torch.{framework}").Compression
    register = inspect.signature(gradwire.torch.register).parameters
    names = [name for name in inspect.signature(compression).parameters if name != "trainer"]
    assert names == [name for name in register if name != "model"]
    # The scaler of the framework takes the place of these two.
    own = inspect.signature(compression).parameters
    others = [name for name in names if name not in ("scaler", "on_nonfinite")]
    assert [own[name].default for name in others] == [register[name].default for name in others]


def test_ranks_compare_all_options_except_those_that_change_no_message():
    options = LocalOptions(seed=3)
    assert options.compared()["seed"] == 3
    assert options == replace(options, deadline=1.0, threads=2, lighthouse="http://host:1")
    assert options != replace(options, seed=4) and options != replace(options, mask=False)
    assert options.compared().keys().isdisjoint({"deadline", "threads", "lighthouse"})


def test_a_check_changes_nothing():
    options = LocalOptions(lighthouse="http://host:1", rules={"*": "none"})
    before = replace(options)
    options.check()
    assert options == before and options.exchange == "auto" and options.resolved().exchange == "all-gather"
    with pytest.raises(FrozenInstanceError):
        options.exchange = "all-gather"


def test_low_rank_methods_are_refused_if_slices_would_cut_their_matrices():
    named = [("w", torch.empty(128, 128))]
    cases = [({"compressor": "powersgd", "exchange": "scatter-reduce"}, 2), ({"rules": ["w -> atomo"]}, 9)]
    for options, ranks in cases:
        with pytest.raises(gradwire.ConfigError, match="needs whole matrices, but scatter-reduce cuts tensors into slices; use exchange='all-g"):
            Options(**options).reducer_alone(named, ranks)
    # Vectors are sent uncompressed.
    for tensors, exchange in ((named, "all-reduce"), ([("b", torch.empty(9))], "scatter-reduce")):
        Options("powersgd", exchange=exchange).reducer_alone(tensors, 2).close()
