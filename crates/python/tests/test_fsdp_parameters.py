"""Tests parameters that FSDP2 treats in another way than most: unused ones, other dimensions,
complex numbers, several meshes."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_common
from torch.distributed.tensor import Shard, distribute_tensor

import gradwire
import gradwire.torch
from device import DEVICE
from gradwire.torch._tensors import as_reals
from models import Net, data
from sharded import FILLS_IN, whole
from world import in_turn, outcomes, ranks


class Experts(nn.Module):
    """Experts of the same size, of which a step may use some, between layers that all ranks use."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 16)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.last = nn.Linear(16, 10)

    def forward(self, x, use):
        x = self.first(x)
        return self.last(x + sum(self.experts[at](x) for at in use))


def experts(size):
    torch.manual_seed(0)
    model = Experts()
    for module in (model.experts[0], model.experts[3]):
        fully_shard(module)
    fully_shard(model, mesh=init_device_mesh(DEVICE.type, (size,)))
    return model


def train(model, rank, uses):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, use in enumerate(uses):
        x, labels = data(rank, step)
        nn.functional.cross_entropy(model(x, use), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    return whole(model)


def used(rank, size, uses, fills_in):
    model = experts(size)
    handle = gradwire.torch.fsdp.register(model, "none", deadline=120.0)
    if fills_in:
        model.set_reduce_scatter_unused_params(True)
    return train(model, rank, [one[rank] for one in uses]), handle.step


# What each of two ranks uses in each step. Experts 0 and 3 are modules of their own for FSDP2.
AGREED = [([0, 1, 2, 3],) * 2, ([0, 1, 3],) * 2, ([0, 2, 3],) * 2]
WITHOUT = "FSDPExperts without 'experts.{}.weight' and {} more"


@FILLS_IN
@pytest.mark.parametrize(
    "uses, texts",
    [
        # Of the same size, and exchanged by all ranks before.
        ([*AGREED, ([0, 1, 3], [0, 2, 3])], [f"{WITHOUT.format(2, 1)}, but rank 1 has gradients of {WITHOUT.format(1, 1)};"] * 2),
        ([*AGREED, ([0, 1, 2, 3], [0, 1, 3])], ["FSDPExperts, but another", f"{WITHOUT.format(2, 1)}, but another"]),
        ([([0, 3], [0, 1, 2, 3])], [f"{WITHOUT.format(1, 3)}, but rank 1 has gradients of FSDPExperts;"] * 2),
        # Modules of their own, which PyTorch does not tell apart.
        ([([0, 1, 2], [1, 2, 3])], ["FSDPLinear 'experts.0', but rank 1 has gradients of FSDPLinear 'experts.3';"] * 2),
        ([*AGREED, ([0, 1, 2], [1, 2, 3])], ["FSDPLinear 'experts.0', but another", "FSDPLinear 'experts.3', but another"]),
    ],
)
def test_ranks_that_use_other_experts_are_refused_at_once(uses, texts):
    for (kind, name, message, _), text in zip(outcomes(2, used, uses, False), texts):
        assert (kind, name) == ("error", "ConfigError"), message
        assert text in message and "model.set_reduce_scatter_unused_params(True)" in message, message


def ignoring_the_others(rank, size, uses):
    model = experts(size)
    model.set_reduce_scatter_unused_params(True)
    return train(model, rank, [one[rank] for one in uses]), None


@FILLS_IN
def test_ranks_may_use_other_experts_if_fsdp_fills_in_zeros():
    uses = [*AGREED, ([0, 1, 3], [0, 2, 3]), ([0, 1, 2, 3], [0, 3])]
    plain, found = in_turn(2, (ignoring_the_others, uses), (used, uses, True))
    assert found[0][1] == len(uses) and (found[0][0] == plain[0][0]).all()


class Fourier(nn.Module):
    """Complex parameters of one and two dimensions, whose rows cannot be divided by two or three
    ranks."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(torch.randn(31, 65, dtype=torch.complex64) / 8)
        self.scale = nn.Parameter(torch.randn(31, dtype=torch.complex64))

    def forward(self, x):
        return (x.to(torch.complex64) @ self.mix.T * self.scale).abs()


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.fourier, self.last = nn.Linear(64, 65), Fourier(), nn.Linear(31, 10)

    def forward(self, x):
        return self.last(self.fourier(self.first(x)))


def columns(parameter):
    """Matrices by columns, and vectors by elements."""
    return Shard(parameter.dim() - 1)


def of_kind(kind, size):
    """Models that FSDP2 alone trains, and what it needs."""
    torch.manual_seed(0)
    mesh = init_device_mesh(DEVICE.type, (size,))
    if kind == "complex":
        model = Mixed()
        fully_shard(model.fourier, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    model = Net(hidden=96, outputs=12)
    if kind == "columns":
        fully_shard(model.first, mesh=mesh, shard_placement_fn=columns)
        return fully_shard(model, mesh=mesh, shard_placement_fn=columns)
    # The same ranks, in two meshes of one module.
    other = DeviceMesh.from_group(dist.new_group(), DEVICE.type)
    return fully_shard(model, mesh=mesh, shard_placement_fn=matrices_on(other))


def matrices_on(mesh):
    """Shards matrices over another mesh, and by columns."""
    placement = _fsdp_common.ShardPlacementResult(placement=Shard(1), mesh_info=_fsdp_common.FSDPMeshInfo(mesh, shard_mesh_dim=0))
    return lambda parameter: placement if parameter.dim() == 2 else None


def runs(rank, size, kind, specs):
    """Parameters, losses and statistics after some steps, by compressors of gradients and
    parameters."""
    found = []
    for gradients, parameters in specs:
        model = of_kind(kind, size)
        handle = gradwire.torch.fsdp.register(model, gradients, parameters=parameters) if gradients else None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for step in range(4):
            x, labels = data(rank, step)
            loss = nn.functional.cross_entropy(model(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.reshard()
        end = torch.cat([as_reals(parameter.full_tensor()).flatten() for parameter in model.parameters()])
        found.append((end.detach(), losses, handle and (handle.step, handle.stats())))
    return found


SPECS = [(None, None), ("none", None), ("none", "none"), ("3lc", None), ("powersgd:rank=2", "int8"), ("none", "lossless")]


SEVERAL = pytest.mark.skipif(
    not hasattr(_fsdp_common, "ShardPlacementResult"), reason="in this version of PyTorch a module has one mesh"
)


@pytest.mark.parametrize("kind, size", [("complex", 2), ("complex", 3), ("columns", 2), pytest.param("meshes", 2, marks=SEVERAL)])
def test_what_fsdp_shards_is_averaged(kind, size):
    one, other = ranks(size, runs, kind, SPECS)[:2]
    plain, none, gathered, compressed, low, lossless = one
    for run in (none, gathered):
        # With more than two ranks sums are rounded in another order.
        torch.testing.assert_close(run[0], plain[0], rtol=0, atol=0 if size == 2 and kind != "complex" else 1e-5)
    assert torch.equal(lossless[0], gathered[0]) and lossless[1] == gathered[1]
    sent, raw = (run[2][1]["parameter_bytes_up"] for run in (lossless, gathered))
    assert sent < 0.97 * raw
    for mine, theirs in ((compressed, other[3]), (low, other[4])):
        assert torch.equal(mine[0], theirs[0]) and mine[1][-1] < mine[1][0] and mine[2][0] == 4
    assert compressed[2][1]["ratio"] > 5


def refused(rank, size, case):
    mesh = init_device_mesh(DEVICE.type, (1, size), mesh_dim_names=("shards", "experts"))
    model = Net()
    if case == "experts":
        model.first.weight = nn.Parameter(distribute_tensor(model.first.weight.detach(), mesh["experts"], [Shard(0)]))
        fully_shard(model, mesh=mesh["shards"])
    elif case == "meshes":
        fully_shard(model, mesh=mesh["shards"], shard_placement_fn=matrices_on(mesh["experts"]))
    gradwire.torch.fsdp.register(model)


@pytest.mark.parametrize(
    "case, texts",
    [
        ("experts", ["'first.weight' was a DTensor before fully_shard", "'experts'"]),
        pytest.param("meshes", ["'first.bias' of FSDPNet is sharded", "'first.weight' of FSDPNet over ranks [0, 1]"], marks=SEVERAL),
    ],
)
def test_what_another_mesh_distributes_is_refused(case, texts):
    for kind, name, message, _ in outcomes(2, refused, case):
        assert (kind, name) == ("error", "ConfigError") and all(text in message for text in texts), message


def saved(rank, size, columns, states):
    """A state after a step of a model sharded by columns or by rows, or the error of loading
    one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 96, bias=False))
    fully_shard(model, shard_placement_fn=(lambda parameter: Shard(1)) if columns else None)
    handle = gradwire.torch.fsdp.register(model, "topk:ratio=0.1", raw_below=0)
    model(data(rank, 0)[0]).square().sum().backward()
    if states is None:
        return handle.state_dict()
    handle.load_state_dict(states)
    return None


