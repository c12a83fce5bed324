"""Trains replicas of a model that fully_shard has sharded, as torchtitan does: ranks of a replica
exchange as always, and replicas exchange compressed gradients.

    torchrun --nproc-per-node 4 examples/pytorch/replicated_shards.py --replicas 2
"""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import gradwire.torch
import task


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    gradwire.torch.configure("eden", raw_below=1000)
    sizes = options.replicas, dist.get_world_size() // options.replicas
    names = ("dp_replicate", "dp_shard")
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names, backend_override={"dp_replicate": "gradwire"})
    model = task.model()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(options.steps):
        optimizer.zero_grad()
        model(*task.batch(dist.get_rank(), step))["loss"].backward()
        optimizer.step()
    x, labels = task.batch(99, 0, 1000)
    with torch.no_grad():
        accuracy = (model(x, labels)["logits"].argmax(1) == labels).float().mean()
    description = mesh.get_group("dp_replicate").describe()
    sent = sum(site.calls * site.bytes_per_call for site in description.sites if site.compressed)
    if dist.get_rank() == 0:
        print(description)
        print(f"accuracy {accuracy:.3f}, {sent} bytes")


if __name__ == "__main__":
    main()
