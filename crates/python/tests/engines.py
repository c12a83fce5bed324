"""Stand-ins for trainers and inference engines, with the signatures of the released packages.

| package | version | classes and functions |
|---|---|---|
| vllm | 0.33.0 | `LLM.collective_rpc`, a worker with `worker_extension_cls`, `load_checkpoint_weight_patches` |
| sglang | 0.5.23 | `Engine.begin_weight_update`, `update_weights_from_tensor`, `end_weight_update`, `flush_cache` |
| trl | 1.16.0 | `VLLMClient`, `VLLMGeneration.sync_weights` in server mode |
| verl | 0.9.1 | `CheckpointEngineRegistry`, `CheckpointEngine`, the calls of `CheckpointEngineManager` |
| slime | 624b824 | the hooks of a full weight update by disk, and `pull` of its patch of SGLang |
"""

import abc
import asyncio
import itertools
import json
import math
import shutil
import types
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import nn

WIDTH, VOCABULARY = 32, 48
FUSED = ("q_proj", "k_proj", "v_proj")


def checkpoint(seed=0):
    """The tensors of a small model in bfloat16, as a checkpoint names and shapes them."""
    draws = torch.Generator().manual_seed(seed)
    shapes = {"model.embed_tokens.weight": (VOCABULARY, WIDTH), "model.norm.weight": (WIDTH,)}
    for layer in range(2):
        shapes |= {f"model.layers.{layer}.{name}.weight": (WIDTH, WIDTH) for name in (*FUSED, "o_proj")}
    draw = lambda shape: (0.1 * torch.randn(shape, generator=draws)).to(torch.bfloat16)
    return {name: draw(shape) for name, shape in sorted(shapes.items())}


class Trainer:
    """Weights in float32 of which each step changes a third of the tensors a little, so that an
    engine gets some of the tensors that it fuses."""

    def __init__(self, start, seed=1):
        self.masters = {name: tensor.float() for name, tensor in start.items()}
        self.draws, self.steps = torch.Generator().manual_seed(seed), 0

    def changing(self):
        """The names of tensors that the next step changes."""
        return sorted(self.masters)[self.steps % 3 :: 3]

    def step(self):
        for name in self.changing():
            tensor = self.masters[name]
            tensor += 2e-5 * torch.randn(tensor.shape, generator=self.draws)
        self.steps += 1

    def weights(self):
        return {name: tensor.to(torch.bfloat16) for name, tensor in self.masters.items()}


class EngineModel(nn.Module):
    """What an engine makes of a checkpoint: q, k and v in one tensor, each a slice of its rank."""

    def __init__(self, weights, rank=0, size=1):
        super().__init__()
        self.rank, self.size, self.sparse = rank, size, False
        self.fused = {}
        for name, tensor in weights.items():
            target, _ = self.place(name)
            shape = list(self.slice(name, tensor).shape)
            if target != name:
                shape[0] *= len(FUSED)
            self.fused.setdefault(target, torch.zeros(shape, dtype=tensor.dtype))
        self.load_weights(weights.items())

    def place(self, name):
        """The name of the engine's tensor, and which part of it this one is."""
        for part, one in enumerate(FUSED):
            if one in name:
                return name.replace(one, "qkv_proj"), part
        return name, 0

    def slice(self, name, tensor):
        if tensor.dim() == 1 or "embed" in name:
            return tensor
        return tensor.chunk(self.size, 1 if "o_proj" in name else 0)[self.rank]

    def load_weights(self, weights):
        """Loads the tensors of a checkpoint, all or some; returns the names of those written."""
        written = set()
        for name, tensor in weights:
            target, part = self.place(name)
            source = self.slice(name, tensor)
            rows = source.shape[0]
            destination = self.fused[target][part * rows : (part + 1) * rows]
            assert destination.shape == source.shape and destination.dtype == source.dtype
            destination.copy_(torch.where(source.isnan(), destination, source) if self.sparse else source)
            written.add(target)
        return written


def assert_engine_has(model, weights):
    """Compares bits, with another way to fuse and slice."""
    size, rank = model.size, model.rank
    part = WIDTH // size
    for name, tensor in model.fused.items():
        if "qkv_proj" in name:
            sources = [weights[name.replace("qkv_proj", one)] for one in FUSED]
            expected = torch.cat([one[rank * part : (rank + 1) * part] for one in sources])
        elif "o_proj" in name:
            expected = weights[name][:, rank * part : (rank + 1) * part]
        else:
            expected = weights[name]
        assert torch.equal(tensor.view(torch.int16), expected.contiguous().view(torch.int16)), name


# vLLM


class CheckpointWeightPatch(NamedTuple):
    name: str
    shape: tuple
    dtype: torch.dtype
    values: torch.Tensor
    indices: torch.Tensor | None = None


