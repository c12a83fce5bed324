"""Factors of a scaler by which no gradients can be divided: kernels, and messages that stay on the
device, notice them as the host does, also where values keep the factor."""

import math

import pytest
import torch

pytest.importorskip("triton", reason="PyTorch came without Triton")

import gradwire
from models import build, data
from test_cuda_exchange import Scaler
from test_cuda_fsdp import HALF
from test_cuda_fsdp import Run as Sharded
from transports import Run
from world import in_turn, ranks

HOW = {"host": {"transport": "host", "device": "host"}, "device": {"transport": "device"}}
NO_FACTORS = [0.0, math.inf, math.nan]


def result(step):
    """Whether the results of a step are NaN, or finite; or its error."""
    try:
        found = step().view(torch.float32)
    except gradwire.GradwireError as error:
        return f"{type(error).__name__}: {error}"
    return bool(found.isnan().all()), bool(found.isfinite().all())


def replicas(rank, size, how, exchange, scale, on_nonfinite):
    """Three steps with gradients that travel in 16 bits; the second has a wrong factor on rank
    1."""
    scaler = Scaler(2.0)
    run = Run(rank, [], [300, 7], torch.float16, exchange=exchange, scaler=scaler, on_nonfinite=on_nonfinite, **HOW[how])
    run.step(0)
    scaler.scale = scale if rank == 1 else 2.0
    second = result(lambda: run.step(1))
    if on_nonfinite == "error":
        return second
    scaler.scale = 2.0
    return second, result(lambda: run.step(2)), run.handle.stats()["total_skipped"]


def test_a_step_is_skipped_wherever_messages_travel():
    settings = [("all-gather", 0.0), ("scatter-reduce", math.inf), ("all-reduce", math.nan)]
    cases = [(replicas, how, *setting, "skip") for setting in settings for how in HOW]
    for case, found in zip(cases, in_turn(2, *cases)):
        assert found == (((True, False), (False, True), 1),) * 2, case


def test_errors_name_the_factor_wherever_messages_travel():
    other, own = ranks(2, replicas, "host", "all-gather", 0.0, "error")
    assert "NonFiniteError: the scale of the loss is 0" in own and "PeerLostError" in other
    for text in ranks(2, replicas, "device", "all-gather", 0.0, "error"):
        assert "NonFiniteError: the gradient of 'all." in text and "on rank 1" in text and "or the scale of the loss is 0" in text


def compressed(rank, size, where, scale, on_nonfinite):
    """A step whose factor is wrong on rank 1, compressed by kernels or by the host."""
    scaler = Scaler(2.0)
    options = {"scaler": scaler, "on_nonfinite": on_nonfinite, "exchange": "all-gather", "transport": "host"}
    model, handle = build("none", dtype=torch.float16, device=where, **options)
    inputs = data(rank, 0)[0].half()
    model(inputs).sum().backward()
    scaler.scale = scale if rank == 1 else 2.0

    def step():
        model(inputs).sum().backward()
        return torch.cat([one.grad.float().flatten() for one in model.parameters()])

    return result(step), on_nonfinite == "skip" and handle.stats()["total_skipped"]


def test_kernels_notice_the_factor_as_the_host_does():
    cases = [(compressed, where, scale, "skip") for scale in NO_FACTORS for where in ("host", "gpu")]
    for case, found in zip(cases, in_turn(2, *cases)):
        assert found == (((True, False), 1),) * 2, case


@pytest.mark.parametrize("scale", NO_FACTORS)
def test_errors_of_kernels_name_the_factor_as_those_of_the_host_do(scale):
    (_, (host, _)), (_, (device, _)) = (ranks(2, compressed, where, scale, "error") for where in ("host", "gpu"))
    assert device == host and "NonFiniteError: the scale of the loss is " in host, (host, device)


def shards(rank, size, how, scale):
    """Whether gradients are NaN in a step whose factor is wrong on rank 1, and skipped steps."""
    scaler = Scaler(2.0)
    run = Sharded(rank, size, ["none", "none"], HALF, transport=how, on_nonfinite="skip", scaler=scaler)
    run.step(0)
    scaler.scale = scale if rank == 1 else 2.0
    run.step(1)
    return all(one.grad.to_local().isnan().all() for one in run.model.parameters() if one.grad is not None), run.handle.stats()["total_skipped"]


def test_shards_are_skipped_wherever_messages_travel():
    cases = [(shards, how, scale) for scale in NO_FACTORS for how in HOW]
    for case, found in zip(cases, in_turn(2, *cases)):
        assert found == ((True, 1),) * 2, case
