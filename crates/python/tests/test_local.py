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
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import gradwire.torch
from gradwire.torch import _local, _messages, _replica
from device import DEVICE
from models import Net, data, flat
from world import outcomes, ranks, seconds_until_interrupted


@pytest.mark.parametrize("options, says", [
    ({"outer": "nesterov"}, "outer=gradwire.torch.Nesterov(lr=0.7)"),
    ({"outer": gradwire.torch.Nesterov}, "outer=gradwire.torch.Nesterov(lr=0.7)"),
    ({"every": "eden"}, "every='eden' is not an integer"),
    ({"every": 2.5}, "every=2.5 is not an integer"),
    ({"sync_until": -1}, "sync_until=-1 is out of range"),
    ({"deadline": 0, "lighthouse": "http://localhost:1"}, "deadline=0: give seconds above 0"),
])
def test_arguments_of_other_types_are_refused(options, says):
    net = Net()
    with pytest.raises(gradwire.ConfigError) as refused:
        gradwire.torch.LocalSteps(net, torch.optim.SGD(net.parameters(), lr=0.1), **options)
    assert says in str(refused.value)


def test_a_model_and_an_optimizer_in_another_order_are_refused():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for arguments, got in [((optimizer, net), "SGD and Net"), ((net, None), "Net and NoneType")]:
        with pytest.raises(gradwire.ConfigError, match=f"got {got}; write LocalSteps"):
            gradwire.torch.LocalSteps(*arguments)


def test_a_rule_for_a_frozen_parameter_is_refused():
    net = Net()
    net.first.bias.requires_grad_(False)
    with pytest.raises(gradwire.ConfigError, match="'first.bias' is frozen"):
        gradwire.torch.LocalSteps(net, torch.optim.SGD(net.parameters(), lr=0.1), rules={"first.b*": "none"})


def named_frozen(rank, size):
    net = Net()
    net.first.weight.requires_grad_(False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    steps = gradwire.torch.LocalSteps(net, optimizer, every=1, compressor="3lc", raw_names=["first.w", "second"])
    return {one.name: one.compressor for one in steps.describe().tensors}


def test_a_raw_name_for_a_frozen_parameter_is_left_out():
    (specs,) = ranks(1, named_frozen)
    assert specs["second.weight"] == "none" and "first.weight" not in specs


def poisoned(rank, size):
    _, steps = one_layer("3lc", every=1)
    with torch.no_grad():
        steps.param_groups[0]["params"][0].fill_(float("nan"))
    steps.synchronize()


def test_a_change_that_is_not_finite_is_not_advised_to_be_skipped():
    for result in outcomes(1, poisoned):
        assert result[1] == "NonFiniteError" and "on_nonfinite" not in result[2], result


def test_an_optimizer_of_another_model_is_refused():
    with pytest.raises(gradwire.ConfigError, match="none of the model's parameters"):
        gradwire.torch.LocalSteps(Net(), torch.optim.SGD(Net().parameters(), lr=0.1))


def test_an_optimizer_that_trains_another_module_too_is_refused():
    net, other = Net(), nn.Linear(3, 2)
    frozen = nn.Parameter(torch.zeros(4), requires_grad=False)
    optimizer = torch.optim.SGD([{"params": [*net.parameters()]}, {"params": [frozen, other.weight, net.first.weight.detach()]}], lr=0.1)
    with pytest.raises(gradwire.ConfigError, match=r"parameter 1 of its group 1, of shape \(2, 3\), which the model does not have"):
        gradwire.torch.LocalSteps(net, optimizer)
    named = torch.optim.SGD([*net.named_parameters(), ("other.weight", other.weight)], lr=0.1)
    with pytest.raises(gradwire.ConfigError, match="trains other.weight of its group 0"):
        gradwire.torch.LocalSteps(net, named)


def both_in_one(rank, size):
    model = nn.ModuleList([Net(), nn.Linear(3, 2)])
    frozen = nn.Parameter(torch.zeros(4), requires_grad=False)
    gradwire.torch.LocalSteps(model, torch.optim.SGD([*model.parameters(), frozen], lr=0.1)).close()


def test_modules_in_one_and_frozen_parameters_of_others_are_not_refused():
    ranks(1, both_in_one)


VOTING = ["signsgd", "signum", "demo"]


@pytest.mark.parametrize("compressor", [*VOTING, "none until 5 then signsgd"])
@pytest.mark.parametrize("options, says", [
    ({}, "without outer would change each weight by 1; give an outer"),
    ({"lighthouse": "http://localhost:1"}, "with lighthouse a round may have workers without local steps"),
    ({"lighthouse": "http://localhost:1", "outer": partial(torch.optim.SGD, lr=1e-3)}, "whose zeros would vote"),
])
def test_votes_are_refused_where_they_are_no_change(compressor, options, says):
    net = Net()
    with pytest.raises(gradwire.ConfigError) as refused:
        gradwire.torch.LocalSteps(net, torch.optim.SGD(net.parameters(), lr=0.1), compressor=compressor, **options)
    assert f"'{compressor}' averages by votes" in str(refused.value) and says in str(refused.value)


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


def grown(rank, size):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    steps = gradwire.torch.LocalSteps(net, optimizer)
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})
    with pytest.raises(gradwire.ConfigError, match="has other parameters"):
        steps.step()


