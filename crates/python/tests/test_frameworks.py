"""Trains under each framework, stops, resumes with the framework's own checkpoint, and compares
bits with a whole run."""

import importlib
import os

import numpy
import pytest
import torch

import gradwire.torch
from frameworks import needs, together
from models import flat
from world import ranks

STEPS, STOP = 8, 5


def whole_and_resumed(function, name, folder):
    """Checks that a stopped and resumed run ends with the bits of a whole one."""
    one, two = ranks(2, together, function, name, str(folder / "whole"), STEPS, False)
    stopped, _ = ranks(2, together, function, name, str(folder / "parts"), STOP, False)
    resumed = ranks(2, together, function, name, str(folder / "parts"), STEPS, True)
    assert (one == two).all() and (stopped != one).any()
    assert (resumed[0] == one).all() and (resumed[1] == one).all()


def resumable(rank, size, name, folder, steps, resume):
    """Runs an example of a framework with residuals; returns its parameters."""
    options = {"compressor": "3lc"} if name == "with_transformers" else {}
    trained = importlib.import_module(name).train(folder, steps, resume, **options)
    return flat(trained)


@pytest.mark.parametrize("framework", ["accelerate", "lightning", "transformers"])
def test_an_example_resumes_from_its_frameworks_checkpoint(framework, tmp_path):
    needs(framework)
    whole_and_resumed(resumable, f"with_{framework}", tmp_path)


def trained_twice(rank, size, folder):
    """Trains two times with the same Trainer of Transformers."""
    import task
    import with_transformers
    from gradwire.torch.transformers import Compression
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=folder, max_steps=2, per_device_train_batch_size=1, use_cpu=True, ddp_backend="gloo", report_to=[],
        disable_tqdm=True, save_strategy="no",
    )
    trainer = Trainer(task.model(), arguments, train_dataset=with_transformers.Points())
    trainer.add_callback(Compression(trainer, "3lc"))
    trainer.train()
    first = flat(trainer.model)
    trainer.train()
    return first, flat(trainer.model)


def test_a_trainer_may_train_again(tmp_path):
    needs("transformers")
    one, two = ranks(2, together, trained_twice, str(tmp_path))
    assert (one[1] == two[1]).all() and (one[0] != one[1]).any()


def in_ray(rank, size, folder):
    """Goes on in Ray's example, and returns its parameters and residuals. Ray starts processes of
    its own."""
    # Ray's processes would give way to those of other tests, and take several times as long.
    os.environ["RAY_worker_niceness"] = "0"
    import ray
    import with_ray

    trained = with_ray.train(folder, STEPS, True)
    ray.shutdown()
    return flat(trained), residuals(torch.load(folder / "last" / "state.pt"))


