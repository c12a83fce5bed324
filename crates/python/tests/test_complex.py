"""Tests of complex parameters, as of Fourier neural operators."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from gradwire.torch._tensors import as_reals, shape_of
from models import exchange_bytes
from world import in_turn


class Spectral(nn.Module):
    """A layer that multiplies frequencies by complex weights, and a real one."""

    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(24, 33, dtype=torch.complex64) / 8)
        self.phase = nn.Parameter(torch.ones(33, dtype=torch.complex64))
        self.gain = nn.Parameter(torch.ones((), dtype=torch.complex64))
        self.out = nn.Linear(24, 8)

    def forward(self, x):
        spectrum = torch.fft.rfft(x, norm="ortho") * self.phase
        return self.out((spectrum @ self.weights.T * self.gain).abs())


class Halves:
    """A compressor of a user: every value as float16."""

    def compress(self, tensor):
        assert not tensor.is_complex()
        return tensor.to(torch.float16).numpy().tobytes()

    def decompress(self, message, shape):
        return torch.frombuffer(bytearray(message), dtype=torch.float16).view(shape)


def trained(rank, size, compressor, steps=20):
    torch.manual_seed(3)
    model = DistributedDataParallel(Spectral(), bucket_cap_mb=0.001)
    handle = None if compressor is None else gradwire.torch.register(model, compressor)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    losses = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(100 * step + rank)
        x = torch.randn(16, 64, generator=generator)
        loss = ((model(x) - x[:, :8]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = b"".join(as_reals(one.detach()).numpy().tobytes() for one in model.parameters())
    if handle is None:
        return weights, losses, None
    # A residual has a place for each real.
    saved = handle.state_dict()
    handle.load_state_dict(saved)
    assert exchange_bytes(handle.state_dict()) == exchange_bytes(saved)
    return weights, losses, {one.name: (one.elements, one.compressor) for one in handle.describe().tensors}


def test_uncompressed_complex_gradients_are_averaged_as_by_ddp():
    plain, none = in_turn(2, (trained, None), (trained, "none"))
    assert {weights for weights, *_ in plain} == {weights for weights, *_ in none}
    assert len({weights for weights, *_ in none}) == 1


def test_complex_gradients_are_compressed_as_pairs_of_reals():
    compressors = ("eden:bits=4", "3lc", Halves())
    ((_, plain, _), _), *compressed = in_turn(2, (trained, None), *((trained, compressor) for compressor in compressors))
    for compressor, results in zip(compressors, compressed):
        assert len({weights for weights, *_ in results}) == 1
        _, losses, tensors = results[0]
        assert abs(sum(losses[-5:]) - sum(plain[-5:])) < 0.1 * sum(plain[-5:]), (compressor, losses, plain)
        assert tensors["weights"][0] == 2 * 24 * 33 and tensors["gain"][0] == 2
        if isinstance(compressor, str):
            # A vector stays one, and is sent uncompressed.
            assert tensors["weights"][1] == compressor and tensors["phase"] == (66, "none")


def test_shapes_of_complex_parameters_keep_their_number_of_dimensions():
    shapes = {(): (2,), (5,): (10,), (3, 4): (3, 8), (2, 3, 4): (2, 3, 8)}
    for shape, expected in shapes.items():
        assert shape_of(torch.zeros(shape, dtype=torch.complex64)) == expected
        assert shape_of(torch.zeros(shape)) == shape
