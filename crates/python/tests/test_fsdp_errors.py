"""Tests the errors for sharded models, and that they say what to do."""

import importlib.util

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import gradwire
import gradwire.torch
from gradwire._specs import check_quantizer, sample_side
from device import DEVICE
from models import Net, data
from sharded import FILLS_IN, Branches, adam, shard, train
from world import in_turn, outcomes, ranks, seconds_until_interrupted


def poisoned(rank, size, over):
    both = init_device_mesh(DEVICE.type, (1, size), mesh_dim_names=("nodes", "shards"))
    model = shard(both if over == "mesh" else both["shards"])
    gradwire.torch.fsdp.register(model, "3lc", replicas=both["nodes"] if over == "replicas" else None)
    loss = model(data(rank, 0)[0]).sum()
    (loss * float("nan")).backward()


@pytest.mark.parametrize("over, suggests", [(None, True), ("mesh", False), ("replicas", False)])
def test_skipping_is_suggested_only_where_it_is_possible(over, suggests):
    for failed in outcomes(2, poisoned, over):
        assert failed[1] == "NonFiniteError" and ("on_nonfinite" in failed[2]) == suggests, failed


def test_the_sample_of_a_quantizer_is_as_large_as_the_largest_tensor():
    # One norm per tensor: the error grows with the square root of the number of elements.
    for elements, fits in [(1000, True), (1 << 16, False), (1 << 30, False)]:
        side = sample_side(elements)
        sample = torch.randn((side, side), generator=torch.Generator().manual_seed(0))
        if fits:
            check_quantizer("parameters", "qsgd:bucket=0", sample)
            continue
        with pytest.raises(gradwire.ConfigError, match="give a quantizer with more bits"):
            check_quantizer("parameters", "qsgd:bucket=0", sample)
    assert sample_side(1 << 30) == 1024
    # The relative error of zeros is no number.
    with pytest.raises(gradwire.ConfigError, match="nan"):
        check_quantizer("parameters", "int8", torch.zeros(64, 64))


def compressed_parameters_on_one(rank, size):
    mesh = init_device_mesh(DEVICE.type, (size,))
    gradwire.torch.fsdp.register(shard(mesh), parameters="int8" if rank == 0 else None, deadline=20.0)


def test_ranks_with_other_settings_are_refused():
    for failed in outcomes(2, compressed_parameters_on_one):
        assert failed[1] == "ConfigError" and "parameters differs between ranks: None; int8" in failed[2], failed


REPLICATES = pytest.mark.skipif(
    importlib.util.find_spec("torch.distributed._composable.replicate_with_fsdp") is None,
    reason="in this version of PyTorch replicate() does not make FSDPModules",
)


def interrupted(rank, size):
    """The seconds after which Ctrl-C leaves the block, though the other rank does not answer."""
    # One unit, which is gathered only before the forward pass: no collective of PyTorch waits in
    # the backward pass.
    model = Net()
    fully_shard(model, mesh=init_device_mesh(DEVICE.type, (size,)), reshard_after_forward=False)
    handle = gradwire.torch.fsdp.register(model, deadline=120.0, parameters="int8")
    loss = model(data(rank, 0)[0]).sum()
    return seconds_until_interrupted(rank, handle, loss.backward)


def test_ctrl_c_leaves_a_block_before_the_deadline():
    assert ranks(2, interrupted)[0] < 60


