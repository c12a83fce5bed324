"""Operations on weights that are stopped in the middle, and progress functions that use their own
sender, receiver or folder."""

import os
import signal
import sys

import numpy
import pytest

import gradwire
import gradwire.delta as delta

needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="signals are raised in this process")


class Stop(Exception):
    """Raised in the middle of an operation."""


def interrupt():
    """As Ctrl-C."""
    signal.raise_signal(signal.SIGINT)
    raise AssertionError("the signal has no handler")


def throw():
    raise Stop


STOPS = [(throw, Stop), pytest.param((interrupt, KeyboardInterrupt), marks=needs_signals)]


class At:
    """A progress function that stops at one of its calls; counts them from 0."""

    def __init__(self, call, stop):
        self.left, self.stop = call, stop

    def __call__(self, done, total):
        if self.left == 0:
            self.stop()
        self.left -= 1


@pytest.fixture
def every_step(monkeypatch):
    """Progress functions of ``diff`` and ``publish`` are called after each tensor."""
    monkeypatch.setattr("gradwire.delta._progress.PAUSE", 0.0)
    monkeypatch.setattr("gradwire.delta._sender.BATCH", 1)


def weights(seed=0, elements=1000):
    random = numpy.random.default_rng(seed)
    return {name: random.normal(size=elements).astype("float32") for name in "abcde"}


