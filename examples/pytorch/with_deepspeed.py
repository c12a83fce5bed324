"""Trains with DeepSpeed's ZeRO and compressed gradients, saves a checkpoint, and resumes from it
with --resume.

    torchrun --nproc-per-node 2 examples/pytorch/with_deepspeed.py --steps 100
"""

import deepspeed
import task
import torch.distributed as dist

import gradwire.torch


def config(stage, more):
    """The settings of DeepSpeed."""
    return {
        "train_micro_batch_size_per_gpu": 32,
        "optimizer": {"type": "Adam", "params": {"lr": 0.003, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        **more,
    }


def train(folder, steps, resume, stage=2, compressor="3lc", **more):
    if not dist.is_initialized():
        gradwire.torch.configure(compressor, raw_below=1000)
        dist.init_process_group("gradwire")
    net = task.model()
    engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config(stage, more))
    if resume:
        _, saved = engine.load_checkpoint(folder)
        gradwire.torch.load_state_dict(saved["gradwire"])
    for step in range(engine.global_steps, steps):
        loss = engine(*task.batch(dist.get_rank(), step))["loss"]
        # DeepSpeed exchanges some gradients after the backward pass.
        with gradwire.torch.gradients():
            engine.backward(loss)
        engine.step()
    # The residuals of all ranks.
    engine.save_checkpoint(folder, client_state={"gradwire": gradwire.torch.state_dict(all_ranks=True)})
    if dist.get_rank() == 0:
        print(*gradwire.torch.describe(), sep="\n")
    return net


if __name__ == "__main__":
    task.run(train, __doc__)
