"""Tests that every rank reports an error and none hangs."""

import inspect
import os
import time

import numpy
import pytest
import torch
import torch.distributed.fsdp
from torch import nn

import gradwire.torch
from gradwire.torch import _channel
from device import DEVICE
from models import Net, build, data, exchange_bytes, train
from world import outcomes, ranks, seconds_until_interrupted


def killed(rank, size):
    model, _ = build("3lc", deadline=300.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(3))
    if rank == 1:
        os._exit(9)
    train(model, optimizer, rank, range(3, 6))


def test_a_killed_rank_ends_the_others():
    for size in (2, 4):
        start = time.monotonic()
        results = outcomes(size, killed)
        assert results[1] == ("gone",)
        for rank, result in enumerate(results):
            if rank != 1:
                assert result[1] == "PeerLostError", result
                assert "rank 1 is gone" in result[2], result[2]
        # The other ranks did not wait for the deadline.
        assert time.monotonic() - start < 150


def silent(rank, size):
    model, _ = build("3lc", deadline=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(2))
    if rank == 1:
        time.sleep(4)
    train(model, optimizer, rank, range(2, 4))


def test_a_silent_rank_ends_the_others():
    results = outcomes(2, silent)
    assert results[0][1] == "DeadlineError" and "no answer from rank 1" in results[0][2], results[0]
    assert results[1][0] == "error"


def interrupted(rank, size):
    """The seconds after which Ctrl-C leaves the block, though the other rank does not answer."""
    model, handle = build("3lc", deadline=120.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(2))
    return seconds_until_interrupted(rank, handle, lambda: train(model, optimizer, rank, [2]))


def test_ctrl_c_leaves_a_block_before_the_deadline():
    assert ranks(2, interrupted)[0] < 60


def failing(rank, size):
    """An error of the script itself on one rank, whose process lives on until the other has
    noticed."""
    model, handle = build("3lc", deadline=30.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(2))
    try:
        with handle:
            if rank == 1:
                raise ValueError("of the script")
            train(model, optimizer, rank, [2])
    except ValueError:
        torch.distributed.recv(torch.zeros(1), 0)
    except gradwire.PeerLostError as error:
        torch.distributed.send(torch.zeros(1), 1)
        return str(error)


def test_an_error_of_the_script_in_a_block_ends_the_other_ranks():
    assert "rank 1 is gone" in ranks(2, failing)[0]


def poisoned(rank, size):
    model, _ = build("3lc")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(2))
    x, labels = data(rank, 2)
    loss = nn.functional.cross_entropy(model(x), labels)
    if rank == 1:
        loss = loss + float("nan") * model.module.second.weight[0, 0]
    loss.backward()


def test_nan_is_an_error_that_names_the_parameter():
    results = outcomes(2, poisoned)
    assert results[1][1] == "NonFiniteError" and "'second.weight' has NaN" in results[1][2], results[1]
    assert 'with on_nonfinite="skip" and scaler=, the GradScaler,' in results[1][2], results[1]
    assert results[0][1] == "PeerLostError" and "rank 1" in results[0][2], results[0]


def differently(rank, size, options):
    compressor, options = options[rank]
    model, _ = build(compressor, **options)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(1))


def test_ranks_with_different_arguments_report_both_values():
    for options, says in [
        ([("3lc", {}), ("topk", {})], ("compressor 3lc", "compressor topk")),
        ([("3lc", {"raw_below": 10}), ("3lc", {"raw_below": 20})], ("raw below 10", "raw below 20")),
        (
            [("3lc", {"raw_vectors": True}), ("3lc", {"raw_vectors": False})],
            ("raw vectors true", "raw vectors false"),
        ),
        ([("3lc", {"rules": {"*": "fp16"}}), ("3lc", {})], ("* -> fp16", "rank 1")),
    ]:
        for result in outcomes(2, differently, options):
            assert result[1] == "ConfigError" and all(text in result[2] for text in says), result


