"""Runs the code of the guide to deltas of weights, and the shards that it describes."""

import re
import types
from pathlib import Path

import engines
import pytest
import torch
from engines import assert_engine_has
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import gradwire
import gradwire.delta as delta
from world import ranks

GUIDE = Path(__file__).parents[3] / "docs/weights.md"


def test_the_code_of_the_guide_runs(tmp_path):
    sending, receiving, sharded = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    save_file(engines.checkpoint(), tmp_path / "model.safetensors")
    trainer = engines.Trainer(engines.checkpoint())
    names = {
        "model": types.SimpleNamespace(state_dict=trainer.weights),
        "train": lambda model: trainer.step(),
        "steps": 3,
        "engine": engines.EngineModel(engines.checkpoint()),
    }
    code = (sending + receiving).replace("/models/base", str(tmp_path)).replace("/shared/run7", str(tmp_path / "run"))
    exec(code, names)
    assert_engine_has(names["engine"], trainer.weights())
    exec(sharded, {**names, "delta": delta, "rank": 0, "ranks": 1, "run": "5" * 32})


def old():
    # Rows of 8 bytes, in uneven shards; and fewer rows than ranks.
    draws = torch.Generator().manual_seed(3)
    shapes = {"a": (7, 4), "b": (2, 8), "c": (64, 32), "same": (5, 3), "plain": (6,), "none": (0, 4)}
    return {name: torch.randn(shape, generator=draws).to(torch.bfloat16) for name, shape in shapes.items()}


def new():
    return {name: torch.where(torch.arange(tensor.shape[-1]) % 3 == 0, 1.01 * tensor, tensor) for name, tensor in old().items()}


def newer():
    return {name: 1.01 * tensor for name, tensor in new().items()}


def streams_of(rank, size, path):
    """The rank's streams of two updates; before the second one the trainer starts again."""
    mesh = init_device_mesh("cpu", (size,))
    # One tensor is the same on all ranks, and one is not distributed at all.
    placements = lambda name: [Replicate() if name == "same" else Shard(0)]
    place = lambda name, tensor: tensor if name == "plain" else distribute_tensor(tensor, mesh, placements(name))
    shards = lambda whole: {name: place(name, tensor) for name, tensor in whole.items()}
    sender = delta.Sender(shards(old()), share=(rank, size), run="5" * 32)
    streams = [b"".join(sender.diff(shards(new())))]
    gathered = [None] * size
    torch.distributed.all_gather_object(gathered, streams[0])
    folder = delta.Folder(path)
    if rank == 0:
        folder.publish(delta.join(gathered))
    torch.distributed.barrier()
    mirror = delta.Receiver(old())
    assert mirror.follow(folder) == 1
    resumed = delta.Sender.resume(folder, shards(dict(mirror.tensors())), share=(rank, size))
    assert (resumed.version, resumed.run) == (1, sender.run)
    streams.append(b"".join(resumed.diff(shards(newer()))))
    wrong = delta.Sender.resume(folder, shards(old()), share=(rank, size))
    return [*streams, b"".join(wrong.diff(shards(newer())))]


def test_ranks_send_their_own_rows(tmp_path):
    streams, later, wrong = zip(*ranks(3, streams_of, tmp_path / "run"))
    published = delta.Folder(tmp_path / "run")
    with pytest.raises(gradwire.StateError, match="another trainer has published"):
        published.publish(delta.join(wrong))
    published.publish(delta.join(later))
    following = old()
    assert delta.Receiver(following).follow(published) == 2
    assert all(torch.equal(following[name], tensor) for name, tensor in newer().items())
    weights = old()
    receiver = delta.Receiver(weights)
    receiver.stage(*streams[::-1]).commit()
    for name, tensor in new().items():
        assert torch.equal(weights[name], tensor) and (not torch.equal(tensor, old()[name]) or not len(tensor))
    assert receiver.version == 1
    # Joined they are one stream, which a folder takes.
    folder = delta.Folder(tmp_path / "other")
    with pytest.raises(gradwire.StateError, match="3 shares.* 2 are here"):
        delta.join(streams[:2])
    folder.publish(delta.join(streams))
    joined = old()
    assert delta.Receiver(joined).follow(folder) == 1
    assert all(torch.equal(joined[name], tensor) for name, tensor in new().items())
