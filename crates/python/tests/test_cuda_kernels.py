"""The kernels for GPUs, under Triton's interpreter or on a GPU, against the host's codec bit for
bit."""

import mmap
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="PyTorch came without Triton")

import triton
import triton.language as tl
from device import DEVICE
from gradwire.torch.cuda import _philox
from gradwire.torch.cuda._batch import Batch, Slot
from gradwire.torch.cuda._config import Config
from gradwire.torch.cuda.kernels import KERNELS, kernel_and_memory
from kernels import RANK, Device, Host, bits, check_adding, check_encoding, check_nearness, tensors

# An empty tensor, a part of a byte, and more than one block.
SIZES = [0, 5, 4103]
# Those whose messages are the host's, byte for byte.
EXACT = [
    "3lc",
    "3lc:s=1.75,zre=off",
    "3lc:ef=off",
    "3lc:beta=0.5,gamma=0.25",
    "none:ef=on",
    "fp16:ef=on",
    "bf16:ef=on",
    "int8",
    "mxfp8",
    "mxfp8:element=e5m2,ef=off",
    "mxfp4",
    "nvfp4",
    "int4",
    "int4:block=1024,ef=off",
    "8bit:code=huffman",
    "signsgd:ef=on",
    "signum",
    "signum:momentum=0.7,ef=on",
    "natural",
    "terngrad:clip=0,code=huffman,ef=on",
    "qsgd:norm=max,ef=on",
    "qsgd:s=1,bucket=100,norm=max,code=elias,ef=on",
    "qsgd:s=7,bucket=5000,norm=max,code=huffman",
    "qsgd:s=1000,bucket=7,norm=max",
]
# Those with a sum that the host adds in another order, with error feedback.
CONSERVED = ["efsignsgd", "onebit", "terngrad:ef=on", "qsgd:ef=on", "eden:ef=on", "eden:bits=5,code=huffman,ef=on"]
# The same without.
NEAR = ["efsignsgd:ef=off", "terngrad", "qsgd:s=5,bucket=5000", "eden", "eden:bits=2", "eden:bits=8"]
# One for each way to read gradients.
DTYPES = ["3lc", "3lc:ef=off", "3lc:beta=0.5,gamma=0.25"]

# One for each kernel, and for each choice between kernels.
COMPILED = [
    "3lc",
    "3lc:ef=off",
    "none",
    "fp16:ef=on",
    "powersgd:rank=2",
    "bf16:ef=on",
    "int8",
    "mxfp8",
    "nvfp4",
    "int4",
    "8bit",
    "signum",
    "efsignsgd",
    "onebit",
    "natural",
    "terngrad",
    "terngrad:ef=on",
    "qsgd:norm=max",
    "qsgd:s=1,bucket=5000,ef=on",
    "eden",
    "eden:bits=5,ef=on",
    "topk:ratio=0.05",
    "topk:ratio=0.05,select=sampled",
    "threshold:v=0.5",
    "sbc:p=0.02",
    "dryden:ratio=0.05",
    "adacomp",
    "randomk:ratio=0.1",
    "dgc:ratio=0.05,clip=1",
    "sgc:ratio=0.05",
]


@pytest.mark.parametrize("spec", EXACT)
def test_messages_and_residuals_are_the_hosts(spec):
    for elements in SIZES:
        check_encoding(spec, elements)


@pytest.mark.parametrize("spec", CONSERVED)
def test_residuals_are_what_messages_leave_out(spec):
    for elements in SIZES:
        check_encoding(spec, elements, exact=False, kinds=["gaussian", "zeros", "subnormal", "huge"])


@pytest.mark.parametrize("spec", CONSERVED + NEAR)
def test_messages_decode_to_nearly_what_the_hosts_do(spec):
    for elements in [1, 4103]:
        check_nearness(spec, elements, kinds=["gaussian", "constant"])


@pytest.mark.parametrize("spec", DTYPES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_gradients_are_compressed_as_the_host_does(spec, dtype):
    check_encoding(spec, 5000, dtype)


@pytest.mark.parametrize("spec", EXACT + CONSERVED + NEAR)
def test_sums_are_the_hosts(spec):
    for elements in SIZES:
        check_adding(spec, elements)


def test_every_kernel_compiles_for_gpus_without_inexact_instructions():
    script = Path(__file__).with_name("compile_kernels.py")
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, script, *COMPILED], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) >= 20


def test_the_guide_lists_the_compressors_that_have_kernels():
    guide = (Path(__file__).parents[3] / "docs/pytorch-reference.md").read_text()
    listed = guide.split("by all-gather:\n\n")[1].split(".\n")[0]
    assert re.findall("`([^`]*)`", listed) == list(KERNELS)


