"""Compressors written in Python."""

import time

import numpy
import pytest
import torch

import gradwire.torch
import sharded
from device import DEVICE
from gradwire.torch._channel import Channel
from models import Net, build, flat, train
from world import in_turn, outcomes, ranks


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
    # Some file formats make tuples lists.
    state["exchange"] = {name: list(one) for name, one in state["exchange"].items()}
    handle.load_state_dict(state)
    plan = {one.name: one.message_bytes for one in handle.describe().tensors}
    assert f"{handle.stats()['ratio']:.1f}x" in handle.summary()
    return flat(model), losses, handle.stats(), repr(handle), str(handle.describe()), plan


def test_a_compressor_written_in_python_trains():
    found = ranks(2, custom)
    assert (found[0][0] == found[1][0]).all()
    assert numpy.mean(found[0][1][-5:]) < 0.6 * numpy.mean(found[0][1][:3])
    _, _, stats, name, table, plan = found[0]
    assert stats["ratio"] > 20
    assert "Mine by all-gather over 2 ranks" in name and "expected ?" in table, (name, table)
    # Four bytes of scale, and a bit an element.
    assert plan["first.weight"] == 4 + 64 * 96 // 8 and sum(plan.values()) == stats["message_bytes"]


class Constant:
    """Decodes every message to the same value."""

    error_feedback = False

    def __init__(self, value):
        self._value = value

    def compress(self, tensor):
        return b"x"

    def decompress(self, message, shape):
        return torch.full(tuple(shape), self._value)


def summed(rank, size, value):
    model, _ = build(Constant(value), dtype=torch.float16)
    model(torch.ones(1, 64, dtype=torch.float16)).float().sum().backward()
    return model.module.first.weight.grad.float().unique().tolist()


def test_means_of_a_python_compressor_are_rounded_once():
    # A sum of 16-bit floats would be 1.5, and that of the larger values infinity.
    values = [1.5007503, 70000.0]
    for value, found in zip(values, in_turn(3, *((summed, value) for value in values))):
        nearest = min(torch.tensor(value).half().float().item(), 65504.0)
        assert found == ([nearest],) * 3


class Other(Mine):
    pass


def other(rank, size):
    build(Mine() if rank == 0 else Other())


def test_ranks_with_compressors_of_other_classes_are_refused():
    for failed in outcomes(2, other):
        assert failed[1] == "ConfigError" and "compressor differs between ranks: Mine; Other" in failed[2], failed


def grown(rank, size, states):
    model, handle = build(Mine())
    if states is None:
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(3))
    else:
        handle.load_state_dict(states)
    return handle.state_dict(), handle._custom._residuals


@pytest.mark.parametrize("before, after", [(1, 2), (3, 2)])
def test_residuals_of_a_python_compressor_move_to_other_ranks(before, after):
    saved = ranks(before, grown, None)
    moved = ranks(after, grown, [state for state, _ in saved])
    for name in saved[0][1]:
        # The mean over ranks of what is still to be sent stays.
        mean = sum(residuals[name] for _, residuals in saved) / before
        found = sum(residuals.get(name, torch.zeros_like(mean)) for _, residuals in moved) / after
        torch.testing.assert_close(found, mean)
    if before == 3:
        failed = outcomes(after, grown, [saved[0][0]])
        assert all("all 3 ranks" in one[2] for one in failed), failed


def loaded(rank, size, states):
    _, handle = build(Mine())
    refusals = []
    for state in states:
        with pytest.raises(gradwire.StateError) as refusal:
            handle.load_state_dict(state)
        refusals.append(str(refusal.value))
    return refusals


def trained(rank, size, compressor, module):
    model, handle = build(compressor, module=module)
    model(torch.ones(2, 64)).sum().backward()
    return handle.state_dict()


def narrow():
    return torch.nn.Sequential(torch.nn.Linear(64, 10, bias=False))


def turned():
    """A net with as many elements in a layer, which has another shape."""
    net = Net()
    net.second.weight = torch.nn.Parameter(torch.zeros(20, 48))
    net.forward = lambda x: sum(parameter.sum() for parameter in net.parameters())
    return net


def columns():
    """A net with a weight that has its columns one after the other."""
    net = Net()
    net.second.weight = torch.nn.Parameter(net.second.weight.detach().t().contiguous().t())
    return net


def test_states_of_other_compressors_and_models_are_refused():
    cases = [(Other(), Net), ("3lc", Net), (Mine(), narrow), (Mine(), turned), (Mine(), columns)]
    states = [state for (state,) in in_turn(1, *((trained, *saved) for saved in cases))]
    other, spec, model, shape, layout = ranks(1, loaded, states)[0]
    assert "saved with Other, but this compressor is Mine" in other
    assert "saved with a spec string" in spec
    assert "'0.weight' has the shape (10, 64), but the model has no such tensor" in model
    assert "'second.weight' has the shape (20, 48), but the model has (10, 96)" in shape
    assert "'second.weight' was saved in another memory format" in layout


