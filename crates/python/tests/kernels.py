"""Runs the kernels for GPUs beside the host's codec."""

import torch

from device import DEVICE
from gradwire import _core
from gradwire._arrays import buffer
from gradwire.torch.cuda._batch import Batch, Slot
from gradwire.torch.cuda._config import Config
from gradwire.torch.cuda._forms import Forms
from gradwire.torch.cuda.kernels import kernel_and_memory

SEED, RANK, RANKS = 11, 2, 4


def tensors(elements, seed=0):
    """Tensors with edge cases, by name, as in the laws of the Rust crate."""
    noise = torch.randn(elements, generator=torch.Generator().manual_seed(seed))
    at = torch.arange(elements)
    one_hot = torch.where(at == elements // 2, -3.0, 0.0)
    return {
        "gaussian": noise,
        "zeros": torch.zeros(elements),
        "negative zeros": torch.where(at % 2 == 0, -0.0, 0.0),
        "constant": torch.full((elements,), 0.1),
        "one hot": one_hot,
        "subnormal": (noise.abs() * 100).int().view(torch.float32).copysign(noise),
        "huge": torch.where(at % 3 == 0, torch.tensor(3.4e38).copysign(noise), noise * 1e37),
        "sparse": torch.where(noise.abs() > 2, noise * 1e-3, 0.0),
    }


class Device:
    """A compressor on the device, with what is kept for some tensors."""

    def __init__(self, spec, shapes, seed=SEED, rank=RANK, ranks=RANKS, gap=3):
        self.config = Config.of(spec, seed, rank, ranks)
        self.kernel, self.memory = kernel_and_memory(self.config)
        slots, start, kept = [], gap, 0
        for name, shape in shapes.items():
            slot = Slot(name, tuple(shape), start, kept)
            slots.append(slot)
            # Elements of other compressors may lie between.
            start, kept = start + slot.elements + gap, kept + slot.elements
        self.slots, self.size = slots, start
        self.batch = Batch(slots, DEVICE)
        self.arrays = {kind: torch.zeros(kept, device=DEVICE) for kind in self.memory.kept}

    @property
    def residual(self):
        return self.arrays.get("residual")

    def bucket(self, values, dtype=torch.float32):
        bucket = torch.zeros(self.size, dtype=dtype)
        for slot in self.slots:
            bucket[slot.start : slot.start + slot.elements] = values[slot.name].reshape(-1).to(dtype)
        return bucket.to(DEVICE)

    def encode(self, step, bucket):
        """The form of each tensor, as bytes."""
        source, encoded = self.start(step, bucket)
        self.clear_sent(encoded.forms, source)
        return forms_of(encoded)

    def start(self, step, bucket):
        """The input of the compressor, and its forms."""
        source = self.memory.source(self.batch, bucket, self.arrays)
        return source, self.kernel.start(self.batch, source, step)()

    def clear_sent(self, forms, source):
        """Corrects the kept arrays by this rank's messages."""
        self.kernel.clear_sent(self.batch, forms, source)
        self.memory.clear_sent(self.batch, forms, self.arrays)

    def residual_of(self, slot):
        return self.array_of(slot, "residual")

    def array_of(self, slot, kind):
        return self.arrays[kind][slot.kept : slot.kept + slot.elements].cpu()

    def add(self, step, rank, forms, weight, out):
        """Adds messages, given as forms."""
        self.kernel.add(self.batch, self.moved(forms), out, weight, step, rank)

    def moved(self, forms):
        """Forms given as bytes, on the device."""
        padded = [form + bytes(-len(form) % 4) for form in forms]
        starts = [sum(map(len, padded[:at])) for at in range(len(padded))]
        joined = torch.frombuffer(bytearray(b"".join(padded) or b"\0" * 4), dtype=torch.uint8).to(DEVICE)
        return Forms(joined, self.batch.vector(starts))

    def aggregate(self, out):
        self.kernel.aggregate(self.batch, out)


def forms_of(encoded):
    """The form of each tensor, as bytes."""
    return [encoded.forms.bytes[start:end].cpu().numpy().tobytes() for start, end in encoded.ranges]


class Host:
    """The same compressor on the host."""

    def __init__(self, spec, seed=SEED, rank=RANK, ranks=RANKS):
        self.codec = _core.Codec(spec, seed, rank, ranks)

    def encode(self, slot, step, values):
        return self.codec.encode(slot.name, slot.shape, step, buffer(values, "values"))

    def pack(self, slot, step, form):
        return self.codec.pack(slot.name, slot.shape, step, form)

    def unpack(self, slot, step, rank, message):
        return self.codec.unpack(slot.name, slot.shape, step, rank, message)

    def array(self, slot, kind):
        array = self.codec.array(slot.name, kind)
        return torch.frombuffer(bytearray(array), dtype=torch.float32) if array else torch.zeros(0)

    def add(self, slot, step, rank, message, weight, out):
        self.codec.decode_add(slot.name, slot.shape, step, rank, message, weight, buffer(out, "out"))

    def aggregate(self, slot, out):
        self.codec.aggregate(slot.name, buffer(out, "out"))


def bits(values):
    """Numbers as bit patterns, to tell 0 from −0."""
    return values.view(torch.int32)


def check_arrays(device, host, step):
    """Compares what both keep, bit for bit."""
    for kind in device.arrays:
        for slot in device.slots:
            same = bits(device.array_of(slot, kind)) == bits(host.array(slot, kind))
            assert same.all(), (slot.name, kind, step, int((~same).nonzero()[0]))


def check_encoding(spec, elements, dtype=torch.float32, steps=2, kinds=None, shape=None, exact=True):
    """Compares messages and what is kept with the host's, bit for bit, over some steps.

    Where the host adds up numbers in another order, ``exact`` is False: then the host's decoder
    must find what the device's residual leaves out.
    """
    all_values = [tensors(elements, seed) for seed in range(steps)]
    names = kinds or list(all_values[0])
    device = Device(spec, {name: shape or (elements,) for name in names})
    host = Host(spec)
    for step, values in enumerate(all_values):
        if dtype != torch.float32:
            values = {name: value.clamp(-6e4, 6e4) for name, value in values.items()}
        elif step > 0 and "huge" in names:
            # Their sum would not be finite.
            values["huge"] = torch.zeros(elements)
        before = device.residual.cpu().clone() if device.residual is not None else None
        bucket = device.bucket(values, dtype)
        forms = device.encode(step, bucket)
        for slot, form in zip(device.slots, forms):
            own = values[slot.name].to(dtype)
            packed = Host(spec).pack(slot, step, form)
            if exact:
                assert packed == host.encode(slot, step, own), (slot.name, step)
            elif device.residual is not None:
                check_conservation(device, slot, own, before, packed, step)
        if exact:
            check_arrays(device, host, step)


def check_conservation(device, slot, own, before, packed, step):
    """What was to be sent is what the host decodes plus what is left."""
    beta, gamma = device.config.weights
    decoded = torch.zeros(slot.elements)
    Host(spec_of(device)).add(slot, step, RANK, packed, 1.0, decoded)
    whole = before[slot.kept : slot.kept + slot.elements] * beta + own.float() * gamma
    left = device.residual_of(slot)
    scale = torch.linalg.vector_norm(whole.double(), float("inf")).clamp(min=1e-30) if slot.elements else torch.ones(1)
    assert ((decoded.double() + left.double() - whole.double()).abs() <= 2e-6 * scale.double()).all(), (slot.name, step)


def check_nearness(spec, elements, kinds=("gaussian", "constant", "one hot", "sparse")):
    """Compares what messages decode to with what those of the host do, of the same tensors and the
    same draws."""
    values, host = tensors(elements), Host(spec)
    device = Device(spec, {name: (elements,) for name in kinds})
    for slot, form in zip(device.slots, device.encode(0, device.bucket(values))):
        found, expected = torch.zeros(elements), torch.zeros(elements)
        host.add(slot, 0, RANK, host.pack(slot, 0, form), 1.0, found)
        host.add(slot, 0, RANK, host.encode(slot, 0, values[slot.name]), 1.0, expected)
        assert ((found - expected).abs() <= 1e-6 * expected.abs().max()).all(), slot.name


def spec_of(device):
    parameters = ",".join(f"{key}={value}" for key, value in device.config.parameters.items() if key not in _COMMON)
    return device.config.id + (f":{parameters}" if parameters else "")


_COMMON = {"ef", "beta", "gamma", "every", "momentum"}


def check_adding(spec, elements, shape=None, ranks=3, kinds=("gaussian", "one hot", "zeros", "subnormal")):
    """Adds the messages of several ranks on both sides, and compares the sums bit for bit."""
    device = Device(spec, {name: shape or (elements,) for name in kinds})
    out = torch.zeros(device.size, device=DEVICE)
    expected = {slot.name: torch.zeros(slot.elements) for slot in device.slots}
    host = Host(spec)
    for rank in range(ranks):
        values, sender = tensors(elements, 10 + rank), Host(spec, rank=rank)
        messages = [sender.encode(slot, 5, values[slot.name]) for slot in device.slots]
        forms = [host.unpack(slot, 5, rank, message) for slot, message in zip(device.slots, messages)]
        device.add(5, rank, forms, 1 / ranks, out)
        for slot, message in zip(device.slots, messages):
            host.add(slot, 5, rank, message, 1 / ranks, expected[slot.name])
    device.aggregate(out)
    for slot in device.slots:
        host.aggregate(slot, expected[slot.name])
        found = out[slot.start : slot.start + slot.elements].cpu()
        assert (bits(found) == bits(expected[slot.name])).all(), slot.name
        out[slot.start : slot.start + slot.elements] = 0
    assert (out == 0).all(), "elements of other tensors were changed"
