"""Tests local steps and weight updates."""

import copy
import gc
import weakref
from functools import partial
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import gradwire.torch
from gradwire.torch import _local, _messages, _replica
from device import DEVICE
from models import VOTING, Net, data, flat, one_layer
from world import ranks, seconds_until_interrupted


def voted(rank, size, compressor):
    layer, steps = one_layer(compressor, every=1, outer=partial(torch.optim.SGD, lr=1e-3))
    before = layer.weight.detach().clone()
    layer.weight.grad.normal_(generator=torch.Generator().manual_seed(0))
    steps.step()
    return before - layer.weight.detach(), layer.weight.grad


@pytest.mark.parametrize("compressor", VOTING)
def test_an_outer_optimizer_applies_votes_with_its_rate(compressor):
    for moved, gradient in ranks(2, voted, compressor):
        assert 0 < moved.abs().max() < 1.001e-3
        assert (moved * gradient).sum() > 0


def described(rank, size):
    net = Net()
    steps = gradwire.torch.LocalSteps(net, torch.optim.SGD(net.parameters(), lr=0.1), every=2, compressor="3lc")
    before = steps.summary()
    for step in range(2):
        x, labels = data(rank, step)
        nn.functional.cross_entropy(net(x), labels).backward()
        steps.step()
    return before, steps.summary(), repr(steps), steps.describe(), steps.stats()["message_bytes"]


def test_local_steps_tell_how_tensors_are_sent():
    before, after, name, description, sent = ranks(2, described)[0]
    assert "no step yet" in before and "step 1" in after and "waited" in after
    assert name == "<LocalSteps 3lc by all-gather over 2 ranks, step 2>"
    assert sum(one.message_bytes for one in description.tensors) == sent
    assert any(one.compressor == "3lc" for one in description.tensors)


def in_a_block(rank, size, saved):
    layer, steps = one_layer("topk:ratio=0.1", every=2)
    with steps as entered:
        if saved is not None:
            entered.all_ranks.load_state_dict(saved)
        layer.weight.grad.normal_(generator=torch.Generator().manual_seed(rank))
        for _ in range(3):
            entered.step()
        saved = entered.all_ranks.state_dict()
        scalars = {tag: step for tag, _, step in entered.scalars("local/")}
    with pytest.raises(gradwire.ConfigError, match="close"):
        steps.synchronize()
    return saved, scalars["local/message_bytes"]


def test_local_steps_end_with_a_block_and_save_the_state_of_all_ranks():
    for saved, step in ranks(2, in_a_block, None):
        assert sorted(saved["exchange"]) == ["rank0", "rank1"] and step == 1
    for saved, step in ranks(2, in_a_block, saved):
        assert saved["step"] == 6 and step == 5


def local(rank, size, steps, options, optimizer="sgd", resume=None):
    torch.manual_seed(rank)
    net = Net()
    inner = (
        torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        if optimizer == "sgd"
        else torch.optim.Adam(net.parameters(), lr=0.003)
    )
    local = gradwire.torch.LocalSteps(net, inner, **options)
    if resume is not None:
        net.load_state_dict(resume[rank]["model"])
        inner.load_state_dict(resume[rank]["inner"])
        local.load_state_dict(resume[rank]["local"])
    losses = []
    for step in steps:
        x, labels = data(rank, step)
        loss = nn.functional.cross_entropy(net(x), labels)
        local.zero_grad()
        loss.backward()
        local.step()
        losses.append(loss.item())
    saved = {"model": net.state_dict(), "inner": inner.state_dict(), "local": local.state_dict()}
    return flat(net), losses, copy.deepcopy(saved), local.stats()


