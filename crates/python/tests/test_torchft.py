"""Tests compression under torchft's Manager: replicas that stay, are lost, fail a step, and
join."""

import os
import re
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import nn

torchft = pytest.importorskip("torchft", reason="install torchft to test replicas that come and go")

import gradwire.torch  # noqa: E402
from elastic import digest, lighthouse, workers  # noqa: E402
from gradwire.torch._channel import Channel  # noqa: E402
from gradwire.torch._options import Options  # noqa: E402
from gradwire.torch.torchft import DistributedDataParallel, ProcessGroupGloo, _Compression  # noqa: E402
from models import Net, data, flat  # noqa: E402
from world import PATIENCE, ranks  # noqa: E402

TIMEOUT = timedelta(seconds=20)
EXAMPLE = Path(__file__).parents[3] / "examples" / "pytorch" / "with_torchft.py"


def managed(address, shard, least, compressor, **options):
    """A model, its optimizer and the manager of a replica of one rank, as torchft's documentation
    has them."""
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1")
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def save():
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    def load(state):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    manager = torchft.Manager(
        pg=ProcessGroupGloo(TIMEOUT), load_state_dict=load, state_dict=save, min_replica_size=least, replica_id=f"replica{shard}",
        store_addr="127.0.0.1", store_port=store.port, lighthouse_addr=address, timeout=TIMEOUT, quorum_timeout=2 * TIMEOUT,
        hostname="127.0.0.1", use_async_quorum=False, init_sync=False,
    )
    wrapped = DistributedDataParallel(manager, model, compressor, **options)
    return store, wrapped, torchft.Optimizer(manager, optimizer), manager


def train(log, address, shard, steps, compressor, least, fails=None, pause=0.0):
    """Trains; in the attempt ``fails`` this replica reports an error after its exchange."""
    store, model, optimizer, manager = managed(address, shard, least, compressor)
    attempt = 0
    while manager.current_step() < steps:
        step = manager.current_step()
        x, labels = data(shard, step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        if attempt == fails:
            manager.report_error(RuntimeError("a fault of this replica"))
        optimizer.step()
        attempt += 1
        if manager.current_step() > step:
            log("step", manager.current_step(), digest(torch.from_numpy(flat(model.module))), manager.num_participants())
        time.sleep(pause)
    log("sent", model.stats()["message_bytes"], len(model.residuals()))
    log("attempts", attempt)
    manager.shutdown(wait=False)
    time.sleep(0.5)


def run(replicas, steps, compressor, failing=()):
    """The digests after each step, the attempts of each replica, and what the first sent;
    ``failing`` fail their fourth attempt."""
    with lighthouse(replicas, heartbeat_seconds=5.0) as address, workers() as start:
        started = [
            start(train, address, shard, steps, compressor, replicas, 3 if shard in failing else None) for shard in range(replicas)
        ]
        for worker in started:
            worker.finish()
        return agreed(started), [int(worker.lines("attempts")[0][0]) for worker in started], started[0].lines("sent")[0]


def agreed(replicas):
    """The digest after each step, the same on all replicas that took it."""
    digests = {}
    for worker in replicas:
        for step, found, _ in worker.lines("step"):
            assert digests.setdefault(int(step), found) == found, f"replicas differ after step {step}: {worker.text()}"
    return digests


def with_views(log, address):
    store, model, optimizer, manager = managed(address, 0, 1, "3lc", bucket_cap_mb=1, gradient_as_bucket_view=True)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(data(0, 0)[0]), data(0, 0)[1]).backward()
    # Views of a bucket have one storage.
    log("storages", len({one.grad.untyped_storage().data_ptr() for one in model.parameters()}), model.gradient_as_bucket_view)
    manager.shutdown(wait=False)


def test_arguments_of_pytorch_are_passed_on():
    with lighthouse(1) as address, workers() as start:
        worker = start(with_views, address)
        worker.finish()
        assert worker.lines("storages") == [["1", "True"]]


def test_replicas_stay_equal_and_send_less():
    digests, attempts, (sent, residuals) = run(2, 6, "3lc")
    elements = 64 * 96 + 96 + 2 * 96 + 96 * 10 + 10
    assert set(digests) == set(range(1, 7)) and attempts == [6, 6]
    # Vectors are sent uncompressed.
    assert int(sent) < 4 * elements / 5 and int(residuals) > 4 * 64 * 96


def test_a_step_that_no_replica_commits_changes_no_residual():
    undisturbed, _, _ = run(2, 6, "3lc")
    disturbed, attempts, _ = run(2, 6, "3lc", failing=(0, 1))
    assert attempts == [7, 7]
    assert disturbed == undisturbed


def test_a_replica_that_alone_does_not_commit_heals():
    digests, attempts, _ = run(2, 6, "3lc", failing=(1,))
    # The other committed its step, so that the next attempt begins with the model and the step of
    # the other.
    assert set(digests) == set(range(1, 7)) and attempts == [6, 6]


