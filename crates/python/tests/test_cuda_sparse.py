"""The kernels of sparse compressors, under Triton's interpreter, against the host's codec bit for bit."""

import pytest
import torch

pytest.importorskip("triton", reason="PyTorch came without Triton")

from gradwire.torch.cuda import _source
from gradwire.torch.cuda._kernel import Forms
from gradwire.torch.cuda._source import Source
from kernels import RANK, Device, Host, bits, check_adding, tensors

SPECS = [
    "threshold:v=0.3",
    "strom:tau=0.3",
    "topk:ratio=0.05",
    "topk:ratio=0.05,select=sampled",
    "sbc:p=0.02",
    "dryden:ratio=0.05",
    "randomk:ratio=0.1,indices=independent",
    "adacomp:fc=60",
    "local-selection",
]
# Other parameters, error feedback off, and other weights of residual and gradient.
VARIANTS = [
    "threshold",
    "threshold:v=0.3,ef=off",
    "strom:tau=0.3,beta=0.5,gamma=0.25",
    "topk:ratio=1",
    "gradient-dropping",
    "gradient-dropping:select=sampled",
    "topk:ratio=0.4,beta=0.5,gamma=0.25",
    "topk:ratio=0.3,select=sampled,ef=off",
    "sbc:p=0.3,golomb=derived",
    "sbc:p=0.02,ef=off",
    "dryden:ratio=1",
    "randomk:ratio=0.6,unbiased=on,ef=off",
    "adacomp:fc=5000,factor=3",
    "adacomp:fc=7,code=records,beta=0.5,gamma=0.25",
    "adacomp:fc=60,ef=off",
    "local-selection:fc=5000",
    "local-selection:fc=1",
]
# The kinds of tensors of each size, all of which are in one batch.
KINDS = {
    0: ["zeros"],
    1: ["gaussian", "zeros", "constant"],
    5: ["negative zeros", "one hot", "subnormal"],
    1023: ["gaussian", "huge", "sparse"],
    4097: ["zeros", "negative zeros", "one hot"],
    9000: ["gaussian", "constant", "subnormal"],
}


class Pair:
    """A compressor on the device and on the host."""

    def __init__(self, spec, values):
        self.spec = spec
        self.device = Device(spec, {name: value.shape for name, value in values.items()})
        self.host = Host(spec)

    def source(self, values):
        dtype = next(iter(values.values())).dtype
        weights = self.device.config.weights or (1.0, 1.0)
        return Source(self.device.bucket(values, dtype), self.device.batch.starts, self.device.residual, weights)

    def forms(self, step, source):
        batch = self.device.batch
        forms = self.device.kernel.start(batch, source, _source.maxima(batch, source), step)()
        return [forms.bytes[start:end].numpy().tobytes() for start, end in forms.ranges]

    def check(self, step, values):
        """Compresses a step on both sides, and compares messages and residuals."""
        device, source = self.device, self.source(values)
        own = []
        for slot, form in zip(device.slots, self.forms(step, source)):
            message = self.host.encode(slot, step, values[slot.name])
            assert Host(self.spec).pack(slot, step, form) == message, (slot.name, step)
            own.append(self.host.unpack(slot, step, RANK, message))
        self.settle(own, source)
        for slot in device.slots if device.residual is not None else []:
            same = bits(device.residual_of(slot)) == bits(self.host.residual(slot))
            assert same.all(), (slot.name, step, int((~same).nonzero()[0]))

    def settle(self, own, source):
        """Corrects the residual by this rank's messages, given as forms."""
        starts = [sum(map(len, own[:at])) for at in range(len(own))]
        back = Forms(torch.frombuffer(bytearray(b"".join(own)), dtype=torch.uint8), [])
        self.device.kernel.settle(self.device.batch, back, self.device.batch.vector(starts), source)


def check(spec, steps):
    pair = Pair(spec, steps[0])
    for step, values in enumerate(steps):
        pair.check(step, values)


def mixed(kinds, seed):
    """Tensors of several sizes and kinds, by name."""
    found = {}
    for elements, names in kinds.items():
        values = tensors(elements, seed)
        if seed > 0:
            # Their sum would not be finite.
            values["huge"] = torch.zeros(elements)
        found.update({f"{name} {elements}": values[name] for name in names})
    return found


@pytest.mark.parametrize("spec", SPECS)
def test_messages_and_residuals_are_the_hosts(spec):
    check(spec, [mixed(KINDS, seed) for seed in range(2)])


@pytest.mark.parametrize("spec", VARIANTS)
def test_parameters_are_the_hosts(spec):
    kinds = {1: ["gaussian"], 5: ["one hot"], 5000: ["gaussian", "sparse"]}
    check(spec, [mixed(kinds, seed) for seed in range(2)])


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_gradients_are_compressed_as_the_host_does(spec, dtype):
    check(spec, [{"weight": tensors(1500, seed)["gaussian"].to(dtype)} for seed in range(2)])


@pytest.mark.parametrize("spec", SPECS)
def test_of_equal_values_the_hosts_are_sent(spec):
    noise = torch.randn(9000, generator=torch.Generator().manual_seed(1))
    few = {"rounded": (noise * 2).round() / 2, "signs": noise.sign(), "steps": (noise * 2).round() / 2 + 0.25}
    check(spec, [few, few])


@pytest.mark.parametrize("spec", ["adacomp:conv=20,fc=300", "local-selection:conv=300,fc=20"])
def test_bins_depend_on_the_shape(spec):
    noise = torch.randn(6000, generator=torch.Generator().manual_seed(2))
    values = {"kernel": noise[:5000].reshape(50, 20, 5), "weight": noise.reshape(60, 100), "bias": noise[:77].clone()}
    check(spec, [values, values])


@pytest.mark.parametrize("spec", SPECS)
def test_a_tensor_that_is_not_finite_sends_nothing_and_keeps_its_residual(spec):
    good = {"a": tensors(5000, 1)["gaussian"], "b": tensors(700, 2)["gaussian"]}
    pair = Pair(spec, good)
    pair.check(0, good)
    before = pair.device.residual.clone()
    bad = dict(good, a=torch.where(torch.arange(5000) == 4500, float("nan"), good["a"]))
    source = pair.source(bad)
    forms = pair.forms(1, source)
    head = 4 * pair.device.kernel.levels
    # Of random positions the values are 0.
    count = int.from_bytes(forms[0][head : head + 4], "little")
    assert not any(forms[0][head + 4 + 4 * count :]) and len(forms[1]) > head + 4
    pair.settle(forms, source)
    assert (bits(pair.device.residual[:5000]) == bits(before[:5000])).all()


@pytest.mark.parametrize("spec", SPECS)
def test_sums_are_the_hosts(spec):
    for elements in [0, 1, 5, 1023, 9000]:
        check_adding(spec, elements)
