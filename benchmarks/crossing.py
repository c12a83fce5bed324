"""Measures the cost of a call from Python to Rust in microseconds, as the minimum of many runs."""

import os
import timeit

import torch
import torch.distributed as dist

from gradwire import _core
from gradwire._arrays import buffer
from gradwire.torch import _setup


def cost(name, call, number=2000):
    least = min(timeit.repeat(call, number=number, repeat=30)) / number
    print(f"{name}: {1e6 * least:.2f}")


def main():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29473", RANK="0", WORLD_SIZE="1")
    dist.init_process_group("gloo")
    tensor = torch.zeros(16)
    where = buffer(tensor)
    exchange = _setup.exchange([("w", tensor)], "none", None)
    group = exchange.group(["w"])
    done = dict.clear.__get__({})

    cost("address, length and type of a tensor", lambda: buffer(tensor))
    cost("an attribute", lambda: exchange.rank)
    cost("submit an average", lambda: exchange.average(group, 0, where, done))
    exchange.wait()
    cost("parse and print a spec", lambda: _core.canonical("none"))
    cost("a frame of 16 elements", lambda: _core.encode(where, (16,), "none", "w", 0, 0, 0))
    os._exit(0)


if __name__ == "__main__":
    main()
