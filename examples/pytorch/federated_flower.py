"""Federated rounds with Flower whose messages are compressed by gradwire in both directions.

The server sends the model as 16-bit floats. Clients answer with the largest twentieth of their update, and keep the
rest in Flower's state of the node for their next message (error feedback). `client` and `server` are
apps for `flwr run`; run as a script, this file simulates all nodes in one process:

    pip install flwr==1.41.0
    python examples/pytorch/federated_flower.py --rounds 3
"""

import argparse

import numpy
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity
from torch import nn

import gradwire

DOWN, UP = "fp16", "topk:ratio=0.05"


def pack(arrays, spec):
    """Compresses named arrays to a record of frames."""
    return ArrayRecord({
        name: Array("float32", tuple(values.shape), "gradwire.frame", gradwire.compress(values, spec, name=name))
        for name, values in arrays.items()
    })


def unpack(record):
    """Decompresses a record of frames to named arrays."""
    return {name: gradwire.decompress(array.data).astype("float32") for name, array in record.items()}


def arrays_of(model):
    return {name: values.numpy().copy() for name, values in model.state_dict().items()}


def data(node, samples=256):
    """The data of one node: samples of ten clusters, unevenly distributed."""
    centres = numpy.random.default_rng(0).standard_normal((10, 32))
    draws = numpy.random.default_rng(node)
    labels = draws.choice(10, samples, p=draws.dirichlet(numpy.ones(10)))
    inputs = centres[labels] + 0.5 * draws.standard_normal((samples, 32))
    return torch.tensor(inputs, dtype=torch.float32), torch.tensor(labels)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))


client = ClientApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    start = unpack(message.content["arrays"])
    model = network()
    model.load_state_dict({name: torch.from_numpy(values) for name, values in start.items()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, labels = data(int(context.node_config["partition-id"]))
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    left = context.state["left"].to_numpy_ndarrays() if "left" in context.state else [0.0] * len(start)
    update = {name: end - start[name] + rest for (name, end), rest in zip(arrays_of(model).items(), left)}
    reply = pack(update, UP)
    sent = unpack(reply)
    context.state["left"] = ArrayRecord({name: Array(update[name] - sent[name]) for name in update})
    metrics = MetricRecord({"num-examples": len(labels), "bytes": sum(len(array.data) for array in reply.values())})
    return Message(RecordDict({"arrays": reply, "metrics": metrics}), reply_to=message)


class Compressed(FedAvg):
    """Federated averaging of updates, with frames on the wire."""

    def configure_train(self, server_round, arrays, config, grid):
        packed = pack({name: array.numpy() for name, array in arrays.items()}, DOWN)
        # Clients start from the decompressed model, so their updates are relative to it.
        self.sent = unpack(packed)
        return super().configure_train(server_round, packed, config, grid)

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        for reply in replies:
            updates = unpack(reply.content["arrays"])
            reply.content["arrays"] = ArrayRecord({name: Array(values) for name, values in updates.items()})
        mean, metrics = super().aggregate_train(server_round, replies)
        model = {name: Array(values + mean[name].numpy()) for name, values in self.sent.items()}
        return ArrayRecord(model), metrics


server = ServerApp()


@server.main()
def run(grid: Grid, context: Context) -> None:
    strategy = Compressed(fraction_evaluate=0.0)
    initial = ArrayRecord({name: Array(values) for name, values in arrays_of(network()).items()})
    result = strategy.start(grid, initial, num_rounds=int(context.run_config["rounds"]))

    model = network()
    model.load_state_dict({name: torch.from_numpy(array.numpy()) for name, array in result.arrays.items()})
    inputs, labels = (torch.cat(parts) for parts in zip(*(data(node) for node in range(4))))
    accuracy = (model(inputs).argmax(1) == labels).float().mean().item()
    sent = max(metrics["bytes"] for metrics in result.train_metrics_clientapp.values())
    dense = sum(4 * values.size for values in arrays_of(network()).values())
    print(f"accuracy {accuracy:.3f}, {sent:.0f} bytes per client and round, {dense} in float32")


class OneProcess(Grid):
    """Runs all nodes of Flower's grid in this process."""

    def __init__(self, nodes):
        self._contexts = {
            node: Context(0, node, {"partition-id": node - 1}, RecordDict(), {}) for node in range(1, nodes + 1)
        }

    def get_node_ids(self):
        return list(self._contexts)

    def send_and_receive(self, messages, *, timeout=None):
        return [self._deliver(message) for message in list(messages)]

    def _deliver(self, message):
        node = message.metadata.dst_node_id
        TaskIdentity.node_id = node
        reply = client(message, self._contexts[node])
        TaskIdentity.node_id = 0
        return reply

    run = property(lambda self: None)

    def set_run(self, run):
        raise NotImplementedError

    create_message = push_messages = pull_messages = set_run


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    # Flower's own processes would set these.
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 0
    server(OneProcess(4), Context(0, 0, {}, RecordDict(), {"rounds": options.rounds}))


if __name__ == "__main__":
    main()
