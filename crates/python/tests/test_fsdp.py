"""Tests compression in models that ``fully_shard`` has sharded, beside FSDP2 alone."""

import io

import numpy
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import gradwire
import gradwire.torch
from models import Net, data
from test_compressors import SLOW
from world import outcomes, ranks


class Branches(nn.Module):
    """Two nets of which a step may use one, and a head with fewer rows than there are ranks, of which some are empty."""

    def __init__(self):
        super().__init__()
        # 33 rows cannot be divided by two or four ranks.
        self.nets = nn.ModuleList([Net(outputs=33), Net(outputs=33)])
        self.gate = nn.Linear(33, 1)
        self.head = nn.Linear(33, 10)

    def forward(self, x, which=0):
        hidden = torch.relu(self.nets[which](x))
        return self.head(hidden * torch.sigmoid(self.gate(hidden)))


def shard(mesh, **options):
    """A model of three units: a layer, the rest of a net, and the rest."""
    torch.manual_seed(0)
    model = Branches()
    for module in (model.nets[0].first, model.nets[0], model):
        fully_shard(module, mesh=mesh, **options)
    return model


def train(model, optimizer, rank, steps, unused=False):
    losses = []
    for step in steps:
        x, labels = data(rank, step)
        optimizer.zero_grad()
        scores = model(x, step % 2) if unused else model(x)
        loss = nn.functional.cross_entropy(scores.float(), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def whole(model):
    return torch.cat([p.full_tensor().detach().float().reshape(-1) for p in model.parameters()]).numpy()


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def run(rank, size, compressor, options, fsdp, unused):
    model = shard(init_device_mesh("cpu", (size,)), **fsdp)
    handle = gradwire.torch.fsdp.register(model, compressor, **options) if compressor else None
    losses = train(model, adam(model), rank, range(8), unused)
    return whole(model), losses, handle and (handle.step, handle.stats())


POLICIES = [
    {},
    {"reshard_after_forward": False},
    {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)},
]


@pytest.mark.parametrize("fsdp", POLICIES)
def test_none_has_the_bits_of_fsdp_alone(fsdp):
    plain, found = ranks(2, run, None, {}, fsdp, False), ranks(2, run, "none", {}, fsdp, False)
    for (expected, losses, _), (parameters, others, (steps, stats)) in zip(plain, found):
        assert (parameters == expected).all() and others == losses
        assert steps == 8 and stats["step"] == 7


@pytest.mark.parametrize("size, dtype", [(3, torch.float32), (2, torch.bfloat16), (2, torch.float16)])
def test_none_equals_fsdp_alone_where_sums_are_rounded(size, dtype):
    fsdp = {"mp_policy": MixedPrecisionPolicy(reduce_dtype=dtype)}
    plain, found = ranks(size, run, None, {}, fsdp, False), ranks(size, run, "none", {}, fsdp, False)
    tolerance = 1e-5 if dtype == torch.float32 else 0.02
    for (_, losses, _), (parameters, others, _) in zip(plain, found):
        numpy.testing.assert_allclose(others, losses, atol=tolerance)
        assert (parameters == found[0][0]).all()


def test_a_step_may_leave_parameters_out():
    # Every other step uses one net and not the other; ranks agree which.
    plain = ranks(2, run, None, {}, {}, True)
    found = ranks(2, run, "none", {}, {}, True)
    assert (found[0][0] == plain[0][0]).all()
    compressed = ranks(2, run, "topk:ratio=0.1", {}, {}, True)
    assert (compressed[0][0] == compressed[1][0]).all()


def test_bytes_are_those_of_the_other_ranks_shards():
    parameters = sum(p.numel() for p in Branches().parameters()) - sum(p.numel() for p in Net(outputs=33).parameters())
    for size in (2, 4):
        sent = [stats["bytes_up"] for _, _, (_, stats) in ranks(size, run, "none", {}, {}, False)]
        # Of four bytes each; all ranks together send every element to all but its owner.
        assert 4 * parameters * (size - 1) < sum(sent) < 1.05 * 4 * parameters * (size - 1) + 1000 * size
    ((_, losses, (_, stats)), _) = ranks(2, run, "3lc", {}, {}, False)
    assert stats["ratio"] > 9 and losses[-1] < losses[0]