def refused(rank, size, case):
    mesh = init_device_mesh(DEVICE.type, (size,))
    register = gradwire.torch.fsdp.register
    if case == "plain":
        register(Net())
    elif case == "exchange":
        register(shard(mesh), exchange="all-gather")
    elif case == "every":
        register(shard(mesh), "sbc2")
    elif case == "parameters":
        register(shard(mesh), parameters="none until 10 then topk:ratio=0.1")
    elif case == "python":
        register(shard(mesh), object())
    elif case == "mesh":
        replicated = init_device_mesh(DEVICE.type, (1, size), mesh_dim_names=("nodes", "shards"))
        register(shard(replicated), replicas=torch.distributed.group.WORLD)
    elif case == "replicas":
        register(shard(mesh), replicas=torch.distributed.group.WORLD)
    elif case == "skip":
        both = init_device_mesh(DEVICE.type, (1, size), mesh_dim_names=("nodes", "shards"))
        scaler = torch.amp.GradScaler(DEVICE.type)
        register(shard(both["shards"]), replicas=both["nodes"], on_nonfinite="skip", scaler=scaler)
    elif case == "unscaled":
        register(shard(mesh), on_nonfinite="skip")
    elif case == "number":
        model = Net()
        fully_shard(model, mesh=mesh, reshard_after_forward=2)
        register(model, parameters="int8")
    elif case == "factor":
        model = shard(mesh)
        register(model)
        model.set_gradient_divide_factor(3.0)
        train(model, adam(model), rank, range(1))
    elif case == "factor of replicas":
        # Each rank has a shard of its own, the whole parameter.
        both = init_device_mesh(DEVICE.type, (size, 1), mesh_dim_names=("nodes", "shards"))
        model = shard(both["shards"])
        register(model, replicas=both["nodes"])
        model.set_gradient_divide_factor(float(size))
        train(model, adam(model), rank, range(1))
    elif case.startswith("unused"):
        both = init_device_mesh(DEVICE.type, (size, 1), mesh_dim_names=("nodes", "shards"))
        model = shard(both["shards"] if "replicas" in case else mesh)
        options = {"replicas": both["nodes"]} if "replicas" in case else {}
        if "later" not in case:
            model.set_reduce_scatter_unused_params(True)
        handle = register(model, "signum" if "later" in case else "none until 3 then signsgd", **options)
        model.set_reduce_scatter_unused_params(True)
        train(model, adam(model), rank, range(1))
    elif case == "outside":
        model = Branches()
        for module in (*model.nets, model.head):
            fully_shard(module, mesh=mesh)
        register(model)
    elif case == "replicate":
        from torch.distributed._composable.replicate_with_fsdp import replicate

        register(replicate(Net(), mesh=mesh))
    elif case == "group":
        register(shard(mesh), replicas=1)
    elif case == "names":
        register(shard(mesh), raw_names="head")
    elif case == "scaler":
        register(shard(mesh), scaler=True)
    elif case == "seed":
        register(shard(mesh), seed="1")
    elif case == "ddp":
        gradwire.torch.register(nn.parallel.DistributedDataParallel(Net()), exchange="reduce-scatter")


def says(rank, size, case):
    """Why a case is refused."""
    with pytest.raises(gradwire.ConfigError) as error:
        refused(rank, size, case)
    return str(error.value)


def test_what_cannot_be_registered_is_refused():
    cases = [
        ("plain", "call fully_shard first"),
        ("exchange", "needs replicas"),
        ("every", "use gradwire.torch.LocalSteps"),
        ("parameters", "give a quantizer"),
        ("python", "has no method compress()"),
        ("mesh", "mesh of one dimension"),
        ("replicas", "in common"),
        ("skip", "needs a mesh of one dimension"),
        ("unscaled", "pass scaler="),
        ("outside", "'gate.weight' is in no module that fully_shard was applied to"),
        ("group", "replicas=1 is neither a process group nor a mesh"),
        ("names", "raw_names is a string"),
        ("scaler", "scaler=True has no get_scale()"),
        ("seed", "seed='1' is not an integer"),
        ("ddp", "gradwire.torch.fsdp.register"),
    ]
    for (case, text), found in zip(cases, in_turn(2, *((says, case) for case, _ in cases))):
        assert all(text in one for one in found), (case, found)


@pytest.mark.parametrize(
    "case, text",
    [
        ("number", "use True or False"),
        ("factor", "multiply the loss"),
        ("factor of replicas", "multiply the loss"),
        pytest.param("unused", "'none until 3 then signsgd' averages by votes", marks=FILLS_IN),
        pytest.param("unused later", "the zeros of parameters that a step did not use would vote", marks=FILLS_IN),
        pytest.param("unused later, replicas", "set it to False, or use another compressor", marks=FILLS_IN),
        pytest.param("replicate", "wrap the model in DistributedDataParallel", marks=REPLICATES),
    ],
)
def test_what_cannot_work_is_refused(case, text):
    for outcome in outcomes(4 if case == "number" else 2, refused, case):
        assert outcome[:2] == ("error", "ConfigError") and text in outcome[2], outcome
