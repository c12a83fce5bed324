"""Runs each rank of a test in a process, connected by gloo."""

import io
import multiprocessing
import os
import reprlib
import signal
import tempfile
import time
import traceback

import torch
import torch.distributed as dist

from device import DEVICE

_FORK = multiprocessing.get_context("fork")

# The seconds after which something hangs. Slow machines run many tests at once, and only a test
# that fails waits so long.
PATIENCE = 600


def _pack(result):
    file = io.BytesIO()
    torch.save(result, file)
    return file.getvalue()


def _unpack(data):
    return torch.load(io.BytesIO(data), weights_only=False)


class RankFailed(AssertionError):
    """A rank raised; the message is its traceback."""


def _main(function, rank, size, store, pipe, arguments, backend):
    torch.set_num_threads(1)
    if DEVICE.type != "cpu":
        torch.set_default_device(DEVICE)
    try:
        dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=size)
        # A rank that ends at once would break the connections of one that is still connecting.
        dist.barrier()
        result = ("ok", function(rank, size, *arguments))
    except BaseException as error:  # noqa: BLE001 - it is passed on
        result = ("error", type(error).__name__, str(error), traceback.format_exc())
    # Sends bytes, because tensors would be shared with a process that ends.
    pipe.send_bytes(_pack(result))
    pipe.close()
    # Skips the interpreter's shutdown: background threads may wait for ranks that are gone.
    os._exit(0)


def outcomes(size, function, *arguments, timeout=PATIENCE, backend="gloo"):
    """The outcome of `function(rank, size, *arguments)` on every rank.

    Outcomes are ("ok", result), ("error", type, message, traceback), or ("gone",) for a process
    that died.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        pipes, processes = [], []
        for rank in range(size):
            ours, theirs = _FORK.Pipe(duplex=False)
            process = _FORK.Process(target=_main, args=(function, rank, size, store, theirs, arguments, backend))
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        results = []
        for pipe in pipes:
            try:
                results.append(_unpack(pipe.recv_bytes()) if pipe.poll(timeout) else ("error", "Hang", "no answer", "no answer"))
            except EOFError:
                results.append(("gone",))
        for process in processes:
            process.join(5)
            if process.is_alive():
                process.kill()
        return results


def ranks(size, function, *arguments, timeout=PATIENCE, backend="gloo"):
    """The results of all ranks; raises `RankFailed` if a rank raised."""
    results = outcomes(size, function, *arguments, timeout=timeout, backend=backend)
    for rank, result in enumerate(results):
        if result[0] != "ok":
            raise RankFailed(f"rank {rank}: {result[-1]}")
    return [result[1] for result in results]


def in_turn(size, *cases):
    """The results of all ranks for each case, a function and its arguments.

    The cases run in the same processes, because to start one takes longer than most cases do.
    """
    return [*zip(*ranks(size, _in_turn, cases))]


def _in_turn(rank, size, cases):
    results = []
    for function, *arguments in cases:
        try:
            results.append(function(rank, size, *arguments))
        except BaseException as error:
            # Arguments may be long states.
            raise RuntimeError(f"in the case {function.__name__}{reprlib.repr((*arguments,))}") from error
    return results


def seconds_until_interrupted(rank, block, work):
    """The seconds after which Ctrl-C leaves a block in which rank 0 does `work`, while rank 1 does
    not answer."""
    if rank == 1:
        dist.recv(torch.zeros(1), 0)
        return None

    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    start = time.monotonic()
    signal.alarm(1)
    try:
        with block:
            work()
        raise AssertionError("it was not interrupted")
    except KeyboardInterrupt:
        passed = time.monotonic() - start
    dist.send(torch.zeros(1), 1)
    return passed
