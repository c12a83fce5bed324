"""Tests Flower clients that return a part of the model, and models in bfloat16."""

import numpy
import pytest
import torch
from torch import nn

import gradwire

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

from gradwire.flower import CompressedStrategy, CompressionMod, from_torch_state_dict, pack, unpack  # noqa: E402


@pytest.fixture(autouse=True)
def identity():
    """What Flower's own processes would set."""
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 0


def node(number=5):
    return Context(0, number, {}, RecordDict(), {})


def trained(compression, context, sent, train):
    """The reply of a client: `train` makes the record that its app returns of the one that it
    receives."""

    def app(message, context):
        content = {"arrays": train(message.content["arrays"]), "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(content), reply_to=message)

    message = Message(RecordDict({"arrays": sent}), dst_node_id=context.node_id, message_type="train")
    return compression(message, context, app)


def added(steps):
    """An app that adds to some arrays and returns these alone."""
    return lambda record: ArrayRecord({name: Array(record[name].numpy() + step) for name, step in steps.items()})


def record(**arrays):
    return ArrayRecord({name: Array(values) for name, values in arrays.items()})


def steps_of(seed, *names):
    draws = numpy.random.default_rng(seed)
    return {name: draws.standard_normal((4, 8)).astype("float32") for name in names}


@pytest.mark.parametrize("feedback", [True, False])
def test_clients_may_return_other_parts_of_the_model_in_each_round(feedback):
    start = record(**{name: numpy.ones((4, 8), "float32") for name in ("shared", "adapter", "norm")})
    compression, context = CompressionMod("topk:ratio=0.25", error_feedback=feedback), node()
    sent, whole = {}, {}
    for seed, names in enumerate([("shared", "adapter"), ("shared",), ("adapter",), ("adapter", "shared")]):
        steps = steps_of(seed, *names)
        changes = unpack(trained(compression, context, start, added(steps)).content["arrays"])
        assert set(changes) == set(names)
        for name in names:
            assert numpy.count_nonzero(changes[name]) == 8
            sent[name] = sent.get(name, 0) + changes[name]
            whole[name] = whole.get(name, 0) + steps[name]
    kept = context.state["gradwire.residual"] if feedback else {}
    assert set(kept) == ({"shared", "adapter"} if feedback else set())
    for name in kept:
        numpy.testing.assert_allclose(sent[name] + kept[name].numpy(), whole[name], rtol=0, atol=1e-5)


def test_clients_may_return_only_what_they_received():
    start = record(weight=numpy.ones((4, 8), "float32"))
    for returned, part in [
        (record(weight=numpy.ones((4, 8), "float32"), head=numpy.ones(3, "float32")), "returned 'head', which the server did not send"),
        (record(weight=numpy.ones((1, 8), "float32")), r"'weight' in the shape \(1, 8\), and received it in the shape \(4, 8\)"),
        (ArrayRecord({"weight": Array("bfloat16", (4, 8), "torch", b"")}), "'weight' is serialized as 'torch'"),
    ]:
        with pytest.raises(gradwire.ConfigError, match=part):
            trained(CompressionMod("int8"), node(), start, lambda _, returned=returned: returned)


class Strategy(CompressedStrategy, type("Sends", (FedAvg,), {"configure_train": lambda self, number, arrays, config, grid: [arrays]})):
    """Flower's averages; a round sends its model to whoever asks."""


def test_the_server_changes_only_what_clients_returned():
    server, draws = Strategy(), numpy.random.default_rng(9)
    start = {name: draws.standard_normal((4, 8)).astype("float32") for name in ("shared", "adapter", "norm")}
    (sent,) = server.configure_train(1, record(**start), {}, None)
    one, two = steps_of(1, "shared", "adapter"), steps_of(2, "shared")
    compression = CompressionMod("none")
    replies = [trained(compression, node(number), sent, added(steps)) for number, steps in ((1, one), (2, two))]
    model, _ = server.aggregate_train(1, replies)
    assert set(model) == {"shared", "adapter"}
    # The second client has not changed the adapter.
    numpy.testing.assert_allclose(model["shared"].numpy(), start["shared"] + (one["shared"] + two["shared"]) / 2, rtol=0, atol=1e-3)
    numpy.testing.assert_allclose(model["adapter"].numpy(), start["adapter"] + one["adapter"] / 2, rtol=0, atol=1e-3)
    # The next round has what came.
    (sent,) = server.configure_train(2, model, {}, None)
    assert set(unpack(sent)) == {"shared", "adapter"}


def test_the_server_refuses_what_it_did_not_send():
    server = Strategy()
    (sent,) = server.configure_train(1, record(weight=numpy.ones((4, 8), "float32")), {}, None)
    reply = trained(CompressionMod("none"), node(7), sent, added(steps_of(1, "weight")))
    reply.content["arrays"] = pack(steps_of(1, "weight", "head"), "none")
    with pytest.raises(gradwire.ConfigError, match="node .* returned 'head', which the server did not send"):
        server.aggregate_train(1, [reply])


def test_models_in_bfloat16_are_trained():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)).bfloat16()
    held = from_torch_state_dict(net.state_dict())
    bits = net[0].weight.detach().view(torch.int16).numpy().tobytes()
    assert held["0.weight"].dtype == "bfloat16" and held["0.weight"].data.endswith(bits)

    def half_more(received):
        """The app: adds a half, which rounds some of the weights."""
        net.load_state_dict(received.to_torch_state_dict())
        with torch.no_grad():
            net[0].weight.add_(0.5)
        net[1].num_batches_tracked += 1
        return from_torch_state_dict(net.state_dict())

    server, compression, context = Strategy(), CompressionMod("none"), node()
    (sent,) = server.configure_train(1, held, {}, None)
    before = net[0].weight.detach().clone()
    model, _ = server.aggregate_train(1, [trained(compression, context, sent, half_more)])
    assert (torch.from_numpy(model["0.weight"].numpy()) == (before + 0.5).float()).all()
    assert model["1.num_batches_tracked"].numpy() == 1

    # A client without data returns what it started from, rounded to bfloat16; the exact model does
    # not change.
    exact = {name: values.numpy() for name, values in model.items()}
    exact["0.weight"] = exact["0.weight"] + numpy.float32(1e-3)
    (sent,) = server.configure_train(2, record(**exact), {}, None)

    def nothing(received):
        net.load_state_dict(received.to_torch_state_dict())
        return from_torch_state_dict(net.state_dict())

    model, _ = server.aggregate_train(2, [trained(compression, context, sent, nothing)])
    assert (model["0.weight"].numpy() == exact["0.weight"]).all()


def test_bfloat16_is_compressed_with_a_residual():
    start = from_torch_state_dict({"weight": torch.ones(4, 8, dtype=torch.bfloat16)})
    steps = torch.arange(32.0).reshape(4, 8)
    compression, context = CompressionMod("topk:ratio=0.25"), node()

    def app(received):
        return from_torch_state_dict({"weight": (received.to_torch_state_dict()["weight"] + steps).bfloat16()})

    sent = [unpack(trained(compression, context, start, app).content["arrays"])["weight"] for _ in range(3)]
    assert all(numpy.count_nonzero(change) == 8 for change in sent)
    left = context.state["gradwire.residual"]["weight"].numpy()
    assert (sum(sent) + left == 3 * steps.numpy()).all()
