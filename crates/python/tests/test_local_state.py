"""Tests that the state of local steps is whole, and that frameworks save and restore it as the
state of an optimizer."""

import copy
import os
import tempfile
import warnings

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import state_dict as of_checkpoints

import gradwire.torch
from models import Net, data, flat
from world import ranks


def local(compressor, **options):
    torch.manual_seed(0)
    net = Net()
    inner = torch.optim.Adam(net.parameters(), lr=0.003)
    return net, inner, gradwire.torch.LocalSteps(net, inner, compressor=compressor, **{"every": 3, **options})


def train(net, steps, rank, until):
    for step in range(completed(steps), until):
        x, labels = data(rank, step)
        steps.zero_grad()
        nn.functional.cross_entropy(net(x), labels).backward()
        steps.step()


def completed(steps):
    """The steps so far, also if a framework has wrapped ``LocalSteps``."""
    return getattr(steps, "optimizer", steps).completed_steps


def moments(inner):
    return [state["exp_avg"].clone() for state in inner.state.values()]


def equal(ones, others):
    return len(ones) == len(others) > 0 and all(torch.equal(one, other) for one, other in zip(ones, others))


def resumed_from(save_and_load, rank, at=7, until=12):
    """Whether a run that is resumed in the middle of a round, with a new optimizer, has the bits of
    one that goes on."""
    net, inner, steps = local("topk:ratio=0.1")
    train(net, steps, rank, at)
    before, model = moments(inner), copy.deepcopy(net.state_dict())
    again, twin, other = local("topk:ratio=0.1")
    save_and_load(steps, other)
    again.load_state_dict(model)
    same = equal(moments(twin), before) and twin.param_groups[0]["lr"] == 0.003
    for model, optimizer in ((net, steps), (again, other)):
        train(model, optimizer, rank, until)
    return same, bool((flat(net) == flat(again)).all())


def by_every_way(rank, size, folder):
    """Saves and loads in each way that keeps the state of every rank."""

    def in_a_file(steps, other):
        torch.save(steps.state_dict(), f"{folder}/{rank}")
        other.load_state_dict(torch.load(f"{folder}/{rank}", weights_only=True))

    def of_all_ranks(steps, other):
        states = steps.all_ranks.state_dict()
        if rank == 0:
            torch.save(states, f"{folder}/all")
        dist.barrier()
        other.all_ranks.load_state_dict(torch.load(f"{folder}/all", weights_only=True))

    def distributed(steps, other):
        dcp.save({"steps": steps.state_dict()}, checkpoint_id=f"{folder}/dcp")
        state = {"steps": other.state_dict()}
        dcp.load(state, checkpoint_id=f"{folder}/dcp")
        other.load_state_dict(state["steps"])

    return {ways.__name__: resumed_from(ways, rank) for ways in (in_a_file, of_all_ranks, distributed)}


def test_a_state_has_the_local_optimizer_of_every_rank():
    with tempfile.TemporaryDirectory() as folder:
        for found in ranks(2, by_every_way, folder):
            assert set(found.values()) == {(True, True)}, found


def of_other_optimizers(rank, size):
    net, inner, steps = local("topk")
    train(net, steps, rank, 2)
    saved = steps.state_dict()
    fewer = torch.optim.Adam(net.first.parameters())
    for state, optimizer, says in [
        (inner.state_dict(), inner, "saved without LocalSteps; load it into the local optimizer"),
        (saved, fewer, "saved local optimizer has different parameter groups"),
    ]:
        other = gradwire.torch.LocalSteps(net, optimizer, compressor="topk", every=3)
        with pytest.raises(gradwire.StateError, match=says):
            other.load_state_dict(state)
        assert other.completed_steps == 0


def test_states_of_other_optimizers_are_refused():
    ranks(1, of_other_optimizers)


def with_distributed_checkpoints(rank, size):
    """What the functions that know only plain optimizers do, before and after the first step."""
    accelerate = pytest.importorskip("accelerate.optimizer")
    net, inner, steps = local("none", every=1)
    # It takes a step with the local optimizer, which is no step of LocalSteps.
    saved = of_checkpoints.get_optimizer_state_dict(net, inner)
    assert steps.completed_steps == 0
    inner.state.clear()
    wrapped = accelerate.AcceleratedOptimizer.__new__(accelerate.AcceleratedOptimizer)
    wrapped.optimizer = steps
    for taken in (0, 1):
        parameters = flat(net).copy()
        gradients = [parameter.grad is None for parameter in net.parameters()]
        for optimizer in (steps, wrapped):
            for call in (
                lambda: of_checkpoints.get_optimizer_state_dict(net, optimizer),
                lambda: of_checkpoints.get_state_dict(net, [optimizer]),
                lambda: of_checkpoints.set_optimizer_state_dict(net, optimizer, optim_state_dict=saved),
                lambda: of_checkpoints.set_state_dict(net, optimizer, model_state_dict=net.state_dict(), optim_state_dict=saved),
            ):
                with pytest.raises(gradwire.ConfigError, match="pass the local optimizer to them, and save steps.state_dict"):
                    call()
        assert steps.completed_steps == taken and len(inner.state) == taken * 6 and inner.param_groups[0]["lr"] == 0.003
        assert (flat(net) == parameters).all() and [parameter.grad is None for parameter in net.parameters()] == gradients
        train(net, steps, rank, 1)