@pytest.mark.parametrize("spec", ["int8", "natural", "onebit", "terngrad:ef=on", "qsgd:ef=on", "eden:ef=on"])
@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_a_tensor_that_is_not_finite_keeps_its_residual(spec, bad):
    device = Device(spec, {"bad": (5,), "good": (5,)})
    device.residual[:] = torch.arange(10.0, device=DEVICE)
    gradient = torch.ones(5)
    gradient[3] = bad
    device.encode(0, device.bucket({"bad": gradient, "good": torch.ones(5)}))
    bad_slot, good_slot = device.slots
    assert device.residual_of(bad_slot).tolist() == [0, 1, 2, 3, 4]
    assert device.residual_of(good_slot).tolist() != [5, 6, 7, 8, 9]


def test_parameters_without_kernels_are_left_to_the_host():
    for spec in ["eden:bits=0.5", "eden:bits=1.5", "qsgd:bucket=0", "topk:ef=ef21"]:
        assert kernel_and_memory(Config.of(spec)) is None


# The index of an element whose address is further away than 32 bits of bytes, or of elements,
# reach.
FAR = (1 << 31) + 3


class Distant:
    """An array of which only some elements from ``FAR`` on exist. Kernels get ``pointer``, the
    first element."""

    def __init__(self, elements):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
        memory = mmap.mmap(-1, 4 * (FAR + elements), flags=flags)
        self.pointer = torch.frombuffer(memory, dtype=torch.float32, count=1)
        self.values = torch.frombuffer(memory, dtype=torch.float32, offset=4 * FAR, count=elements)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is reserved as on Linux")
@pytest.mark.skipif(DEVICE.type != "cpu", reason="benchmarks/gpu.py compares such tensors on a GPU")
@pytest.mark.parametrize("spec", [*KERNELS, "qsgd:s=1,bucket=5000,ef=on", "topk:select=sampled", "topk:momentum=0.9"])
def test_tensors_may_begin_beyond_the_reach_of_32_bits(spec):
    values, near, far = tensors(5000)["gaussian"], *(Device(spec, {"w": (100, 50)}) for _ in range(2))
    far.slots = [Slot("w", (100, 50), FAR, FAR)]
    far.batch = Batch(far.slots, torch.device("cpu"))
    bucket, out, arrays = Distant(5000), Distant(5000), {kind: Distant(5000) for kind in near.arrays}
    bucket.values.copy_(values)
    far.arrays = {kind: array.pointer for kind, array in arrays.items()}

    assert far.encode(0, bucket.pointer) == near.encode(0, near.bucket({"w": values}))
    for kind, array in arrays.items():
        assert (bits(array.values) == bits(near.array_of(near.slots[0], kind))).all(), kind
    form, expected = near.encode(1, near.bucket({"w": values})), torch.zeros(near.size)
    form = [Host(spec).unpack(near.slots[0], 1, RANK, Host(spec).pack(near.slots[0], 1, form[0]))]
    near.add(1, RANK, form, 0.5, expected)
    far.add(1, RANK, form, 0.5, out.pointer)
    start = near.slots[0].start
    assert (bits(out.values) == bits(expected[start : start + 5000])).all()


@triton.jit
def _draw(keys, counters, words, BLOCKS: tl.constexpr):
    stream, rank, step = tl.load(counters + 1), tl.load(counters + 2), tl.load(counters + 3)
    a, b, c, d = _philox.draw(tl.load(keys), stream, rank, step, tl.load(counters) + tl.arange(0, BLOCKS))
    tl.store(words + tl.arange(0, 4 * BLOCKS), _philox.interleave(a, b, c, d).to(tl.int64))


@triton.jit
def _words(keys, counters, words, COUNT: tl.constexpr):
    at = 4 * tl.load(counters) + tl.arange(0, COUNT)
    found = _philox.word(tl.load(keys), tl.load(counters + 1), tl.load(counters + 2), tl.load(counters + 3), at)
    tl.store(words + tl.arange(0, COUNT), found.to(tl.int64))


def test_draws_are_those_of_the_authors_of_philox():
    # From kat_vectors of Random123: counter and key, then the four words.
    known = [
        ([0, 0, 0, 0], 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            0x299F31D0A4093822,
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ]
    for counter, key, expected in known:
        key, counters = torch.tensor([key], device=DEVICE), torch.tensor(counter, device=DEVICE)
        drawn, single = (torch.zeros(8, dtype=torch.int64, device=DEVICE) for _ in range(2))
        _draw[(1,)](key, counters, drawn, BLOCKS=2)
        _words[(1,)](key, counters, single, COUNT=8)
        assert drawn[:4].tolist() == expected
        assert single.tolist() == drawn.tolist()


def test_streams_of_late_steps_and_other_ranks_are_the_hosts():
    values = tensors(9)["gaussian"]
    for step, rank in [(0, 1), (2**31 + 5, 2), (2**32 + 1, 1 << 20)]:
        device, host = Device("natural", {"gaussian": (9,)}, rank=rank), Host("natural", rank=rank)
        (form,) = device.encode(step, device.bucket({"gaussian": values}))
        assert form == host.encode(device.slots[0], step, values)


def test_the_script_for_gpus_compares_messages():
    sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
    import gpu

    for spec in ("3lc", "dgc:ratio=0.05"):
        same = gpu.compare(spec, 1000, torch.float32, DEVICE)
        assert same["same_message"] and same["same_kept"] and same["same_sum"], same
