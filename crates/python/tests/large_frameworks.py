"""Trains with DeepSpeed and Megatron-Core through the process group. Their packages take minutes to
install, so the tests of the package leave this file out. `cargo xtask frameworks` installs them and
runs it."""

import importlib
import os
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode

import gradwire.torch
from world import ranks

EXAMPLES = Path(__file__).parents[3] / "examples" / "pytorch"
TOPK = "topk:ratio=0.05"


def deepspeed_on(rank, size):
    import deepspeed

    # An operation of inference, which is compiled at run time.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # DeepSpeed asks whether the processor has instructions for float16; PyTorch computes without.
    deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True
    os.environ.update(LOCAL_RANK=str(rank), RANK=str(rank), WORLD_SIZE=str(size))
    return deepspeed


def batch(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(16, 64, generator=generator)
    return x, x[:, :20].argmax(1)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 20))


def zero(rank, size, cases):
    """Trains with each configuration; returns its losses, weights and call sites."""
    deepspeed = deepspeed_on(rank, size)
    results = []
    for stage, settings, more in cases:
        net = network()
        config = {
            "train_micro_batch_size_per_gpu": 16,
            "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "torch_adam": True}},
            "zero_optimization": {"stage": stage, **settings},
            "zero_allow_untested_optimizer": True,
            **more,
        }
        dtype = torch.bfloat16 if "bf16" in more else torch.float16 if "fp16" in more else torch.float32
        engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)
        losses = []
        for step in range(30):
            x, labels = batch(rank, step)
            loss = nn.functional.cross_entropy(engine(x.to(dtype)).float(), labels)
            with gradwire.torch.gradients():
                engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        whole = deepspeed.zero.GatheredParameters(list(net.parameters()), enabled=stage == 3)
        with whole:
            weights = torch.cat([one.detach().flatten().clone() for one in net.parameters()])
        results.append((losses, weights))
        engine.destroy()
    rows = [row for group in gradwire.torch.describe() for row in group.sites]
    return results, [(row.collective, row.elements, row.element_type) for row in rows if row.compressed]


HALF = {"fp16": {"enabled": True, "initial_scale_power": 20}}
STAGES = [
    (0, {}, {}),
    (1, {"reduce_scatter": False}, {}),
    (1, {}, {"gradient_accumulation_steps": 2}),
    (2, {"overlap_comm": True}, {"gradient_accumulation_steps": 2, "gradient_clipping": 1.0}),
    (2, {"contiguous_gradients": False}, {"bf16": {"enabled": True}}),
    (2, {}, HALF),
    (2, {"reduce_scatter": False}, {}),
    (3, {}, {}),
    (3, {"reduce_scatter": False}, {"gradient_accumulation_steps": 2}),
    (3, {"overlap_comm": True}, {"bf16": {"enabled": True}, "gradient_clipping": 1.0}),
    (3, {}, HALF),
]


@pytest.mark.parametrize("compressor", ["eden", TOPK, "none"])
def test_zero_trains_compressed(compressor, monkeypatch):
    pytest.importorskip("deepspeed", reason="needs deepspeed; run cargo xtask frameworks")
    monkeypatch.setenv("GRADWIRE_COMPRESSOR", compressor)
    (first, compressed), (second, _) = ranks(2, zero, STAGES, backend="gradwire")
    monkeypatch.delenv("GRADWIRE_COMPRESSOR")
    (plain, none), _ = ranks(2, zero, STAGES)
    assert not none
    for case, one, other, exact in zip(STAGES, first, second, plain):
        assert torch.equal(one[1], other[1]), case
        if compressor == "none":
            # Only the order of additions, and of roundings to 16 bits, may differ.
            assert all(abs(loss - other) < 0.05 for loss, other in zip(one[0], exact[0])), (case, one[0], exact[0])
            continue
        assert not torch.equal(one[1], exact[1]), case
        # Whatever the stage, the last losses are those without compression, or nearly so.
        losses = [sum(found[0][-8:]) / 8 for found in (one, exact)]
        assert losses[0] < losses[1] + 0.35, (case, losses)
    assert {kind for _, _, kind in compressed} == {"float32", "float16", "bfloat16"}
    assert {"all-reduce", "reduce-scatter"} == {collective for collective, *_ in compressed}


def resumable(rank, size, folder, stage, steps, resume):
    deepspeed_on(rank, size)
    sys.path.insert(0, str(EXAMPLES))
    dist.destroy_process_group()
    gradwire.torch.configure("3lc", raw_below=1000)
    dist.init_process_group("gradwire", init_method=f"file://{folder}/{steps}{resume}", rank=rank, world_size=size)
    net = importlib.import_module("with_deepspeed").train(f"{folder}/checkpoint", steps, resume, stage=stage)
    with importlib.import_module("deepspeed").zero.GatheredParameters(list(net.parameters()), enabled=stage == 3):
        return torch.cat([one.detach().flatten().clone() for one in net.parameters()])


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_example_resumes(stage, tmp_path):
    pytest.importorskip("deepspeed", reason="needs deepspeed; run cargo xtask frameworks")
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole, _ = ranks(2, resumable, str(tmp_path / "whole"), stage, 8, False)
    stopped, _ = ranks(2, resumable, str(tmp_path / "parts"), stage, 5, False)
    resumed, _ = ranks(2, resumable, str(tmp_path / "parts"), stage, 8, True)
    assert torch.equal(resumed, whole) and not torch.equal(stopped, whole)