def every_compressor(rank, size, specs):
    found = {}
    for spec in specs:
        torch.manual_seed(1)
        model = Net()
        fully_shard(model.first)
        fully_shard(model)
        handle = gradwire.torch.fsdp.register(model, spec, seed=1)
        losses = train(model, torch.optim.SGD(model.parameters(), lr=0.05), rank, range(25))
        found[spec] = (losses, whole(model), handle.stats()["message_bytes"])
    return found


def test_every_compressor_lowers_the_loss():
    specs = [entry["id"] for entry in gradwire.list()]
    one, two = ranks(2, every_compressor, specs, timeout=300)
    for spec in specs:
        (losses, parameters, size), (_, same, _) = one[spec], two[spec]
        assert (parameters == same).all() and size > 0, spec
        best = numpy.mean(losses[-5:]) / numpy.mean(losses[:2])
        assert best < (0.97 if spec in SLOW else 0.9), f"{spec}: {losses[0]} to {losses[-1]}"


def accumulate(rank, size, compressor):
    model = shard(init_device_mesh("cpu", (size,)))
    handle = gradwire.torch.fsdp.register(model, compressor) if compressor else None
    optimizer = adam(model)
    for step in range(4):
        optimizer.zero_grad()
        for part in range(3):
            model.set_requires_gradient_sync(part == 2)
            x, labels = data(rank, 3 * step + part, batch=20 + rank)
            nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    return whole(model), handle and handle.step


def test_accumulated_gradients_are_one_step():
    plain, found = ranks(2, accumulate, None), ranks(2, accumulate, "none")
    assert (found[0][0] == plain[0][0]).all() and found[0][1] == 4
    compressed = ranks(2, accumulate, "3lc")
    assert (compressed[0][0] == compressed[1][0]).all() and compressed[0][1] == 4


def resumed(rank, size, steps, saved, folder):
    model = shard(init_device_mesh("cpu", (size,)))
    handle = gradwire.torch.fsdp.register(model, "3lc:s=1.5")
    optimizer = adam(model)
    if saved:
        # Makes the optimizer's state, which distributed checkpoints fill.
        train(model, optimizer, rank, [99])
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "gradwire": handle.state_dict()}
        dcp.load(state, checkpoint_id=folder)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        handle.load_state_dict(state["gradwire"])
    train(model, optimizer, rank, steps)
    if not saved:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "gradwire": handle.state_dict()}
        dcp.save(state, checkpoint_id=folder)
    return whole(model), handle.step


def test_a_distributed_checkpoint_resumes_bit_for_bit(tmp_path):
    expected = ranks(2, resumed, range(8), False, str(tmp_path / "whole"))
    ranks(2, resumed, range(5), False, str(tmp_path / "half"))
    found = ranks(2, resumed, range(5, 8), True, str(tmp_path / "half"))
    assert (found[0][0] == expected[0][0]).all() and found[0][1] == expected[0][1] == 8


def moved(rank, size, steps, states):
    model = shard(init_device_mesh("cpu", (size,)))
    handle = gradwire.torch.fsdp.register(model, "topk:ratio=0.05")
    if states:
        handle.load_state_dict([torch.load(io.BytesIO(one), weights_only=True) for one in states])
    losses = train(model, adam(model), rank, steps)
    file = io.BytesIO()
    torch.save(handle.state_dict(), file)
    return file.getvalue(), losses, handle.step


