"""Tests that sharded models resume from saved states, also on another number of ranks."""

import io

import numpy
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh

import gradwire
import gradwire.torch
from device import DEVICE
from sharded import adam, shard, train, whole
from world import in_turn, outcomes, ranks


def resumed(rank, size, steps, saved, folder):
    model = shard(init_device_mesh(DEVICE.type, (size,)))
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
    whole, half = str(tmp_path / "whole"), str(tmp_path / "half")
    expected, _ = in_turn(2, (resumed, range(8), False, whole), (resumed, range(5), False, half))
    found = ranks(2, resumed, range(5, 8), True, half)
    assert (found[0][0] == expected[0][0]).all() and found[0][1] == expected[0][1] == 8


def moved(rank, size, steps, states):
    model = shard(init_device_mesh(DEVICE.type, (size,)))
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


def grown(rank, size, steps, folder, resume):
    model = shard(init_device_mesh(DEVICE.type, (size,)))
    handle = gradwire.torch.fsdp.register(model, "topk:ratio=0.05")
    if resume:
        handle.load_state_dict(gradwire.torch.read_checkpoint(folder))
        try:
            gradwire.torch.read_checkpoint(folder, "other")
        except gradwire.StateError as error:
            assert "under 'other'" in str(error)
    train(model, adam(model), rank, steps)
    if not resume:
        dcp.save({"gradwire": handle.state_dict()}, checkpoint_id=folder)
    return handle.step


@pytest.mark.parametrize("before, after", [(3, 2), (2, 3)])
def test_a_distributed_checkpoint_has_the_states_of_all_ranks(tmp_path, before, after):
    ranks(before, grown, range(4), str(tmp_path), False)
    assert ranks(after, grown, range(2), str(tmp_path), True) == [6] * after
