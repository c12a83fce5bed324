"""Tests that the stub of the native module has the names that the module has."""

import ast
import inspect
from pathlib import Path

import pytest

import gradwire
from gradwire import _core

STUB = ast.parse(Path(gradwire.__file__).with_name("_core.pyi").read_text())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}


def public(names):
    return {name for name in names if not name.startswith("_")}


def declared(body):
    """The public names that statements of a stub declare, with their nodes."""
    found = {}
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign):
            found[node.target.id] = node
    return {name: found[name] for name in public(found)}


def parameters(function):
    """The names of a function's parameters in a stub."""
    arguments = function.args
    return [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def test_the_module_has_the_names_of_its_stub():
    assert set(declared(STUB.body)) == public(dir(_core))


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_has_the_names_and_parameters_of_its_stub(name):
    present, expected = getattr(_core, name), declared(CLASSES[name].body)
    assert set(expected) == public(dir(present)) - set(dir(Exception) if issubclass(present, Exception) else ())
    for method, node in expected.items():
        if isinstance(node, ast.FunctionDef):
            assert parameters(node) == list(inspect.signature(getattr(present, method)).parameters), method


def test_functions_have_the_parameters_of_the_stub():
    for name, node in declared(STUB.body).items():
        if isinstance(node, ast.FunctionDef):
            assert parameters(node) == list(inspect.signature(getattr(_core, name)).parameters), name
