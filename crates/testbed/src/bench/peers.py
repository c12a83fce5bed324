# Times PyTorch's operations on one thread. Reads a line for each request, and answers each with a
# line.
import itertools
import signal
import sys
import time

# An interrupt ends the bench, which then closes the input of this process.
signal.signal(signal.SIGINT, signal.SIG_IGN)

import torch

LEAST = 0.002
WEIGHT = 0.25


def operations(name, elements):
    """What compresses a tensor and what adds the result to another, with buffers that are
    reused."""
    # Two tensors in turn, as in the bench, so that neither side finds its input in a nearer cache.
    inputs = itertools.cycle([torch.randn(elements).mul_(0.01) for _ in range(2)])
    out = torch.zeros(elements)
    if name == "qint8":

        def compress():
            x = next(inputs)
            low, high = torch.aminmax(x)
            scale = max(-low.item(), high.item()) / 127
            return torch.quantize_per_tensor(x, scale, 0, torch.qint8)

        message = compress()
        return compress, lambda: out.add_(message.dequantize(), alpha=WEIGHT)
    message = torch.empty(elements, dtype=getattr(torch, name))
    return lambda: message.copy_(next(inputs)), lambda: out.add_(message, alpha=WEIGHT)


def seconds(operation):
    times, start = 0, time.perf_counter()
    while times == 0 or time.perf_counter() - start < LEAST:
        operation()
        times += 1
    return (time.perf_counter() - start) / times


torch.set_num_threads(1)
print("ready", flush=True)
for line in sys.stdin:
    request, *rest = line.split()
    if request == "prepare":
        compress, add = operations(rest[0], int(rest[1]))
        for _ in range(8):
            compress()
            add()
        print("ready", flush=True)
    else:
        print(seconds(compress if request == "compress" else add), flush=True)