def test_functions_for_plain_optimizers_refuse_local_steps_before_anything_happens():
    ranks(1, with_distributed_checkpoints)


def with_accelerate(rank, size, folder, compressor):
    """Moments before and after, and warnings, if Accelerate saves the optimizer of rank 0 alone."""
    accelerate = pytest.importorskip("accelerate")
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "localhost", "MASTER_PORT": 1}
    os.environ.update({name: str(value) for name, value in place.items()})
    accelerator = accelerate.Accelerator(cpu=True)
    net, inner, steps = local(compressor)
    steps = accelerator.prepare(steps)
    train(net, steps, rank, 6)
    accelerator.save_state(folder)
    dist.barrier()
    accelerator.free_memory()
    net, twin, other = local(compressor)
    other = accelerator.prepare(other)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        accelerator.load_state(folder)
    train(net, other, rank, 9)
    own = [str(one.message) for one in caught if issubclass(one.category, RuntimeWarning) and "LocalSteps" in str(one.message)]
    return moments(inner), own, flat(net), completed(other)


@pytest.mark.parametrize("compressor, lost", [
    ("topk:ratio=0.1", "its local optimizer continues with the state of another rank, and its residual begins empty"),
    ("eden", "its local optimizer continues with the state of another rank"),
])
def test_accelerate_restores_the_local_optimizer_of_rank_0(compressor, lost):
    with tempfile.TemporaryDirectory() as folder:
        (_, quiet, one, taken), (_, (warned,), two, others) = ranks(2, with_accelerate, folder, compressor)
        saved = torch.load(f"{folder}/optimizer.bin", weights_only=True)
    assert not quiet and (one == two).all() and taken == others == 9
    assert "the state of LocalSteps only for rank0, and this is rank1" in warned and f": {lost}. " in warned
    assert "steps.all_ranks" in warned and sorted(saved["optimizer"]) == ["rank0"]


def with_fabric(rank, folder):
    fabric = pytest.importorskip("lightning.fabric").Fabric(accelerator="cpu", devices=1)

    def save_and_load(steps, other):
        fabric.save(f"{folder}/fabric{rank}", {"optimizer": fabric.setup_optimizers(steps)})
        fabric.load(f"{folder}/fabric{rank}", {"optimizer": fabric.setup_optimizers(other)})

    return resumed_from(save_and_load, rank)


def with_lightning(rank, folder, at=6, until=12):
    """As ``resumed_from``, at the end of a round: Lightning loads the model before it creates the
    optimizer."""
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.net = Net()

        def configure_optimizers(self):
            self.inner = torch.optim.Adam(self.net.parameters(), lr=0.003)
            steps = gradwire.torch.LocalSteps(self.net, self.inner, compressor="topk:ratio=0.1", every=3)
            scheduler = torch.optim.lr_scheduler.StepLR(steps, 2, 0.5)
            return {"optimizer": steps, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

        def training_step(self, batch, index):
            x, labels = data(rank, self.global_step)
            return nn.functional.cross_entropy(self.net(x), labels)

        def on_train_start(self):
            self.loaded = moments(self.inner)

    def run(steps, path=None):
        module = Module()
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = lightning.Trainer(accelerator="cpu", devices=1, max_steps=steps, **quiet)
        loader = torch.utils.data.DataLoader(list(range(until)), batch_size=1)
        trainer.fit(module, loader, ckpt_path=path)
        return module, trainer

    whole, _ = run(until)
    half, trainer = run(at)
    trainer.save_checkpoint(f"{folder}/lightning{rank}")
    resumed, _ = run(until, f"{folder}/lightning{rank}")
    return equal(resumed.loaded, moments(half.inner)), bool((flat(resumed.net) == flat(whole.net)).all())


def with_lightning_and_fabric(rank, size, folder):
    # Each rank is a run of its own for Lightning, and saves its own files.
    return with_fabric(rank, folder), with_lightning(rank, folder)


def test_lightning_and_fabric_restore_the_local_optimizer():
    pytest.importorskip("lightning")
    with tempfile.TemporaryDirectory() as folder:
        assert ranks(2, with_lightning_and_fabric, folder) == [((True, True), (True, True))] * 2
