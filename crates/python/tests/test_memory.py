"""Tests that a large bucket only needs memory for its residual and for messages, and none if it is
uncompressed, and that the means are right then."""

import resource
import sys

import torch

from gradwire._arrays import buffer
from gradwire.torch._channel import Channel, private_groups
from gradwire.torch._options import Options
from world import ranks

# Of which a copy would be twice the room for other memory.
ELEMENTS = 8_000_000


def peak():
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def average(rank, size, compressor):
    exchange = Options(compressor).reducer([("w", torch.empty(2500, 3200))], Channel(private_groups()))
    tensor = torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(rank))
    tensor_group = exchange.tensor_group(["w"])
    before = peak()
    exchange.average(tensor_group, 0, buffer(tensor), lambda: None)
    exchange.wait()
    return peak() - before, exchange.stats()["message_bytes"]


def test_a_large_bucket_needs_its_residual_and_messages():
    for compressor in ("int8", "3lc", "topk:ratio=0.01", "sbc:p=0.001"):
        for more, message in ranks(2, average, compressor):
            # The message, its copy that is being sent, and one that is being received; 16 MiB for
            # the buffers of incoming parts, the allocator and the thread.
            assert more < 4 * ELEMENTS + 3 * message + (16 << 20), (compressor, more, message)


def test_uncompressed_values_are_averaged_in_place():
    for more, message in ranks(2, average, "none"):
        assert message == 4 * ELEMENTS and more < 16 << 20, more


def means(rank, size):
    """Means of values that are sent from their place, in messages of several parts."""
    # A rank's part is a mebibyte and some elements longer.
    elements = size * (1 << 18) + 1001
    exchange = Options("none").reducer([("w", torch.empty(elements))], Channel(private_groups()))
    tensor_group, numbers = exchange.tensor_group(["w"]), torch.arange(elements, dtype=torch.float32) % 1013
    for step in range(2):
        # Whole numbers, whose sum is divisible by the number of ranks.
        values = numbers * (rank + 1) + size * step
        exchange.average(tensor_group, step, buffer(values), lambda: None)
        exchange.wait()
        assert torch.equal(values, numbers * (size + 1) / 2 + size * step), step
        # Nothing reads them any more.
        values.fill_(torch.nan)


def test_means_of_values_that_are_sent_from_their_place_are_exact():
    ranks(3, means)