def refused(rank, size):
    model = nn.parallel.DistributedDataParallel(Net())
    messages = []
    for compressor, options in [
        ("topk", {"exchange": "all-reduce"}),
        ("5lc", {}),
        ("3lc", {"exchange": "server"}),
        ("3lc", {"rules": {"<many": "none"}}),
        ("3lc", {"on_nonfinite": "ignore"}),
        ("3lc", {"threads": 0}),
        ("none until 0.1 then topk", {}),
        ("sbc2", {}),
        ("none until 100 then sbc2", {}),
        ("none until 0.1 then topk:every=7 from ratio=0.5 over 0.2", {"total_steps": 1000}),
        ("3lc", {"rules": {"first.*": "sbc3"}}),
        ("topk until 5 then 3lc", {}),
        (object(), {}),
        ("3LC", {}),
        ("3lc", {"rules": {"frist.*": "none"}}),
        ("3lc", {"seed": -1}),
        ("3lc", {"raw_below": 1 << 64}),
        ("3lc", {"total_steps": -5}),
        ("3lc", {"threads": 1.5}),
        ("3lc", {"raw_names": "head"}),
        ("3lc", {"raw_names": ["head", 3]}),
        ("3lc", {"rules": "*tok* -> topk"}),
        ("3lc", {"rules": [("*.bias", "none")]}),
        ("3lc", {"raw_vectors": "no"}),
        ("3lc", {"deadline": 0}),
        ("3lc", {"deadline": float("nan")}),
        ("3lc", {"deadline": 86_401.0}),
        ("3lc", {"deadline": "x"}),
        ("3lc", {"exchange": "allgather"}),
        ("3lc", {"total_steps": 0}),
        ("3lc", {"scaler": True}),
        ("3lc", {"on_nonfinite": "skip"}),
        ("3lc", {"on_nonfinite": "skip", "scaler": torch.amp.GradScaler(DEVICE.type, enabled=False)}),
        ("3lc", {"device": "cuda"}),
        ("3lc", {"device": torch.device("cpu")}),
        ("3lc", {"device": "tpu"}),
        ("none until", {}),
        ("3lc", {"rules": {"first.*": "none until 5 then topk"}}),
        ("none", {"optimizer": gradwire.torch.OneBitAdam(Net().parameters(), freeze=3)}),
        ("sbc within 2MB", {}),
        ("none until drop then topk", {}),
        ("none until drop then topk", {"total_steps": 100}),
        ("none until soon then topk", {}),
        ("3lc", {"threads": 1_000_000}),
    ]:
        try:
            gradwire.torch.register(model, compressor, **options)
            messages.append("nothing was refused")
        except gradwire.ConfigError as error:
            messages.append(str(error))
    return messages


def test_invalid_arguments_are_refused_by_register():
    expected = [
        "do not add", "unknown compressor", "exchange='server' is unknown here; there are auto, all-gather,", "TENSORS -> SPEC", "'error' or 'skip'",
        "threads=0 is too small", "total_steps",
        "LocalSteps", "every 10 steps", "every 7 steps", "every", "cannot use the residuals", "no method compress",
        "did you mean '3lc'?", "'first.weight'", "seed=-1 is out of range", "raw_below=18446744073709551616 is out of range",
        "total_steps=-5 is out of range", "threads=1.5 is not an integer",
        "raw_names is a string; give a list", "raw_names contains 3", "rules is a string; give a list",
        "rules contains ('*.bias', 'none'), which is no string", "raw_vectors='no'",
        "deadline=0: give seconds above 0", "deadline=nan: give seconds", "deadline=86401.0: give", "deadline='x': give",
        "did you mean 'all-gather'?", "total_steps=0 is too small", "scaler=True has no get_scale()",
        "the optimizer would take this step; pass scaler=", "this one is disabled",
        "did you mean 'gpu'?", "did you mean 'host'?", "use 'auto', 'host' or 'gpu'",
        "'none until' is not a compression schedule", "one compressor belongs here; give one of its compressors",
        "none of the model's parameters; create it with model.parameters()",
        "only the Rust trainer supports budgets", *["only the Rust trainer knows when the learning rate drops; name the step"] * 2,
        "or 'SPEC from KEY=VALUE over 0.05'", "threads=1000000 is too large",
    ]
    for result in outcomes(2, refused):
        assert result[0] == "ok", result
        assert len(result[1]) == len(expected)
        for message, says in zip(result[1], expected):
            assert says in message, message
        assert "server" not in result[1][0] and "Rust" not in result[1][-2], result[1]


def ruled_frozen(rank, size):
    net = Net()
    net.first.weight.requires_grad_(False)
    model = nn.parallel.DistributedDataParallel(net)
    # One of its tensors is not frozen.
    gradwire.torch.register(model, "3lc", rules={"first.*": "none"})
    gradwire.torch.Hook(net, "3lc", rules={"first.w*": "none"})


