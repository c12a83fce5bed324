"""Trains a model that fully_shard has sharded over the ranks of a site. Every ten steps sites
exchange compressed changes. Saves checkpoints, and resumes from the last one with --resume.

    torchrun --nproc-per-node 4 examples/pytorch/sharded_sites.py --sites 2

On a cluster, ranks of a site are neighbours, as torchrun numbers them: of two sites with a machine
of eight GPUs each, ranks 0 to 7 are the first site.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import gradwire.torch
import task

EVERY = 10


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=2)
    parser.add_argument("--folder", type=Path, default="checkpoints", help="where checkpoints are")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    shards = dist.get_world_size() // options.sites
    mesh = init_device_mesh("cpu", (options.sites, shards), mesh_dim_names=("sites", "shards"))
    model = task.model()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["shards"])
    fully_shard(model, mesh=mesh["shards"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    outer = gradwire.torch.Nesterov()
    steps = gradwire.torch.LocalSteps(model, optimizer, EVERY, outer=outer, process_group=mesh["sites"])

    # After a round all sites have the same parameters, so the checkpoint needs the model once.
    if options.resume:
        # The metadata is written last.
        last = max(int(one.parent.name) for one in options.folder.glob("*/.metadata"))
        state = {"model": model.state_dict(), "steps": steps.state_dict()}
        dcp.load(state, checkpoint_id=options.folder / str(last))
        model.load_state_dict(state["model"])
        steps.load_state_dict(state["steps"])
    while steps.completed_steps < options.steps:
        loss = model(*task.batch(dist.get_rank(), steps.completed_steps))["loss"]
        steps.zero_grad()
        loss.backward()
        steps.step()
        if steps.completed_steps % (5 * EVERY) == 0:
            folder = options.folder / str(steps.completed_steps)
            dcp.save({"model": model.state_dict(), "steps": steps.state_dict()}, checkpoint_id=folder)

    x, labels = task.batch(99, 0, 1000)
    with torch.no_grad():
        accuracy = (model(x, labels)["logits"].argmax(1) == labels).float().mean()
    if dist.get_rank() == 0:
        print(f"accuracy {accuracy:.3f}, {steps.stats()['total_bytes_up']} bytes sent to other sites")
    steps.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
