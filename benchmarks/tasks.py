"""The benchmark tasks: a CNN on MNIST, an LSTM and a GPT on Shakespeare, with data from
GRADWIRE_DATA."""

import gzip
import os
from pathlib import Path

import numpy
import torch
from torch import nn

from gpt import Gpt

# An upper bound of the steps of a run. Step MOST_STEPS·seed + n has the n-th batch of this seed.
MOST_STEPS = 1 << 20


def _folder(name):
    root = os.environ.get("GRADWIRE_DATA")
    folder = Path(root or ".") / name
    if root is None or not folder.is_dir():
        raise SystemExit(f"no data set {name}; set GRADWIRE_DATA to the folder that contains {name}/")
    return folder


def _idx(path, header):
    with gzip.open(path) as file:
        return numpy.frombuffer(file.read(), "uint8")[header:]


class Cnn(nn.Module):
    """Two convolutions and two fully connected layers: 207 thousand parameters."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        )
        self.classes = nn.Sequential(nn.Flatten(), nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, x):
        return self.classes(self.features(x))


class Mnist:
    """MNIST; measures accuracy on the first 1000 test images."""

    target, cap_steps, every = 0.95, 600, 10

    def __init__(self):
        folder = _folder("mnist")
        images = {
            part: torch.from_numpy(_idx(folder / f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28) / numpy.float32(255))
            for part in ("train", "t10k")
        }
        labels = {
            part: torch.from_numpy(_idx(folder / f"{part}-labels-idx1-ubyte.gz", 8).astype("int64"))
            for part in ("train", "t10k")
        }
        self.images, self.labels = images["train"], labels["train"]
        self.test = images["t10k"][:1000], labels["t10k"][:1000]

    def model(self):
        return Cnn()

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def loss(self, model, rank, step):
        at = torch.randint(0, len(self.labels), (32,), generator=torch.Generator().manual_seed(step * 64 + rank))
        return nn.functional.cross_entropy(model(self.images[at]), self.labels[at])

    def measure(self, model):
        images, labels = self.test
        return (model(images).argmax(1) == labels).float().mean().item()


class CharLstm(nn.Module):
    """An embedding, an LSTM and an output layer: 610 thousand parameters."""

    def __init__(self, characters):
        super().__init__()
        self.embedding = nn.Embedding(characters, 96)
        self.lstm = nn.LSTM(96, 320, batch_first=True)
        self.head = nn.Linear(320, characters)

    def forward(self, x):
        return self.head(self.lstm(self.embedding(x))[0])


class Shakespeare:
    """Next-character prediction; measures accuracy on 200 windows of the last tenth of the text."""

    target, cap_steps, every = 0.35, 600, 10

    def __init__(self):
        text = (_folder("tinyshakespeare") / "input.txt").read_bytes()
        characters, numbers = numpy.unique(numpy.frombuffer(text, "uint8"), return_inverse=True)
        self.characters = len(characters)
        self.text = torch.from_numpy(numbers.astype("int64"))
        self.train = len(text) * 9 // 10

    def model(self):
        return CharLstm(self.characters)

    def optimizer(self, model):
        return torch.optim.Adam(model.parameters(), lr=0.004)

    def _windows(self, starts):
        windows = torch.stack([self.text[start : start + 33] for start in starts.tolist()])
        return windows[:, :-1], windows[:, 1:]

    def loss(self, model, rank, step):
        generator = torch.Generator().manual_seed(step * 64 + rank)
        x, y = self._windows(torch.randint(0, self.train - 33, (8,), generator=generator))
        return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())

    def measure(self, model):
        x, y = self._windows(torch.arange(self.train, len(self.text) - 33, (len(self.text) - 33 - self.train) // 200))
        return (model(x).argmax(2) == y).float().mean().item()


class ShakespeareGpt(Shakespeare):
    """The same with a GPT of four layers, 810 thousand parameters, and AdamW; measures the negative
    loss."""

    target, cap_steps, every = -2.3, 1000, 20

    def model(self):
        model = Gpt(4, 4, 128, 64)
        for weights in model.parameters():
            if weights.dim() > 1:
                nn.init.normal_(weights, std=0.02)
        return model

    def optimizer(self, model):
        return torch.optim.AdamW(model.parameters(), lr=0.001)

    def loss(self, model, rank, step):
        starts = torch.randint(0, self.train - 65, (12,), generator=torch.Generator().manual_seed(step * 64 + rank))
        return model(self._whole(starts))

    def _whole(self, starts):
        return torch.stack([self.text[start : start + 65] for start in starts.tolist()])

    def measure(self, model):
        return -self.test_loss(model)

    def test_loss(self, model):
        """The mean loss of 256 windows of the last tenth of the text."""
        last = len(self.text) - 65
        starts = torch.arange(self.train, last, (last - self.train) // 255)
        return model(self._whole(starts)).item()


TASKS = {"cnn": Mnist, "lstm": Shakespeare, "gpt": ShakespeareGpt}