def test_a_rule_for_a_frozen_parameter_is_refused():
    for result in outcomes(1, ruled_frozen):
        assert result[1] == "ConfigError" and "'first.weight' is frozen" in result[2], result


def named_frozen(rank, size):
    net = Net()
    net.first.weight.requires_grad_(False)
    model = nn.parallel.DistributedDataParallel(net)
    # One word fits no parameter that is trained, and the other fits one, too.
    handle = gradwire.torch.register(model, "3lc", raw_names=["first.w", "second"])
    return {one.name: one.compressor for one in handle.describe().tensors}


def test_a_raw_name_for_a_frozen_parameter_is_left_out():
    (specs,) = ranks(1, named_frozen)
    assert specs["second.weight"] == "none" and "first.weight" not in specs


def without_compressor(rank, size):
    net, sharded = Net(), Net()
    torch.distributed.fsdp.fully_shard(sharded, mesh=torch.distributed.init_device_mesh(DEVICE.type, (size,)))
    found = []
    for create in (
        lambda: gradwire.torch.register(nn.parallel.DistributedDataParallel(Net()), None),
        lambda: gradwire.torch.fsdp.register(sharded, None),
        lambda: gradwire.torch.LocalSteps(net, torch.optim.SGD(net.parameters(), lr=0.1), compressor=None),
    ):
        with pytest.raises(gradwire.ConfigError) as refused:
            create()
        found.append(str(refused.value))
    return found


def test_none_of_advise_in_place_of_a_compressor_is_refused_with_what_it_means():
    for messages in ranks(2, without_compressor):
        assert len(messages) == 3
        assert all("compressor is None: if this is Advice.compressor, compression does not pay" in one for one in messages), messages


def with_other_numbers(rank, size):
    model, _ = build("3lc", on_nonfinite="skip" if rank else "error", scaler=torch.amp.GradScaler(DEVICE.type))
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(1))


def test_ranks_that_treat_nan_differently_name_the_argument():
    for result in outcomes(2, with_other_numbers):
        assert "on_nonfinite 'error'" in result[2] and "on_nonfinite 'skip'" in result[2], result


def of_more_layers(rank, size):
    """Why the state of a larger model is refused, with the compressor that keeps nothing."""
    larger, handle = build("eden", module=lambda: nn.Sequential(nn.Linear(64, 64), Net()))
    train(larger, torch.optim.SGD(larger.parameters(), lr=0.1), rank, range(1))
    with pytest.raises(gradwire.StateError) as refused:
        build("eden")[1].load_state_dict(handle.state_dict())
    return str(refused.value)


def test_a_state_with_tensors_that_the_model_lacks_says_so():
    for message in ranks(1, of_more_layers):
        assert "a tensor that this model does not have" in message, message


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


def misspelt(rank, size):
    made, messages = [], []
    original = _channel.private_groups
    _channel.private_groups = lambda *arguments: made.append(arguments) or original(*arguments)
    for options in ({"treads": 4}, {"scalar": None}):
        try:
            gradwire.torch.Hook(Net(), "3lc", **options)
        except TypeError as error:
            messages.append(str(error))
    refused = len(made)
    gradwire.torch.Hook(Net(), "3lc").close()
    return messages, refused, len(made)


def test_a_misspelt_argument_is_refused_before_groups_are_made():
    for messages, *groups in ranks(2, misspelt):
        assert "'treads'" in messages[0] and "'scalar'" in messages[1], messages
        # The hook whose arguments are right makes groups, so that the count can be wrong.
        assert groups == [0, 1]


def scaled_on_one(rank, size):
    build("3lc", scaler=torch.amp.GradScaler(DEVICE.type) if rank == 0 else None)


def frozen_at_different_steps(rank, size):
    model, _ = build()
    gradwire.torch.register(model, "none", optimizer=gradwire.torch.OneBitAdam(model.parameters(), freeze=5 + rank))


class Custom:
    def compress(self, tensor):
        return tensor.numpy().tobytes()

    def decompress(self, message, shape):
        return torch.frombuffer(bytearray(message), dtype=torch.float32).view(shape)


def with_other_objects(rank, size):
    build("none" if rank == 0 else Custom(), exchange="all-gather")


