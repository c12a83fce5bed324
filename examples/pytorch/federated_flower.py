"""Federated rounds with Flower, with messages compressed by gradwire in both directions.

The server sends the model as 16-bit floats. Clients answer with the largest twentieth of their
update. They keep the rest in Flower's node state for their next message (error feedback). The
client's app needs no change. `client` and `server` are apps for `flwr run`; run as a script, this
file simulates all nodes in one process:

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

import gradwire.flower


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


client = ClientApp(mods=[gradwire.flower.CompressionMod("topk:ratio=0.05", raw_vectors=False)])


@client.train()
def train(message: Message, context: Context) -> Message:
    model = network()
    model.load_state_dict({name: torch.tensor(array.numpy()) for name, array in message.content["arrays"].items()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, labels = data(int(context.node_config["partition-id"]))
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    trained = ArrayRecord({name: Array(values) for name, values in arrays_of(model).items()})
    metrics = MetricRecord({"num-examples": len(labels)})
    return Message(RecordDict({"arrays": trained, "metrics": metrics}), reply_to=message)


class Strategy(gradwire.flower.CompressedStrategy, FedAvg):
    """Federated averaging of compressed updates. Counts their bytes."""

    sent_bytes = 0

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        completed = [reply for reply in replies if not reply.has_error()]
        if not completed:
            reasons = "; ".join(sorted({str(reply.error.reason) for reply in replies})) or "none has answered"
            raise RuntimeError(f"no client completed round {server_round}: {reasons}")
        sizes = [sum(len(array.data) for array in reply.content["arrays"].values()) for reply in completed]
        self.sent_bytes = max([self.sent_bytes, *sizes])
        return super().aggregate_train(server_round, replies)


server = ServerApp()


@server.main()
def run(grid: Grid, context: Context) -> None:
    strategy = Strategy(fraction_evaluate=0.0)
    initial = ArrayRecord({name: Array(values) for name, values in arrays_of(network()).items()})
    result = strategy.start(grid, initial, num_rounds=int(context.run_config["rounds"]))

    model = network()
    model.load_state_dict({name: torch.from_numpy(array.numpy()) for name, array in result.arrays.items()})
    inputs, labels = (torch.cat(parts) for parts in zip(*(data(node) for node in range(4))))
    accuracy = (model(inputs).argmax(1) == labels).float().mean().item()
    dense = sum(4 * values.size for values in arrays_of(network()).values())
    print(f"accuracy {accuracy:.3f}, {strategy.sent_bytes} bytes per client and round, {dense} in float32")


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
    # Normally Flower's own processes set these.
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 0
    server(OneProcess(4), Context(0, 0, {}, RecordDict(), {"rounds": options.rounds}))


if __name__ == "__main__":
    main()
