"""Tests features of DistributedDataParallel beyond a plain step."""

import numpy
import pytest
import torch
import torch.distributed.algorithms.join
import torch.utils.checkpoint
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from models import Net, build, data, exchange_bytes, flat, train
from world import in_turn, outcomes, ranks


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
    plain, hooked, compressed = in_turn(2, (accumulate, None), (accumulate, "none"), (accumulate, "3lc"))
    numpy.testing.assert_allclose(hooked[0][0], plain[0][0], rtol=1e-4, atol=1e-5)
    assert hooked[1][1] == 6
    assert (compressed[0][0] == compressed[1][0]).all()


class Embedded(nn.Module):
    """A net with a sparse embedding, which ranks train by themselves."""

    def __init__(self):
        super().__init__()
        self.table, self.net = nn.Embedding(10, 64, sparse=True), Net()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x, places):
        return self.net(x + self.scale * self.table(places))


def ignoring(rank, size):
    torch.manual_seed(0)
    net = Embedded()
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, ["table.weight", "scale"])
    model = DistributedDataParallel(net)
    handle = gradwire.torch.register(model, "none")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        x, labels = data(rank, step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x, labels), labels).backward()
        optimizer.step()
    names = [tensor.name for tensor in handle.describe().tensors]
    return names, flat(net.net), net.scale.item(), net.table.weight.detach().cpu().numpy()


def test_parameters_that_ddp_ignores_are_left_alone():
    (names, *one), (_, *other) = ranks(2, ignoring)
    # Parameters of the root module are not ignored, whatever their names.
    assert {"net.first.weight", "scale"} < set(names) and "table.weight" not in names
    assert (one[0] == other[0]).all() and one[1] == other[1] and (one[2] != other[2]).any()


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
    plain, hooked, compressed = in_turn(2, (unused, None), (unused, "none"), (unused, "topk:ratio=0.1"))
    numpy.testing.assert_allclose(hooked[0], plain[0], rtol=1e-4, atol=1e-5)
    assert (compressed[0] == compressed[1]).all()


def voting(rank, size, compressor):
    """Is refused for parameters that a step does not use; then ranks have numbers of batches of
    their own."""
    model = nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)
    with pytest.raises(gradwire.ConfigError, match="votes.*find_unused_parameters=False"):
        gradwire.torch.register(model, "none until 5 then " + compressor if compressor == "signsgd" else compressor)
    # Another hook may be registered.
    gradwire.torch.register(model, "eden")
    joined(rank, size, compressor)


@pytest.mark.parametrize("compressor", ["signsgd", "signum", "demo"])
def test_zeros_of_ranks_without_gradients_do_not_vote(compressor):
    without, other = outcomes(2, voting, compressor)
    assert without[1] == "ConfigError" and "the zeros of a rank without data would vote" in without[2], without
    assert other[1] == "PeerLostError", other


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
    plain, *others = in_turn(2, *((half, compressor, dtype) for compressor in (None, "none", "3lc")))
    for found in others:
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
    found, clean = in_turn(2, (scaled, True), (scaled, False))
    for parameters, scales, same, skipped in found:
        assert numpy.isfinite(parameters).all() and (parameters == found[0][0]).all()
        assert scales[2:4] == [1024.0, 512.0] and same and skipped == 1
    assert clean[0][1][-1] == 1024.0 and clean[0][3] == 0 and not clean[0][2]


class Scaler:
    """A gradient scaler that has lost its factor."""

    def __init__(self, scale):
        self.scale = scale

    def get_scale(self):
        return self.scale


def scaled_by(rank, size, scale):
    scaler = Scaler(1.0)
    model, handle = build("topk:ratio=0.1", on_nonfinite="skip", scaler=scaler)
    model(data(rank, 0)[0]).sum().backward()
    before = exchange_bytes(handle.state_dict())
    scaler.scale = scale if rank == 1 else 1.0
    model(data(rank, 1)[0]).sum().backward()
    unchanged = before == exchange_bytes(handle.state_dict())
    return unchanged, all(one.grad.isnan().all() for one in model.parameters()), handle.stats()["total_skipped"]


def test_a_scale_that_is_no_factor_skips_the_step():
    scales = [0.0, float("inf"), float("nan")]
    assert in_turn(2, *((scaled_by, scale) for scale in scales)) == [((True, True, 1),) * 2] * 3