def local_steps(**options):
    net = Net()
    gradwire.torch.LocalSteps(net, torch.optim.SGD(net.parameters(), lr=0.1), **options)


def with_other_outer_rates(rank, size):
    local_steps(outer=gradwire.torch.Nesterov(lr=0.5 + 0.2 * rank))


def with_an_outer_step_on_one(rank, size):
    local_steps(outer=gradwire.torch.Nesterov() if rank == 0 else None)


def with_other_fragments(rank, size):
    local_steps(every=6, fragments=1 + rank)


def with_other_rounds(rank, size):
    local_steps(every=5 + rank)


@pytest.mark.parametrize("function, says", [
    (with_other_outer_rates, "outer differs between ranks: SGD {'lr': 0.5,"),
    (with_an_outer_step_on_one, "outer differs between ranks: None; SGD"),
    (with_other_fragments, "fragments differs between ranks: 1; 2"),
    (with_other_rounds, "every differs between ranks: 5; 6"),
    (scaled_on_one, "scaler differs between ranks: GradScaler; none"),
    (frozen_at_different_steps, "optimizer differs between ranks: OneBitAdam(freeze=5); OneBitAdam(freeze=6)"),
    (with_other_objects, "compressor differs between ranks: Custom; a spec string"),
])
def test_ranks_with_other_settings_are_refused(function, says):
    for failed in outcomes(2, function):
        assert failed[1] == "ConfigError" and says in failed[2], failed


def misused_states(rank, size):
    model, handle = build("3lc")
    found = []

    def saved(gradient):
        try:
            handle.state_dict()
        except gradwire.ConfigError as error:
            found.append(str(error))
        return gradient

    # A residual is there from the first step on.
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, [0])
    x, labels = data(rank, 1)
    x.requires_grad_().register_hook(saved)
    nn.functional.cross_entropy(model(x), labels).backward()
    try:
        handle.load_state_dict(None)
    except gradwire.StateError as error:
        found.append(str(error))
    return found


def test_states_in_a_backward_pass_and_none_are_refused():
    for torn, none in ranks(2, misused_states):
        assert "between two steps" in torn and "None is no state" in none


class OtherScaler(torch.amp.GradScaler):
    """A scaler of another class."""


def scaled_by_other_classes(rank, size):
    build("3lc", scaler=(OtherScaler if rank == 0 else torch.amp.GradScaler)(DEVICE.type))


def test_scalers_may_have_different_classes():
    ranks(2, scaled_by_other_classes)


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


def test_without_a_process_group_register_says_what_is_missing():
    with pytest.raises(gradwire.ConfigError, match="init_process_group"):
        gradwire.torch.Hook(Net())


def one_sided(rank, size):
    model, handle = build("topk:ratio=0.1")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(3))
    good, other = handle.state_dict(), gradwire.torch.Hook(Net(inputs=32), "topk:ratio=0.1").state_dict()
    train(model, optimizer, rank, range(3, 5))
    before, steps = exchange_bytes(handle.state_dict()), handle.step
    try:
        handle.load_state_dict(good if rank == 0 else {**other, "gradwire": "local"})
    except gradwire.StateError as error:
        unchanged = before == exchange_bytes(handle.state_dict()) and handle.step == steps
        train(model, optimizer, rank, range(5, 7))
        return str(error), unchanged
    return "nothing was refused", False


def test_a_state_is_loaded_on_all_ranks_or_on_none():
    (_, (told, unchanged)), (_, (own, same)) = outcomes(2, one_sided)
    assert unchanged and same
    assert "rank 1 cannot load" in told and "not the state of a gradwire hook" in own


def late(rank, size):
    model, handle = build("3lc")
    extra = nn.Linear(4, 4)
    torch.distributed.barrier()
    other = Net(inputs=32)
    foreign = handle.state_dict()
    hook = gradwire.torch.Hook(other, "3lc")
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(2))
    messages = []
    for state in (handle.state_dict(), {"some": "dict"}, []):
        try:
            hook.load_state_dict(state)
        except gradwire.StateError as error:
            messages.append(str(error))
    return messages, foreign["step"], extra is not None


def test_a_state_of_another_model_is_refused():
    for result in outcomes(2, late):
        assert result[0] == "ok", result
        messages = result[1][0]
        assert len(messages) == 3
        assert "another model" in messages[0] and "state_dict()" in messages[1], messages
