"""A lighthouse and workers as processes that a test may kill, stop and add."""

import contextlib
import faulthandler
import hashlib
import multiprocessing
import os
import signal
import tempfile
import time
import traceback

import torch
from torch import nn
from torchft.coordination import LighthouseServer

import gradwire.torch
from models import Net, data
from world import PATIENCE

_FORK = multiprocessing.get_context("fork")
EVERY = 4


def _serve(pipe, least, join_seconds, heartbeat_seconds):
    # Its log would hide the output of a failed test.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    server = LighthouseServer(
        bind="127.0.0.1:0",
        min_replicas=least,
        join_timeout_ms=int(1000 * join_seconds),
        heartbeat_timeout_ms=int(1000 * heartbeat_seconds),
    )
    pipe.send(server.address().rsplit(":", 1)[1])
    signal.pause()


@contextlib.contextmanager
def lighthouse(least, join_seconds=10.0, heartbeat_seconds=1.5):
    """The address of a lighthouse in a process of its own."""
    ours, theirs = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_serve, args=(theirs, least, join_seconds, heartbeat_seconds))
    process.start()
    try:
        assert ours.poll(30), "the lighthouse did not start"
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.kill()
        process.join()


def digest(values):
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16]


def _run(function, path, arguments):
    torch.set_num_threads(1)
    log = open(path, "a", buffering=1)
    # A native crash would otherwise leave no trace, and a hang would not show where it is.
    os.dup2(log.fileno(), 2)
    faulthandler.register(signal.SIGUSR1, file=log)
    code = 1
    try:
        function(lambda *words: log.write(" ".join(map(str, words)) + "\n"), *arguments)
        code = 0
    except BaseException:  # noqa: BLE001 - it is passed on
        log.write("error " + traceback.format_exc().replace("\n", " | ") + "\n")
    os._exit(code)


class Worker:
    """A process that runs ``function(log, *arguments)``; ``log`` writes words as a line."""

    def __init__(self, folder, function, *arguments):
        self.path = os.path.join(folder, f"worker{len(os.listdir(folder))}")
        open(self.path, "w").close()
        self._process = _FORK.Process(target=_run, args=(function, self.path, arguments))
        self._process.start()

    def lines(self, word):
        """The complete lines that begin with a word, as lists of the words after it."""
        with open(self.path) as file:
            lines = [line.split() for line in file if line.endswith("\n")]
        return [line[1:] for line in lines if line and line[0] == word]

    @property
    def alive(self):
        return self._process.exitcode is None

    def send(self, signal_):
        os.kill(self._process.pid, signal_)
        if signal_ == signal.SIGKILL:
            self._process.join()

    def finish(self):
        """Waits for its end; fails if it raised, died or hangs."""
        self._process.join(PATIENCE)
        if self.alive:
            raise AssertionError(f"a worker hangs: {self.text()}")
        assert self._process.exitcode == 0, self.text()

    def text(self):
        """The end of what it wrote, with the stacks of its threads if it is running."""
        if self.alive:
            self.send(signal.SIGUSR1)
            time.sleep(0.2)
        with open(self.path) as file:
            return file.read()[-4000:]


@contextlib.contextmanager
def workers():
    """A function that starts workers; those still alive at the end are killed."""
    started = []

    def start(function, *arguments):
        started.append(Worker(folder, function, *arguments))
        return started[-1]

    with tempfile.TemporaryDirectory() as folder:
        try:
            yield start
        finally:
            for worker in started:
                if worker.alive:
                    worker.send(signal.SIGKILL)


def local_steps(address, seed=0, net=None, **options):
    torch.manual_seed(seed)
    net = net or Net()
    # Every step of every worker changes it.
    net.register_buffer("seen", torch.zeros(3))
    inner = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    outer = gradwire.torch.Nesterov(lr=0.7, momentum=0.5)
    options = {"every": EVERY, "compressor": "sbc:p=0.05", "outer": outer, "min_workers": 2, "deadline": 60.0, **options}
    return net, gradwire.torch.LocalSteps(net, inner, lighthouse=address, **options)


def task(shard, step):
    """A batch of a task with a loss that does not go to zero: the inputs of `data`, nearer to each
    other."""
    x, labels = data(shard, step)
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(7919 * step + shard))
    return 0.3 * x + noise, labels


def train(log, address, shard, rounds, seed, pause, deadline=60.0, stay=False):
    """Trains to a number of rounds, and logs the common parameters after each, then the loss.

    With ``stay`` it goes on until it is killed: workers that join later need somebody to join.
    """
    parent = os.getppid()
    net, steps = local_steps(address, seed, deadline=deadline)
    log("joined", steps.completed_steps)
    while steps.completed_steps < rounds * EVERY:
        _step(log, net, steps, shard, seed, pause)
    with torch.no_grad():
        losses = [nn.functional.cross_entropy(net(x), labels) for x, labels in (task(999, step) for step in range(40))]
    log("loss", (sum(losses) / len(losses)).item(), steps.completed_steps // EVERY)
    log("stats", steps.stats()["lost_workers"], steps.stats()["joined_workers"])
    while stay and os.getppid() == parent:
        _step(log, net, steps, shard, seed, pause)


def _step(log, net, steps, shard, seed, pause):
    x, labels = task(shard, steps.completed_steps + 100_000 * seed)
    steps.zero_grad()
    net.seen += shard + 1
    nn.functional.cross_entropy(net(x), labels).backward()
    steps.step()
    time.sleep(pause)
    if steps.completed_steps % EVERY == 0:
        log("round", steps.completed_steps // EVERY, digest(torch.cat([steps._replica.common, net.seen])), steps.stats()["workers"])