def test_parameters_that_are_added_to_the_local_optimizer_are_refused():
    ranks(2, grown)


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


def other_outer(rank, size):
    net = Net()
    inner = torch.optim.SGD(net.parameters(), lr=0.1)
    saved = gradwire.torch.LocalSteps(net, inner, outer=gradwire.torch.Nesterov()).state_dict()
    for outer in (None, partial(torch.optim.Adam, lr=0.1), partial(torch.optim.Adagrad, lr=0.7)):
        with pytest.raises(gradwire.StateError, match="another outer optimizer"):
            gradwire.torch.LocalSteps(net, inner, outer=outer).load_state_dict(saved)


def test_the_state_of_another_outer_optimizer_is_refused():
    ranks(2, other_outer)


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


def one_layer(compressor, dtype=torch.float32, **options):
    """Creates local steps for a layer without gradients, the same on all ranks."""
    torch.manual_seed(0)
    layer = nn.Linear(64, 32, bias=False).to(dtype)
    inner = torch.optim.SGD(layer.parameters(), lr=1e-3)
    layer.weight.grad = torch.zeros_like(layer.weight)
    return layer, gradwire.torch.LocalSteps(layer, inner, compressor=compressor, **options)


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
    # Weights are at most 1/8, so their unit in the last place is below eps / 8; local steps and common weights are
    # rounded to it.
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


def refused(rank, size):
    messages = []
    for compressor, options in [
        ("sbc2", {"rules": {"*.weight": "sbc3"}}),
        ("topk", {"every": 0}),
        ("topk", {"on_nonfinite": "skip"}),
        ("topk", {"fragment": 2}),
        (object(), {}),
        ("topk", {"raw_names": "head"}),
    ]:
        try:
            one_layer(compressor, **options)
            messages.append("nothing was refused")
        except gradwire.ConfigError as error:
            messages.append(str(error))
    return messages


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


def test_arguments_that_cannot_work_are_refused():
    (messages,) = ranks(1, refused)
    expected = ["every", "at least 1", "scaler and on_nonfinite", "did you mean 'fragments'", "use a spec string"]
    expected += ["raw_names is a string"]
    assert len(messages) == len(expected)
    for message, says in zip(messages, expected):
        assert says in message, message


def of_another_model(rank, size):
    """Why LocalSteps does not load the state of a smaller model."""
    _, steps = one_layer("topk")
    saved = steps.state_dict()
    larger = nn.Linear(64, 64, bias=False)
    steps = gradwire.torch.LocalSteps(larger, torch.optim.SGD(larger.parameters(), lr=0.1), compressor="topk")
    with pytest.raises(gradwire.StateError) as refused:
        steps.load_state_dict(saved)
    return str(refused.value)


def test_a_state_of_another_model_is_refused():
    assert ranks(1, of_another_model) == [
        "the state has 2048 parameters, and the model has 4096; LocalSteps resumes only with the model that was saved"
    ]


def from_other_steps(rank, size, options):
    """Why states of different steps or rounds are not loaded, and whether that left everything as it was."""
    layer, steps = one_layer("topk:ratio=0.1", every=2, **options)
    layer.weight.grad.normal_(generator=torch.Generator().manual_seed(rank))
    saved = []
    for step in range(5):
        steps.step()
        saved.append(steps.state_dict())
    steps.synchronize()
    saved.append(steps.state_dict())
    messages, before = [], steps._replica.reducer.save()
    for states in ([saved[1], saved[3]], [saved[4], saved[5]]):
        with pytest.raises(gradwire.StateError) as refused:
            steps.load_state_dict(states[rank])
        messages.append(str(refused.value))
    unchanged = steps.completed_steps == 5 and steps._replica.reducer.save() == before
    steps.load_state_dict(saved[2])
    return messages, unchanged, steps.completed_steps