def by_hand(size, rounds, every, outer):
    """The parameters after rounds of plain averaging, with PyTorch's optimizer as the outer one."""
    torch.manual_seed(0)
    common = Net()
    inners, nets = [], [copy.deepcopy(common) for _ in range(size)]
    for net in nets:
        inners.append(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
    if isinstance(outer, gradwire.torch.Nesterov):
        outer = partial(torch.optim.SGD, lr=outer.lr, momentum=outer.momentum, nesterov=True)
    outer = outer and outer(common.parameters())
    for round_ in range(rounds):
        for rank, net in enumerate(nets):
            for step in range(round_ * every, (round_ + 1) * every):
                x, labels = data(rank, step)
                inners[rank].zero_grad()
                nn.functional.cross_entropy(net(x), labels).backward()
                inners[rank].step()
        with torch.no_grad():
            for at, parameter in enumerate(common.parameters()):
                mean = sum(list(net.parameters())[at] - parameter for net in nets) / size
                if outer:
                    parameter.grad = -mean
                else:
                    parameter.add_(mean)
            if outer:
                outer.step()
            for net in nets:
                for own, parameter in zip(net.parameters(), common.parameters()):
                    own.copy_(parameter)
    return flat(common)


OUTER = [
    None,
    gradwire.torch.Nesterov(lr=0.7, momentum=0.9),
    partial(torch.optim.SGD, lr=0.5),
    partial(torch.optim.Adam, lr=0.01),
]


@pytest.mark.parametrize("outer", OUTER)
def test_none_equals_averaging_by_hand(outer):
    found = ranks(2, local, range(12), {"every": 4, "compressor": "none", "outer": outer})
    expected = by_hand(2, 3, 4, outer)
    for parameters, *_ in found:
        numpy.testing.assert_allclose(parameters, expected, rtol=1e-4, atol=1e-5)
    assert (found[0][0] == found[1][0]).all()


@pytest.mark.parametrize("options, optimizer", [
    ({"every": 5, "compressor": "sbc:p=0.05"}, "adam"),
    ({"compressor": "sbc:p=0.05,every=5", "sync_until": 10}, "sgd"),
    ({"every": 5, "compressor": "topk:ratio=0.05,ef=ef21", "outer": partial(torch.optim.Adam, lr=0.01)}, "adam"),
    ({"every": 5, "compressor": "chunk-topk", "outer": partial(torch.optim.SGD, lr=0.9), "median_clip": True}, "adam"),
])
def test_sparse_updates_train_and_resume(options, optimizer):
    whole = ranks(2, local, range(40), options, optimizer)
    assert (whole[0][0] == whole[1][0]).all()
    assert numpy.mean(whole[0][1][-5:]) < 0.6 * numpy.mean(whole[0][1][:3])
    assert whole[0][3]["ratio"] > 5
    half = ranks(2, local, range(23), options, optimizer)
    resumed = ranks(2, local, range(23, 40), options, optimizer, [one[2] for one in half])
    assert (resumed[0][0] == whole[0][0]).all()


def in_short_messages(rank, size, most, options):
    _messages.MOST_ELEMENTS = most
    parameters, _, _, stats = local(rank, size, range(10), options)
    return parameters, stats["messages_up"], stats["elements"]


@pytest.mark.parametrize("options", [
    {"every": 4, "compressor": "none"},
    {"every": 4, "compressor": "topk:ratio=0.1", "median_clip": True},
    {"every": 6, "compressor": "eden", "fragments": 2, "fragment_sync_delay": 1},
])
def test_a_round_of_a_large_model_has_several_messages(options):
    whole, parts = (ranks(2, in_short_messages, most, options) for most in (1 << 28, 1000))
    for (expected, messages, elements), (found, more, same) in zip(whole, parts):
        assert more > messages and same == elements and (found == expected).all()


def clipped(rank, size, median_clip):
    net = Net()
    steps = gradwire.torch.LocalSteps(
        net, torch.optim.SGD(net.parameters(), lr=1.0), every=1, compressor="none", median_clip=median_clip
    )
    before = flat(net)
    for parameter in net.parameters():
        parameter.grad = torch.full_like(parameter, [0.001, 0.002, 0.006][rank])
    steps.step()
    return before - flat(net)


def test_long_changes_are_scaled_to_the_median():
    for median_clip, mean in ((False, 0.003), (True, 0.005 / 3)):
        for change in ranks(3, clipped, median_clip):
            numpy.testing.assert_allclose(change, mean, rtol=1e-3)


def masked(rank, size, mask):
    net = Net()
    inner = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    steps = gradwire.torch.LocalSteps(net, inner, every=2, compressor="topk:ratio=0.1", mask=mask)
    for step in range(2):
        x, labels = data(rank, step)
        nn.functional.cross_entropy(net(x), labels).backward()
        steps.step()
    return (inner.state[net.first.weight]["momentum_buffer"] == 0).sum().item()


def test_momentum_of_sent_elements_is_masked():
    assert all(found >= 614 for found in ranks(2, masked, True))
    assert all(found < 300 for found in ranks(2, masked, False))


def flattened(rank, size):
    """In a process of its own, because fake tensors give it fake GPUs."""
    waits = []
    stream = lambda device: SimpleNamespace(synchronize=lambda: waits.append(str(device)))
    # Fake tensors have a device, and no memory on it.
    with pytest.MonkeyPatch.context() as patch, FakeTensorMode():
        patch.setattr(torch.cuda, "current_stream", stream)
        parameters = [torch.empty(3, 4, device="cuda:0", dtype=torch.bfloat16), torch.empty(5, device="cuda:1"), torch.empty(2)]
        flat = _replica._flat([*parameters, torch.empty(0, device="cuda:1")])
    return sorted(waits), str(flat.device), flat.dtype, tuple(flat.shape)


def test_parameters_of_several_devices_become_one_tensor():
    assert ranks(1, flattened) == [(["cuda:0", "cuda:1"], "cpu", torch.float32, (19,))]


def test_the_elements_of_parameters_are_in_the_order_of_their_shapes():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(4, 3, 2, 2, generator=generator).to(torch.bfloat16, memory_format=torch.channels_last)
    bias = torch.randn(5, generator=generator)
    assert torch.equal(_replica._flat([weight, bias]), torch.cat([weight.float().reshape(-1), bias]))


def pushed_once(rank, size, dtype, compressor, rounds):
    layer, steps = one_layer(compressor, dtype, every=1)
    start = layer.weight.detach().float()
    layer.weight.grad.normal_(generator=torch.Generator().manual_seed(rank))
    seen = []
    for _ in range(rounds):
        steps.step()
        seen.append(layer.weight.detach().float())
        layer.weight.grad.zero_()
    return start, seen


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [1, 2])
def test_16_bit_weights_without_gradient_do_not_change(dtype, size):
    found = ranks(size, pushed_once, dtype, "sbc:p=0.05", 250)
    start, seen = found[0]
    # Weights are at most 1/8, so their unit in the last place is below eps / 8; local steps and
    # common weights are rounded to it.
    place = torch.finfo(dtype).eps / 8
    moved = [torch.randn(32, 64, dtype=dtype, generator=torch.Generator().manual_seed(rank)) for rank in range(size)]
    expected = start - 1e-3 * sum(gradient.float() for gradient in moved) / size
    assert (seen[-1] - expected).abs().max() < place
    assert all(torch.equal(weights, seen[-1]) for weights in seen[-20:])
    assert all(torch.equal(seen[-1], others[-1]) for _, others in found)


