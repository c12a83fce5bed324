"""DistributedDataParallel with gradients that kernels compress, under Triton's interpreter or on a
GPU, beside compression on the host."""

import warnings
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton", reason="PyTorch came without Triton")

from device import DEVICE
import gradwire.torch
from gradwire import _core
from gradwire.torch import _device
from models import build, data, flat, train
from world import in_turn, ranks

# Of each family of kernels and each memory one whose messages are the host's; with and without
# uncompressed vectors, and a schedule.
SETTINGS = [
    ("3lc:s=1.75", {}),
    ("3lc:ef=off", {"raw_vectors": False, "raw_below": 0}),
    ("int8", {"rules": {">=2000": "signsgd"}}),
    ("topk:ratio=0.05", {}),
    ("sbc:p=0.05", {}),
    ("dgc:ratio=0.05", {"rules": {">=2000": "signum"}}),
    ("terngrad:clip=0 until 1 then dryden:ratio=0.05", {}),
    ("qsgd:s=7,norm=max,code=huffman", {"seed": 5}),
]


def run(rank, size, compressor, steps, options, mixed=False):
    if mixed:
        options = {**options, "device": ["host", "gpu"][rank % 2]}
    model, handle = build(compressor, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = train(model, optimizer, rank, range(steps))
    return flat(model), losses, handle.stats()["total_bytes_up"]


def test_a_run_on_the_device_has_the_bits_of_one_on_the_host():
    places = ("host", "gpu")
    runs = in_turn(2, *((run, one, 3, {**options, "device": place}) for one, options in SETTINGS for place in places))
    for setting, host, device in zip(SETTINGS, runs[::2], runs[1::2]):
        for (expected, losses, sent), (found, others, also) in zip(host, device):
            assert (found == expected).all() and others == losses and also == sent, setting


def test_replicas_are_equal_and_learn_where_the_host_adds_in_another_order():
    compressors = ["eden", "onebit", "adacomp"]
    for compressor, found in zip(compressors, in_turn(2, *((run, one, 12, {"device": "gpu"}) for one in compressors))):
        assert (found[0][0] == found[1][0]).all(), compressor
        for _, losses, _ in found:
            assert sum(losses[-3:]) < sum(losses[:3]), compressor


def halves(rank, size, device):
    """The means of gradients of 16 bits."""
    model, _ = build("3lc", dtype=torch.bfloat16, device=device)
    found = []
    for step in range(3):
        inputs, labels = data(rank, step)
        torch.nn.functional.cross_entropy(model(inputs.bfloat16()), labels).backward()
        found += [parameter.grad.float().flatten().cpu() for parameter in model.parameters()]
    return torch.cat(found).numpy()


def test_gradients_of_16_bits_get_the_hosts_means():
    host, device = in_turn(2, (halves, "host"), (halves, "gpu"))
    assert all((found == expected).all() for expected, found in zip(host, device))


class Scaler:
    """A gradient scaler of a constant factor."""

    def __init__(self, scale):
        self.scale = scale

    def get_scale(self):
        return self.scale


def scaled(rank, size, compressor, dtype, scale, options, device):
    """The means of gradients times ``scale``."""
    model, _ = build(compressor, scaler=Scaler(scale), dtype=dtype, device=device, **options)
    found = []
    for step in range(3):
        inputs, labels = data(rank, step)
        loss = torch.nn.functional.cross_entropy(model(inputs.to(dtype)).float(), labels)
        (scale * loss).backward()
        found += [parameter.grad.float().flatten().cpu() for parameter in model.parameters()]
        model.zero_grad()
    return torch.cat(found).numpy()


# A factor that is no power of two; signs of 1, which times the factor are too large for 16 bits;
# and vectors of 16 bits, which keep the factor, beside a matrix with their compressor, which does
# not.
SCALED = [
    (("3lc", torch.float32, 3.0, {}), None),
    (("signsgd", torch.float16, 1e5, {}), 65504.0),
    (("3lc", torch.float16, 3.0, {"rules": {"second.weight": "fp16"}}), None),
]


def test_the_factor_of_a_scaler_is_taken_out_before_compression():
    runs = in_turn(2, *((scaled, *setting, place) for setting, _ in SCALED for place in ("host", "gpu")))
    for (setting, largest), host, device in zip(SCALED, runs[::2], runs[1::2]):
        assert all((found == expected).all() for expected, found in zip(host, device)), setting
        assert largest is None or abs(host[0]).max() == largest, setting


def test_ranks_may_differ_in_where_they_compress():
    host, mixed = in_turn(2, (run, "3lc", 3, {"device": "host"}), (run, "3lc", 3, {}, True))
    assert all((found == expected).all() for (expected, _, _), (found, _, _) in zip(host, mixed))


def after_a_skipped_step(rank, size, culprit, devices):
    """The parameters after three steps, of which the second is skipped."""
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=1.0)
    model, _ = build(KEPT[0], device=devices[rank], on_nonfinite="skip", scaler=scaler, **KEPT[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, [0])
    poison = [one.register_hook(lambda grad: torch.full_like(grad, float("inf"))) for one in model.parameters() if rank == culprit]
    optimizer.zero_grad()
    model(torch.ones(4, 64, device=DEVICE)).square().sum().backward()
    assert all(torch.isnan(parameter.grad).all() for parameter in model.parameters())
    for hook in poison:
        hook.remove()
    train(model, optimizer, rank, [1])
    return flat(model)


def test_a_step_is_skipped_wherever_ranks_compress():
    places = ("host", "host"), ("host", "gpu")
    runs = in_turn(2, *((after_a_skipped_step, culprit, devices) for culprit in (0, 1) for devices in places))
    for culprit, host, mixed in zip((0, 1), runs[::2], runs[1::2]):
        assert all((one == host[0]).all() for one in host + mixed), culprit


# A compressor that keeps a residual and a velocity, and one that keeps a residual.
KEPT = ("dgc:ratio=0.05", {"rules": {">=2000": "3lc:s=1.75"}})


def saved(rank, size, before, after, where):
    """The parameters after some steps, a saved and loaded state, and more steps."""
    model, handle = build(KEPT[0], device=where[0], **KEPT[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(before))
    state, parameters = handle.state_dict(), model.state_dict()
    if where[0] == "gpu":
        # Copies in the reducer would be copied again at every step that may be skipped.
        kinds = {
            kind
            for kind in handle._device_exchange.kept.arrays
            for name, _ in model.module.named_parameters()
            if handle._reducer.array(name, kind) is not None
        }
        assert not kinds, kinds
    model, handle = build(KEPT[0], device=where[1], **KEPT[1])
    model.load_state_dict(parameters)
    handle.load_state_dict(state)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(before, before + after))
    return flat(model)


def test_states_of_device_and_host_are_the_same():
    places = [("host", "host"), ("gpu", "gpu"), ("gpu", "host"), ("host", "gpu")]
    whole, *others = in_turn(2, *((saved, 2, 2, where) for where in places))
    for where, found in zip(places[1:], others):
        assert all((a == b).all() for a, b in zip(found, whole)), where


def poisoned(rank, size, on_nonfinite):
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=1.0)
    model, handle = build(KEPT[0], device="gpu", on_nonfinite=on_nonfinite, scaler=scaler, **KEPT[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, [0])
    before = {kind: array.clone() for kind, array in handle._device_exchange.kept.arrays.items()}
    assert set(before) == {"residual", "velocity"}
    for parameter in model.parameters():
        if rank == 1:
            parameter.register_hook(lambda gradient: torch.full_like(gradient, float("inf")))
    try:
        loss = model(torch.ones(4, 64, device=DEVICE)).square().sum()
        optimizer.zero_grad()
        loss.backward()
    except _core.GradwireError as error:
        return type(error).__name__, str(error)
    skipped = all(torch.isnan(parameter.grad).all() for parameter in model.parameters())
    return skipped, all(bool((array == before[kind]).all()) for kind, array in handle._device_exchange.kept.arrays.items())


def test_values_that_are_not_finite_are_named_or_skip_the_step():
    first, second = ranks(2, poisoned, "error")
    assert second[0] == "NonFiniteError" and "inf" in second[1], second
    assert first[0] != "NonFiniteError", first
    assert ranks(2, poisoned, "skip") == [(True, True)] * 2


def refused(rank, size):
    messages = []
    for compressor, options in [("atomo", {}), ("3lc", {"exchange": "scatter-reduce"}), ("3lc", {"device": "tpu"})]:
        with pytest.raises(gradwire.ConfigError) as error:
            build(compressor, **{"device": "gpu", **options})
        messages.append(str(error.value))
    _, handle = build("atomo", exchange="all-gather")
    assert handle.describe().compressed_on.startswith("the host")
    _, handle = build("3lc", device="gpu")
    assert handle.describe().compressed_on == "the GPU"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("triton.__version__", "3.5.1")
        with pytest.raises(gradwire.ConfigError, match="Triton is version 3.5.1, but the kernels need 3.6"):
            build("3lc", device="gpu")
    return messages


def test_what_has_no_kernel_is_refused_with_the_reason():
    for messages in ranks(2, refused):
        assert "no kernel for 'atomo'" in messages[0]
        assert "ranks exchange by scatter-reduce" in messages[1]
        assert "'auto', 'host' or 'gpu'" in messages[2]


def placed(device, place, rank=0, spec="eden"):
    """Where the gradients of a parameter on a device are compressed if the kernels cannot run, and
    the warnings."""
    alone = {"gather": lambda step, own: [own], "wait": lambda: None}
    reducer = SimpleNamespace(rank=rank, stages=[(0, 1)], specs=lambda step: [spec], **alone)
    parameter = SimpleNamespace(device=torch.device(device), dtype=torch.float32, shape=(4,))
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        patch.setattr("triton.__version__", "3.5.1")
        found = _device.of(_device.Request(place, "auto", None), reducer, [("w", parameter)], {})
    assert found.exchange is None
    return found.compressed_on, [(one.category, str(one.message)) for one in caught]


def test_the_host_in_place_of_a_gpu_is_a_warning_with_the_reason():
    where, ((category, message),) = placed("cuda:0", "auto")
    assert category is RuntimeWarning and "on the host, because Triton is version 3.5.1" in message
    assert where.startswith("the host, because Triton is version 3.5.1")
    assert placed("cuda:0", "host") == ("the host, because device='host'", [])
    assert placed("cpu", "auto") == ("the host", [])
    # One rank says it, and only where something is compressed.
    assert placed("cuda:0", "auto", rank=1)[1] == placed("cuda:0", "auto", spec="none")[1] == []


def mixed(rank, size):
    """How many vectors of numbers the batches keep after two steps and after five, where messages
    of different lengths and uncompressed vectors share buckets."""
    model, handle = build("threshold:v=0.001", device="gpu", small_buckets=False)
    optimizer, kept = torch.optim.SGD(model.parameters(), lr=0.1), []
    for steps in (range(2), range(2, 5)):
        train(model, optimizer, rank, steps)
        parts = [part for bucket in handle._device_exchange._buckets.values() for part in bucket._parts]
        assert len({type(part.kernel) for part in parts}) > 1
        kept.append(sum(len(part.batch._vectors) for part in parts))
    return kept


def test_nothing_grows_from_step_to_step():
    for first, second in ranks(2, mixed):
        assert first == second


def resident(rank, size):
    """How many elements are kept of a model with uncompressed vectors, a matrix without feedback
    and one with it."""
    model, handle = build("3lc", device="gpu", rules={"first.*": "3lc:ef=off"})
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(2))
    return {kind: array.numel() for kind, array in handle._device_exchange.kept.arrays.items()}, model.module.second.weight.numel()


def test_what_keeps_nothing_takes_no_memory():
    for arrays, elements in ranks(2, resident):
        assert arrays == {"residual": elements}


def broken(rank, size):
    """What a rank raises where compression does not start on the second."""
    model, handle = build("3lc", device="gpu", deadline=60.0)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, [0])
    if rank == 1:

        def out_of_memory(*arguments):
            raise torch.OutOfMemoryError("there is no memory left")

        handle._device_exchange.kept.array = out_of_memory
    with pytest.raises(gradwire.GradwireError) as error:
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, [1])
    return str(error.value)


def test_an_error_of_one_device_ends_the_exchange_on_all_ranks():
    first, second = ranks(2, broken)
    assert "there is no memory left" in second and "in out_of_memory" in second, second
    assert "rank 1" in first, first


def wrong(rank, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gradwire.torch.cuda.levels.Int8.add", lambda *arguments: None)
        with pytest.raises(gradwire.ConfigError, match="the kernel for 'int8' computes wrong numbers there"):
            build("int8", device="gpu")
    _, handle = build("int8", device="gpu")
    handle.close()
    assert not handle._device_exchange.kept.arrays


def test_a_kernel_that_computes_something_else_is_refused():
    ranks(2, wrong)
