"""Changes of weights that are found on a device, under Triton's interpreter or on a GPU: the
streams are those of a sender that compares on the host."""

import sys
from pathlib import Path

import numpy
import pytest
import torch

pytest.importorskip("triton", reason="PyTorch came without Triton")

import gradwire
import gradwire.delta as delta
from device import DEVICE
from gradwire.delta import _device
from gradwire.delta._weights import in_place
from gradwire.torch.cuda.changes import PART, Changes, ends_of

INTEGERS = [torch.uint8, torch.int16, torch.int32, torch.int64]
# Element types of each width, and others whose bits are not numbers to compare.
DTYPES = ["bool", "float8_e4m3fn", "int8", "bfloat16", "float16", "uint16", "float32", "uint32", "float64", "int64"]


def noise(elements, dtype, seed):
    return torch.randint(-100, 100, (elements,), generator=torch.Generator().manual_seed(seed)).to(dtype)


def changed(tensor, share, seed):
    """A copy in which about a share of the elements have another lowest bit."""
    width, flat = tensor.element_size(), tensor.clone().reshape(-1)
    lowest = flat.view(torch.uint8)[::width]
    chosen = torch.rand(len(lowest), generator=torch.Generator().manual_seed(seed)) < share
    lowest ^= chosen.to(torch.uint8)
    return flat.reshape(tensor.shape)


def check_changes(old, new):
    """Compares with what PyTorch finds."""
    expected = (old != new).nonzero().reshape(-1)
    copy = old.to(DEVICE, copy=True)
    changes = Changes(copy, new.to(DEVICE))
    (ends,) = ends_of([changes])
    parts = range(0, len(old), PART)
    assert ends == [int((expected < first + PART).sum()) for first in parts]
    positions, values = changes.advance(ends[-1])
    assert positions.dtype == torch.int32
    assert torch.equal(positions.cpu().long(), expected % PART)
    assert torch.equal(values.cpu(), new[expected])
    assert torch.equal(copy.cpu(), new)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("share", [0, 0.001, 0.1, 1])
def test_changes_are_those_that_pytorch_finds(dtype, share):
    for elements in [1, 5, 4095, 4096, 4097, 30_000]:
        old = noise(elements, dtype, elements)
        check_changes(old, changed(old, share, elements + 1))


def test_positions_count_from_the_start_of_their_part():
    for elements in [PART - 1, PART, 2 * PART + 1]:
        old = torch.zeros(elements, dtype=torch.uint8)
        new = old.clone()
        for at in {0, 4095, 4096, PART - 2, PART - 1, PART, PART + 1, 2 * PART - 1, 2 * PART, elements - 1}:
            new[at:][:1] = 7
        check_changes(old, new)


def test_bits_are_compared():
    old = torch.tensor([0.0, -0.0, float("nan"), 1.0, float("nan")])
    new = old.clone()
    # Another zero, the same NaN, another NaN.
    new[0] = -0.0
    new[4:].view(torch.int32)[0] += 1
    changes = Changes(old.to(DEVICE), new.to(DEVICE))
    assert ends_of([changes]) == [[2]]
    positions, values = changes.advance(2)
    assert positions.tolist() == [0, 4] and values.tolist() == new.view(torch.int32)[[0, 4]].tolist()


def model():
    weights = {name: noise(3000 + number, torch.int8, number).to(getattr(torch, name)) for number, name in enumerate(DTYPES)}
    weights["embedding"] = torch.randn(600, 50, generator=torch.Generator().manual_seed(1)).bfloat16()
    weights["many"] = noise(20_000, torch.float32, 2).reshape(4, 50, 100)
    weights["empty"], weights["scalar"] = torch.zeros(0, 3), torch.tensor(1.5)
    return weights


def stepped(weights, seed):
    """Some weights as they were, few changed, and mostly other ones."""
    shares = [0, 0.003, 0.2, 0.9]
    return {name: changed(weights[name], shares[(number + seed) % 4], seed) for number, name in enumerate(weights)}


def on_device(weights):
    return {name: tensor.to(DEVICE, copy=True) for name, tensor in weights.items()}


class Pair:
    """A sender that compares on the device, and one that compares on the host, of one run."""

    def __init__(self, path, base, weights, **options):
        folder = delta.Folder(path)
        # The name of a run is random. Both go on with a run that is published.
        folder.publish(delta.Sender(base, **options).diff(weights))
        self.found, self.expected = (
            delta.Sender.resume(folder, base, device_base=device_base, **options) for device_base in (True, False)
        )

    def diff(self, weights):
        moved = on_device(weights)
        stream = b"".join(self.found.diff(moved))
        assert stream == b"".join(self.expected.diff(weights))
        # Training goes on before the weights have arrived.
        for tensor in moved.values():
            tensor.zero_()
        return stream

    def commit(self):
        self.found.commit()
        self.expected.commit()

    def rollback(self):
        self.found.rollback()
        self.expected.rollback()


@pytest.mark.parametrize("options", [{}, {"threads": 3}, {"portable": True}])
def test_streams_are_those_of_the_host(tmp_path, options):
    base, weights = model(), stepped(model(), 9)
    pair = Pair(tmp_path, base, weights, **options)
    receiver = delta.Receiver(base)
    receiver.follow(delta.Folder(tmp_path))
    for step in range(5):
        weights = stepped(weights, step)
        receiver.stage(pair.diff(weights)).commit()
        pair.commit()
    for name, tensor in receiver.tensors():
        assert torch.equal(tensor.reshape(-1).view(torch.uint8), weights[name].reshape(-1).view(torch.uint8)), name


