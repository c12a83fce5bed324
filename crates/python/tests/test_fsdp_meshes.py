"""Tests FSDP2 on a mesh of two dimensions: shards within nodes, replicas between them."""

import numpy
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import gradwire
import gradwire.torch
from device import DEVICE
from sharded import Branches, adam, shard, train, whole
from world import in_turn, ranks


def between_nodes(rank, size, compressor, native):
    mesh = init_device_mesh(DEVICE.type, (2, 2), mesh_dim_names=("nodes", "shards"))
    model = shard(mesh if native else mesh["shards"])
    handle = None if native else gradwire.torch.fsdp.register(model, compressor, replicas=mesh["nodes"])
    losses = train(model, adam(model), rank, range(8))
    return whole(model), losses, handle and handle.stats()


def test_replicas_average_their_shards():
    compressors = ("3lc", "powersgd:rank=1")
    expected, found, *others = in_turn(4, *((between_nodes, one, one is None) for one in (None, "none", *compressors)))
    for (parameters, _, _), (own, _, _) in zip(expected, found):
        numpy.testing.assert_allclose(own, parameters, rtol=1e-4, atol=1e-5)
    for compressor, compressed in zip(compressors, others):
        assert all((one[0] == compressed[0][0]).all() for one in compressed), compressor
        assert compressed[0][1][-1] < compressed[0][1][0], compressor
        assert compressed[0][2]["bytes_up"] < 0.4 * found[0][2]["bytes_up"], compressor


def between_nodes_saved(rank, size, steps, saved, folder):
    mesh = init_device_mesh(DEVICE.type, (2, 2), mesh_dim_names=("nodes", "shards"))
    model = shard(mesh["shards"])
    handle = gradwire.torch.fsdp.register(model, "topk:ratio=0.1", replicas=mesh["nodes"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if saved:
        state = {"model": model.state_dict(), "gradwire": handle.state_dict()}
        dcp.load(state, checkpoint_id=folder)
        model.load_state_dict(state["model"])
        # Of the states of all ranks, of which two have the same number in their groups, a rank
        # takes its own.
        everyone = gradwire.torch.read_checkpoint(folder) if saved == "all" else state["gradwire"]
        handle.load_state_dict(everyone)
    train(model, optimizer, rank, steps)
    if not saved:
        dcp.save({"model": model.state_dict(), "gradwire": handle.state_dict()}, checkpoint_id=folder)
    try:
        handle.state_dict(all_ranks=True)
    except gradwire.ConfigError as error:
        return whole(model), str(error)
    return whole(model), "nothing was refused"


def test_a_distributed_checkpoint_keeps_the_residuals_of_every_shard(tmp_path):
    whole, half = str(tmp_path / "whole"), str(tmp_path / "half")
    expected, _ = in_turn(4, (between_nodes_saved, range(8), False, whole), (between_nodes_saved, range(5), False, half))
    reads = ("own", "all")
    for read, found in zip(reads, in_turn(4, *((between_nodes_saved, range(5, 8), read, half) for read in reads))):
        for (parameters, _), (own, message) in zip(expected, found):
            assert (own == parameters).all() and "2 of the ranks" in message, read


def unfrozen(rank, size):
    mesh = init_device_mesh(DEVICE.type, (2, 2), mesh_dim_names=("nodes", "shards"))
    torch.manual_seed(0)
    model = Branches()
    layer = model.nets[0].first.requires_grad_(False)
    for module in (layer, model):
        fully_shard(module, mesh=mesh["shards"])
    gradwire.torch.fsdp.register(model, "none", replicas=mesh["nodes"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(2))
    before = layer.weight.full_tensor().clone()
    layer.requires_grad_(True)
    train(model, optimizer, rank, range(2, 5))
    assert not torch.equal(before, layer.weight.full_tensor())
    return whole(model)


def test_a_module_that_is_unfrozen_later_is_averaged_between_nodes():
    found = ranks(4, unfrozen)
    assert all((one == found[0]).all() for one in found)


def hybrid(rank, size, compressor):
    mesh = init_device_mesh(DEVICE.type, (2, 2), mesh_dim_names=("nodes", "shards"))
    model = shard(mesh)
    handle = gradwire.torch.fsdp.register(model, compressor) if compressor else None
    losses = train(model, adam(model), rank, range(8))
    return whole(model), losses, handle and handle.step


def test_pytorch_averages_over_the_replicas_of_a_mesh_of_two():
    plain, found, compressed = in_turn(4, (hybrid, None), (hybrid, "none"), (hybrid, "qsgd"))
    numpy.testing.assert_allclose(found[0][0], plain[0][0], rtol=1e-4, atol=1e-5)
    assert all((one[0] == compressed[0][0]).all() for one in compressed) and compressed[0][2] == 8
    assert compressed[0][1][-1] < compressed[0][1][0]


def one_replica(rank, size):
    model = shard(init_device_mesh(DEVICE.type, (1, 2), mesh_dim_names=("nodes", "shards")))
    handle = gradwire.torch.fsdp.register(model, "topk:ratio=0.1")
    train(model, adam(model), rank, range(2))
    state = handle.state_dict(all_ranks=True)
    try:
        handle.load_state_dict({**state, "world_size": 1})
    except gradwire.StateError as error:
        return len(state["exchange"]), str(error)


def test_a_mesh_with_one_replica_saves_all_ranks_and_another_mesh_is_refused():
    for ranks_saved, message in ranks(2, one_replica):
        assert ranks_saved == 2 and "resume on the same mesh" in message


def narrow(rank, size):
    """The bytes that a rank sends uncompressed, as replica and as shard, in 32 and in 16 bits."""
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        mesh = init_device_mesh(DEVICE.type, (size, 1), mesh_dim_names=("nodes", "shards"))
        model = shard(mesh["shards"], mp_policy=MixedPrecisionPolicy(reduce_dtype=dtype))
        handle = gradwire.torch.fsdp.register(model, "none", replicas=mesh["nodes"])
        train(model, adam(model), rank, range(1))
        sent = handle.stats()["bytes_up"]
        model = shard(init_device_mesh(DEVICE.type, (size,)), mp_policy=MixedPrecisionPolicy(param_dtype=dtype))
        handle = gradwire.torch.fsdp.register(model, "int8", parameters="none")
        train(model, adam(model), rank, range(1))
        found.append((sent, handle.stats()["parameter_bytes_up"]))
    return found


def test_replicas_and_gathers_send_values_of_16_bits_in_16_bits():
    for (gradients, parameters), (narrow_gradients, narrow_parameters) in ranks(2, narrow):
        # Besides values, messages have headers.
        assert 0.5 <= narrow_gradients / gradients < 0.51, (narrow_gradients, gradients)
        assert 0.5 <= narrow_parameters / parameters < 0.51, (narrow_parameters, parameters)