class Interrupted:
    """Simulates Ctrl-C before the averaging thread starts."""

    def __init__(self, exchange):
        self._reducer = exchange

    def average(self, group, step, tensor, done, **options):
        self.done = done

    def wait(self):
        raise KeyboardInterrupt

    def __getattr__(self, name):
        return getattr(self._reducer, name)


def interrupted(rank, size):
    layer, steps = one_layer("topk", every=1)
    steps._replica.reducer = exchange = Interrupted(steps._replica.reducer)
    find, found = steps._replica.change, []

    def change(fragment=0):
        tensor = find(fragment)
        found.append(weakref.ref(tensor))
        return tensor

    steps._replica.change = change
    try:
        steps.step()
    except KeyboardInterrupt:
        pass
    del steps, find, change
    gc.collect()
    alive = found[0]() is not None
    exchange.done()
    del exchange.done
    gc.collect()
    return alive, found[0]() is None


def test_a_change_stays_alive_until_the_thread_has_finished():
    assert ranks(1, interrupted) == [(True, True)]


def planned(rank, size, compressor, options, resume):
    layer, steps = one_layer(compressor, **options)
    if resume is not None:
        steps.load_state_dict(resume[rank])
    sent = []
    for _ in range(4):
        for _ in range(5):
            steps.step()
        # Directly after a round of step(), with no step between the two rounds.
        steps.synchronize()
        stats = steps.stats()
        sent.append((stats["step"], stats["message_bytes"] < 1000))
    return sent, steps.state_dict()


