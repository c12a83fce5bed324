"""Trains replicas that may be lost and join again, with torchft and compressed gradients.

    torchft_lighthouse --min_replicas 1 --join_timeout_ms 10000 &
    export TORCHFT_LIGHTHOUSE=http://localhost:29510
    REPLICA=0 python examples/pytorch/with_torchft.py &
    REPLICA=1 python examples/pytorch/with_torchft.py

Each replica trains on its own data, selected by REPLICA. Stop one of them and start it again: the
others go on, and it continues with their parameters.
"""

import os
import socket

import task
import torch
import torchft

from gradwire.torch.torchft import DistributedDataParallel, ProcessGroupGloo


def train(folder, steps, resume):
    if resume:
        raise SystemExit("this example has no --resume: a replica that starts continues with the parameters of the others")
    # torchrun would set these; here each replica is a single process.
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT=str(store.port))
    replica = int(os.environ.get("REPLICA", 0))
    net = task.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

    def state():
        return {"model": net.state_dict(), "optimizer": optimizer.state_dict()}

    def load(state):
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    manager = torchft.Manager(
        pg=ProcessGroupGloo(), state_dict=state, load_state_dict=load, min_replica_size=1, max_retries=10,
        hostname=socket.gethostname(),
    )
    model = DistributedDataParallel(manager, net, "3lc")
    committing = torchft.Optimizer(manager, optimizer)
    while manager.current_step() < steps:
        committing.zero_grad()
        model(*task.batch(replica, manager.current_step()))["loss"].backward()
        committing.step()
    manager.shutdown(wait=False)
    return net


if __name__ == "__main__":
    task.run(train, __doc__)