class Alone:
    """What gradwire asks the Manager of a single replica."""

    step, _commit_failures = 0, 0

    def current_step(self):
        return self.step


def alone(rank, size):
    manager, layer = Alone(), nn.Linear(64, 96, bias=False)
    compression = _Compression(manager, layer, Options("topk:ratio=0.1", exchange="all-gather", deadline=20.0))
    store = torch.distributed.HashStore()
    channel = Channel((torch.distributed.ProcessGroupGloo(store, 0, 1, TIMEOUT),) * 2)
    generator = torch.Generator().manual_seed(0)

    def passed():
        """What a backward pass leaves out of its message."""
        gradient = torch.randn(64 * 96, generator=generator)
        mean = gradient.clone()
        compression.average(channel, True, [layer.weight], mean)
        return gradient - mean

    def residual():
        return torch.frombuffer(bytearray(compression._reducer.array("weight", "residual")), dtype=torch.float32)

    kept = passed()
    torch.testing.assert_close(residual(), kept)
    manager.step, committed = 1, compression._reducer.save()
    # Two passes of one attempt.
    left = kept + passed() + passed()
    torch.testing.assert_close(residual(), left)
    # It fails: checkpoints have what was there before it, and so does the next attempt.
    assert compression.save() == committed
    manager._commit_failures = 1
    left = kept + passed()
    torch.testing.assert_close(residual(), left)
    manager.step, manager._commit_failures = 2, 0
    assert compression.save() == compression._reducer.save() != committed


def test_residuals_are_those_behind_the_last_committed_step():
    ranks(1, alone)


def test_a_lost_replica_is_replaced():
    with lighthouse(2, heartbeat_seconds=1.5) as address, workers() as start:
        started = [start(train, address, shard, 40, "topk:ratio=0.05", 2, None, 0.05) for shard in range(3)]
        until = time.monotonic() + PATIENCE
        while len(started[2].lines("step")) < 5:
            assert time.monotonic() < until and started[2].alive, started[2].text()
            time.sleep(0.02)
        started[2].send(signal.SIGKILL)
        joined = start(train, address, 3, 40, "topk:ratio=0.05", 2, None, 0.05)
        for worker in [*started[:2], joined]:
            worker.finish()
        digests = agreed([*started, joined])
        assert max(digests) == 40
        assert joined.lines("step"), joined.text()


def refused(log, address):
    store, model, _, manager = managed(address, 0, 1, "3lc")
    for create, says in [
        (lambda: DistributedDataParallel(manager, Net(), "3lc:every=2"), "every"),
        (lambda: DistributedDataParallel(manager, Net(), "3lc", exchange="all-reduce"), "exchange= is not supported"),
        (lambda: DistributedDataParallel(manager, Net(), "3lc", deadline=5.0), "timeout of ProcessGroupGloo"),
        (lambda: DistributedDataParallel(manager, Net(), "3lc", on_nonfinite="skip"), "does not commit a step with NaN"),
        (lambda: DistributedDataParallel(manager, Net(), "3lc", bucket_cap=1), "did you mean 'bucket_cap_mb'"),
        (lambda: DistributedDataParallel(manager, Net(), "3lc", sed=1), "did you mean 'seed'"),
        (lambda: DistributedDataParallel(manager, Net(), "3lc", rules=["first.* -> topk:ef=ef21"]), "ef=ef21 cannot work"),
        (lambda: DistributedDataParallel(manager, Net().to("meta")), "is on meta"),
        (lambda: DistributedDataParallel(manager, Net(), "signsgd"), "would vote"),
        (model.residuals, "no step yet"),
    ]:
        try:
            create()
        except gradwire.ConfigError as error:
            assert says in str(error), error
        else:
            raise AssertionError(says)
    try:
        model.load_residuals(b"no state")
    except gradwire.StateError:
        pass
    else:
        raise AssertionError("residuals that are none were loaded")
    manager._pg = object()
    try:
        DistributedDataParallel(manager, Net())
    except gradwire.ConfigError as error:
        assert "ProcessGroupGloo()" in str(error)


def test_what_cannot_work_is_refused():
    with lighthouse(1) as address, workers() as start:
        start(refused, address).finish()


def test_the_example_trains(tmp_path):
    with lighthouse(2, heartbeat_seconds=5.0) as address:
        command = [sys.executable, str(EXAMPLE), "--steps", "30"]
        logs, replicas = [tmp_path / f"replica{number}" for number in range(2)], []
        try:
            for number, log in enumerate(logs):
                environment = {**os.environ, "TORCHFT_LIGHTHOUSE": address, "REPLICA": str(number)}
                # A full pipe, which nobody reads, would stop a replica that the other waits for.
                with log.open("w") as errors:
                    replicas.append(
                        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
                    )
            for replica, log in zip(replicas, logs):
                printed, _ = replica.communicate(timeout=PATIENCE)
                assert replica.returncode == 0, log.read_text()
                assert float(re.search(r"accuracy ([0-9.]+)", printed)[1]) > 0.5
        finally:
            for replica in replicas:
                replica.kill()
                replica.wait()