@pytest.mark.parametrize("compressor, options", [
    ("none until 12 then topk", {"every": 5}),
    ("none until 0.3 then topk", {"every": 5, "total_steps": 40}),
    ("none:every=5 until 12 then topk:every=5", {}),
])
def test_plans_count_steps_and_round_numbers_never_repeat(compressor, options):
    found = ranks(2, planned, compressor, options, None)
    assert [one[0] for one in found] == [[(5, False), (10, False), (15, True), (20, True)]] * 2
    resumed = ranks(2, planned, compressor, options, [state for _, state in found])
    assert resumed[0][0] == [(25, True), (30, True), (35, True), (40, True)]


def staged(rank, size, compressor, options):
    """The steps after which there was a round."""
    layer, steps = one_layer(compressor, **options)
    ends = []
    for step in range(20):
        steps.zero_grad()
        layer(torch.ones(1, layer.in_features)).sum().backward()
        before = steps.stats()["total_steps"]
        steps.step()
        if steps.stats()["total_steps"] > before:
            ends.append(step + 1)
    return ends


@pytest.mark.parametrize("compressor, options, ends", [
    ("topk:every=4 until 10 then topk:every=6", {}, [4, 8, 10, 16]),
    ("none until 3 then topk:every=7", {}, [1, 2, 3, 10, 17]),
    ("topk:every=7 until 0.5 then topk", {"total_steps": 16, "sync_until": 2}, [1, 2, 8, *range(9, 21)]),
    ("topk:every=4 until 10 then topk:every=6", {"every": 8}, [8, 16]),
    ("topk:every=1", {}, list(range(1, 21))),
    ("none until 3 then topk:every=1", {}, list(range(1, 21))),
    ("topk", {}, []),
])
def test_stages_have_rounds_of_their_own_length(compressor, options, ends):
    assert ranks(1, staged, compressor, options) == [ends]


def test_workers_that_come_and_go_compare_what_all_must_have(monkeypatch):
    monkeypatch.setattr(_local, "Membership", lambda *_: None)

    class Stop(Exception):
        """Has the digest of the settings, of which nothing else is needed."""

    def elastic(replica, membership, config, deadline):
        raise Stop(config)

    monkeypatch.setattr(_local, "Elastic", elastic)

    def digest(**options):
        torch.manual_seed(0)
        with pytest.raises(Stop) as stop:
            one_layer("topk", lighthouse="http://localhost:1", **options)
        return str(stop.value)

    assert digest() == digest(threads=4)
    assert len({digest(), digest(mask=False), digest(raw_below=1), digest(every=3)}) == 4


class InGaps(nn.Module):
    """Has tensors of many types and orders in memory."""

    def __init__(self, rank):
        super().__init__()
        generator = torch.Generator().manual_seed(rank)
        numbers = lambda *shape: torch.randn(*shape, generator=generator)
        self.narrow = nn.Parameter(numbers(8, 6)[:, ::2])
        self.turned = nn.Parameter(numbers(6, 8).t())
        self.short = nn.Parameter(numbers(5, 3).bfloat16())
        self.empty = nn.Parameter(numbers(0, 3))
        self.register_buffer("flags", numbers(9) > 0)
        self.register_buffer("count", torch.tensor(rank + 1))


def refuse_main_memory(*arguments, **options):
    """Stands for the broadcast of NCCL."""
    raise RuntimeError("a tensor is on the CPU")


