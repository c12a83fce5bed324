"""Deltas of weights: senders, receivers and folders, compared with numpy."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest

import gradwire
import gradwire.delta as delta

try:
    import torch
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")

DTYPES = ["uint8", "int8", "bool", "uint16", "int16", "float16", "uint32", "int32", "float32", "uint64", "int64", "float64"]


def bits(array):
    """The bytes of each element."""
    array = numpy.ascontiguousarray(array)
    return array.reshape(-1).view(numpy.uint8).reshape(array.size, array.itemsize)


def base(seed=0):
    """Tensors of every type, among them empty ones, scalars and small ones."""
    random = numpy.random.default_rng(seed)
    weights = {}
    for number, dtype in enumerate(DTYPES):
        values = random.integers(0, 2, (50 + number, 41)) if dtype == "bool" else random.integers(-100, 100, (50 + number, 41))
        weights[f"layer.{number}.{dtype}"] = values.astype(dtype)
    weights["empty"] = numpy.zeros((0, 4), "float32")
    weights["scalar"] = numpy.array(1.5, "float64")
    weights["large"] = random.normal(0, 0.02, 1 << 18).astype("float32")
    return weights


def changed(weights, share, seed):
    """A copy in which a share of the elements have other bits."""
    random = numpy.random.default_rng(seed)
    new = {}
    for name, array in weights.items():
        array = array.copy()
        if array.size:
            chosen = random.random(array.shape) < share
            if array.dtype == bool:
                array[chosen] ^= True
            else:
                array.reshape(-1).view(f"u{array.itemsize}")[chosen.reshape(-1)] += 1
        new[name] = array
    return new


def same(one, other):
    one, other = dict(one), dict(other)
    assert sorted(one) == sorted(other)
    for name, array in one.items():
        assert array.shape == other[name].shape, name
        numpy.testing.assert_array_equal(bits(array), bits(other[name]), name)


@pytest.mark.parametrize("share", [0, 0.001, 0.05, 0.6, 1])
def test_every_type_and_density_arrives(share):
    old = base()
    new = changed(old, share, 1)
    sender, receiver = delta.Sender(old), delta.Receiver({name: array.copy() for name, array in old.items()})
    update = receiver.stage(sender.diff(new))
    same(receiver.tensors(), old)
    assert update.version == 1 and not update.is_applied
    count = 0
    whole = dict(update.tensors())
    for name, positions, values in update.patches():
        expected = numpy.flatnonzero((bits(old[name]) != bits(new[name])).any(axis=1))
        if len(positions) == old[name].size:
            # Given whole: positions that have not changed may be among them.
            expected = numpy.arange(old[name].size)
        numpy.testing.assert_array_equal(positions, expected)
        numpy.testing.assert_array_equal(bits(values), bits(new[name])[expected])
        numpy.testing.assert_array_equal(bits(whole[name]), bits(new[name]))
        count += len(positions)
    assert count == update.changed_elements
    update.commit()
    sender.commit()
    same(receiver.tensors(), new)
    assert receiver.version == sender.version == 1 and receiver.run == sender.run
    receiver.verify()


def test_arrays_of_the_user_change_in_place():
    old = base()
    mine = {name: array.copy() for name, array in old.items()}
    new = changed(old, 0.01, 2)
    receiver = delta.Receiver(mine)
    receiver.stage(delta.Sender(old).diff(new)).commit()
    same(mine, new)


def test_bytes_do_not_depend_on_threads_or_order():
    old, new = base(), changed(base(), 0.02, 3)
    one = b"".join(delta.Sender(old).diff(new))
    # Names of runs are random: 16 bytes of the header, and with them a checksum.
    for threads in (2, 5):
        other = b"".join(delta.Sender(old, threads=threads).diff(new))
        assert len(one) == len(other)
        assert sum(a != b for a, b in zip(one, other)) <= 24


def test_roll_back_and_give_up():
    old, new = base(), changed(base(), 0.02, 4)
    sender = delta.Sender(old)
    # An iterator that is dropped before its end.
    half = iter(sender.diff(new))
    next(half)
    del half
    stream = b"".join(sender.diff(new))
    with pytest.raises(gradwire.StateError, match="neither committed nor rolled back"):
        b"".join(sender.diff(new))
    sender.rollback()
    assert sender.version == 0
    with pytest.raises(gradwire.StateError, match="no complete update"):
        sender.commit()
    assert b"".join(sender.diff(new)) == stream
    sender.commit()
    assert sender.version == 1


def test_twice_and_out_of_order():
    old = base()
    sender = delta.Sender(old)
    first, second = changed(old, 0.01, 5), changed(old, 0.02, 6)
    streams = []
    for new in (first, second):
        streams.append(b"".join(sender.diff(new)))
        sender.commit()
    receiver = delta.Receiver({name: array.copy() for name, array in old.items()})
    with pytest.raises(gradwire.StateError, match="from version 1 to 2"):
        receiver.stage(streams[1])
    receiver.stage(streams[0]).commit()
    again = receiver.stage(streams[0])
    assert again.is_applied and not list(again.patches())
    again.commit()
    receiver.stage(streams[1]).commit()
    same(receiver.tensors(), second)
    # A snapshot leads there from anything.
    other = delta.Receiver({name: array.copy() for name, array in changed(old, 0.5, 7).items()})
    with pytest.raises(gradwire.StateError, match="another base model"):
        other.stage(streams[0])
    other.stage(sender.snapshot()).commit()
    same(other.tensors(), second)


def test_damage_is_refused_before_a_weight_changes():
    old, new = base(), changed(base(), 0.01, 8)
    stream = b"".join(delta.Sender(old).diff(new))
    receiver = delta.Receiver({name: array.copy() for name, array in old.items()})
    for length in range(0, len(stream), 97):
        with pytest.raises(gradwire.MessageError):
            receiver.stage(stream[:length])
    for place in range(0, len(stream), 89):
        damaged = bytearray(stream)
        damaged[place] ^= 0x10
        with pytest.raises((gradwire.MessageError, gradwire.StateError)):
            receiver.stage(bytes(damaged))
    same(receiver.tensors(), old)
    # A weight that changed behind the receiver's back.
    mine = {name: array.copy() for name, array in old.items()}
    receiver = delta.Receiver(mine)
    mine["large"][7] += 1
    with pytest.raises(gradwire.StateError, match="'large'|\"large\""):
        receiver.verify()


def test_tensors_come_go_and_change_shape(tmp_path):
    folder = delta.Folder(tmp_path / "run")
    old = {"a": numpy.arange(10.0), "b": numpy.ones((3, 4), "float32"), "gone": numpy.zeros(5)}
    new = {"a": numpy.arange(10.0), "b": numpy.ones((4, 3), "float32"), "new": numpy.full(7, -0.0)}
    sender = delta.Sender(old, absent="remove")
    stream = b"".join(sender.diff(new))
    mine = delta.Receiver({name: array.copy() for name, array in old.items()})
    with pytest.raises(gradwire.StateError, match="belong to the caller"):
        mine.stage(stream)
    with pytest.raises(gradwire.StateError, match="lack tensor \"gone\""):
        b"".join(delta.Sender(old).diff(new))
    assert folder.publish(stream) == len(stream)
    safetensors = pytest.importorskip("safetensors.numpy")
    safetensors.save_file(old, tmp_path / "model.safetensors")
    receiver = delta.Receiver(tmp_path / "model.safetensors", to="numpy")
    update = receiver.stage(stream)
    assert update.removed == ["gone"]
    same(update.tensors(), {"b": new["b"], "new": new["new"]})
    positions = {name: positions.tolist() for name, positions, _ in update.patches()}
    assert positions == {"b": list(range(12)), "new": list(range(7))}
    reading = receiver.tensors()
    assert next(reading)[0] == "a"
    update.commit()
    with pytest.raises(gradwire.ConfigError, match=r"'b'; call tensors\(\) again"):
        next(reading)
    same(receiver.tensors(), new)
    with pytest.raises(gradwire.ConfigError, match="load an update before its commit"):
        list(update.tensors())
    update.commit()
    same(receiver.tensors(), new)


def test_an_update_that_is_too_old_is_not_mixed_with_newer_weights():
    old = base()
    sender, receiver = delta.Sender(old), delta.Receiver({name: array.copy() for name, array in old.items()})
    first = b"".join(sender.diff(changed(old, 0.01, 70)))
    update, other = receiver.stage(first), receiver.stage(first)
    other.commit()
    sender.commit()
    receiver.stage(sender.diff(changed(old, 0.01, 71))).commit()
    with pytest.raises(gradwire.ConfigError, match="stage it again"):
        list(update.tensors())
    with pytest.raises(gradwire.StateError, match="stage it again"):
        update.commit()


def test_refusals_name_the_remedy():
    old = base()
    for weights, says in [
        ({"w": [1, 2]}, "'w' is a list"),
        ({"w": numpy.zeros(3, "complex64")}, "complex64"),
        ([1, 2], "pairs of a name and a tensor"),
        ({7: numpy.zeros(3)}, "7 is not a name"),
        ({"w": numpy.ma.masked_array([1.0], [True])}, "masked"),
        ({"w": numpy.zeros(3, ">f4")}, "big-endian"),
    ]:
        with pytest.raises(gradwire.ConfigError, match=says):
            delta.Sender(weights)
    read_only = numpy.zeros(4)
    read_only.flags.writeable = False
    for weights, says in [({"w": read_only}, "read-only"), ({"w": numpy.zeros((4, 4)).T[1:]}, "not contiguous")]:
        with pytest.raises(gradwire.ConfigError, match=says):
            delta.Receiver(weights)
    with pytest.raises(gradwire.ConfigError, match='absent="lose"'):
        delta.Sender(old, absent="lose")
    with pytest.raises(gradwire.ConfigError, match="to='jax'"):
        delta.Receiver(old, to="jax")
    with pytest.raises(gradwire.ConfigError, match="threads=-1"):
        delta.Sender(old, threads=-1)
    with pytest.raises(OSError, match="nowhere"):
        delta.Receiver("nowhere")


def test_types_that_differ_and_overlaps_are_refused():
    old = {"w": numpy.zeros(8, "float16")}
    with pytest.raises(gradwire.ConfigError, match="'w' has elements of type F32, but the base has F16"):
        b"".join(delta.Sender(old).diff({"w": numpy.zeros(8, "float32")}))
    all_of = numpy.zeros(10)
    with pytest.raises(gradwire.ConfigError, match="'a' and 'b' share memory"):
        delta.Receiver({"a": all_of[:6], "b": all_of[5:]})
    with pytest.raises(gradwire.ConfigError, match="needs run="):
        delta.Sender(old, share=(1, 2))
    with pytest.raises(gradwire.ConfigError, match="needs the rows of this rank"):
        delta.Sender("model.safetensors", share=(1, 2), run="0" * 32)
    with pytest.raises(gradwire.ConfigError, match="32 hexadecimal digits"):
        delta.Sender(old, run="seven")


def test_an_old_iterator_does_not_roll_back_a_later_update():
    old, new = base(), changed(base(), 0.02, 60)
    sender = delta.Sender(old)
    kept = iter(sender.diff(new))
    next(kept)
    sender.rollback()
    b"".join(sender.diff(new))
    del kept
    sender.commit()
    assert sender.version == 1


def test_a_folder_leads_to_the_newest_version(tmp_path):
    weights = base()
    sender, folder = delta.Sender(weights), delta.Folder(tmp_path / "run")
    assert folder.latest is None
    early = delta.Receiver({name: array.copy() for name, array in weights.items()})
    with pytest.raises(gradwire.StateError, match="nothing has been published"):
        early.follow(folder)
    for step in range(1, 8):
        weights = changed(weights, 0.01, 10 + step)
        folder.publish(sender.diff(weights), keep=2, snapshot_every=3)
        sender.commit()
    assert folder.latest == 7
    assert early.follow(folder) == 7 and early.follow(folder) == 7
    same(early.tensors(), weights)
    # The trainer crashes between diff and commit, and goes on from what is published.
    resumed = delta.Sender.resume(folder, base())
    assert (resumed.version, resumed.run) == (7, sender.run)
    # A second trainer is refused.
    folder.publish(resumed.diff(changed(weights, 0.01, 30)))
    resumed.commit()
    with pytest.raises(gradwire.StateError):
        folder.publish(sender.diff(changed(weights, 0.01, 31)))
    assert folder.latest == 8


def test_an_update_without_changes_is_a_version(tmp_path):
    sender, folder, receiver = delta.Sender(base()), delta.Folder(tmp_path), delta.Receiver(base())
    folder.publish(sender.diff(base()))
    sender.commit()
    assert receiver.follow(folder) == folder.latest == 1 and receiver.run == sender.run
    resumed = delta.Sender.resume(folder, base())
    assert (resumed.version, resumed.run) == (1, sender.run)
    weights = changed(base(), 0.01, 50)
    folder.publish(resumed.diff(weights))
    assert receiver.follow(folder) == 2
    same(receiver.tensors(), weights)


def test_updates_wait_for_their_commit(tmp_path):
    old = base()
    sender, folder = delta.Sender(old), delta.Folder(tmp_path)
    weights = old
    for step in range(3):
        weights = changed(weights, 0.01, 40 + step)
        folder.publish(sender.diff(weights))
        sender.commit()
    receiver = delta.Receiver({name: array.copy() for name, array in old.items()})
    assert [update.version for update in receiver.updates(folder)] == [1]
    assert receiver.version == 0
    versions = []
    for update in receiver.updates(folder):
        update.commit()
        versions.append(update.version)
    assert versions == [1, 2, 3]
    same(receiver.tensors(), weights)


def test_a_damaged_stream_is_left_out_if_others_help(tmp_path):
    sender, folder, weights, streams = delta.Sender(base()), delta.Folder(tmp_path), base(), []
    for step in range(3):
        weights = changed(weights, 0.01, 70 + step)
        streams.append(b"".join(sender.diff(weights)))
        folder.publish(streams[-1])
        sender.commit()
    folder.publish(delta.fold(base(), streams))
    folded = tmp_path / "delta-0000000000-0000000003.gwd"
    damaged = bytearray(folded.read_bytes())
    damaged[-60] ^= 1
    folded.write_bytes(damaged)
    receiver = delta.Receiver(base())
    with pytest.warns(RuntimeWarning, match=f"left out: '.*{folded.name}'.*damaged"):
        assert receiver.follow(folder) == 3
    same(receiver.tensors(), weights)
    (tmp_path / "delta-0000000001-0000000002.gwd").unlink()
    with pytest.raises(gradwire.MessageError, match=folded.name):
        delta.Receiver(base()).follow(delta.Folder(tmp_path))


def test_publishers_wait_for_each_other(tmp_path):
    stream = b"".join(delta.Sender(base()).diff(changed(base(), 0.01, 80)))
    publication = delta.Folder(tmp_path).core.begin()
    with pytest.raises(gradwire.StateError, match=f"process {os.getpid()}"):
        delta.Folder(tmp_path, timeout=0).publish(stream)
    publication.close()
    assert delta.Folder(tmp_path, timeout=0).publish(stream) == len(stream)
    with pytest.raises(gradwire.ConfigError, match="give seconds"):
        delta.Folder(tmp_path, timeout=-1)


def test_threads_read_while_another_follows(tmp_path):
    weights = {"w": numpy.random.default_rng(60).normal(size=1 << 21).astype("float32")}
    sender, folder, receiver = delta.Sender(weights), delta.Folder(tmp_path), delta.Receiver({"w": weights["w"].copy()})
    with ThreadPoolExecutor(1) as pool:
        for step in range(3):
            weights = changed(weights, 1, 61 + step)
            publishing = pool.submit(folder.publish, sender.diff(weights))
            while not publishing.done():
                assert sender.version == step
            sender.commit()
        following, versions = pool.submit(receiver.follow, folder), [receiver.version]
        while not following.done():
            versions.append(receiver.version)
        assert following.result() == 3
    assert versions == sorted(versions) and len(versions) > 3
    same(receiver.tensors(), weights)


def test_threads_share_an_update():
    weights = {"w": numpy.random.default_rng(63).normal(size=1 << 22).astype("float32")}
    new = changed(weights, 0.5, 64)
    stream = b"".join(delta.Sender(weights).diff(new))
    receiver = delta.Receiver({"w": weights["w"].copy()})
    update = receiver.stage(stream)
    with ThreadPoolExecutor(3) as pool:
        commits = [pool.submit(update.commit) for _ in range(2)]
        reading = pool.submit(lambda: [(update.version, update.changed_elements, dict(update.tensors())) for _ in range(3)])
        assert [commit.result() for commit in commits] == [None, None]
    for version, elements, tensors in reading.result():
        assert version == 1 and elements > 0
        same(tensors.items(), new)
    same(receiver.tensors(), new)


def test_it_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; import numpy, gradwire.delta as delta; delta.Sender({'w': numpy.ones(3)})"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


def torch_bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


@needs_torch
def test_torch_tensors_of_every_type():
    torch.manual_seed(0)
    names = ["bfloat16", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "int8", "int64"]
    old = {name: torch.randn(100, 33).to(getattr(torch, name)) for name in names}
    old["tied"] = old["bfloat16"]
    old["view"] = torch.randn(40, 30)[:, ::2]
    new = {}
    for name, tensor in old.items():
        flat = torch_bits(tensor).clone()
        flat[torch.randint(len(flat), (20,))] ^= 1
        new[name] = flat.view(tensor.dtype).reshape(tensor.shape)
    new["tied"] = new["bfloat16"]
    mine = {name: tensor.clone() for name, tensor in old.items() if name != "tied"}
    sender, receiver = delta.Sender(old), delta.Receiver(mine)
    receiver.stage(sender.diff(new)).commit()
    for name, tensor in mine.items():
        assert torch.equal(torch_bits(tensor), torch_bits(new[name])), name
    assert all(isinstance(tensor, torch.Tensor) for _, tensor in receiver.tensors())


@needs_torch
def test_a_file_may_have_one_name_of_tied_weights_or_both(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    tied = torch.randn(30, 20).bfloat16()
    new = tied.clone()
    new[3, 4] *= 2
    for names in (["embed", "head"], ["head"], ["embed"]):
        safetensors.save_file({name: tied.clone() for name in names}, tmp_path / "model.safetensors")
        receiver = delta.Receiver(str(tmp_path))
        receiver.stage(delta.Sender(str(tmp_path)).diff({"embed": new, "head": new})).commit()
        weights = dict(receiver.tensors())
        assert sorted(weights) == names
        assert all(torch.equal(tensor, new) for tensor in weights.values())


@needs_torch
def test_nan_and_negative_zero_keep_their_bits():
    old = torch.tensor([1.0, -0.0, float("nan"), 0.0]).bfloat16()
    new = torch.tensor([0x7FC1, 0x8000, -1, 0], dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    mine = {"w": old.clone()}
    delta.Receiver(mine).stage(delta.Sender({"w": old}).diff({"w": new})).commit()
    assert torch.equal(mine["w"].view(torch.int16), new.view(torch.int16))
