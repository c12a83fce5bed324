"""Tests that wrong arguments are refused, and arguments that differ between ranks."""

import pytest
import torch
import torch.distributed.fsdp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import gradwire.torch
from gradwire.torch import _channel, _crates
from device import DEVICE
from models import Net, build, train
from sharded import shard
from world import outcomes, ranks


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


def without_the_crate(rank, size):
    # Rank 0 has imported the package of the crate.
    _crates._known = lambda: {"acme/scaled-sign"} if rank == 0 else set()
    mesh = init_device_mesh(DEVICE.type, (size,))
    messages = []
    for call in [
        lambda: build("acme/scaled-sign:gain=2"),
        lambda: build("3lc", rules={"first.*": "acme/scaled-sign"}),
        lambda: gradwire.torch.fsdp.register(shard(mesh), "acme/scaled-sign"),
        lambda: gradwire.torch.fsdp.register(shard(mesh), "none", parameters="acme/scaled-sign"),
        lambda: local_steps(compressor="none until 5 then acme/scaled-sign"),
        lambda: gradwire.torch.wrap(None, "acme/scaled-sign"),
        # No rank has it.
        lambda: build("acme/other"),
    ]:
        with pytest.raises(gradwire.ConfigError) as error:
            call()
        messages.append(str(error.value))
    return messages


def test_a_compressor_of_a_crate_that_one_rank_lacks_is_refused_on_all_ranks():
    for *messages, nowhere in ranks(2, without_the_crate):
        for message in messages:
            assert "rank 1 does not have the compressor 'acme/scaled-sign', but rank 0 has it" in message, message
            assert "import the package of the crate 'acme' before gradwire" in message
        assert "'acme/other' is a compressor of the crate 'acme', which this program does not contain" in nowhere


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
        "rules contains ('*.bias', 'none'), which is not a string", "raw_vectors='no'",
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


class OtherScaler(torch.amp.GradScaler):
    """A scaler of another class."""


def scaled_by_other_classes(rank, size):
    build("3lc", scaler=(OtherScaler if rank == 0 else torch.amp.GradScaler)(DEVICE.type))


def test_scalers_may_have_different_classes():
    ranks(2, scaled_by_other_classes)


def test_without_a_process_group_register_says_what_is_missing():
    with pytest.raises(gradwire.ConfigError, match="init_process_group"):
        gradwire.torch.Hook(Net())
