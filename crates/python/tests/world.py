"""Ranks as processes of their own, connected by gloo, for tests."""

import io
import multiprocessing
import os
import tempfile
import traceback

import torch
import torch.distributed as dist

_FORK = multiprocessing.get_context("fork")


def _pack(result):
    file = io.BytesIO()
    torch.save(result, file)
    return file.getvalue()


def _unpack(data):
    return torch.load(io.BytesIO(data), weights_only=False)


class RankFailed(AssertionError):
    """A rank raised; the message is its traceback."""


def _main(function, rank, size, store, pipe, arguments):
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
        result = ("ok", function(rank, size, *arguments))
    except BaseException as error:  # noqa: BLE001 - it is passed on
        result = ("error", type(error).__name__, str(error), traceback.format_exc())
    # Bytes of their own: tensors sent as they are would be shared with a process that ends.
    pipe.send_bytes(_pack(result))
    pipe.close()
    # Without the interpreter's end: background threads may hold on to peers that are gone.
    os._exit(0)


def outcomes(size, function, *arguments, timeout=100):
    """What `function(rank, size, *arguments)` came to on every rank: ("ok", result), ("error", type, message,
    traceback), or ("gone",) for one that ended without a word."""
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        pipes, processes = [], []
        for rank in range(size):
            ours, theirs = _FORK.Pipe(duplex=False)
            process = _FORK.Process(target=_main, args=(function, rank, size, store, theirs, arguments))
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


def ranks(size, function, *arguments, timeout=100):
    """The results of all ranks; raises if one of them did."""
    results = outcomes(size, function, *arguments, timeout=timeout)
    for rank, result in enumerate(results):
        if result[0] != "ok":
            raise RankFailed(f"rank {rank}: {result[-1]}")
    return [result[1] for result in results]
