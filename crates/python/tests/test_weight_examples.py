"""Runs the examples that ship weights to inference engines, with stand-ins for the engines."""

import importlib
import multiprocessing
import runpy
import shutil
import sys
from pathlib import Path

import engines
import pytest
from engines import assert_engine_has
from safetensors.torch import save_file

import gradwire
import gradwire.delta as delta

EXAMPLES = Path(__file__).parents[3] / "examples" / "weights"


@pytest.fixture
def base(tmp_path):
    """A checkpoint on disk, which trainer and engines start from."""
    folder = tmp_path / "base"
    folder.mkdir()
    save_file(engines.checkpoint(), folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    return str(folder)


@pytest.fixture
def example(monkeypatch, tmp_path):
    """Imports an example anew, with stand-ins for the packages that it imports."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("GRADWIRE_STAGED", str(tmp_path))
    patches = {name: getattr(engines, name) for name in ("CheckpointWeightPatch", "load_checkpoint_weight_patches")}
    stand_ins = [
        engines.module("vllm.model_executor.model_loader.checkpoint_weight_patch", **patches),
        engines.module("trl.generation.vllm_client", VLLMClient=engines.VLLMClient)
        | engines.module("trl.generation.vllm_generation", VLLMClient=engines.VLLMClient),
        engines.module(
            "verl.checkpoint_engine",
            CheckpointEngine=engines.CheckpointEngine,
            CheckpointEngineRegistry=engines.CheckpointEngineRegistry,
        ),
    ]
    for modules in stand_ins:
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(engines.CheckpointEngineRegistry, "registered", {})

    def load(name):
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return load


class Publisher:
    """A trainer that publishes each step in a folder."""

    def __init__(self, base, folder):
        self.trainer = engines.Trainer(engines.checkpoint())
        self.sender, self.folder = delta.Sender(base), delta.Folder(folder)

    def step(self):
        self.trainer.step()
        self.folder.publish(self.sender.diff(self.trainer.weights()))
        self.sender.commit()


def three_steps_a_missed_one_and_a_restart(step, follow, restart, models, weights):
    """Runs the scenario, and compares the weights of the engine's `models()` with the trainer's."""

    def check():
        follow()
        for model in models():
            assert_engine_has(model, weights())

    for _ in range(3):
        step()
        check()
    step()
    # The engine misses this version, and takes it with the next one.
    step()
    check()
    restart()
    check()
    step()
    check()


def assert_not(model, weights):
    with pytest.raises(AssertionError):
        assert_engine_has(model, weights)


def test_vllm_follows_a_folder(example, base, tmp_path):
    receiver, folder = example("vllm_receiver"), str(tmp_path / "run")
    publisher, engine = Publisher(base, folder), []

    def restart():
        engine[:] = [engines.LLM(engines.checkpoint(), receiver.DeltaWorker)]

    restart()
    three_steps_a_missed_one_and_a_restart(
        publisher.step,
        lambda: receiver.follow(engine[0].collective_rpc, base, folder),
        restart,
        lambda: engine[0].models,
        publisher.trainer.weights,
    )
    # Nothing is new.
    assert receiver.follow(engine[0].collective_rpc, base, folder) is None


def test_vllm_takes_nan(example, base, tmp_path):
    receiver, folder = example("vllm_receiver"), str(tmp_path / "run")
    publisher, engine = Publisher(base, folder), engines.LLM(engines.checkpoint(), receiver.DeltaWorker)
    for name in publisher.trainer.changing():
        publisher.trainer.masters[name].view(-1)[7] = float("nan")
    publisher.step()
    receiver.follow(engine.collective_rpc, base, folder)
    for model in engine.models:
        assert_engine_has(model, publisher.trainer.weights())


def test_a_vllm_worker_that_fails_is_written_again(example, base, tmp_path, monkeypatch):
    receiver, folder = example("vllm_receiver"), str(tmp_path / "run")
    publisher, engine = Publisher(base, folder), engines.LLM(engines.checkpoint(), receiver.DeltaWorker)
    publisher.step()
    with monkeypatch.context() as failing:
        failing.setattr(engine.models[1], "load_weights", lambda weights: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            receiver.follow(engine.collective_rpc, base, folder)
    assert_not(engine.models[1], publisher.trainer.weights())
    # The version has not advanced, so the same update comes again.
    assert receiver.follow(engine.collective_rpc, base, folder) == 1
    for model in engine.models:
        assert_engine_has(model, publisher.trainer.weights())
    publisher.step()
    receiver.follow(engine.collective_rpc, base, folder)
    for model in engine.models:
        assert_engine_has(model, publisher.trainer.weights())


def test_sglang_follows_a_folder(example, base, tmp_path):
    receiver, folder = example("sglang_receiver"), str(tmp_path / "run")
    publisher, followers = Publisher(base, folder), []

    def restart():
        engine = engines.SglangEngine(engines.checkpoint())
        # Several chunks: a tensor has 2048 bytes.
        followers[:] = [receiver.Follower(engine, base, folder, chunk=5000)]

    def follow():
        followers[0].follow()
        assert not followers[0].engine.session and not followers[0].engine.stale

    restart()
    three_steps_a_missed_one_and_a_restart(
        publisher.step, follow, restart, lambda: followers[0].engine.models, publisher.trainer.weights
    )


def test_sglang_loads_again_after_a_failure(example, base, tmp_path, monkeypatch):
    receiver, folder = example("sglang_receiver"), str(tmp_path / "run")
    publisher, engine = Publisher(base, folder), engines.SglangEngine(engines.checkpoint())
    follower = receiver.Follower(engine, base, folder, chunk=5000)
    publisher.step()
    with monkeypatch.context() as failing:
        load = engine.update_weights_from_tensor
        calls = iter([load, lambda *_, **__: (False, "out of memory")])
        failing.setattr(engine, "update_weights_from_tensor", lambda *args, **kwargs: next(calls)(*args, **kwargs))
        with pytest.raises(RuntimeError, match="call follow.. again: out of memory"):
            follower.follow()
    # A part was written, and the receiver has not advanced.
    assert follower.receiver.version == 0
    assert follower.follow() == 1
    for model in engine.models:
        assert_engine_has(model, publisher.trainer.weights())


def test_a_missing_link_is_named_before_the_engine_is_touched(example, base, tmp_path):
    receiver, folder = example("sglang_receiver"), tmp_path / "run"
    publisher, engine = Publisher(base, str(folder)), engines.SglangEngine(engines.checkpoint())
    follower = receiver.Follower(engine, base, str(folder))
    # Nothing is published yet.
    assert follower.follow() == 0
    for _ in range(3):
        publisher.step()
    (folder / "delta-0000000001-0000000002.gwd").unlink()
    with pytest.raises(gradwire.StateError, match="version 2"):
        follower.follow()
    assert follower.receiver.version == 0
    for model in engine.models:
        assert_engine_has(model, engines.checkpoint())
    # A snapshot helps.
    publisher.folder.publish(publisher.sender.snapshot())
    assert follower.follow() == 3
    for model in engine.models:
        assert_engine_has(model, publisher.trainer.weights())


def test_trl_ships_each_step(example, base, tmp_path, monkeypatch):
    worker = example("vllm_receiver").DeltaWorker
    trl, folder = example("trl_trainer"), str(tmp_path / "run")
    trainer = engines.Trainer(engines.checkpoint())

    def restart():
        engines.VLLMClient.server = engines.LLM(engines.checkpoint(), worker)

    monkeypatch.setattr(engines.VLLMClient, "server", None)
    restart()
    trl.use_deltas(base, folder)
    client = sys.modules["trl.generation.vllm_generation"].VLLMClient
    generation = engines.VLLMGeneration(client, lambda: iter(trainer.masters.items()))

    def step():
        trainer.step()
        # TRL syncs before it generates, so a server that misses a version is one that is down.
        server, engines.VLLMClient.server = engines.VLLMClient.server, Unreachable()
        with pytest.raises(ConnectionError):
            generation.sync_weights()
        engines.VLLMClient.server = server

    three_steps_a_missed_one_and_a_restart(
        step, generation.sync_weights, restart, lambda: engines.VLLMClient.server.models, trainer.weights
    )
    # A trainer that starts again goes on with the folder.
    generation = engines.VLLMGeneration(client, lambda: iter(trainer.masters.items()))
    trainer.step()
    generation.sync_weights()
    for model in engines.VLLMClient.server.models:
        assert_engine_has(model, trainer.weights())


class Unreachable:
    def collective_rpc(self, *_, **__):
        raise ConnectionError


def test_verl_ships_each_step(example, base, tmp_path):
    example("verl_engine")
    trainer, start = engines.Trainer(engines.checkpoint()), engines.checkpoint()
    manager = engines.VerlManager(start, "gradwire", base=base, folder=str(tmp_path / "run"))
    # The actor has its weights in float32; the engine sends them as the rollout has them.
    follow = lambda: manager.update_weights(trainer.masters)

    def step():
        # A rollout that fails while it loads is without this version.
        trainer.step()
        with pytest.raises(RuntimeError, match="out of memory"):
            manager.update_weights(trainer.masters, failing={0})

    three_steps_a_missed_one_and_a_restart(
        step, follow, lambda: manager.start_rollout(start), lambda: manager.models, trainer.weights
    )
    changing = trainer.changing()
    trainer.step()
    metrics = follow()
    assert manager.received == changing
    assert 0 < metrics["checkpoint_engine/payload_mbytes"] < sum(one.nbytes for one in start.values()) / 2**20


def test_slime_ships_each_checkpoint(example, base, tmp_path, monkeypatch):
    monkeypatch.setenv("GRADWIRE_BASE", base)
    monkeypatch.setenv("GRADWIRE_FOLDER", str(tmp_path / "run"))
    hooks, trainer, engine = example("slime_hooks"), engines.Trainer(engines.checkpoint()), []
    updater = engines.SlimeTrainer(tmp_path / "trainer", hooks.publish, monkeypatch)

    def restart():
        shutil.rmtree(tmp_path / "engine", ignore_errors=True)
        engine[:] = [
            engines.SlimeEngine(engines.checkpoint(), tmp_path / "local", tmp_path / "engine", hooks.fetch)
        ]

    def step():
        trainer.step()
        updater.update_weights(trainer.weights(), None)

    restart()
    three_steps_a_missed_one_and_a_restart(
        step,
        lambda: updater.update_weights(trainer.weights(), engine[0]),
        restart,
        lambda: engine[0].models,
        trainer.weights,
    )


@pytest.mark.parametrize("steps", [4])
def test_policy_gradient_survives_a_killed_sampler(steps, tmp_path, monkeypatch, capsys):
    # Forked processes need not import PyTorch anew.
    context = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: context)
    monkeypatch.setattr(sys, "argv", ["policy_gradient.py", "--steps", str(steps), "--folder", str(tmp_path)])
    runpy.run_path(str(EXAMPLES / "policy_gradient.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "killed the sampler" in printed and "equal weights" in printed and f"at version {steps}" in printed
