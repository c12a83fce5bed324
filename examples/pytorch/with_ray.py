"""Trains with Ray Train and compressed gradients, with a checkpoint of every rank's residuals.

    python examples/pytorch/with_ray.py --steps 100
"""

import os
import tempfile
from pathlib import Path

import ray.train
import ray.train.torch
import task
import torch
from ray.train.torch import TorchTrainer

import gradwire.torch

WORKERS = 2


def on_every_worker(options):
    context = ray.train.get_context()
    rank = context.get_world_rank()
    net = task.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    # Ray wraps the model in DistributedDataParallel.
    model = ray.train.torch.prepare_model(net)
    # Ray's workers may outlive an error, so the block tells the other ranks.
    with gradwire.torch.register(model, "3lc") as handle:
        train_model(model, net, optimizer, handle, rank, options)


def train_model(model, net, optimizer, handle, rank, options):
    # If Ray has restarted the workers, it provides a checkpoint.
    checkpoint = ray.train.get_checkpoint() or options["checkpoint"]
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder) / "state.pt")
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        handle.load_state_dict(state["residuals"])
    for step in range(handle.step, options["steps"]):
        optimizer.zero_grad()
        model(*task.batch(rank, step))["loss"].backward()
        optimizer.step()
    # All ranks send their residuals, and the first saves them.
    state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "residuals": handle.state_dict(all_ranks=True)}
    with tempfile.TemporaryDirectory() as folder:
        if rank == 0:
            torch.save(state, Path(folder) / "state.pt")
        saved = ray.train.Checkpoint.from_directory(folder) if rank == 0 else None
        ray.train.report({"ratio": handle.stats()["ratio"]}, checkpoint=saved)


def train(folder, steps, resume):
    folder = Path(folder).absolute()
    examples = str(Path(__file__).parent)
    ray.init(num_cpus=WORKERS, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": examples}}, ignore_reinit_error=True)
    last = folder / "last"
    trainer = TorchTrainer(
        on_every_worker,
        train_loop_config={"steps": steps, "checkpoint": ray.train.Checkpoint(str(last)) if resume else None},
        scaling_config=ray.train.ScalingConfig(num_workers=WORKERS),
        run_config=ray.train.RunConfig(storage_path=str(folder), name=f"steps-{steps}"),
        torch_config=ray.train.torch.TorchConfig(backend="gloo"),
    )
    result = trainer.fit()
    if last.is_symlink():
        last.unlink()
    os.symlink(result.checkpoint.path, last)
    net = task.model()
    net.load_state_dict(torch.load(last / "state.pt")["model"])
    return net


if __name__ == "__main__":
    task.run(train, __doc__)
