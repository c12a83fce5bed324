"""Progress of long operations on weights, and Ctrl-C while they wait."""

import os
import signal
import subprocess
import sys

import numpy
import pytest

import gradwire
import gradwire.delta as delta

if sys.platform != "win32":
    import fcntl


class Stop(Exception):
    """Raised by a progress function."""


def stop(done, total):
    raise Stop


class Seen:
    """Keeps the calls of a progress function, and checks that they fit together."""

    def __init__(self):
        self.calls = []

    def __call__(self, done, total):
        before = self.calls[-1] if self.calls else (0, 0)
        assert before[0] <= done <= total and before[1] <= total
        self.calls.append((done, total))

    @property
    def last(self):
        return self.calls[-1]


def weights(seed=0, elements=1 << 20):
    return {name: numpy.random.default_rng(seed).normal(size=elements).astype("float32") for name in ("a", "b")}


def changed(old, seed=1):
    new = {name: array.copy() for name, array in old.items()}
    for array in new.values():
        array.view("u4")[numpy.random.default_rng(seed).integers(0, array.size, array.size // 100)] += 1
    return new


def size(arrays):
    return sum(array.nbytes for array in arrays.values())


def copies(arrays):
    return {name: array.copy() for name, array in arrays.items()}


def same(one, other):
    one = dict(one)
    assert sorted(one) == sorted(other)
    return all(numpy.array_equal(one[name].view("u4"), other[name].view("u4")) for name in other)


def test_all_operations_report_all_bytes(tmp_path):
    old = weights()
    new, folder, mine = changed(old), delta.Folder(tmp_path), copies(old)
    seen = [Seen() for _ in range(10)]
    sender = delta.Sender(old, progress=seen[0])
    receiver = delta.Receiver(mine, progress=seen[1])
    # A sender copies, and both hash.
    assert (seen[0].last, seen[1].last) == ((2 * size(old),) * 2, (size(old),) * 2)
    stream = b"".join(sender.diff(new, progress=seen[2]))
    assert seen[2].last == (size(old),) * 2
    receiver.stage(stream, progress=seen[3]).commit()
    folder.publish(stream, progress=seen[4])
    sender.commit(progress=seen[5])
    assert seen[3].last == seen[4].last == seen[5].last == (len(stream),) * 2
    snapshot = sender.snapshot(progress=seen[6])
    receiver.verify(progress=seen[7])
    assert seen[6].last == seen[7].last == (size(old),) * 2
    assert delta.Receiver(copies(old)).follow(folder, progress=seen[8]) == 1
    assert seen[8].last == (len(stream),) * 2
    folded = delta.fold(old, [stream], progress=seen[9])
    assert seen[9].last == (3 * size(old) + len(stream),) * 2
    for other in (snapshot, folded):
        receiver = delta.Receiver(copies(old))
        receiver.stage(other).commit()
        assert same(receiver.tensors(), new)


def test_publishing_reports_the_weights_and_those_of_a_snapshot(tmp_path):
    old = weights(elements=1000)
    sender, folder, parts = delta.Sender(old), delta.Folder(tmp_path), Seen()
    for step in range(3):
        seen = Seen()
        frames = sender.diff(changed(old, step), progress=parts)
        folder.publish(frames, snapshot_every=2, progress=seen)
        sender.commit()
        parts.calls.clear()
        # At the third update a snapshot of the second version is due.
        assert seen.last == ((1 + (step == 2)) * size(old),) * 2
    whole = sender.snapshot()
    folder.publish([whole[:100], whole[100:]], progress=(seen := Seen()))
    assert seen.last == (len(whole),) * 2


def test_a_progress_function_may_divide_by_the_total(tmp_path, monkeypatch):
    monkeypatch.setattr("gradwire.delta._progress.PAUSE", 0.0)
    parts = []
    stream = b"".join(delta.Sender(weights(elements=10)).diff(weights(1, elements=10)))
    delta.Folder(tmp_path / "one").publish([b"", stream[:50], stream[50:]], progress=lambda done, total: parts.append(done / total))
    assert parts and set(parts) == {1.0}
    for empty in (b"", [], [b""]):
        with pytest.raises(gradwire.MessageError):
            delta.Folder(tmp_path / "none").publish(empty, progress=lambda done, total: done / total)


def test_an_exception_stops_an_operation_without_a_half_update(tmp_path):
    old = weights()
    new, folder, mine = changed(old), delta.Folder(tmp_path), copies(old)
    for make in (delta.Sender, delta.Receiver):
        with pytest.raises(Stop):
            make(old, progress=stop)
    sender, receiver = delta.Sender(old), delta.Receiver(mine)
    with pytest.raises(Stop):
        b"".join(sender.diff(new, progress=stop))
    # It is rolled back: another one can begin.
    with pytest.raises(Stop):
        folder.publish(sender.diff(new), progress=stop)
    sender.rollback()
    assert folder.latest is None and sorted(os.listdir(tmp_path)) == ["lock"]
    stream = b"".join(sender.diff(new))
    with pytest.raises(Stop):
        folder.publish(stream, progress=stop)
    assert folder.latest is None and sorted(os.listdir(tmp_path)) == ["lock"]
    with pytest.raises(Stop):
        sender.commit(progress=stop)
    assert sender.version == 0
    for work in (
        lambda: receiver.stage(stream, progress=stop),
        lambda: receiver.verify(progress=stop),
        lambda: sender.snapshot(progress=stop),
        lambda: delta.fold(old, [stream], progress=stop),
    ):
        with pytest.raises(Stop):
            work()
    folder.publish(stream)
    sender.commit()
    with pytest.raises(Stop):
        receiver.follow(folder, progress=stop)
    assert receiver.version == 0 and same(mine, old)
    assert receiver.follow(folder) == sender.version == 1 and same(mine, new)


def test_what_cannot_be_called_is_refused(tmp_path):
    old = weights(elements=10)
    sender, receiver = delta.Sender(old), delta.Receiver(copies(old))
    for work in (
        lambda: delta.Sender(old, progress=True),
        lambda: sender.diff(old, progress=True),
        lambda: receiver.stage(b"", progress=True),
        lambda: delta.Folder(tmp_path).publish(b"", progress=True),
    ):
        with pytest.raises(gradwire.ConfigError, match="progress=True is no function"):
            work()


def test_folding_has_a_limit():
    old = {"a": numpy.random.default_rng(0).normal(size=1 << 20).astype("float32")}
    stream = b"".join(delta.Sender(old).diff({"a": numpy.zeros(1 << 20, "float32")}))
    assert len(stream) < 1000
    with pytest.raises(gradwire.MessageError, match="more than 4194303 bytes.*max_bytes"):
        delta.fold(old, [stream], max_bytes=(4 << 20) - 1)
    assert len(delta.fold(old, [stream], max_bytes=4 << 20)) < 1000


WAITING = """
import sys
import gradwire.delta as delta
print("waiting", flush=True)
try:
    {work}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def interrupted(work):
    """Runs code that waits; what it prints after Ctrl-C."""
    code = WAITING.format(work=work)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waiting\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=20)[0]
        finally:
            process.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT is sent to a process")
def test_a_publisher_that_waits_for_another_ends_at_ctrl_c(tmp_path):
    publication = delta.Folder(tmp_path).core.begin()
    assert interrupted(f"delta.Folder({str(tmp_path)!r}, timeout=600).publish(b'')") == "interrupted\n"
    publication.close()
    assert sorted(os.listdir(tmp_path)) == ["lock"]


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT is sent to a process")
def test_whoever_waits_for_a_patch_in_place_ends_at_ctrl_c(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "model.safetensors"
    safetensors.save_file(weights(elements=10), path)
    (tmp_path / "gradwire.redo").write_bytes(b"")
    with open(tmp_path / "gradwire.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for work in ("Receiver", "Sender"):
            assert interrupted(f"delta.{work}({str(path)!r})") == "interrupted\n"
