"""Measures the cost of a call from Python to Rust, in microseconds: the minimum of many runs."""

import os
import timeit
from functools import partial

import torch
import torch.distributed as dist

from gradwire import _core
from gradwire._arrays import buffer
from gradwire.torch._channel import connect
from gradwire.torch._options import Options


def cost(name, call, number=2000):
    least = min(timeit.repeat(call, number=number, repeat=30)) / number
    print(f"{name}: {1e6 * least:.2f}")


def main():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    dist.init_process_group("gloo")
    tensor = torch.zeros(16)
    where = buffer(tensor)
    options = Options("none")
    reducer, _ = connect(None, partial(options.reducer, [("w", tensor)]), options.deadline, "crossing.py")
    tensor_group = reducer.tensor_group(["w"])
    done = dict.clear.__get__({})

    cost("address, length and type of a tensor", lambda: buffer(tensor))
    cost("an attribute", lambda: reducer.rank)
    cost("submit an average", lambda: reducer.average(tensor_group, 0, where, done))
    reducer.wait()
    cost("parse and print a spec", lambda: _core.canonical("none"))
    cost("a frame of 16 elements", lambda: _core.encode(where, (16,), "none", "w", 0, 0, 0))
    os._exit(0)


if __name__ == "__main__":
    main()