class Exact:
    """Sends every bit."""

    def compress(self, tensor):
        return tensor.numpy().tobytes()

    def decompress(self, message, shape):
        return torch.frombuffer(bytearray(message), dtype=torch.float32).view(tuple(shape))


def local(compressor, **options):
    torch.manual_seed(0)
    net = Net()
    inner = torch.optim.SGD(net.parameters(), lr=0.1)
    return net, gradwire.torch.LocalSteps(net, inner, compressor=compressor, deadline=60.0, **options)


def in_rounds(rank, size, compressor):
    """The parameters after rounds of local steps, with a restored state in between; and how the
    rounds are described."""
    net, steps = local(compressor, every=2, fragments=2, exchange="all-gather")
    train(net, steps, rank, range(4))
    steps.load_state_dict(steps.state_dict())
    losses = train(net, steps, rank, range(4, 24))
    steps.synchronize()
    stats = steps.stats()
    return flat(net), losses, repr(steps), str(steps.describe()), stats["message_bytes"], sorted(stats)


def test_local_steps_take_a_python_compressor():
    exact, plain, mine = in_turn(2, *((in_rounds, one) for one in (Exact(), "none", Mine())))
    for found, expected in zip(exact, plain):
        torch.testing.assert_close(torch.as_tensor(found[0]), torch.as_tensor(expected[0]), rtol=1e-5, atol=1e-6)
        assert found[5] == expected[5]
    assert (mine[0][0] == mine[1][0]).all() and numpy.mean(mine[0][1][-4:]) < numpy.mean(mine[0][1][:2])
    assert "Mine by all-gather over 2 ranks" in mine[0][2] and "Mine" in mine[0][3]
    # A bit an element instead of 32.
    assert 16 * mine[0][4] < exact[0][4]


def test_sharded_models_take_a_python_compressor():
    exact, plain, mine = in_turn(2, *((sharded.run, one, {}, {}, True) for one in (Exact(), None, Mine())))
    for found, expected in zip(exact, plain):
        torch.testing.assert_close(torch.as_tensor(found[0]), torch.as_tensor(expected[0]), rtol=1e-4, atol=1e-5)
    assert (mine[0][0] == mine[1][0]).all() and mine[0][1][-1] < mine[0][1][0]
    (_, exact_stats), (_, stats) = exact[0][2], mine[0][2]
    assert 16 * stats["message_bytes"] < exact_stats["message_bytes"]


def refused_locally(rank, size):
    said = {}
    for name, value in {"rules": {"*": "none"}, "lighthouse": "http://localhost:1", "nodes": 2, "threads": 2, "exchange": "all-reduce"}.items():
        with pytest.raises(gradwire.ConfigError) as refusal:
            local(Mine(), **{name: value})
        said[name] = str(refusal.value)
    return said


def test_arguments_of_local_steps_that_a_python_compressor_does_not_support_are_refused():
    (said,) = ranks(1, refused_locally)
    for name, text in said.items():
        assert "written in Python does not support" in text and name in text, text


class Fails(Mine):
    def __init__(self, rank):
        self._fails = rank == 1

    def compress(self, tensor):
        if self._fails:
            raise ValueError("out of luck")
        return super().compress(tensor)


def failing(rank, size):
    model, _ = build(Fails(rank), deadline=300.0)
    try:
        model(torch.ones(2, 64)).sum().backward()
    except Exception as error:
        found = type(error).__name__
    # The process goes on, as a notebook does, until the other has failed, too.
    time.sleep(5)
    return found


def test_an_error_of_a_python_compressor_ends_the_step_of_the_other_ranks():
    start = time.monotonic()
    assert ranks(2, failing) == ["PeerLostError", "ValueError"]
    assert time.monotonic() - start < 150


class Returning(Mine):
    """A compressor whose methods return something else than they should."""

    def __init__(self, message=None, decoded=None):
        self._message, self._decoded = message, decoded

    def compress(self, tensor):
        return super().compress(tensor) if self._message is None else self._message

    def decompress(self, message, shape):
        decoded = super().decompress(message, shape)
        return decoded if self._decoded is None else self._decoded(decoded)


class Drifts(Mine):
    """Decodes other values on another rank."""

    def __init__(self, rank, drift):
        self._rank, self._drift = rank, drift

    def decompress(self, message, shape):
        return super().decompress(message, shape) + self._drift * self._rank


def drifting(rank, size, steps):
    train(build(Drifts(rank, 1e-3))[0], torch.optim.SGD([torch.zeros(1)]), rank, range(steps))


def test_a_python_compressor_that_decodes_differently_on_ranks_is_refused_on_all():
    for failed in outcomes(3, drifting, 3):
        assert failed[1] == "ConfigError" and "gave ranks 0 and 1 different tensors" in failed[2], failed


