"""Tests compiled models, and a changed default device."""

import numpy
import pytest
import torch
from torch import nn

import gradwire.torch
from gradwire.torch import run
from models import Net, build, data, flat, train
from world import ranks


def import_compiler():
    """Imports what ranks would each import when they first compile something, which takes
    seconds."""
    torch.compile(torch.neg, backend="aot_eager")(torch.zeros(1))


def compiled(rank, size):
    torch.manual_seed(0)
    inner = torch.compile(Net(), backend="eager")
    model = nn.parallel.DistributedDataParallel(inner)
    handle = gradwire.torch.register(model, "topk:ratio=0.1", rules={"first.weight": "none"})
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(3))
    plain, other = build("topk:ratio=0.1", rules={"first.weight": "none"})
    other.load_state_dict(handle.state_dict())
    return handle.stats()["message_bytes"], other.step


def test_compiled_models_have_the_names_of_their_parameters():
    import_compiler()
    for size, step in ranks(2, compiled):
        # first.weight uncompressed.
        assert 4 * 6144 < size < 4 * 6144 + 4 * 600 and step == 3


def compiled_outside(rank, size, compressors, steps_before):
    """Registers a compiled DistributedDataParallel with each compressor, after some steps."""
    results = []
    for compressor in compressors:
        torch.compiler.reset()
        torch.manual_seed(0)
        model = torch.compile(nn.parallel.DistributedDataParallel(Net()), backend="aot_eager")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer, rank, range(steps_before))
        handle = gradwire.torch.register(model, compressor) if compressor else None
        train(model, optimizer, rank, range(steps_before, steps_before + 3))
        results.append((flat(model), handle and (handle.step, handle.stats()["message_bytes"])))
    return results


@pytest.mark.parametrize("steps_before", [0, 2])
def test_a_hook_is_called_in_a_model_compiled_outside(steps_before):
    import_compiler()
    one, two = ranks(2, compiled_outside, [None, "none", "3lc"], steps_before)
    (plain, _), (sums, (steps, sent)), (few, (_, sent_few)) = one
    assert steps == 3 and sent > 4 * 6144 and sent_few < 4000
    numpy.testing.assert_allclose(sums, plain, rtol=1e-4, atol=1e-5)
    assert (few != sums).any()
    assert all((a == b).all() for (a, _), (b, _) in zip(one, two))


def on_another_default_device(rank, size):
    model, batches = Net(), [data(rank, step) for step in range(2)]
    torch.set_default_device("meta")
    torch.set_default_dtype(torch.bfloat16)
    steps = gradwire.torch.LocalSteps(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), every=1, compressor="topk:ratio=0.1")
    for x, labels in batches:
        steps.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        steps.step()
    frame = gradwire.compress(model.first.weight.detach(), "int8")
    assert gradwire.decompress(frame, to="torch").device.type == "cpu"
    return flat(model)


def test_host_memory_does_not_follow_the_default_device():
    one, two = ranks(2, on_another_default_device)
    assert (one == two).all()


def started(rank, size):
    """Trains a compiled model as ``gradwire.torch.run`` starts it."""
    with run._replacing({"compressor": "3lc"}, None) as replacement:
        torch.manual_seed(0)
        model = torch.compile(nn.parallel.DistributedDataParallel(Net()), backend="aot_eager")
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(3))
    (handle,) = replacement._handles
    return handle.step, handle.stats()["message_bytes"]


def test_a_script_with_a_compiled_model_is_started_compressed():
    import_compiler()
    for step, sent in ranks(2, started):
        assert step == 3 and sent < 4000
