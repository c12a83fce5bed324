"""Tests that a state of which a checkpoint has lost or changed an entry is a ``StateError`` that
names the entry, on all ranks."""

import copy

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn

import gradwire.torch
import gradwire.torch.fsdp
from gradwire.torch import _states, read_checkpoint
from models import build, one_layer
from world import ranks


class Halves:
    def compress(self, tensor):
        return tensor.half().numpy().tobytes()

    def decompress(self, message, shape):
        return torch.frombuffer(bytearray(message), dtype=torch.float16).float().view(shape)


def sharded():
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(nn.Linear(64, 8))
    return model, gradwire.torch.fsdp.register(model, "topk")


def refusals(load, state):
    """The error about the state without each of its entries, and with each in another type."""
    found = {}
    for key in state:
        less = {name: value for name, value in state.items() if name != key}
        for name, damaged in [(key, less), (f"wrong {key}", {**less, key: object()})]:
            try:
                load(damaged)
                found[name] = "loaded"
            except Exception as error:
                found[name] = f"{type(error).__name__}: {error}"
    return found


def damaged(rank, size):
    makers = {
        "hook": lambda: build("topk"),
        "custom": lambda: build(Halves()),
        "local": lambda: one_layer("topk", every=1, outer=gradwire.torch.Nesterov(lr=0.7, momentum=0.9)),
        "fsdp": sharded,
    }
    found = {}
    for name, make in makers.items():
        model, handle = make()
        if name == "local":
            handle.step()
        else:
            model(torch.ones(2, 64)).sum().backward()
        before = handle.state_dict()
        found[name] = refusals(handle.load_state_dict, before)
        for wrong in (None, 5, "state", [], [None], {}, {**before, "exchange": {}}, {**before, "exchange": {"rank0": ()}}):
            found[name][repr(wrong)[:60]] = refusals(lambda _: handle.load_state_dict(wrong), {"": None})[""]
        if name == "local":
            outer = copy.deepcopy(before["outer"][0])
            for key in ("kind", "state"):
                less = {**before, "outer": ({one: value for one, value in outer.items() if one != key},)}
                found[name][f"outer {key}"] = refusals(lambda _: handle.load_state_dict(less), {"": None})[""]
            del outer["state"]["state"]
            found[name]["outer moments"] = refusals(lambda _: handle.load_state_dict({**before, "outer": (outer,)}), {"": None})[""]
            packed = {_states.rank_key(handle._reducer): (_states._pack(_states.to_bytes({"param_groups": [{"params": [0]}]})),)}
            found[name]["local moments"] = refusals(lambda _: handle.load_state_dict({**before, "optimizer": packed}), {"": None})[""]
        # Nothing has changed, and the whole state is loaded.
        handle.load_state_dict(before)
        handle.close()
    return found


ENTRIES = {"step", "world_size", "exchange", "round", "common", "fragments", "outer", "pending", "sent", "optimizer"}


def test_each_missing_entry_is_named():
    for found in ranks(1, damaged):
        for kind, refused in found.items():
            for key, error in refused.items():
                assert error.startswith("StateError"), (kind, key, error)
                if key in ENTRIES:
                    assert f"the state has no '{key}'" in error, (kind, key, error)
            assert "'step' of the state is" in refused["wrong step"], refused
        local = found["local"]
        assert "the state has no 'kind'" in local["outer kind"] and "the state has no 'state'" in local["outer state"], local
        assert "no 'state'" in local["outer moments"] and "no 'state'" in local["local moments"], local


def of_one_rank(rank, size):
    """What both ranks raise if only rank 1 has lost an entry."""
    model, handle = build("topk")
    state = handle.state_dict()
    if rank == 1:
        del state["world_size"]
    with pytest.raises(gradwire.StateError) as refused:
        handle.load_state_dict(state)
    return str(refused.value)


def test_all_ranks_raise_if_one_has_lost_an_entry():
    one, two = ranks(2, of_one_rank)
    assert "the state has no 'world_size'" in two and "rank 1 cannot load its state" in one


def test_a_checkpoint_without_an_entry_is_refused(tmp_path):
    state = {"gradwire": "hook", "step": 3, "world_size": 1, "exchange": {"rank0": (torch.zeros(4, dtype=torch.uint8),)}}
    for key in ("gradwire", "step", "world_size"):
        folder = str(tmp_path / key)
        dcp.save({"gradwire": {name: value for name, value in state.items() if name != key}}, checkpoint_id=folder, no_dist=True)
        with pytest.raises(gradwire.StateError, match=f"has no 'gradwire.{key}'"):
            read_checkpoint(folder)