def started(rank, size, members):
    group = torch.distributed.new_group(members) if members else None
    if members and rank not in members:
        return None
    if group is None:
        torch.distributed.broadcast = refuse_main_memory
    model = InGaps(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradwire.torch.LocalSteps(model, optimizer, process_group=group).close()
    return {name: one.tolist() for name, one in model.state_dict().items()}


@pytest.mark.parametrize("members", [None, [1, 2]])
def test_all_ranks_start_from_the_model_of_the_first(members):
    expected = {name: one.tolist() for name, one in InGaps(members[0] if members else 0).state_dict().items()}
    found = [one for one in ranks(3, started, members) if one is not None]
    assert found == [expected] * (2 if members else 3)


def channels_last(rank, size):
    torch.manual_seed(0)
    layer = nn.Conv2d(16, 16, 3, bias=False).to(memory_format=torch.channels_last)
    inner = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    steps = gradwire.torch.LocalSteps(layer, inner, every=1, compressor="sbc:p=0.05")
    before = layer.weight.detach().clone()
    layer(torch.randn(4, 16, 8, 8).to(memory_format=torch.channels_last)).square().sum().backward()
    steps.step()
    momentum = inner.state[layer.weight]["momentum_buffer"]
    forgotten = momentum == 0
    return momentum.is_contiguous(), forgotten.sum().item(), (forgotten == (layer.weight != before)).all().item()


def test_momentum_in_another_memory_order_is_masked():
    # With a single rank the elements that were sent are those that changed: a twentieth of 2304.
    assert ranks(1, channels_last) == [(False, 115, True)]


def scheduled(rank, size):
    torch.manual_seed(0)
    net = Net()
    steps = gradwire.torch.LocalSteps(net, torch.optim.SGD(net.parameters(), lr=0.1), every=2, compressor="none")
    scheduler = torch.optim.lr_scheduler.StepLR(steps, step_size=1, gamma=0.5)
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=8.0)
    for step in range(4):
        x, labels = data(rank, step)
        steps.zero_grad()
        scaler.scale(nn.functional.cross_entropy(net(x), labels)).backward()
        scaler.step(steps)
        scaler.update()
        scheduler.step()
    rate, step = steps.param_groups[0]["lr"], steps.completed_steps
    steps.close()
    return rate, step, flat(net)


def test_schedulers_and_scalers_take_local_steps_as_an_optimizer():
    one, two = ranks(2, scheduled)
    assert one[:2] == (0.1 / 16, 4) and (one[2] == two[2]).all()


def overflowing(rank, size):
    torch.manual_seed(0)
    net = Net()
    inner = torch.optim.SGD(net.parameters(), lr=0.1)
    steps = gradwire.torch.LocalSteps(net, inner, every=2, compressor="none")
    called = []
    steps.register_step_post_hook(lambda *_: called.append(steps.completed_steps))
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=8.0)
    for step in range(4):
        x, labels = data(rank, step)
        steps.zero_grad()
        loss = nn.functional.cross_entropy(net(x), labels)
        scaler.scale(loss * float("inf") if (rank, step) == (1, 1) else loss).backward()
        scaler.step(steps)
        scaler.update()
    return flat(net), steps.completed_steps, called, scaler.get_scale()


def test_an_overflow_skips_the_local_step_and_not_the_round():
    one, two = ranks(2, overflowing)
    assert (one[0] == two[0]).all() and numpy.isfinite(one[0]).all() and one[1] == two[1] == 4
    assert one[2] == [0, 1, 2, 3] and two[2] == [0, 2, 3]
    assert (one[3], two[3]) == (8.0, 4.0)


def interrupted_in_a_block(rank, size):
    """The seconds after which Ctrl-C leaves the block, though the other rank does not answer."""
    layer, steps = one_layer("topk", every=1, deadline=120.0)
    steps.step()
    return seconds_until_interrupted(rank, steps, steps.step)


def test_ctrl_c_leaves_a_block_before_the_deadline():
    assert ranks(2, interrupted_in_a_block)[0] < 60
