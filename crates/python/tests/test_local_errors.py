"""Tests what local steps refuse, and what they say."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import gradwire.torch
from device import DEVICE
from models import VOTING, Net, data, flat, one_layer
from world import outcomes, ranks


@pytest.mark.parametrize("options, says", [
    ({"outer": "nesterov"}, "such as gradwire.torch.Nesterov()"),
    ({"outer": gradwire.torch.Nesterov}, "such as gradwire.torch.Nesterov()"),
    ({"every": "eden"}, "every='eden' is not an integer"),
    ({"every": 2.5}, "every=2.5 is not an integer"),
    ({"sync_until": -1}, "sync_until=-1 is out of range"),
    ({"common_device": "gpu"}, "common_device='gpu' is unknown; use 'cpu' or 'model'"),
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
    with pytest.raises(gradwire.ConfigError, match=r"parameter 1 of its parameter group 1, of shape \(2, 3\). The model does not have"):
        gradwire.torch.LocalSteps(net, optimizer)
    named = torch.optim.SGD([*net.named_parameters(), ("other.weight", other.weight)], lr=0.1)
    with pytest.raises(gradwire.ConfigError, match="trains other.weight of its parameter group 0"):
        gradwire.torch.LocalSteps(net, named)


def both_in_one(rank, size):
    model = nn.ModuleList([Net(), nn.Linear(3, 2)])
    frozen = nn.Parameter(torch.zeros(4), requires_grad=False)
    gradwire.torch.LocalSteps(model, torch.optim.SGD([*model.parameters(), frozen], lr=0.1)).close()


def test_modules_in_one_and_frozen_parameters_of_others_are_not_refused():
    ranks(1, both_in_one)


@pytest.mark.parametrize("compressor", [*VOTING, "none until 5 then signsgd"])
@pytest.mark.parametrize("options, says", [
    ({}, "without outer each round would change every weight by 1; give an outer"),
    ({"lighthouse": "http://localhost:1"}, "with lighthouse, a round may have workers without local steps"),
    ({"lighthouse": "http://localhost:1", "outer": partial(torch.optim.SGD, lr=1e-3)}, "whose zeros would vote"),
])
def test_votes_are_refused_where_they_are_no_change(compressor, options, says):
    net = Net()
    with pytest.raises(gradwire.ConfigError) as refused:
        gradwire.torch.LocalSteps(net, torch.optim.SGD(net.parameters(), lr=0.1), compressor=compressor, **options)
    assert f"'{compressor}' averages by votes" in str(refused.value) and says in str(refused.value)


def grown(rank, size):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    steps = gradwire.torch.LocalSteps(net, optimizer)
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})
    with pytest.raises(gradwire.ConfigError, match="has other parameters"):
        steps.step()


def test_parameters_that_are_added_to_the_local_optimizer_are_refused():
    ranks(2, grown)


def other_outer(rank, size):
    net = Net()
    inner = torch.optim.SGD(net.parameters(), lr=0.1)
    saved = gradwire.torch.LocalSteps(net, inner, outer=gradwire.torch.Nesterov()).state_dict()
    for outer in (None, partial(torch.optim.Adam, lr=0.1), partial(torch.optim.Adagrad, lr=0.7)):
        with pytest.raises(gradwire.StateError, match="another outer optimizer"):
            gradwire.torch.LocalSteps(net, inner, outer=outer).load_state_dict(saved)


def test_the_state_of_another_outer_optimizer_is_refused():
    ranks(2, other_outer)


def refused(rank, size):
    messages = []
    for compressor, options in [
        ("sbc2", {"rules": {"*.weight": "sbc3"}}),
        ("topk", {"every": 0}),
        ("topk", {"on_nonfinite": "skip"}),
        ("topk", {"scaler": torch.amp.GradScaler("cpu")}),
        ("topk", {"sync_until": -1}),
        ("topk", {"fragments": "x"}),
        ("topk", {"fragments": 0}),
        ("topk", {"fragment_sync_delay": 1.5}),
        ("topk", {"fragment_sync_delay": -1}),
        ("topk", {"every": 6, "fragment_sync_delay": 6}),
        ("topk", {"fragment_sync_delay": 1, "fragment_update_alpha": "x"}),
        ("topk", {"fragment_update_alpha": 0.5}),
        ("topk", {"lighthouse": "http://host:1", "min_workers": 1.5}),
        (object(), {}),
        ("topk", {"raw_names": "head"}),
    ]:
        try:
            one_layer(compressor, **options)
            messages.append("nothing was refused")
        except gradwire.ConfigError as error:
            messages.append(str(error))
    return messages


def test_arguments_that_cannot_work_are_refused():
    (messages,) = ranks(1, refused)
    expected = ["every", "at least 1", *["neither scaler nor on_nonfinite"] * 2]
    expected += ["sync_until=-1 is out of range", "fragments='x' is not an integer; give one", "fragments=0 is impossible"]
    expected += ["fragment_sync_delay=1.5 is not an integer; give one", "fragment_sync_delay=-1 is out of range", "give 0 to 5"]
    expected += ["fragment_update_alpha='x' is out of range; give a number", "fragment_sync_delay is 0", "min_workers=1.5 is not an integer"]
    expected += ["a spec string or an object with compress"]
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
        "the state has 2048 elements, but the model has 4096; LocalSteps resumes only the model that was saved"
    ]


def from_other_steps(rank, size, options):
    """Why states of different steps or rounds are not loaded, and whether that left everything as
    it was."""
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
        assert "rank 0 loads the state of step 2 and round 2, but rank 1 loads the state of step 4 and round 4; give all" in messages[0]
        assert "rank 0 loads the state of step 5 and round 4, but rank 1 loads the state of step 5 and round 5; give all" in messages[1]


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


def in_parts(rank, size, freeze):
    model = Net()
    mesh = init_device_mesh(DEVICE.type, (size,))
    parallelize_module(model, mesh, {"first": ColwiseParallel()})
    model.first.requires_grad_(not freeze)
    gradwire.torch.LocalSteps(model, torch.optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.parametrize("freeze", [False, True])
def test_parameters_of_tensor_parallelism_are_refused(freeze):
    for result in outcomes(2, in_parts, freeze):
        assert result[1] == "ConfigError" and "'first.weight' is a DTensor: each rank has only a part" in result[2], result


def refusals(rank, size):
    """Why local steps are refused for models whose parameters something else averages, or cannot be
    averaged."""
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
        assert "before you wrap it" in message and "DataParallel" in message, message