def test_residuals_of_other_shards_are_refused():
    rows, by_columns = in_turn(2, (saved, False, None), (saved, True, None))
    assert ranks(2, saved, True, by_columns) == [None] * 2
    for columns, states in ((True, rows), (False, by_columns)):
        for kind, name, message, _ in outcomes(2, saved, columns, states):
            assert (kind, name) == ("error", "StateError") and "the shard_placement_fn" in message, message
    # Columns of other widths have their elements in another order; rows have not.
    for kind, name, message, _ in outcomes(4, saved, True, by_columns):
        assert (kind, name) == ("error", "StateError") and "the number of ranks" in message, message
    assert ranks(4, saved, False, rows) == [None] * 4


def in_inference(rank, size):
    """Steps with forward passes in inference mode between them, of a model whose values are copied
    as those of a GPU are."""
    gradwire.torch._unit_exchanges._is_in_main_memory = lambda values: False
    trained = []
    for evaluates in (False, True):
        model = of_kind("columns", size)
        handle = gradwire.torch.fsdp.register(model, "none", parameters="int8")
        for step in range(3):
            x, labels = data(rank, step)
            nn.functional.cross_entropy(model(x), labels).backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()
            model.zero_grad()
            if evaluates:
                # The memory that later passes need, too, is allocated now.
                handle._parameters._pinned.clear()
                with torch.inference_mode():
                    model(x)
        model.reshard()
        trained.append(whole(model))
    return (trained[0] == trained[1]).all()


def test_forward_passes_in_inference_mode_change_nothing():
    assert all(ranks(2, in_inference))