def without_ray(rank, size, folder):
    """What Ray's example does, whole; leaves the example's checkpoint of a step before the end."""
    import task

    net = task.model()
    # An example that begins anew, instead of going on, ends elsewhere.
    torch.nn.init.constant_(net.layers[-1].bias, 0.1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    model = torch.nn.parallel.DistributedDataParallel(net)
    handle = gradwire.torch.register(model, "3lc")

    def state():
        return {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "residuals": handle.state_dict(all_ranks=True)}

    for step in range(STEPS):
        if step == STOP:
            checkpoint = state()
            if rank == 0:
                torch.save(checkpoint, folder / "state.pt")
        optimizer.zero_grad()
        model(*task.batch(rank, step))["loss"].backward()
        optimizer.step()
    return flat(net), residuals(state())


def residuals(checkpoint):
    """The state of the exchange at each rank, in bytes."""
    return {rank: state.numpy().tobytes() for rank, (state, *_) in checkpoint["residuals"]["exchange"].items()}


def test_rays_example_resumes_from_its_checkpoint(tmp_path):
    pytest.importorskip("ray")
    saved = tmp_path / "stopped"
    saved.mkdir()
    (whole, kept), _ = ranks(2, without_ray, saved)
    # Where the example keeps its last checkpoint.
    (tmp_path / "last").symlink_to(saved)
    ((resumed, kept_in_ray),) = ranks(1, in_ray, tmp_path)
    assert (resumed == whole).all()
    assert kept_in_ray == kept and len(kept) == 2


class Node:
    """Flower's context of a client."""

    def __init__(self):
        from flwr.app import Context, RecordDict

        self.context = Context(0, 5, {}, RecordDict(), {})

    def round(self, compression, start, step):
        """Sends `start` and has the app add `step`; returns the change that the server receives."""
        from flwr.app import ArrayRecord, Message, RecordDict
        from gradwire.flower import unpack

        def app(message, context):
            # A mask is replaced, not added to.
            end = [numpy.asarray(values + step if values.dtype != bool else ~values) for values in message.content["arrays"].to_numpy_ndarrays()]
            return Message(RecordDict({"arrays": ArrayRecord(end)}), reply_to=message)

        message = Message(RecordDict({"arrays": ArrayRecord([start])}), dst_node_id=5, message_type="train")
        (change,) = unpack(compression(message, self.context, app).content["arrays"]).values()
        return change


def test_flower_frames_may_decode_to_the_size_of_their_array():
    pytest.importorskip("flwr")
    from gradwire.flower import pack, unpack

    # More than 256 MiB, of which one value is sent.
    large = {"embedding": numpy.zeros((1 << 10, 68 << 10), "float32")}
    large["embedding"][7, 7] = 1.0
    packed = pack(large, "topk:ratio=0.000001")
    with pytest.raises(gradwire.MessageError):
        unpack(packed)
    assert unpack(packed, large)["embedding"][7, 7] == 1.0
    with pytest.raises(gradwire.MessageError):
        unpack(packed, {"embedding": numpy.zeros(3, "float32")})


def test_flower_sends_counters_with_the_model():
    pytest.importorskip("flwr")
    from flwr.app import ArrayRecord, Message, RecordDict
    from flwr.supercore.task_identity import TaskIdentity
    from gradwire.flower import CompressionMod, unpack

    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 0
    start = {"weight": torch.zeros(4, 8), "num_batches_tracked": torch.tensor(5)}

    def app(message, context):
        end = {name: values + 2 for name, values in start.items()}
        return Message(RecordDict({"arrays": ArrayRecord(end)}), reply_to=message)

    message = Message(RecordDict({"arrays": ArrayRecord(start)}), dst_node_id=5, message_type="train")
    changes = unpack(CompressionMod("int8")(message, Node().context, app).content["arrays"])
    assert changes["num_batches_tracked"] == 2 and abs(changes["weight"] - 2).max() < 0.02


def test_flower_sends_later_what_a_message_leaves_out():
    pytest.importorskip("flwr")
    from flwr.supercore.task_identity import TaskIdentity
    from gradwire.flower import CompressionMod

    # Flower's own processes would set these.
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 0
    node, compression = Node(), CompressionMod("topk:ratio=0.25")
    start = numpy.zeros((4, 8), "float32")
    step = numpy.arange(32, dtype="float32").reshape(4, 8)
    sent = [node.round(compression, start, step) for _ in range(3)]
    assert all(numpy.count_nonzero(change) == 8 for change in sent)
    residual = node.context.state["gradwire.residual"].to_numpy_ndarrays()[0]
    numpy.testing.assert_allclose(sum(sent) + residual, 3 * step, rtol=1e-6)
    # Without error feedback each message is the same.
    alone, plain = Node(), CompressionMod("topk:ratio=0.25", error_feedback=False)
    assert (alone.round(plain, start, step) == alone.round(plain, start, step)).all()
    assert len(alone.context.state.array_records) == 0
    with pytest.raises(gradwire.ConfigError, match="float32, float16 or bfloat16"):
        Node().round(plain, numpy.zeros(3), numpy.ones(3))
    # A vector is sent whole, as is a scalar, and the values of a mask take the place of the old
    # ones.
    assert (Node().round(compression, start[0], step[0]) == step[0]).all()
    scalar = Node().round(compression, numpy.array(2, "float32"), numpy.array(3, "float32"))
    assert scalar.shape == () and scalar == 3
    assert (Node().round(compression, numpy.array([True, False]), None) == [False, True]).all()


class Sends:
    """Flower's strategy, of which the mixin needs that it sends a model and averages those of its
    clients."""

    def configure_train(self, server_round, arrays, config, grid):
        return [arrays]

    def aggregate_train(self, server_round, replies):
        (reply,) = replies
        return reply.content["arrays"], None


def strategy(**attributes):
    from gradwire.flower import CompressedStrategy

    return type("Strategy", (CompressedStrategy, Sends), attributes)()


def as_reply(record):
    """A message of a client with an array record."""
    from flwr.app import Message, RecordDict

    return Message(RecordDict({"arrays": record}), dst_node_id=5, message_type="train")


def test_flowers_server_keeps_changes_that_its_messages_round_away():
    pytest.importorskip("flwr")
    from flwr.app import Array, ArrayRecord
    from flwr.supercore.task_identity import TaskIdentity
    from gradwire.flower import pack, unpack

    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 0
    server, model = strategy(), numpy.full((4, 8), 1.0001, "float32")
    record = ArrayRecord({"weight": Array(model)})
    for server_round in range(50):
        (sent,) = server.configure_train(server_round, record, {}, None)
        # Half of the distance between 1 and the next 16-bit float, in fifty rounds.
        change = numpy.full((4, 8), 1e-5, "float32")
        record, _ = server.aggregate_train(server_round, [as_reply(pack({"weight": change}, "none"))])
    numpy.testing.assert_allclose(record["weight"].numpy(), model + 50 * 1e-5, rtol=1e-6)
    assert (unpack(sent)["weight"] == numpy.float16(model + 49 * 1e-5)).all()


@pytest.mark.parametrize("compressor", ["topk:ratio=0.05", "eden", "signsgd"])
def test_flowers_server_refuses_compressors_that_change_much_of_a_model(compressor):
    pytest.importorskip("flwr")
    from flwr.app import Array, ArrayRecord

    record = ArrayRecord({"weight": Array(numpy.ones((4, 8), "float32"))})
    with pytest.raises(gradwire.ConfigError, match="of their norm"):
        strategy(compressor=compressor).configure_train(0, record, {}, None)


def test_flowers_server_refuses_one_norm_for_a_large_array():
    pytest.importorskip("flwr")
    from flwr.app import Array, ArrayRecord

    small, large = (ArrayRecord({"weight": Array(numpy.ones((side, side), "float32"))}) for side in (64, 512))
    server = strategy(compressor="qsgd:bucket=0")
    server.configure_train(0, small, {}, None)
    with pytest.raises(gradwire.ConfigError, match="of their norm"):
        server.configure_train(0, large, {}, None)


@pytest.mark.parametrize("compressor, keeps", [
    ("topk", True),
    ("topk:ef=off", False),
    ("eden", False),
    ("eden:bits=2,ef=on", True),
    ("sbc2", True),
])
def test_flowers_clients_keep_what_the_compressor_keeps(compressor, keeps):
    pytest.importorskip("flwr")
    from flwr.supercore.task_identity import TaskIdentity
    from gradwire.flower import CompressionMod

    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 0
    node = Node()
    node.round(CompressionMod(compressor), numpy.zeros((4, 8), "float32"), numpy.ones((4, 8), "float32"))
    assert ("gradwire.residual" in node.context.state.array_records) == keeps


def test_flowers_clients_refuse_schedules():
    pytest.importorskip("flwr")
    from gradwire.flower import CompressionMod

    with pytest.raises(gradwire.ConfigError, match="is a schedule"):
        CompressionMod("none until 3 then topk")