def load_checkpoint_weight_patches(model, patches, *, max_chunk_bytes=512 << 20, validate_unique_indices=True):
    """Like vLLM's: positions in the checkpoint's tensor; NaN marks places that stay, so it is
    refused as a value; either all patches are sparse, or all are whole."""
    patches, written = list(patches), set()
    if len({patch.indices is None for patch in patches}) > 1:
        raise ValueError("Dense and sparse checkpoint patches cannot be mixed")
    for name, shape, dtype, values, indices in patches:
        assert values.dim() == 1 and values.dtype == dtype
        if indices is None:
            written |= model.load_weights([(name, values.view(shape))])
            continue
        assert dtype.is_floating_point and indices.dtype in (torch.int32, torch.int64)
        assert indices.shape == values.shape
        places, count = indices.long(), math.prod(shape)
        if values.isnan().any() or (places < 0).any() or (places >= count).any():
            raise ValueError("Sparse checkpoint patches contain NaN values or out-of-range indices")
        if validate_unique_indices:
            assert len(places.unique()) == len(places)
        whole = torch.full((count,), float("nan"), dtype=dtype)
        whole[places] = values
        model.sparse = True
        try:
            written |= model.load_weights([(name, whole.view(shape))])
        finally:
            model.sparse = False
    return written


class VllmWorker:
    def __init__(self, weights, rank, size):
        self.rank = self.local_rank = rank
        self.device = torch.device("cpu")
        self.model_runner = types.SimpleNamespace(model=EngineModel(weights, rank, size))


class LLM:
    def __init__(self, weights, worker_extension_cls, tensor_parallel_size=2):
        for name in dir(worker_extension_cls):
            assert name.startswith("__") or not hasattr(VllmWorker, name)
        worker = type("Worker", (VllmWorker, worker_extension_cls), {})
        self.workers = [worker(weights, rank, tensor_parallel_size) for rank in range(tensor_parallel_size)]

    def collective_rpc(self, method, timeout=None, args=(), kwargs=None):
        return [getattr(worker, method)(*args, **(kwargs or {})) for worker in self.workers]

    @property
    def models(self):
        return [worker.model_runner.model for worker in self.workers]


# SGLang


class SglangEngine:
    def __init__(self, weights, tp_size=2):
        self.models = [EngineModel(weights, rank, tp_size) for rank in range(tp_size)]
        self.session = self.stale = False

    def begin_weight_update(self, selector="all"):
        if self.session:
            return False, "a weight-update session is already open; call end_weight_update() first"
        self.session = True
        return True, "Success"

    def end_weight_update(self):
        if not self.session:
            return False, "no weight-update session is open; call begin_weight_update() first"
        self.session = False
        return True, "Success"

    def update_weights_from_tensor(self, named_tensors, load_format=None, flush_cache=True):
        if not self.session:
            return False, "update_weights_from_tensor must run between begin_weight_update() and end_weight_update()"
        assert load_format is None and isinstance(named_tensors, list)
        for model in self.models:
            model.load_weights(named_tensors)
        self.stale = not flush_cache
        return True, "Success"

    def flush_cache(self):
        self.stale = False


# TRL


class VLLMClient:
    """Posts to the `server`, an `LLM`, as vLLM's route /collective_rpc does."""

    server = None

    def __init__(self, base_url=None, host="0.0.0.0", server_port=8000, group_port=51216, connection_timeout=0.0):
        self.base_url = base_url or f"http://{host}:{server_port}"

    def init_communicator(self, device=0):
        raise NotImplementedError("Weight synchronization runs on vLLM's NCCL weight-transfer engine")

    def update_named_params(self, metadata, named_params):
        raise NotImplementedError("this would broadcast the weights over NCCL")

    def close_communicator(self):
        raise NotImplementedError("this would destroy the NCCL group")

    def reset_prefix_cache(self):
        self._post(f"{self.base_url}/reset_prefix_cache")

    def _post(self, url, **kwargs):
        if url.endswith("/reset_prefix_cache"):
            return {"success": True}
        assert url.endswith("/collective_rpc")
        body = json.loads(json.dumps(kwargs["json"]))
        results = self.server.collective_rpc(body["method"], args=tuple(body.get("args", [])), kwargs=body.get("kwargs", {}))
        keep = lambda result: result if result is None or isinstance(result, (dict, list)) else str(result)
        return json.loads(json.dumps({"results": [keep(result) for result in results]}))


class VLLMGeneration:
    """The calls of TRL's class in server mode, on the main process."""

    def __init__(self, client, named_parameters):
        self.named_parameters, self.metadata = named_parameters, None
        self.vllm_client = client(base_url="http://localhost:8000", group_port=51216, connection_timeout=240.0)
        self.vllm_client.init_communicator(device=torch.device("cpu"))

    def sync_weights(self):
        if self.metadata is None:
            kind = lambda tensor: str(tensor.dtype).removeprefix("torch.")
            self.metadata = [(name, kind(one), list(one.shape)) for name, one in self.named_parameters()]
        self.vllm_client.update_named_params(self.metadata, self.named_parameters())
        self.vllm_client.reset_prefix_cache()


# verl


class CheckpointEngineRegistry:
    registered = {}

    def register(backend):
        return lambda cls: CheckpointEngineRegistry.registered.setdefault(backend, cls)


