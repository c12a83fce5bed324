"""Trains a small GPT by policy gradient in one process, and samples from it in another.

    python examples/weights/policy_gradient.py

The sampler continues a random number, and the reward counts each number that is one more than the
number before it. After every step the trainer publishes its weights in a folder, as a delta, and
the sampler follows the folder. Halfway the sampler is killed. A new one starts from the first
weights, and continues from the newest version. At the end both have the same weights, bit for bit.
"""

import argparse
import hashlib
import multiprocessing
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import gradwire.delta as delta

NUMBERS, LENGTH, WIDTH, BATCH = 16, 12, 64, 64
PROCESSES = multiprocessing.get_context("spawn")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        heads = self.qkv(self.norm1(x)).unflatten(-1, (3, 4, WIDTH // 4)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    """Two blocks, 103 thousand parameters, the same on every machine at the start."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__()
        self.tokens, self.places = nn.Embedding(NUMBERS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, NUMBERS)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x))).float()


def exported(model):
    """What samplers use: the weights of the trainer in bfloat16."""
    return {name: weights.to(torch.bfloat16) for name, weights in model.state_dict().items()}


def digest(weights):
    data = (weights[name].view(torch.int16).numpy().tobytes() for name in sorted(weights))
    return hashlib.sha256(b"".join(data)).hexdigest()[:16]


def sampler(folder, pipe):
    """For each seed that comes: takes the newest weights, samples, and sends the numbers back."""
    model = Gpt().to(torch.bfloat16)
    # The receiver writes into the tensors of the model.
    receiver, published = delta.Receiver(model.state_dict()), delta.Folder(folder)
    while True:
        torch.manual_seed(pipe.recv())
        if published.latest is not None:
            receiver.follow(published)
        tokens = torch.randint(NUMBERS, (BATCH, 1))
        with torch.no_grad():
            while tokens.shape[1] < LENGTH:
                following = torch.distributions.Categorical(logits=model(tokens)[:, -1]).sample()
                tokens = torch.cat([tokens, following[:, None]], 1)
        pipe.send((tokens.tolist(), receiver.version, digest(model.state_dict())))


def start(folder):
    here, there = PROCESSES.Pipe()
    process = PROCESSES.Process(target=sampler, args=(folder, there), daemon=True)
    process.start()
    return process, here


def learn(model, optimizer, tokens):
    """A step of REINFORCE, with the mean reward of a place as baseline; returns the mean reward."""
    rewards = (tokens[:, 1:] == (tokens[:, :-1] + 1) % NUMBERS).float()
    scores = functional.log_softmax(model(tokens[:, :-1]), -1)
    chosen = scores.gather(-1, tokens[:, 1:, None])[..., 0]
    optimizer.zero_grad()
    (-(rewards - rewards.mean(0)) * chosen).sum(1).mean().backward()
    optimizer.step()
    return rewards.mean().item()


def train(folder, steps):
    model = Gpt()
    sender, published = delta.Sender(exported(model)), delta.Folder(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0)
    process, pipe = start(folder)
    size = sum(weights.nbytes for weights in exported(model).values())
    for step in range(steps):
        if step == steps // 2:
            process.kill()
            process.join()
            process, pipe = start(folder)
            print(f"step {step}: killed the sampler, started a new one")
        pipe.send(step)
        tokens, version, _ = pipe.recv()
        assert version == step
        reward = learn(model, optimizer, torch.tensor(tokens))
        sent = published.publish(sender.diff(exported(model)), keep=20, snapshot_every=10)
        sender.commit()
        if step % 10 == 9:
            print(f"step {step + 1}: reward {reward:.2f}, {sent} of {size} bytes")
    pipe.send(steps)
    _, version, received = pipe.recv()
    process.kill()
    assert received == digest(exported(model))
    print(f"equal weights {received} at version {version}, reward {reward:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--folder", type=Path, help="an empty folder for the deltas; by default a temporary one")
    options = parser.parse_args()
    if options.steps < 1:
        parser.error("--steps must be at least 1")
    with tempfile.TemporaryDirectory() as temporary:
        train(str(options.folder or temporary), options.steps)