def in_accelerate(rank, size):
    deepspeed_on(rank, size)
    # What its launcher sets.
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", ACCELERATE_USE_DEEPSPEED="true")
    from accelerate import Accelerator
    from accelerate.utils import DeepSpeedPlugin

    zero = {"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": 1}
    plugin = DeepSpeedPlugin(hf_ds_config={**zero, "zero_allow_untested_optimizer": True})
    accelerator = Accelerator(cpu=True, deepspeed_plugin=plugin)
    net = network()
    model, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=3e-3))
    losses = []
    for step in range(20):
        x, labels = batch(rank, step)
        loss = nn.functional.cross_entropy(model(x), labels)
        with gradwire.torch.gradients():
            accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    rows = [row.collective for group in gradwire.torch.describe() for row in group.sites if row.compressed]
    return losses, torch.cat([one.detach().flatten() for one in net.parameters()]), rows


def test_deepspeed_in_accelerate_trains_compressed(monkeypatch):
    pytest.importorskip("deepspeed", reason="needs deepspeed; run cargo xtask frameworks")
    monkeypatch.setenv("GRADWIRE_COMPRESSOR", "eden")
    (losses, weights, rows), (_, other, _) = ranks(2, in_accelerate, backend="gradwire")
    assert torch.equal(weights, other) and rows == ["all-reduce"]
    assert sum(losses[-5:]) < sum(losses[:5])


def in_lightning(rank, size):
    """Lightning's strategy calls backward by itself."""
    import lightning
    from lightning.pytorch.strategies import DeepSpeedStrategy

    deepspeed_on(rank, size)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", NODE_RANK="0")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.losses = network(), []

        def training_step(self, one, number):
            loss = nn.functional.cross_entropy(self.net(one[0]), one[1])
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=3e-3)

    # Lightning lets it run on GPUs only.
    class OnCpu(DeepSpeedStrategy):
        root_device = torch.device("cpu", 0)

        def setup_environment(self):
            super(DeepSpeedStrategy, self).setup_environment()

        def setup_distributed(self):
            self.set_world_ranks()

    strategy = OnCpu(
        config={"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 16, "zero_allow_untested_optimizer": True}
    )
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(accelerator="cpu", devices=size, strategy=strategy, max_steps=20, use_distributed_sampler=False, **quiet)
    module = Module()
    trainer.fit(module, torch.utils.data.DataLoader([batch(rank, step) for step in range(20)], batch_size=None))
    rows = [row.collective for group in gradwire.torch.describe() for row in group.sites if row.compressed]
    return module.losses, torch.cat([one.detach().flatten() for one in module.parameters()]), rows


def test_deepspeed_in_lightning_trains_compressed(monkeypatch):
    pytest.importorskip("deepspeed", reason="needs deepspeed; run cargo xtask frameworks")
    monkeypatch.setattr(gradwire.torch._backend, "_configured", [])
    gradwire.torch.configure("eden", when="always")
    (losses, weights, rows), (_, other, _) = ranks(2, in_lightning, backend="gradwire")
    assert torch.equal(weights, other) and "all-reduce" in rows
    assert sum(losses[-5:]) < sum(losses[:5])


class OnCpu(TorchFunctionMode):
    """Lets Megatron-Core, which expects CUDA tensors, run on a CPU."""

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = dict(options or {})
        if str(options.get("device", "")).startswith("cuda"):
            options["device"] = "cpu"
        if function is torch.Tensor.type and len(arguments) == 1:
            return function(*arguments).replace("torch.", "torch.cuda.")
        return function(*arguments, **options)


def megatron(rank, size):
    """Megatron-Core's DDP, with and without its distributed optimizer and overlap."""
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.nn.Module.cuda = torch.Tensor.cuda = lambda self: self
    sys.path.insert(0, str(EXAMPLES))
    train, results = importlib.import_module("with_megatron").train, []
    for distributed in (False, True):
        for overlap in (False, True):
            net, losses = train(60, distributed, overlap)
            results.append((losses, torch.cat([one.detach().flatten() for one in net.parameters()])))
    rows = [row for group in gradwire.torch.describe() for row in group.sites]
    return results, {row.collective for row in rows if row.compressed}


def on_cpu(rank, size):
    with OnCpu():
        return megatron(rank, size)


@pytest.mark.parametrize("compressor", ["eden", TOPK])
def test_megatron_trains_compressed(compressor, monkeypatch):
    pytest.importorskip("megatron.core", reason="needs megatron.core; run cargo xtask frameworks")
    monkeypatch.setenv("GRADWIRE_COMPRESSOR", compressor)
    (first, compressed), (second, _) = ranks(2, on_cpu, backend="gradwire")
    (plain, none), _ = ranks(2, on_cpu)
    assert compressed == {"all-reduce", "reduce-scatter"} and not none
    for one, other, exact in zip(first, second, plain):
        assert torch.equal(one[1], other[1]) and not torch.equal(one[1], exact[1])
        assert sum(one[0][-8:]) / 8 < sum(exact[0][-8:]) / 8 + 0.35