class Counts(Mine):
    """Decodes by the number of messages that it has decoded."""

    _decoded = 0

    def decompress(self, message, shape):
        self._decoded += 1
        return super().decompress(message, shape) * (1 + 1e-6 * self._decoded)


class Noise(Mine):
    def decompress(self, message, shape):
        return super().decompress(message, shape) + 1e-6 * torch.rand(tuple(shape))


class Overwrites(Mine):
    def compress(self, tensor):
        return super().compress(tensor.mul_(2))


class Silent(Mine):
    """Sends a tenth of a percent."""

    def decompress(self, message, shape):
        return 1e-3 * super().decompress(message, shape)


@pytest.mark.parametrize("compressor, says", [
    (Counts(), "Counts.decompress gives two copies"),
    (Noise(), "Noise.decompress gives two copies"),
    (Overwrites(), "Overwrites.compress changes the tensor"),
    (Silent(), "Silent leaves a residual"),
    (object(), "object has no method compress"),
])
def test_faults_of_a_python_compressor_are_found_without_ranks(compressor, says):
    gradwire.torch.check(Mine())
    with pytest.raises(gradwire.ConfigError, match=says):
        gradwire.torch.check(compressor)


def returning(rank, size, options):
    with pytest.raises(gradwire.ConfigError) as refused:
        train(build(Returning(**options))[0], torch.optim.SGD([torch.zeros(1)]), rank, range(1))
    return str(refused.value)


def test_what_a_python_compressor_returns_is_checked():
    wrong = [
        ({"message": "text"}, "Returning.compress returned a str; return bytes"),
        ({"message": 7}, "Returning.compress returned a int; return bytes"),
        ({"decoded": torch.Tensor.tolist}, "Returning.decompress returned a list; return a tensor or a NumPy array"),
        ({"decoded": lambda tensor: tensor.reshape(-1)[:1]}, "Returning.decompress returned the shape (1,) for ("),
        ({"decoded": lambda tensor: tensor * float("nan")}, "Returning.decompress returned NaN or infinity"),
        ({"decoded": lambda tensor: tensor.double() + 1e300}, "Returning.decompress returned NaN or infinity"),
    ]
    for (_, says), (said,) in zip(wrong, in_turn(1, *((returning, options) for options, _ in wrong))):
        assert says in said, said


class Arrays(Mine):
    """The same compressor with NumPy arrays in place of bytes and of a tensor, one that cannot be
    written."""

    def compress(self, tensor):
        return numpy.frombuffer(super().compress(tensor), "uint8")

    def decompress(self, message, shape):
        return numpy.frombuffer(super().decompress(message, shape).numpy().tobytes(), "float32").reshape(shape)


def with_arrays(rank, size):
    found = []
    for compressor in (Mine(), Arrays()):
        torch.manual_seed(0)
        model, _ = build(compressor)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(3))
        found.append(flat(model))
    return bool((found[0] == found[1]).all())


def test_numpy_arrays_are_as_good_as_bytes_and_tensors():
    assert ranks(1, with_arrays) == [True]


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
        {"on_nonfinite": "skip"},
        {"on_nonfinite": "skip", "scaler": torch.amp.GradScaler(DEVICE.type)},
        {"raw_vectors": False, "raw_below": 0},
        {"raw_names": ["norm"], "total_steps": 100},
        {"optimizer": gradwire.torch.OneBitAdam(Net().parameters(), freeze=3)},
    ]
    (messages,) = ranks(1, arguments, options)
    for option, message in zip(options, messages):
        assert "written in Python" in message and all(name in message for name in option), message


def counted(rank, size):
    """What a compressor written in Python reports, and one of gradwire; and the bytes that their
    channels sent in a step."""
    reports, lengths, post = [], [], Channel.send

    def send(channel, peer):
        lengths.append(sum(part.numel() for part in channel._posting.parts))
        post(channel, peer)

    Channel.send = send
    for compressor in (Mine(), "onebit"):
        model, handle = build(compressor)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer, rank, range(2))
        lengths.clear()
        train(model, optimizer, rank, [2])
        reports.append((handle.stats(), sum(lengths), len(lengths)))
    return reports


def test_a_python_compressor_reports_what_others_do():
    for reports in ranks(3, counted):
        (own, _, _), (other, _, _) = reports
        assert own.keys() == other.keys()
        assert own["elements"] == other["elements"] and own["total_steps"] == other["total_steps"] == 3
        for report, sent, messages in reports:
            assert report["bytes_up"] == sent and report["messages_up"] == messages
        # Messages have the same size on all ranks; three buckets go to two of them.
        assert own["bytes_down"] == own["bytes_up"] and own["messages_down"] == own["messages_up"] == 6
        assert 2 * own["bytes_up"] < own["total_bytes_up"] <= 3 * own["bytes_up"]
