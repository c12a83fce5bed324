"""Runs the examples as a user would."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from world import PATIENCE

EXAMPLES = Path(__file__).parents[3] / "examples" / "pytorch"


def run(*command):
    environment = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0"}
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment)


def start(*command):
    done = run(*command)
    assert done.returncode == 0, done.stderr
    found = re.search(r"accuracy ([0-9.]+), (\d+) bytes", done.stdout)
    assert found, done.stdout
    return float(found[1]), int(found[2])


def ddp(*arguments):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return start(*torchrun, str(EXAMPLES / "mnist_ddp.py"), *arguments)


def test_ddp_on_generated_digits():
    # More than two epochs of steps.
    accuracy, sent = ddp()
    # Uncompressed, 50 thousand parameters of four bytes would be sent 200 times.
    assert accuracy > 0.6 and sent < 200 * 50_000 * 4 / 25


@pytest.mark.parametrize("command, says", [
    (["mnist_ddp.py", "--data", "no-such-folder"], "there is no folder no-such-folder"),
    (["with_torchft.py", "--resume"], "no --resume"),
])
def test_arguments_that_an_example_cannot_follow_are_refused(command, says):
    if command[0] == "with_torchft.py":
        pytest.importorskip("torchft")
    done = run(sys.executable, str(EXAMPLES / command[0]), *command[1:])
    assert done.returncode != 0 and says in done.stderr, done.stderr


def test_ddp_on_mnist():
    folder = Path(os.environ.get("GRADWIRE_DATA", ".")) / "mnist"
    if not folder.is_dir():
        # The data cannot be distributed with the project. `cargo xtask test` counts skipped tests, and fails under CI.
        pytest.skip("no mnist under GRADWIRE_DATA")
    accuracy, _ = ddp("--data", str(folder), "--steps", "150")
    assert accuracy > 0.8


@pytest.mark.parametrize("failing", [{2}, {1, 2, 3, 4}])
def test_federated_rounds_go_on_without_clients_that_fail(failing, monkeypatch, capsys):
    pytest.importorskip("flwr")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import federated_flower as example
    from flwr.app import Context, Error, Message, RecordDict

    example.TaskIdentity.task_id = example.TaskIdentity.run_id = example.TaskIdentity.node_id = 0
    deliver = example.OneProcess._deliver

    def failing_deliver(self, message):
        fails = message.metadata.dst_node_id in failing
        return Message(Error(0, "out of memory"), reply_to=message) if fails else deliver(self, message)

    monkeypatch.setattr(example.OneProcess, "_deliver", failing_deliver)
    run = lambda: example.server(example.OneProcess(4), Context(0, 0, {}, RecordDict(), {"rounds": 1}))
    if len(failing) == 4:
        with pytest.raises(RuntimeError, match="no client completed round 1: out of memory"):
            run()
    else:
        run()
        assert "accuracy" in capsys.readouterr().out


def test_federated_rounds():
    accuracy, sent = start(sys.executable, str(EXAMPLES / "federated_flower.py"), "--rounds", "5")
    assert accuracy > 0.9 and sent < 11_048 / 10