def test_states_of_different_steps_are_refused():
    for messages, unchanged, step in ranks(2, from_other_steps, {}):
        assert unchanged and step == 3
        assert "rank 0 loads the state of step 2 and round 2, and rank 1 that of step 4 and round 4; give all" in messages[0]
        assert "rank 0 loads the state of step 5 and round 4, and rank 1 that of step 5 and round 5; give all" in messages[1]


def with_impossible_rounds(rank, size):
    """Whether a refused LocalSteps leaves the model of a rank as it was."""
    torch.manual_seed(rank)
    net = Net()
    before = flat(net)
    with pytest.raises(gradwire.ConfigError, match="give fewer fragments"):
        gradwire.torch.LocalSteps(net, torch.optim.SGD(net.parameters(), lr=0.1), every=2, fragments=3)
    return bool((flat(net) == before).all())


def test_impossible_rounds_are_refused_before_models_change():
    assert ranks(2, with_impossible_rounds) == [True, True]


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


def unfrozen(rank, size):
    model = Net()
    model.first.requires_grad_(False)
    steps = gradwire.torch.LocalSteps(model, torch.optim.SGD(model.parameters(), lr=0.1), every=2)
    model.first.requires_grad_(True)
    try:
        for step in range(2):
            model(data(rank, step)[0]).sum().backward()
            steps.step()
    except gradwire.ConfigError as error:
        return str(error)
    return "nothing was refused"


def test_a_parameter_that_is_unfrozen_later_is_refused():
    for message in ranks(2, unfrozen):
        assert "'first.weight' did not require gradients when LocalSteps was created" in message, message


def frozen_later(rank, size):
    model = Net()
    steps = gradwire.torch.LocalSteps(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), every=1)
    messages = []
    for step in range(2):
        steps.zero_grad()
        model(data(rank, step)[0]).sum().backward()
        try:
            steps.step()
        except gradwire.ConfigError as error:
            messages.append(str(error))
        model.first.requires_grad_(False)
    return messages


def test_a_parameter_that_is_frozen_later_is_refused():
    for messages in ranks(2, frozen_later):
        assert len(messages) == 1 and "'first.weight' required gradients when LocalSteps was created" in messages[0], messages


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


def in_parts(rank, size, freeze):
    model = Net()
    mesh = init_device_mesh(DEVICE.type, (size,))
    parallelize_module(model, mesh, {"first": ColwiseParallel()})
    model.first.requires_grad_(not freeze)
    gradwire.torch.LocalSteps(model, torch.optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.parametrize("freeze", [False, True])
def test_parameters_of_tensor_parallelism_are_refused(freeze):
    for result in outcomes(2, in_parts, freeze):
        assert result[1] == "ConfigError" and "'first.weight' is a DTensor, of which each rank has a part" in result[2], result


def interrupted_in_a_block(rank, size):
    """The seconds after which Ctrl-C leaves the block, though the other rank does not answer."""
    layer, steps = one_layer("topk", every=1, deadline=120.0)
    steps.step()
    return seconds_until_interrupted(rank, steps, steps.step)


def test_ctrl_c_leaves_a_block_before_the_deadline():
    assert ranks(2, interrupted_in_a_block)[0] < 60


def refusals(rank, size):
    """Why local steps are refused for models whose parameters something else averages, or cannot be averaged."""
    found = []
    wrapped = nn.parallel.DistributedDataParallel
    sharded = FullyShardedDataParallel(nn.Linear(3, 2), device_id=torch.device("cpu"))
    for model in (
        nn.Linear(3, 2).double(),
        wrapped(nn.Linear(3, 2)),
        torch.compile(wrapped(nn.Linear(3, 2)), backend="eager"),
        nn.Sequential(nn.Linear(3, 3), wrapped(nn.Linear(3, 2))),
        sharded,
        torch.compile(sharded, backend="eager"),
    ):
        with pytest.raises(gradwire.ConfigError) as refused:
            gradwire.torch.LocalSteps(model, torch.optim.SGD(model.parameters(), lr=0.1))
        found.append(str(refused.value))
    return found


def test_what_cannot_take_local_steps_is_refused():
    ((double, *wrapped),) = ranks(1, refusals)
    assert "torch.float64" in double and len(wrapped) == 5
    for message in wrapped:
        assert "before it is wrapped" in message and "DataParallel" in message, message
