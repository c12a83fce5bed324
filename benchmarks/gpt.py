"""Compares the time of a training step of a GPT on one core: gradwire's trainer and PyTorch.

    python benchmarks/gpt.py --gradwire target/release/gradwire

Both train the same sizes with AdamW on 12 windows a step, on random characters. The time is the CPU
time of forward pass, backward pass, clipping and optimizer: the median over three runs of each,
without the first steps of a run. Needs torch.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional

SYMBOLS, BATCH = 65, 12
# The number of first steps of a run that are not counted.
COLD = 5


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.project(self.norm1(x)).split(width, 2)
        heads = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        y = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.join(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.contract(functional.gelu(self.expand(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, context, symbols=SYMBOLS):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(symbols, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, windows):
        inputs, targets = windows[:, :-1], windows[:, 1:]
        x = self.tokens(inputs) + self.positions.weight[: inputs.shape[1]]
        scores = self.norm(self.blocks(x)) @ self.tokens.weight.T
        return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


def torch_seconds(sizes, steps):
    torch.set_num_threads(1)
    model = Gpt(*sizes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    times = []
    for _ in range(steps):
        windows = torch.randint(SYMBOLS, (BATCH, sizes[3] + 1))
        start = time.process_time()
        optimizer.zero_grad()
        model(windows).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append(time.process_time() - start)
    return times


def gradwire_seconds(program, sizes, steps):
    layers, heads, width, context = sizes
    model = f"gpt:layers={layers},heads={heads},width={width},context={context}"
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        symbols = [chr(ord("0") + at) for at in range(SYMBOLS)]
        (folder / "text").mkdir()
        (folder / "text/random.txt").write_text("".join(random.choices(symbols, k=200_000)))
        command = [program, "train", "--model", model, "--data", folder / "text", "--workers", "1"]
        command += ["--exchange", "all-reduce", "--compressor", "none", "--steps", str(steps)]
        command += ["--evaluations", "1", "--out", folder / "run.json"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        trace = json.loads((folder / "run.json").read_text())["trace"]
    return [step["compute"] + step["update"] for step in trace]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gradwire", default="target/release/gradwire", help="the program")
    parser.add_argument("--steps", type=int, default=20, help="steps of each run that are counted")
    arguments = parser.parse_args()
    print("layers, heads, width, context | gradwire | torch | torch / gradwire")
    for sizes in [(4, 4, 128, 64), (6, 6, 192, 128)]:
        # In turn, so both see the same state of the machine.
        pairs = [
            (gradwire_seconds(arguments.gradwire, sizes, steps), torch_seconds(sizes, steps))
            for steps in [COLD + arguments.steps] * 3
        ]
        ours, theirs = (
            statistics.median(time for pair in pairs for time in pair[which][COLD:]) for which in (0, 1)
        )
        print(f"{sizes} | {ours * 1e3:.1f} ms | {theirs * 1e3:.1f} ms | {theirs / ours:.2f}")


if __name__ == "__main__":
    main()
