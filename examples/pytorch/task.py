"""The task of the with_*.py examples: a small network learns the nearest of ten directions to a
point."""

import argparse

import torch
from torch import nn


class Net(nn.Module):
    """Two layers, 7 thousand parameters; returns the loss and the scores."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 96), nn.LayerNorm(96), nn.ReLU(), nn.Linear(96, 10))

    def forward(self, x, labels):
        scores = self.layers(x)
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


def batch(rank, step, size=32):
    """Points and the numbers of their directions; they differ between ranks and steps."""
    directions = torch.randn(10, 64, generator=torch.Generator().manual_seed(5))
    generator = torch.Generator().manual_seed(1000 * step + rank)
    labels = torch.randint(0, 10, (size,), generator=generator)
    return directions[labels] + 0.7 * torch.randn(size, 64, generator=generator), labels


def model():
    """The network with the same initial weights on every rank."""
    torch.manual_seed(0)
    return Net()


def run(train, description):
    """Runs ``train(folder, steps, resume)``, which returns the model, and prints the accuracy on
    new points."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="checkpoints", help="where checkpoints are")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    options = parser.parse_args()
    trained = train(options.folder, options.steps, options.resume)
    x, labels = batch(99, 0, 1000)
    with torch.no_grad():
        accuracy = (trained.cpu()(x, labels)["logits"].argmax(1) == labels).float().mean()
    print(f"accuracy {accuracy:.3f}")