class CheckpointEngine(abc.ABC):
    @abc.abstractmethod
    def prepare(self): ...

    @classmethod
    @abc.abstractmethod
    def build_topology(cls, actor_wg_world_size, rollout_world_size, metadata): ...

    @abc.abstractmethod
    def init_process_group(self, **kwargs): ...

    @abc.abstractmethod
    def finalize(self): ...

    @abc.abstractmethod
    async def send_weights(self, weights, global_steps=None): ...

    @abc.abstractmethod
    async def receive_weights(self, global_steps=None): ...


class VerlManager:
    """The calls that verl's manager makes for one step, with two ranks of the actor."""

    def __init__(self, weights, backend, **engine_kwargs):
        self.make = lambda **more: CheckpointEngineRegistry.registered[backend](bucket_size=1 << 20, **more, **engine_kwargs)
        self.actors = [self.make(is_master=rank == 0) for rank in range(2)]
        self.steps = 0
        self.start_rollout(weights)

    def start_rollout(self, weights):
        self.rollouts = [self.make() for _ in range(2)]
        self.models = [EngineModel(weights, rank, 2) for rank in range(2)]

    def update_weights(self, weights, failing=()):
        """One step; rollout workers in `failing` lose the last tensors that they receive."""
        engines = self.actors + self.rollouts
        metadata = [engine.prepare() for engine in engines]
        arguments = type(engines[0]).build_topology(len(self.actors), len(self.rollouts), metadata)
        for group, kwargs in zip((self.actors, self.rollouts), arguments):
            for at, engine in enumerate(group):
                engine.init_process_group(**{name: values[at] for name, values in kwargs.items()})
        self.steps += 1
        metrics = asyncio.run(self.together(weights, failing))
        for engine in engines:
            engine.finalize()
        return metrics[0]

    async def together(self, weights, failing):
        """Actors and rollout workers run at once; here the rollout workers begin."""
        pairs = zip(self.rollouts, self.models)
        loads = [asyncio.ensure_future(self.load(*pair, at in failing)) for at, pair in enumerate(pairs)]
        await asyncio.sleep(0)
        metrics = [await actor.send_weights(iter(weights.items()), global_steps=self.steps) for actor in self.actors]
        await asyncio.gather(*loads)
        return metrics

    async def load(self, rollout, model, fails):
        """Loads buckets of three tensors, the last one when there are no more."""
        bucket, received = [], []
        async for name, tensor in rollout.receive_weights(global_steps=self.steps):
            received.append(name)
            bucket.append((name, tensor))
            if len(bucket) == 3:
                model.load_weights(bucket)
                bucket = []
        if fails:
            raise RuntimeError("out of memory")
        model.load_weights(bucket)
        self.received = received


# slime


class SlimeEngine:
    """Two ranks of SGLang on a machine, with slime's /pull_weights for whole checkpoints."""

    def __init__(self, weights, local_checkpoint_dir, source_dir, pre_read_hook):
        self.local, self.source, self.hook = Path(local_checkpoint_dir), Path(source_dir), pre_read_hook
        self.models = [EngineModel(weights, rank, 2) for rank in range(2)]

    def pull_weights(self, target_version):
        for _ in self.models:
            self.hook(str(self.source), target_version)
            version_dir = self.source / f"weight_v{target_version:06d}"
            if not version_dir.is_dir():
                raise FileNotFoundError(f"published weight version missing: {version_dir}")
            shutil.rmtree(self.local, ignore_errors=True)
            shutil.copytree(version_dir, self.local)

    def update_weights_from_disk(self, model_path, load_format=None, weight_version=None):
        assert (Path(model_path) / "config.json").is_file()
        for path in Path(model_path).glob("*.safetensors"):
            for model in self.models:
                model.load_weights(load_file(path).items())


class SlimeTrainer:
    """The calls of slime's full weight update by disk, on two ranks."""

    def __init__(self, disk_dir, post_write_hook, monkeypatch):
        self.args = types.SimpleNamespace(update_weight_disk_dir=str(disk_dir))
        self.hook, self.monkeypatch, self.weight_version = post_write_hook, monkeypatch, 0

    def update_weights(self, weights, engine):
        self.weight_version += 1
        version_dir = Path(self.args.update_weight_disk_dir) / f"weight_v{self.weight_version:06d}"
        version_dir.mkdir(parents=True)
        names = sorted(weights)
        for at, part in enumerate((names[::2], names[1::2])):
            save_file({name: weights[name] for name in part}, version_dir / f"model-{at}.safetensors")
        for rank in (1, 0):
            self.monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
            self.hook(self.args, str(version_dir), [engine])
        if engine is not None:
            engine.pull_weights(self.weight_version)
            engine.update_weights_from_disk(model_path=str(engine.local), weight_version=str(self.weight_version))
        shutil.rmtree(version_dir)


def module(name, **contents):
    """A module that examples can import, and its packages, as entries of `sys.modules`."""
    parts = name.split(".")
    made = {parent: types.ModuleType(parent) for parent in itertools.accumulate(parts, "{}.{}".format)}
    vars(made[name]).update(contents)
    for parent, child in zip(list(made), list(made)[1:]):
        setattr(made[parent], child.rpartition(".")[2], made[child])
    return made
