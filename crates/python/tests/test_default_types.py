"""Tests that no exchange depends on the default type of PyTorch, which a script may change."""

import copy
import importlib.util

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
from device import DEVICE
from models import Net, data
from test_traffic import warned
from world import ranks

TYPES = [torch.float32, torch.bfloat16, torch.float64]


# Initial values would differ under another default type.
START = Net()


def net():
    return copy.deepcopy(START).to(DEVICE)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


class Exact:
    """A compressor written in Python that sends float32."""

    def compress(self, tensor):
        assert tensor.dtype == torch.float32
        return tensor.numpy().tobytes()

    def decompress(self, message, shape):
        return torch.frombuffer(bytearray(message), dtype=torch.float32).view(shape)


def backward(model, batch):
    x, labels = batch
    torch.nn.functional.cross_entropy(model(x), labels).backward()


def on_nodes(batch):
    told = warned(lambda: gradwire.torch.register(DistributedDataParallel(net()), "none", nodes=2))
    model = DistributedDataParallel(net())
    handle = gradwire.torch.register(model, "none", nodes=2)
    backward(model, batch)
    sent = handle.stats()["bytes_up"], handle.stats()["inside_bytes_up"]
    text = str(handle.describe())
    handle.close()
    return told, text, sent, [one.grad.clone() for one in model.parameters()]


def on_sites(batch, mesh):
    model = net()
    fully_shard(model, mesh=mesh["shards"])
    steps = gradwire.torch.LocalSteps(model, sgd(model), 1, "none", process_group=mesh["sites"])
    backward(model, batch)
    steps.step()
    steps.load_state_dict(steps.state_dict())
    found = str(steps.describe()), steps.stats()["bytes_up"], steps._replica.common.clone()
    steps.close()
    return found


def locally(batch, compressor):
    model = net()
    steps = gradwire.torch.LocalSteps(model, sgd(model), 1, compressor)
    backward(model, batch)
    steps.step()
    steps.close()
    return [one.detach().clone() for one in model.parameters()]


def tokens():
    rows = torch.linspace(-1, 1, 64, dtype=torch.float32).view(4, 16).repeat(2, 1)
    return gradwire.torch.all_to_all_single(torch.empty_like(rows), rows)


def under_each_type(rank, size):
    mesh, batch = init_device_mesh(DEVICE.type, (2, 2), mesh_dim_names=("sites", "shards")), data(rank, 0)
    found = []
    for dtype in TYPES:
        torch.set_default_dtype(dtype)
        one = [on_nodes(batch), locally(batch, "topk:ratio=0.1"), locally(batch, Exact()), tokens()]
        found.append(one + [on_sites(batch, mesh)] if hasattr(FSDPModule, "set_custom_reduce_scatter") else one)
    return found


def flat(found):
    return [each for one in found for each in flat(one)] if isinstance(found, (list, tuple)) else [found]


def test_exchanges_do_not_depend_on_the_default_type():
    for first, *others in ranks(4, under_each_type):
        for dtype, other in zip(TYPES[1:], others):
            for a, b in zip(flat(first), flat(other)):
                same = a.dtype == b.dtype and torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
                assert same, (dtype, a, b)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
def test_tables_of_kernels_do_not_depend_on_the_default_type():
    from gradwire.torch.cuda import eden, tree
    from gradwire.torch.cuda._batch import Batch, Slot

    batch = Batch([Slot("w", (4096, 2), 0, 0)], torch.device("cpu"))
    for dtype in TYPES:
        torch.set_default_dtype(dtype)
        try:
            assert [one.dtype for one in eden._tables(2, batch)[1:]] == [torch.float32] * 2
            assert tree._tables(batch).limits.dtype == torch.float32
        finally:
            torch.set_default_dtype(torch.float32)
