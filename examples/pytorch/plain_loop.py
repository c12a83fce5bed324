"""Trains in a loop that averages gradients by itself, through a process group that compresses them.

    torchrun --nproc-per-node 2 examples/pytorch/plain_loop.py --steps 100
"""

import argparse

import task
import torch
import torch.distributed as dist

import gradwire.torch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    gradwire.torch.configure("eden")
    dist.init_process_group("gradwire")
    net = task.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for step in range(options.steps):
        optimizer.zero_grad()
        net(*task.batch(dist.get_rank(), step))["loss"].backward()
        with gradwire.torch.gradients():
            for parameter in net.parameters():
                dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
        optimizer.step()
    x, labels = task.batch(99, 0, 1000)
    with torch.no_grad():
        accuracy = (net(x, labels)["logits"].argmax(1) == labels).float().mean()
    description = dist.group.WORLD.describe()
    sent = sum(site.calls * site.bytes_per_call for site in description.sites if site.compressed)
    print(description)
    print(f"accuracy {accuracy:.3f}, {sent} bytes")


if __name__ == "__main__":
    main()
