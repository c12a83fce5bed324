"""Trains a small network on MNIST with DistributedDataParallel and compressed gradients.

    torchrun --nproc-per-node 2 examples/pytorch/mnist_ddp.py --data DIR

DIR contains the gzipped idx files of MNIST. Without --data the script generates images.
"""

import argparse
import gzip
import itertools
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import gradwire.torch


def mnist(folder):
    def read(name, header):
        with gzip.open(folder / name) as file:
            return numpy.frombuffer(file.read(), "uint8")[header:]

    images = read("train-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28) / numpy.float32(255)
    labels = read("train-labels-idx1-ubyte.gz", 8).astype("int64")
    return TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))


def generated():
    """Generates images of ten shapes with noise and random shifts."""
    generator = torch.Generator().manual_seed(0)
    shapes = nn.functional.interpolate((torch.rand(10, 1, 4, 4, generator=generator) > 0.5).float(), size=24)
    labels = torch.randint(0, 10, (6000,), generator=generator)
    images = 0.3 * torch.rand(6000, 1, 28, 28, generator=generator)
    for at, (image, label) in enumerate(zip(images, labels)):
        y, x = at % 5, at // 5 % 5
        image[:, y : y + 24, x : x + 24] += 0.7 * shapes[label]
    return TensorDataset(images, labels)


def epochs(data):
    """Batches of one epoch after the other, without end."""
    sampler = DistributedSampler(data)
    batches = DataLoader(data, batch_size=32, sampler=sampler, drop_last=True)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        yield from batches


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with the files of MNIST; by default images are generated")
    parser.add_argument("--compressor", default="eden")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    if options.data is not None and not options.data.is_dir():
        parser.error(f"there is no folder {options.data}; give --data the folder of MNIST, or leave it out to generate images")

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(16, 32, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
    )
    model = DistributedDataParallel(net)
    handle = gradwire.torch.register(model, options.compressor)

    data = generated() if options.data is None else mnist(options.data)
    if dist.get_rank() == 0:
        print("trains on generated images" if options.data is None else f"trains on the images in {options.data}")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    right = seen = 0
    for step, (images, labels) in enumerate(itertools.islice(epochs(data), options.steps)):
        scores = model(images)
        optimizer.zero_grad()
        nn.functional.cross_entropy(scores, labels).backward()
        optimizer.step()
        if step >= options.steps - 20:
            right += (scores.argmax(1) == labels).sum().item()
            seen += len(labels)
    if dist.get_rank() == 0:
        stats = handle.stats()
        print(f"accuracy {right / max(seen, 1):.3f}, {stats['total_bytes_up']} bytes sent, ratio {stats['ratio']:.0f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
