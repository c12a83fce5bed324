"""Tests that ``register`` refuses models it cannot train, and says what to do."""

import inspect

import pytest
import torch
import torch.distributed.fsdp
from torch import nn

import gradwire.torch
from device import DEVICE
from models import Net, build, data
from world import outcomes, ranks


def of_other_reducers(wrapped):
    """Models whose buckets a hook does not get as it needs them, with what the refusal names."""
    models = []
    if "skip_all_reduce_unused_params" in inspect.signature(wrapped).parameters:
        skipping = wrapped(Net(), find_unused_parameters=True, skip_all_reduce_unused_params=True)
        models.append((skipping, "skip_all_reduce_unused_params"))
    torch._dynamo.config.optimize_ddp = "python_reducer"
    reduced = wrapped(Net())
    torch._dynamo.config.optimize_ddp = True
    if hasattr(reduced, "_use_python_reducer"):
        models.append((reduced, "python_reducer"))
    return models


def of_another_kind(rank, size):
    wrapped = nn.parallel.DistributedDataParallel
    sharded = Net()
    torch.distributed.fsdp.fully_shard(sharded, mesh=torch.distributed.init_device_mesh(DEVICE.type, (size,)))
    messages, others = [], of_other_reducers(wrapped)
    for model in [
        Net(),
        sharded,
        wrapped(Net().double()),
        wrapped(nn.Sequential(nn.Embedding(10, 40, sparse=True), nn.Linear(40, 10))),
        torch.compile(Net(), backend="eager"),
        build("none")[0],
        *(model for model, _ in others),
    ]:
        try:
            gradwire.torch.register(model)
            messages.append("nothing was refused")
        except gradwire.ConfigError as error:
            messages.append(str(error))
    return messages, [says for _, says in others]


def test_models_of_another_kind_are_refused_with_what_to_do():
    expected = ["LocalSteps with the plain model", "fsdp.register", "'first.weight' has the type torch.float64", "sparse=False"]
    expected += ["the model is a Net, not DistributedDataParallel", "has a communication hook already"]
    for result in outcomes(2, of_another_kind):
        assert result[0] == "ok", result
        messages, others = result[1]
        assert len(messages) == len(expected + others)
        for message, says in zip(messages, expected + others):
            assert says in message, message


def frozen_late(rank, size):
    net = Net()
    model = nn.parallel.DistributedDataParallel(net, find_unused_parameters=True)
    net.first.requires_grad_(False)
    gradwire.torch.register(model)
    model(data(rank, 0)[0]).sum().backward()


def test_a_parameter_that_was_frozen_after_wrapping_is_named():
    for result in outcomes(2, frozen_late):
        assert result[1] != "Hang" and "'first.weight' did not require gradients" in result[2], result


def changed_after_wrapping(rank, size):
    """Why models are refused that changed after they were wrapped, and whether those are accepted
    that changed before."""
    messages = []
    for change in (
        lambda net: net.first.weight.requires_grad_(True),
        lambda net: net.first.to(torch.bfloat16),
        lambda net: net.first.to(torch.bfloat16).to(torch.float32),
    ):
        net = Net()
        net.first.weight.requires_grad_(False)
        change(net)
        gradwire.torch.register(nn.parallel.DistributedDataParallel(net)).close()
        net = Net()
        if not messages:
            net.first.weight.requires_grad_(False)
        model = nn.parallel.DistributedDataParallel(net)
        change(net)
        with pytest.raises(gradwire.ConfigError) as refused:
            gradwire.torch.register(model)
        messages.append(str(refused.value))
    return messages


def test_a_model_that_changed_after_wrapping_is_refused_by_register():
    for messages in ranks(1, changed_after_wrapping):
        assert len(messages) == 3
        assert all("does not average 'first.weight'" in one and "then wrap it and register" in one for one in messages), messages