class Checkpointed(Net):
    """A net that computes its layers again in the backward pass, by backward passes inside the
    backward pass."""

    def forward(self, x):
        x = torch.utils.checkpoint.checkpoint(self.first, x.requires_grad_(), use_reentrant=True)
        return torch.utils.checkpoint.checkpoint(lambda x: self.second(torch.relu(self.norm(x))), x, use_reentrant=True)


def checkpointed(rank, size, compressor, poison):
    model, handle = build(compressor, module=Checkpointed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(4))
    if poison:
        if rank == 1:
            # This layer is in the last bucket.
            model.module.first.weight.register_hook(lambda gradient: gradient + float("inf"))
        model(data(rank, 4)[0]).sum().backward()
    return flat(model)


def test_reentrant_checkpoints_wait_for_averages_and_raise_errors():
    plain, hooked, compressed = in_turn(2, *((checkpointed, one, False) for one in (None, "none", "topk:ratio=0.1")))
    numpy.testing.assert_allclose(hooked[0], plain[0], rtol=1e-4, atol=1e-5)
    assert (compressed[0] == compressed[1]).all()
    failed = outcomes(2, checkpointed, "topk:ratio=0.1", True)
    assert failed[1][1] == "NonFiniteError" and "first.weight" in failed[1][2], failed[1]
    assert failed[0][1] == "PeerLostError", failed[0]


def joined(rank, size, compressor, **options):
    model, handle = build(compressor)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # Rank 1 has three batches more than rank 0.
    with torch.distributed.algorithms.join.Join([model], **options):
        for step in range(4 + 3 * rank):
            x, labels = data(rank, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), labels).backward()
            optimizer.step()
    return flat(model), handle and handle.step


def test_ranks_may_have_numbers_of_batches_of_their_own():
    plain, found, compressed = in_turn(2, (joined, None), (joined, "none"), (joined, "topk:ratio=0.1"))
    numpy.testing.assert_allclose(found[0][0], plain[0][0], rtol=1e-4, atol=1e-5)
    assert found[0][1] == found[1][1] == 7
    assert (compressed[0][0] == compressed[1][0]).all()


def divided_by_active_ranks(rank, size):
    with pytest.raises(gradwire.ConfigError, match="leave out divide_by_initial_world_size=False"):
        joined(rank, size, "none", divide_by_initial_world_size=False)


def test_averages_are_over_all_ranks_only():
    ranks(2, divided_by_active_ranks)


def unfrozen(rank, size):
    torch.manual_seed(0)
    net = Net()
    net.first.weight.requires_grad_(False)
    model = nn.parallel.DistributedDataParallel(net)
    gradwire.torch.register(model, "none")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(2))
    net.first.weight.requires_grad_(True)
    with pytest.raises(gradwire.ConfigError, match="'first.weight' requires gradients now"):
        train(model, optimizer, rank, range(1))


def test_a_parameter_that_is_unfrozen_later_is_refused():
    ranks(2, unfrozen)


def stepping_in_the_backward_pass(rank, size):
    net = Net()
    _apply_optimizer_in_backward(torch.optim.SGD, net.parameters(), {"lr": 0.1})
    with pytest.raises(gradwire.ConfigError, match="an optimizer runs in the backward pass"):
        gradwire.torch.register(nn.parallel.DistributedDataParallel(net), "none")


def test_an_optimizer_in_the_backward_pass_is_refused():
    ranks(1, stepping_in_the_backward_pass)


class Mixed(torch.nn.Module):
    """Parameters of two types, so that the first backward pass of a static graph has two
    buckets."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(64, 32, bias=False)
        self.second = torch.nn.Linear(32, 10, bias=False).to(torch.bfloat16)

    def forward(self, x):
        return self.second(self.first(x).to(torch.bfloat16)).float()


def static(rank, size, infinite):
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(Mixed(), static_graph=True)
    handle = gradwire.torch.register(model, "3lc", exchange="all-gather")
    steps = []
    for step in range(3):
        x = torch.full((2, 64), float("inf")) if infinite else torch.ones(2, 64)
        try:
            model(x).sum().backward()
        except gradwire.GradwireError as error:
            return type(error).__name__
        steps.append(handle.step)
        assert model.module.second.weight.grad is not None
    return steps


def test_the_first_pass_of_a_static_graph_is_one_step():
    finite, infinite = in_turn(2, (static, False), (static, True))
    assert finite == ([1, 2, 3],) * 2
    # Errors end the pass in which they happen.
    assert all(name in ("NonFiniteError", "PeerLostError") for name in infinite)