def changed(old, seed=1):
    new = {name: array.copy() for name, array in old.items()}
    for array in new.values():
        array.view("u4")[numpy.random.default_rng(seed).integers(0, array.size, array.size // 100)] += 1
    return new


def copies(arrays):
    return {name: array.copy() for name, array in arrays.items()}


def same(one, other):
    one = dict(one)
    assert sorted(one) == sorted(other)
    return all(numpy.array_equal(one[name].view("u4"), other[name].view("u4")) for name in other)


def received(old, stream):
    receiver = delta.Receiver(copies(old))
    receiver.stage(stream).commit()
    return dict(receiver.tensors())


@pytest.mark.parametrize("stop", STOPS)
def test_diff_stopped_at_any_tensor_is_rolled_back(stop, every_step):
    old = weights()
    new, sender = changed(old), delta.Sender(old)
    calls = []
    stream = b"".join(sender.diff(new, progress=lambda *call: calls.append(call)))
    sender.rollback()
    assert len(calls) > len(old)
    for call in range(len(calls)):
        with pytest.raises(stop[1]):
            b"".join(sender.diff(new, progress=At(call, stop[0])))
        assert sender.version == 0 and b"".join(sender.diff(new)) == stream
        sender.rollback()
    assert b"".join(sender.diff(new)) == stream
    sender.commit()
    assert sender.version == 1 and same(received(old, stream), new)


@pytest.mark.parametrize("stop", STOPS)
def test_weights_that_stop_diff_roll_it_back(stop, every_step):
    old = weights()
    new, sender = changed(old), delta.Sender(old)
    for call in range(len(new)):

        def given(at=At(call, stop[0])):
            for pair in new.items():
                at(0, 0)
                yield pair

        with pytest.raises(stop[1]):
            b"".join(sender.diff(given()))
        with pytest.raises(gradwire.StateError, match="no complete update"):
            sender.commit()
    assert same(received(old, b"".join(sender.diff(new))), new)


@pytest.mark.parametrize("stop", STOPS)
def test_publish_stopped_anywhere_publishes_nothing(stop, every_step, tmp_path):
    old = weights()
    run = tmp_path / "run"
    sender, folder, newest = delta.Sender(old), delta.Folder(run), old
    for step in range(2):
        newest = changed(newest, step)
        folder.publish(sender.diff(newest), snapshot_every=3)
        sender.commit()
    before, new = sorted(os.listdir(run)), changed(newest, 9)
    calls = []
    delta.Folder(tmp_path / "other").publish(delta.Sender(newest).diff(new), progress=lambda *call: calls.append(call))
    assert len(calls) > len(old)
    for call in range(len(calls)):
        with pytest.raises(stop[1]):
            folder.publish(sender.diff(new), snapshot_every=3, progress=At(call, stop[0]))
        sender.rollback()
        assert (folder.latest, sender.version, sorted(os.listdir(run))) == (2, 2, before)
        receiver = delta.Receiver(copies(old))
        assert receiver.follow(folder) == 2 and same(receiver.tensors(), newest)
    folder.publish(sender.diff(new), snapshot_every=3)
    sender.commit()
    receiver = delta.Receiver(copies(old))
    assert receiver.follow(folder) == folder.latest == 3 and same(receiver.tensors(), new)


def test_publish_stopped_after_its_snapshot_leaves_the_snapshot_of_the_version_before(every_step, tmp_path):
    old = weights()
    new, sender, folder = changed(old), delta.Sender(old), delta.Folder(tmp_path)
    folder.publish(sender.diff(new))
    sender.commit()
    newer = changed(new, 2)
    # The first call comes from the snapshot, the second from the delta.
    for call, names in ((0, []), (1, ["snapshot-0000000001.gwd"])):
        with pytest.raises(Stop):
            folder.publish(sender.diff(newer), snapshot_every=1, progress=At(call, throw))
        sender.rollback()
        assert sorted(os.listdir(tmp_path)) == ["delta-0000000000-0000000001.gwd", "latest", "lock", *names]
        other = delta.Receiver(copies(newer if names else old))
        assert other.follow(folder) == folder.latest == 1 and same(other.tensors(), new)


@pytest.mark.parametrize("stop", STOPS)
def test_follow_stopped_anywhere_ends_at_a_version(stop, tmp_path):
    versions = [weights()]
    sender, folder = delta.Sender(versions[0]), delta.Folder(tmp_path)
    for step in range(4):
        versions.append(changed(versions[-1], step))
        folder.publish(sender.diff(versions[-1]))
        sender.commit()
    for version in range(4):
        mine = copies(versions[0])
        receiver, at = delta.Receiver(mine), At(version, stop[0])
        with pytest.raises(stop[1]):
            # Each stream has a last call.
            receiver.follow(folder, progress=lambda done, total, at=at: at(done, total) if done == total else None)
        assert receiver.version == version and same(mine, versions[version])
        receiver.verify()
        assert receiver.follow(folder) == 4 and same(mine, versions[4])


def throw_midway(done, total):
    """A progress function that stops an operation before its end."""
    if done < total:
        raise Stop


def by_progress(work):
    """Runs an operation until its progress function is called before the end; whether it was."""
    try:
        work(throw_midway)
    except Stop:
        return True
    return False


def by_signal(work):
    """Runs an operation until a signal comes; whether one has come."""
    before = signal.signal(signal.SIGALRM, lambda *_: throw())
    signal.setitimer(signal.ITIMER_REAL, 0.03)
    try:
        work(None)
    except Stop:
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return False


@pytest.mark.parametrize("stop", [by_progress, pytest.param(by_signal, marks=needs_signals)])
def test_operations_stopped_in_the_middle_leave_all_as_it_was(stop):
    left = {"snapshot", "stage", "fold", "commit"}
    # Larger weights until each operation takes longer than progress functions wait.
    for power in range(22, 28):
        random = numpy.random.default_rng(power)
        old, new = ({"w": random.integers(0, 1 << 32, 1 << power, "uint32").view("float32")} for _ in range(2))
        sender, mine = delta.Sender(old), copies(old)
        receiver, stream = delta.Receiver(mine), b"".join(sender.diff(new))
        works = {
            "snapshot": lambda progress: sender.snapshot(progress=progress),
            "stage": lambda progress: receiver.stage(stream, progress=progress),
            "fold": lambda progress: delta.fold(old, [stream], progress=progress),
            "commit": lambda progress: sender.commit(progress=progress),
        }
        for name in sorted(left, key=list(works).index):
            if stop(works[name]) and sender.version == 0:
                left.remove(name)
            assert receiver.version == 0 and same(mine, old)
        if not left:
            break
    assert not left
    sender.rollback()
    assert b"".join(sender.diff(new)) == stream
    sender.commit()
    receiver.stage(stream).commit()
    assert sender.version == receiver.version == 1 and same(mine, new)


def test_a_progress_function_may_read_the_version_at_once():
    old = weights()
    sender, receiver = delta.Sender(old), delta.Receiver(copies(old))
    versions = []
    sender.snapshot(progress=lambda done, total: versions.append((sender.version, sender.run)))
    stream = b"".join(sender.diff(changed(old), progress=lambda done, total: versions.append((sender.version, sender.run))))
    sender.commit(progress=lambda done, total: versions.append((sender.version, sender.run)))
    assert len(versions) >= 3 and set(versions) == {(0, sender.run)} and sender.version == 1
    read = []
    receiver.stage(stream, progress=lambda done, total: read.append((receiver.version, dict(receiver.tensors())))).commit()
    assert read and read[0][0] == 0 and same(read[0][1], old)


def test_a_progress_function_that_uses_its_own_sender_is_refused():
    old = weights()
    new, sender = changed(old), delta.Sender(old)
    for use in (sender.snapshot, sender.commit, sender.rollback, lambda: next(iter(sender.diff(new)))):
        for operation in (sender.snapshot, sender.commit):
            stream = b"".join(sender.diff(new))
            with pytest.raises(gradwire.ConfigError, match="uses the sender or receiver whose operation has called it"):
                operation(progress=lambda done, total, use=use: use())
            sender.rollback()
    # Another sender is not meant.
    other = delta.Sender(old)
    assert sender.snapshot(progress=lambda done, total: other.snapshot())
    assert sender.version == 0 and b"".join(sender.diff(new)) == stream
    sender.commit()
    assert sender.version == 1 and same(received(old, stream), new)


def test_a_progress_function_that_uses_its_own_receiver_is_refused(tmp_path):
    old = weights()
    new, sender, folder, mine = changed(old), delta.Sender(old), delta.Folder(tmp_path), copies(old)
    stream = b"".join(sender.diff(new))
    folder.publish(stream)
    receiver = delta.Receiver(mine)
    update = receiver.stage(stream)
    operations = (
        receiver.verify,
        lambda progress: receiver.stage(stream, progress=progress),
        lambda progress: receiver.follow(folder, progress=progress),
    )
    for use in (update.commit, receiver.verify, lambda: receiver.stage(stream), lambda: receiver.follow(folder)):
        for operation in operations:
            with pytest.raises(gradwire.ConfigError, match="uses the sender or receiver whose operation has called it"):
                operation(progress=lambda done, total, use=use: use())
            assert receiver.version == 0 and same(mine, old)
    update.commit()
    assert receiver.version == 1 and same(mine, new)


def test_diff_that_is_rolled_back_by_its_progress_function_says_so(every_step):
    sender = delta.Sender(weights())
    with pytest.raises(gradwire.StateError, match="rolled back"):
        b"".join(sender.diff(changed(weights()), progress=lambda done, total: sender.rollback()))
    with pytest.raises(gradwire.StateError, match="neither committed nor rolled back"):
        b"".join(sender.diff(changed(weights()), progress=lambda done, total: next(iter(sender.diff(weights())))))
    assert sender.version == 0 and b"".join(sender.diff(weights(), progress=lambda done, total: sender.snapshot()))


def test_publishing_within_a_publication_to_the_same_folder_is_refused(every_step, tmp_path):
    old = weights()
    stream = b"".join(delta.Sender(old).diff(changed(old)))
    folder = delta.Folder(tmp_path / "run", timeout=3600)
    again = delta.Folder(tmp_path / "run" / ".." / "run", timeout=3600)

    def frames():
        yield stream[:10]
        again.publish(stream)

    with pytest.raises(gradwire.ConfigError, match="this thread publishes to .* already"):
        folder.publish(frames())
    with pytest.raises(gradwire.ConfigError, match="this thread publishes to .* already"):
        folder.publish(stream, progress=lambda done, total: again.publish(stream))
    assert folder.latest is None and os.listdir(tmp_path / "run") == ["lock"]
    other = delta.Folder(tmp_path / "other")
    folder.publish(stream, progress=lambda done, total: other.latest or other.publish(stream))
    assert folder.latest == other.latest == 1
