"""Trains with Megatron-Core's DistributedDataParallel and optimizer, and compressed gradients.

    torchrun --nproc-per-node 2 examples/pytorch/with_megatron.py --steps 100
"""

import argparse
import os

import task
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.transformer import TransformerConfig

import gradwire.torch


def train(steps, distributed=True, overlap=True):
    """Trains; returns the model and the losses. ``distributed``: each rank has a part of the
    optimizer."""
    if not dist.is_initialized():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        gradwire.torch.configure("eden", raw_below=1000)
        # All groups compress gradients. With tensor or pipeline parallelism wrap only the group of
        # data parallelism.
        dist.init_process_group("cpu:gradwire,cuda:gradwire")
    if not parallel_state.is_initialized():
        parallel_state.initialize_model_parallel()
    net = task.model().cuda()
    transformer = TransformerConfig(num_layers=1, hidden_size=64, num_attention_heads=4)
    settings = DistributedDataParallelConfig(
        use_distributed_optimizer=distributed, overlap_grad_reduce=overlap, grad_reduce_in_fp32=True
    )
    model = DistributedDataParallel(transformer, settings, net)
    options = OptimizerConfig(optimizer="adam", lr=3e-3, use_distributed_optimizer=distributed, bf16=False, clip_grad=1.0)
    optimizer = get_megatron_optimizer(options, [model])
    losses = []
    for step in range(steps):
        x, labels = task.batch(dist.get_rank(), step)
        model.zero_grad_buffer()
        optimizer.zero_grad()
        loss = model(x.cuda(), labels.cuda())["loss"]
        loss.backward()
        # Without overlap, Megatron-Core exchanges gradients here. Its schedules call it by
        # themselves: put the block around forward_backward_func.
        with gradwire.torch.gradients():
            model.finish_grad_sync()
        optimizer.step()
        losses.append(loss.item())
    return net, losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    _, losses = train(parser.parse_args().steps)
    if dist.get_rank() == 0:
        print(*gradwire.torch.describe(), sep="\n")
        print(f"loss {sum(losses[-10:]) / len(losses[-10:]):.3f}")


if __name__ == "__main__":
    main()