def test_residuals_move_to_another_number_of_ranks():
    states = [one[0] for one in ranks(3, moved, range(4), None)]
    found = ranks(2, moved, range(4, 8), states)
    assert found[0][2] == 8 and numpy.isfinite(found[0][1]).all()
    ((kind, name, message, _), _) = outcomes(2, moved, range(4, 8), states[:2])
    assert (kind, name) == ("error", "ConfigError") and "all 3 ranks" in message


def between_nodes(rank, size, compressor, native):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("nodes", "shards"))
    model = shard(mesh if native else mesh["shards"])
    handle = None if native else gradwire.torch.fsdp.register(model, compressor, replicas=mesh["nodes"])
    losses = train(model, adam(model), rank, range(8))
    return whole(model), losses, handle and handle.stats()


def test_replicas_average_their_shards():
    expected = ranks(4, between_nodes, None, True)
    found = ranks(4, between_nodes, "none", False)
    for (parameters, _, _), (own, _, _) in zip(expected, found):
        numpy.testing.assert_allclose(own, parameters, rtol=1e-4, atol=1e-5)
    for compressor in ("3lc", "powersgd:rank=1"):
        compressed = ranks(4, between_nodes, compressor, False)
        assert all((one[0] == compressed[0][0]).all() for one in compressed)
        assert compressed[0][1][-1] < compressed[0][1][0]
        assert compressed[0][2]["bytes_up"] < 0.4 * found[0][2]["bytes_up"]


def test_gathered_parameters_are_compressed():
    exact = ranks(2, run, "none", {}, {}, False)
    same = ranks(2, run, "none", {"parameters": "none"}, {}, False)
    assert (same[0][0] == exact[0][0]).all()
    size = same[0][2][1]["parameter_total_bytes_up"]
    for compressor, ratio in (("fp16", 1.9), ("int8", 3.5)):
        found = ranks(2, run, "none", {"parameters": compressor}, {}, False)
        assert (found[0][0] == found[1][0]).all()
        assert size > ratio * found[0][2][1]["parameter_total_bytes_up"]
        numpy.testing.assert_allclose(found[0][1], exact[0][1], atol=0.05)
    # Kept after the forward pass, they are gathered once a step.
    kept = ranks(2, run, "none", {"parameters": "none"}, {"reshard_after_forward": False}, False)
    assert kept[0][2][1]["parameter_total_bytes_up"] < 0.7 * size


def refused(rank, size, case):
    mesh = init_device_mesh("cpu", (size,))
    register = gradwire.torch.fsdp.register
    if case == "plain":
        register(Net())
    elif case == "columns":
        model = Net()
        fully_shard(model, mesh=mesh, shard_placement_fn=lambda p: torch.distributed.tensor.Shard(p.ndim - 1))
        register(model)
    elif case == "exchange":
        register(shard(mesh), exchange="all-gather")
    elif case == "every":
        register(shard(mesh), "sbc2")
    elif case == "python":
        register(shard(mesh), object())
    elif case == "mesh":
        replicated = init_device_mesh("cpu", (1, size), mesh_dim_names=("nodes", "shards"))
        register(shard(replicated), replicas=torch.distributed.group.WORLD)
    elif case == "factor":
        model = shard(mesh)
        register(model)
        model.set_gradient_divide_factor(3.0)
        train(model, adam(model), rank, range(1))
    elif case == "ddp":
        gradwire.torch.register(nn.parallel.DistributedDataParallel(Net()), exchange="reduce-scatter")


@pytest.mark.parametrize(
    "case, text",
    [
        ("plain", "call fully_shard first"),
        ("columns", "sharded over dimension 1"),
        ("exchange", "needs replicas"),
        ("every", "use gradwire.torch.LocalSteps"),
        ("python", "DistributedDataParallel only"),
        ("mesh", "mesh of one dimension"),
        ("factor", "multiply the loss"),
        ("ddp", "gradwire.torch.fsdp.register"),
    ],
)
def test_what_cannot_work_is_refused(case, text):
    for outcome in outcomes(2, refused, case):
        assert outcome[:2] == ("error", "ConfigError") and text in outcome[2], outcome