def test_a_rollback_restores_the_base(tmp_path):
    weights = stepped(model(), 9)
    pair = Pair(tmp_path, model(), weights)
    for step in range(4):
        new = stepped(weights, step)
        pair.diff(stepped(weights, 10 + step))
        pair.rollback()
        # An iterator that is dropped before its end.
        frames = iter(pair.found.diff(on_device(stepped(weights, 20 + step))))
        next(frames)
        del frames
        with pytest.raises(gradwire.StateError, match="lack tensor"):
            b"".join(pair.found.diff(on_device({"many": new["many"]})))
        pair.diff(new)
        pair.commit()
        weights = new


def test_tensors_come_go_change_shape_and_move(tmp_path):
    weights = stepped(model(), 9)
    pair = Pair(tmp_path, model(), weights, absent="remove")
    first = stepped(weights, 1)
    second = dict(stepped(first, 2), many=first["many"].reshape(50, 400), new=torch.ones(9000))
    del second["bfloat16"]
    third = dict(stepped(second, 3), many=changed(first["many"], 0.01, 3), bfloat16=changed(weights["bfloat16"], 0.01, 4))
    for new in (first, second, third):
        pair.diff(new)
        pair.commit()
    # From main memory, and from the device again.
    fourth, fifth = stepped(third, 4), stepped(stepped(third, 4), 5)
    mixed = {name: tensor.numpy() if tensor.dtype == torch.float32 else tensor for name, tensor in fourth.items()}
    assert b"".join(pair.found.diff(mixed)) == b"".join(pair.expected.diff(fourth))
    pair.commit()
    pair.diff(fifth)


def test_only_changes_are_copied_unless_they_are_many():
    old = {"few": torch.zeros(8000), "quarter": torch.zeros(8000), "more": torch.zeros(8000), "equal": torch.zeros(8000)}
    counts = {"few": 3, "quarter": 2000, "more": 2001, "equal": 0}
    new = on_device(old)
    for name, count in counts.items():
        new[name][100 : 100 + count] = 1
    compared = _device.DeviceBase(delta.Sender(old)._core)
    whole, found = compared.compare([in_place(name, tensor) for name, tensor in new.items()])
    assert [one.name for one in whole] == ["more"]
    by_name = {one.description[0][0]: one for one in found}
    assert sorted(by_name) == ["equal", "few", "quarter"]
    for name, one in by_name.items():
        positions, values = one.owner
        assert positions.tolist() == list(range(100, 100 + counts[name])) and one.description[2] == [counts[name]]
        assert values.view(torch.float32).tolist() == [1.0] * counts[name]


def test_weights_that_are_not_contiguous_or_tied(tmp_path):
    first = noise(10_000, torch.float32, 7).reshape(100, 100)
    second, third = changed(first, 0.5, 8), changed(changed(first, 0.5, 8), 0.01, 9)

    def weights(square):
        return {"a": square, "tied": square, "turned": square.T}

    pair = Pair(tmp_path, weights(first), weights(second))
    found = b"".join(pair.found.diff(weights(third.to(DEVICE))))
    assert found == b"".join(pair.expected.diff(weights(third)))


def test_memory_that_is_used_again_is_not_tied(tmp_path, monkeypatch):
    # Each batch ends after one tensor, so the memory of a tensor is free when the next is made.
    monkeypatch.setattr("gradwire.delta._sender.BATCH", 1)
    old = torch.zeros(90, 100)
    pair = Pair(tmp_path, {"old": old}, {"old": old + 1})
    # Of names that the base does not have, only the first of the same memory is taken.
    new = {f"layer.{number}": noise(9000, torch.float32, number).reshape(90, 100) for number in range(20)}
    new["old"] = old
    expected = b"".join(pair.expected.diff(new))
    pair.expected.rollback()

    # Tensors that end before the next, and tensors whose contiguous copies do.
    def temporary():
        return ((name, tensor.to(DEVICE, copy=True)) for name, tensor in new.items())

    turned = {name: tensor.T.contiguous().T.to(DEVICE) for name, tensor in new.items()}
    arrays = {name: numpy.asfortranarray(tensor.numpy()) for name, tensor in new.items()}
    # Names of the same memory, which something holds.
    moved = {name: tensor.to(DEVICE) for name, tensor in new.items()}

    def tied():
        return ((name + twice, tensor.detach()) for name, tensor in moved.items() for twice in ("", ".tied"))

    for weights in (temporary, lambda: turned, lambda: arrays, tied):
        for sender in (pair.found, pair.expected):
            assert b"".join(sender.diff(weights())) == expected
            sender.rollback()


def test_without_triton_the_error_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "gradwire.delta._device", None)
    with pytest.raises(gradwire.ConfigError, match="needs PyTorch and Triton"):
        delta.Sender({"w": torch.zeros(3)}, device_base=True)


def test_the_script_for_gpus_compares_weights():
    sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
    import gpu

    found = gpu.weights(5000, torch.int16, 0.01, DEVICE, 1)
    assert found["same_changes"] and {"copy_gb_per_s", "changes_gb_per_s", "torch_gb_per_s"} < set(found)
    assert gpu.shipping(20_000, 0.01, DEVICE, 2)["same_changes"]
