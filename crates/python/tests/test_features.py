"""Tests features of DistributedDataParallel beyond a plain step."""

import gc
import os

import numpy
import pytest
import torch
import torch.distributed.algorithms.join
import torch.utils.checkpoint
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from gradwire.torch import _messages
from models import Net, build, data, exchange_bytes, flat, train
from world import outcomes, ranks


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
    plain, hooked = ranks(2, unused, None), ranks(2, unused, "none")
    numpy.testing.assert_allclose(hooked[0], plain[0], rtol=1e-4, atol=1e-5)
    compressed = ranks(2, unused, "topk:ratio=0.1")
    assert (compressed[0] == compressed[1]).all()


def voting(rank, size, compressor, case):
    if case == "unused":
        model = nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)
        with pytest.raises(gradwire.ConfigError, match="votes.*find_unused_parameters=False"):
            gradwire.torch.register(model, "none until 5 then " + compressor if compressor == "signsgd" else compressor)
        # Another hook may be registered.
        gradwire.torch.register(model, "eden")
        return None
    return joined(rank, size, compressor)


@pytest.mark.parametrize("compressor", ["signsgd", "signum", "demo"])
def test_zeros_of_ranks_without_gradients_do_not_vote(compressor):
    ranks(2, voting, compressor, "unused")
    without, other = outcomes(2, voting, compressor, "join")
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
    plain, hooked = ranks(2, checkpointed, None, False), ranks(2, checkpointed, "none", False)
    numpy.testing.assert_allclose(hooked[0], plain[0], rtol=1e-4, atol=1e-5)
    compressed = ranks(2, checkpointed, "topk:ratio=0.1", False)
    assert (compressed[0] == compressed[1]).all()
    failed = outcomes(2, checkpointed, "topk:ratio=0.1", True)
    assert failed[1][1] == "NonFiniteError" and "first.weight" in failed[1][2], failed[1]
    assert failed[0][1] == "PeerLostError", failed[0]


def rules(rank, size):
    model, handle = build(
        "none until 3 then topk:ratio=0.01",
        rules={"second.*": "fp16", "norm.*": "none"},
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
    # second.weight and its bias at 16 bits, vectors uncompressed, first.weight uncompressed and
    # then at a hundredth.
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


def groups_after_a_subgroup(rank, size):
    """Some ranks register with a group of theirs, and then all ranks make groups."""
    pair = torch.distributed.new_group([1, 2])
    if rank > 0:
        for _ in range(2):
            model = nn.parallel.DistributedDataParallel(Net(), process_group=pair)
            gradwire.torch.register(model, "3lc", deadline=30.0)
    whole = nn.parallel.DistributedDataParallel(Net())
    gradwire.torch.register(whole, "3lc", deadline=30.0)
    later = torch.distributed.new_group()
    total = torch.tensor([float(rank)])
    torch.distributed.all_reduce(total, group=later)
    return float(total)


def test_groups_can_be_made_after_a_subgroup_registered():
    assert ranks(3, groups_after_a_subgroup) == [3.0, 3.0, 3.0]


def one_rank(rank, size):
    model, _ = build("3lc")
    return train(model, torch.optim.SGD(model.parameters(), lr=0.1), 0, range(10))


def test_a_world_of_one_rank_works():
    (losses,) = ranks(1, one_rank)
    assert losses[-1] < losses[0]


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
    plain, found = ranks(2, joined, None), ranks(2, joined, "none")
    numpy.testing.assert_allclose(found[0][0], plain[0][0], rtol=1e-4, atol=1e-5)
    assert found[0][1] == found[1][1] == 7
    compressed = ranks(2, joined, "topk:ratio=0.1")
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


def in_messages(rank, size, most):
    _messages.MOST_ELEMENTS = most
    model, handle = build("topk:ratio=0.1", small_buckets=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(1))
    messages = handle.stats()["messages_up"]
    train(model, optimizer, rank, range(1, 4))
    return flat(model), exchange_bytes(handle.state_dict()), messages


def test_a_large_bucket_has_several_messages():
    # 10 biases and 960 weights; three vectors of 96; 6144 weights.
    for whole, parts in zip(ranks(2, in_messages, 1 << 28), ranks(2, in_messages, 1000)):
        assert (whole[0] == parts[0]).all() and whole[1] == parts[1]
        assert (whole[2], parts[2]) == (1, 3)


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


def two_models(rank, size, order):
    models = [build("3lc", seed=seed) for seed in (1, 2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model, _ in models]
    for step in range(6):
        for at in order(step):
            train(models[at][0], optimizers[at], rank, [step])
    return [flat(model) for model, _ in models]


def test_two_models_do_not_disturb_each_other():
    in_turn = ranks(2, two_models, lambda step: (0, 1))
    alone = [ranks(2, two_models, lambda step, at=at: (at,)) for at in (0, 1)]
    for rank in (0, 1):
        for at in (0, 1):
            assert (in_turn[rank][at] == alone[at][rank][at]).all()


def threads():
    return len(os.listdir("/proc/self/task"))


def released(rank, size, way):
    groups = torch.distributed.distributed_c10d._world.pg_map
    before, first = len(groups), None
    for _ in range(4):
        model, handle = build("3lc")
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(2))
        if way == "close":
            handle.close()
            handle.close()
        elif way == "with":
            with handle:
                pass
        if way != "delete":
            try:
                train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(1))
            except gradwire.ConfigError as error:
                assert "was closed" in str(error)
            else:
                raise AssertionError("a closed handle went on")
        del model, handle
        gc.collect()
        # The first round starts threads that stay, such as those of autograd.
        first = threads() if first is None else first
    return len(groups) - before, threads() - first


@pytest.mark.parametrize("way", ["close", "with", "delete"])
def test_threads_and_groups_are_released(way):
    assert ranks(2, released, way) == [(0, 0), (0, 0)]


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
    assert ranks(2, static, False) == [[1, 2, 3]] * 2
    # Errors end the pass in which they happen.
    assert all(name in ("NonFiniteError", "PeerLostError") for name in ranks(2, static, True))


def described(rank, size):
    rules = {"first.weight": "topk:ratio=0.01"}
    model, handle = build("none until 2 then 3lc", rules=rules, exchange="all-gather")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before, start = handle.describe(), handle.summary()
    with torch.profiler.profile() as profile:
        train(model, optimizer, rank, range(3))
    ranges = {event.key for event in profile.key_averages()}
    return before, handle.describe(), start, handle.summary(), repr(handle), ranges, handle.stats()


def test_a_handle_tells_how_tensors_are_sent():
    before, after, start, summary, name, ranges, stats = ranks(2, described)[0]
    plans = {one.name: one for one in before.tensors}
    assert plans["first.weight"].compressor == "topk" and plans["second.weight"].compressor == "none"
    # 61 of 6144 values, and their positions.
    assert 50 < plans["first.weight"].expected_ratio < 100
    assert plans["second.weight"].expected_ratio == 1.0 and plans["norm.weight"].message_bytes == 0
    plans = {one.name: one for one in after.tensors}
    assert plans["second.weight"].compressor == "3lc" and plans["second.weight"].expected_ratio > 15
    assert sum(one.message_bytes for one in after.tensors) == stats["message_bytes"]
    assert "all-gather over 2 ranks, step 3" in str(after) and "second.weight  960" in str(after)
    assert "no step yet" in start and "step 2" in summary and "waited" in summary
    assert name == "<Hook none until 2 then 3lc by all-gather over 2 ranks, step 3>"
    assert {"gradwire::submit", "gradwire::wait"} <= ranges
