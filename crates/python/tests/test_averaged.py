"""Tests that an optimizer takes no step with gradients that nobody has averaged any more."""

import copy
from contextlib import nullcontext

import pytest
import torch

import gradwire.torch
from models import build
from world import ranks


def steps(model, optimizer, dtype, closure=False, sync=True):
    """Two steps, perhaps without averages."""
    images = torch.ones(2, 64, dtype=dtype)

    def backward():
        optimizer.zero_grad()
        with nullcontext() if sync else model.no_sync():
            loss = model(images).square().sum()
            loss.backward()
        return loss

    for _ in range(2):
        if not closure:
            backward()
        optimizer.step(*[backward] if closure else [])


def converted(rank, size):
    found = {}

    def attempt(name, change, dtype=torch.float32, before=False, **options):
        model, handle = build("fp16")
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        if before:
            steps(model, optimizer, torch.float32, **options)
        change(model)
        weights = copy.deepcopy(model.state_dict())
        try:
            steps(model, optimizer, dtype, **options)
            found[name] = None
        except gradwire.ConfigError as error:
            same = all((one == weights[key]).all() for key, one in model.state_dict().items())
            found[name] = str(error), same
        handle.close()
        # The hooks are gone with the handle.
        optimizer.step()

    half = lambda model: model.to(torch.bfloat16)  # noqa: E731
    attempt("first", half, torch.bfloat16)
    attempt("later", half, torch.bfloat16, before=True)
    attempt("back", lambda model: model.half().float(), before=True)
    attempt("inner", lambda model: model.module.double(), torch.float64)
    attempt("closure", half, torch.bfloat16, before=True, closure=True)
    attempt("plain", lambda model: None, before=True)
    attempt("nothing to convert", lambda model: model.to("cpu").float().to(memory_format=torch.channels_last), before=True)
    attempt("plain closure", lambda model: None, before=True, closure=True)
    # Local steps on purpose.
    attempt("no_sync", lambda model: None, before=True, sync=False)
    return found


@pytest.mark.filterwarnings("ignore")
def test_converted_models_are_refused_before_a_step_without_averages():
    for found in ranks(2, converted):
        for name in ("first", "later", "back", "inner"):
            message, unchanged = found[name]
            assert "was not averaged: the model was converted after" in message and unchanged, (name, message)
        # The step runs the backward pass itself.
        assert "was not averaged" in found["closure"][0]
        assert [found[name] for name in ("plain", "nothing to convert", "plain closure", "no_sync")] == [None] * 4, found


def several_optimizers(rank, size):
    """Two optimizers of one model, one of which steps twice, and one that is stepped before
    training."""
    model, handle = build("none")
    parts = list(model.parameters())
    optimizers = [torch.optim.SGD(parts[:2], lr=1e-3), torch.optim.SGD(parts[2:], lr=1e-3)]
    for parameter in parts:
        parameter.grad = torch.zeros_like(parameter)
    optimizers[0].step()
    for _ in range(2):
        model(torch.ones(2, 64)).sum().backward()
        for optimizer in (*optimizers, optimizers[0]):
            optimizer.step()
        with torch.no_grad():
            model(torch.ones(2, 64))
    return handle.step


def test_steps_of_other_optimizers_are_left_alone():
    assert ranks(1, several_optimizers) == [2]
