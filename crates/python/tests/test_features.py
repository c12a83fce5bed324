"""Tests features of DistributedDataParallel beyond a plain step."""

import numpy
import pytest
import torch
from torch import nn

import gradwire.torch
from models import Net, build, data, exchange_bytes, flat, train
from world import ranks


def accumulate(rank, size, compressor):
    model, handle = build(compressor)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        optimizer.zero_grad()
        with model.no_sync():
            x, labels = data(rank, 2 * step)
            nn.functional.cross_entropy(model(x), labels).backward()
        x, labels = data(rank, 2 * step + 1)
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    return flat(model), handle and handle.step


def test_accumulated_gradients_are_one_step():
    plain, hooked = ranks(2, accumulate, None), ranks(2, accumulate, "none")
    numpy.testing.assert_allclose(hooked[0][0], plain[0][0], rtol=1e-4, atol=1e-5)
    assert hooked[1][1] == 6
    compressed = ranks(2, accumulate, "3lc")
    assert (compressed[0][0] == compressed[1][0]).all()


class Branches(nn.Module):
    """A net that uses only one branch in each step."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList([nn.Linear(64, 10), nn.Linear(64, 10)])

    def forward(self, x, which):
        return self.branches[which](x)


def unused(rank, size, compressor):
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Branches(), find_unused_parameters=True)
    if compressor:
        gradwire.torch.register(model, compressor)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        x, labels = data(rank, step)
        loss = nn.functional.cross_entropy(model(x, step % 2), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return flat(model)


def test_unused_parameters_travel_as_zeros():
    plain, hooked = ranks(2, unused, None), ranks(2, unused, "none")
    numpy.testing.assert_allclose(hooked[0], plain[0], rtol=1e-4, atol=1e-5)
    compressed = ranks(2, unused, "topk:ratio=0.1")
    assert (compressed[0] == compressed[1]).all()


def half(rank, size, compressor, dtype):
    model, handle = build(compressor, dtype=dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for step in range(20):
        x, labels = data(rank, step)
        loss = nn.functional.cross_entropy(model(x.to(dtype)).float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return flat(model), losses


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_models_train(dtype):
    plain = ranks(2, half, None, dtype)
    for compressor in ("none", "3lc"):
        found = ranks(2, half, compressor, dtype)
        assert (found[0][0] == found[1][0]).all()
        assert numpy.mean(found[0][1][-4:]) < 1.2 * numpy.mean(plain[0][1][-4:]) + 0.1


def scaled(rank, size, poison):
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    model, handle = build("topk:ratio=0.1", on_nonfinite="skip", scaler=scaler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scales, before = [], None
    for step in range(6):
        x, labels = data(rank, step)
        loss = nn.functional.cross_entropy(model(x), labels)
        if poison and step == 3 and rank == 1:
            # The gradients of this layer come last: other buckets have already been sent.
            loss = loss + float("inf") * model.module.first.weight.sum() * 0.0
        optimizer.zero_grad()
        if step == 3:
            before = exchange_bytes(handle.state_dict())
        scaler.scale(loss).backward()
        if step == 3:
            same = before == exchange_bytes(handle.state_dict())
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return flat(model), scales, same, handle.stats()["total_skipped"]


def test_an_overflow_on_one_rank_is_skipped_by_all():
    found = ranks(2, scaled, True)
    for parameters, scales, same, skipped in found:
        assert numpy.isfinite(parameters).all() and (parameters == found[0][0]).all()
        assert scales[2:4] == [1024.0, 512.0] and same and skipped == 1
    clean = ranks(2, scaled, False)
    assert clean[0][1][-1] == 1024.0 and clean[0][3] == 0 and not clean[0][2]


def rules(rank, size):
    model, handle = build(
        "none until 3 then topk:ratio=0.01",
        rules={"second.*": "fp16", "*.norm.*": "none"},
        small_buckets=False,
        exchange="all-gather",
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    sizes = []
    for step in range(5):
        train(model, optimizer, rank, [step])
        sizes.append(handle.stats()["message_bytes"])
    return flat(model), sizes, list(handle.scalars())


def test_rules_and_warm_up():
    found = ranks(2, rules)
    assert (found[0][0] == found[1][0]).all()
    _, sizes, scalars = found[0]
    # second.weight and its bias at 16 bits, vectors uncompressed, first.weight uncompressed and then at a hundredth.
    fixed = 2 * 970 + 4 * 3 * 96
    assert all(fixed + 4 * 6144 <= size < fixed + 4 * 6144 + 100 for size in sizes[:3])
    assert all(fixed + 4 * 61 < size < fixed + 6 * 61 + 100 for size in sizes[3:])
    assert ("gradwire/message_bytes", float(sizes[-1]), 4) in scalars


def subgroup(rank, size):
    group = torch.distributed.new_group([1, 2])
    if rank == 0:
        return None
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Net(), process_group=group)
    handle = gradwire.torch.register(model, "3lc")
    losses = train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(10))
    return flat(model), losses, handle.stats()["messages_up"]


def test_a_subgroup_of_ranks_works():
    nothing, one, two = ranks(3, subgroup)
    assert nothing is None and (one[0] == two[0]).all() and one[1][-1] < one[1][0] and one[2] > 0


def one_rank(rank, size):
    model, _ = build("3lc")
    return train(model, torch.optim.SGD(model.parameters(), lr=0.1), 0, range(10))


def test_a_world_of_one_rank_works():
    (losses,) = ranks(1, one_rank)
    assert losses[-1] < losses[0]


class Mine:
    """A compressor written in Python that sends signs and a scale."""

    def compress(self, tensor):
        scale = tensor.abs().mean().reshape(1)
        return scale.numpy().tobytes() + numpy.packbits((tensor > 0).numpy().reshape(-1)).tobytes()

    def decompress(self, message, shape):
        elements = int(numpy.prod(shape))
        scale = float(numpy.frombuffer(message[:4], "float32")[0])
        bits = numpy.unpackbits(numpy.frombuffer(message[4:], "uint8"))[:elements]
        return torch.from_numpy(numpy.where(bits, scale, -scale).astype("float32")).view(tuple(shape))


def custom(rank, size):
    model, handle = build(Mine(), deadline=60.0, rules={}, raw_names=[])
    losses = train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(30))
    state = handle.state_dict()
    handle.load_state_dict(state)
    return flat(model), losses, handle.stats()


def test_a_compressor_written_in_python_trains():
    found = ranks(2, custom)
    assert (found[0][0] == found[1][0]).all()
    assert numpy.mean(found[0][1][-5:]) < 0.6 * numpy.mean(found[0][1][:3])
    assert found[0][2]["ratio"] > 20


def arguments(rank, size, options):
    messages = []
    for option in options:
        try:
            gradwire.torch.Hook(Net(), Mine(), **option)
            messages.append("nothing was refused")
        except gradwire.ConfigError as error:
            messages.append(str(error))
    return messages


def test_arguments_that_a_python_compressor_does_not_support_are_refused():
    options = [
        {"rules": {"*.weight": "none"}},
        {"exchange": "scatter-reduce"},
        {"seed": 7},
        {"on_nonfinite": "skip", "scaler": torch.amp.GradScaler("cpu")},
        {"raw_vectors": False, "raw_below": 0},
        {"raw_names": ["norm"], "total_steps": 100},
    ]
    (messages,) = ranks(1, arguments, options)
    for option, message in zip(options, messages):
        assert "written in Python" in message and all(name in message for name in option), message
