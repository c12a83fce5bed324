"""The kernels of sparse compressors, under Triton's interpreter or on a GPU, against the host's
codec bit for bit."""

import pytest
import torch

pytest.importorskip("triton", reason="PyTorch came without Triton")

from gradwire import NonFiniteError
from kernels import RANK, Device, Host, bits, check_adding, check_arrays, forms_of, tensors

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
# Those whose memory is not the plain residual.
MEMORIES = [
    "dgc:ratio=0.05,momentum=0.4,warmup=2",
    "sgc:ratio=0.05,alpha=0.7,epsilon=0.3,warmup=2",
    "topk:ratio=0.05,beta=0.5,gamma=0.25,momentum=0.3",
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
    "dgc:ratio=1,ef=off",
    "sgc:ratio=0.3,ef=off",
    "adacomp:fc=60,ef=off,momentum=0.3",
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

    def forms(self, step, values):
        """The input of the compressor at a step, and the form of each tensor."""
        dtype = next(iter(values.values())).dtype
        source, encoded = self.device.start(step, self.device.bucket(values, dtype))
        return source, forms_of(encoded)

    def check(self, step, values):
        """Compresses a step on both sides, and compares messages and what is kept."""
        device, own = self.device, []
        source, forms = self.forms(step, values)
        for slot, form in zip(device.slots, forms):
            message = self.host.encode(slot, step, values[slot.name])
            assert Host(self.spec).pack(slot, step, form) == message, (slot.name, step)
            own.append(self.host.unpack(slot, step, RANK, message))
        self.clear_sent(own, source)
        check_arrays(device, self.host, step)

    def clear_sent(self, own, source):
        """Corrects the kept arrays by this rank's messages, given as forms."""
        self.device.clear_sent(self.device.moved(own), source)


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
            # A sum of such would not be finite.
            values["huge"] = tensors(elements)["huge"] * (-0.5 if seed == 1 else 0)
        found.update({f"{name} {elements}": values[name] for name in names})
    return found


@pytest.mark.parametrize("spec", SPECS)
def test_messages_and_residuals_are_the_hosts(spec):
    check(spec, [mixed(KINDS, seed) for seed in range(2)])


@pytest.mark.parametrize("spec", VARIANTS)
def test_parameters_are_the_hosts(spec):
    kinds = {1: ["gaussian"], 5: ["one hot"], 5000: ["gaussian", "sparse"]}
    check(spec, [mixed(kinds, seed) for seed in range(2)])


@pytest.mark.parametrize("spec", MEMORIES)
def test_what_memories_keep_is_the_hosts(spec):
    kinds = {0: ["zeros"], 5: ["negative zeros", "subnormal"], 4097: ["gaussian", "huge"]}
    check(spec, [mixed(kinds, seed) for seed in range(3)])


def test_thresholds_are_adjusted_as_the_hosts():
    noise = torch.randn(5, 9000, generator=torch.Generator().manual_seed(3))
    # Of a sample with four of the nine largest, the fourth may be far from the ninth of all, and
    # powers are far from each other. So thresholds are lowered never, once and three times, and
    # exact ones follow the first two.
    values = {f"noise {at}": row for at, row in enumerate(noise[1:3])}
    values.update({f"powers {at}": (16 * row).exp() for at, row in enumerate(noise[3:])}, zeros=torch.zeros(9000))
    check("dgc:ratio=0.001", [values])


@pytest.mark.parametrize("spec", SPECS + MEMORIES[:2])
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


@pytest.mark.parametrize("spec", SPECS + MEMORIES)
def test_a_tensor_that_is_not_finite_sends_nothing_and_keeps_its_residual(spec):
    good = {"a": tensors(5000, 1)["gaussian"], "b": tensors(700, 2)["gaussian"]}
    pair = Pair(spec, good)
    pair.check(0, good)
    before = {kind: array.clone() for kind, array in pair.device.arrays.items()}
    bad = dict(good, a=torch.where(torch.arange(5000) == 4500, float("nan"), good["a"]))
    source, forms = pair.forms(1, bad)
    head = 4 * pair.device.kernel.levels
    # Of random positions the values are 0.
    count = int.from_bytes(forms[0][head : head + 4], "little")
    assert not any(forms[0][head + 4 + 4 * count :]) and len(forms[1]) > head + 4
    pair.clear_sent(forms, source)
    for kind, array in pair.device.arrays.items():
        assert (bits(array[:5000]) == bits(before[kind][:5000])).all(), kind


def test_a_sum_that_is_too_large_leaves_the_velocity_as_it_was():
    pair = Pair("dgc:ratio=0.5,momentum=0.5", {"a": torch.zeros(2)})
    pair.check(0, {"a": torch.tensor([2.5e38, 2e38])})
    large = torch.tensor([0.0, 1.2e38])
    slot, bucket = pair.device.slots[0], pair.device.bucket({"a": large})
    # The new velocity is finite, and its sum with the residual is not.
    with pytest.raises(NonFiniteError, match="inf at element 1"):
        pair.host.encode(slot, 1, large)
    pair.device.start(1, bucket)
    check_arrays(pair.device, pair.host, 1)
    device = pair.device
    assert device.memory.corrected(device.batch, 0, bucket, device.arrays).isinf().tolist() == [False, True]


def test_clipped_gradients_are_the_hosts_but_for_the_last_bit_of_the_factor():
    pair = Pair("dgc:ratio=0.1,clip=1", {"large": torch.zeros(5000), "small": torch.zeros(500)})
    for step in range(2):
        values = {"large": tensors(5000, step)["gaussian"], "small": 1e-3 * tensors(500, step)["gaussian"]}
        pair.device.encode(step, pair.device.bucket(values))
        for slot in pair.device.slots:
            pair.host.encode(slot, step, values[slot.name])
    for kind in ("residual", "velocity"):
        large, small = ((pair.device.array_of(slot, kind), pair.host.array(slot, kind)) for slot in pair.device.slots)
        assert torch.allclose(*large, rtol=1e-6, atol=0), kind
        # Its norm is below a half, the limit of one of four ranks.
        assert (bits(small[0]) == bits(small[1])).all(), kind


@pytest.mark.parametrize("spec", SPECS)
def test_sums_are_the_hosts(spec):
    for elements in [0, 1, 5, 1023, 9000]:
        check_adding(spec, elements)
