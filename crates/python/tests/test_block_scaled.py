"""Block-scaled formats against PyTorch's own types of 8 bits."""

import pytest
import torch

from gradwire import _core
from gradwire._arrays import buffer

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}


def values():
    """Blocks of all sizes: the largest element is from 2⁻¹⁴⁹ to 2¹²⁷. The last block is shorter."""
    noise = torch.randn(276 * 32 + 5, generator=torch.Generator().manual_seed(3)) / 4
    exponents = torch.arange(len(noise)) // 32 - 149
    return torch.ldexp(noise.clamp(-1, 1).double(), exponents.double()).float()


def message_and_decoded(spec, gradient):
    codec, shape = _core.Codec(f"{spec},ef=off", 0, 0, 1), (len(gradient),)
    message = codec.encode("", shape, 0, buffer(gradient))
    decoded = torch.zeros(len(gradient))
    codec.decode_add("", shape, 0, 0, message, 1.0, buffer(decoded))
    return torch.frombuffer(bytearray(message), dtype=torch.uint8), decoded


def in_blocks(numbers, length):
    return torch.nn.functional.pad(numbers, (0, -len(numbers) % length)).view(-1, length)


def halves(codes, elements):
    """Codes of 4 bits, the first in the low half of a byte."""
    return torch.stack([codes & 15, codes >> 4], 1).view(-1)[:elements].long()


def e2m1(codes):
    return torch.where(codes >= 8, -E2M1[codes % 8], E2M1[codes % 8])


def nearest_e2m1(numbers):
    """Codes of the nearest numbers; of two, the even code."""
    distance = (numbers.abs()[:, None].double() - E2M1.double()).abs()
    least = distance.min(1, keepdim=True).values
    # An even code is preferred over an odd one at the same distance.
    code = torch.where(distance == least, torch.arange(8) % 2, 2).argmin(1)
    return code + 8 * numbers.signbit()


def power_scales(gradient, exponent):
    """The scales of section 6.3, as E8M0: exponents of frexp are one too large."""
    _, exponents = torch.frexp(in_blocks(gradient, 32).abs().amax(1))
    return (exponents - 1 - exponent + 127).clamp(0, 254).to(torch.uint8).view(torch.float8_e8m0fnu)


@pytest.mark.parametrize("dtype, word, exponent", [(torch.float8_e4m3fn, "e4m3", 8), (torch.float8_e5m2, "e5m2", 15)])
def test_mxfp8_has_the_bytes_of_pytorch(dtype, word, exponent):
    gradient = values()
    message, decoded = message_and_decoded(f"mxfp8:element={word}", gradient)
    scales = power_scales(gradient, exponent)
    assert (message[: len(scales)] == scales.view(torch.uint8)).all()

    scale = scales.float().repeat_interleave(32)[: len(gradient)]
    # PyTorch's casts turn numbers beyond the largest one into NaN or infinity.
    cut = (gradient.double() / scale.double()).clamp(-LARGEST[dtype], LARGEST[dtype])
    elements = cut.float().to(dtype)
    assert (message[len(scales) :] == elements.view(torch.uint8)).all()
    assert (decoded == elements.float() * scale).all()


def test_mxfp4_has_the_nearest_elements():
    gradient = values()
    message, decoded = message_and_decoded("mxfp4:", gradient)
    scales = power_scales(gradient, 2)
    assert (message[: len(scales)] == scales.view(torch.uint8)).all()
    scale = scales.float().repeat_interleave(32)[: len(gradient)]
    codes = halves(message[len(scales) :], len(gradient))
    assert (codes == nearest_e2m1(gradient.double() / scale.double())).all()
    assert (decoded == e2m1(codes) * scale).all()


def test_nvfp4_has_the_scales_of_pytorch():
    gradient = values()[-100 * 32 - 5 : -80 * 32 - 5]
    message, decoded = message_and_decoded("nvfp4:", gradient)
    whole = gradient.abs().amax() / 2688
    assert message[:4].view(torch.float32) == whole
    scales = (in_blocks(gradient, 16).abs().amax(1) / (6 * whole)).to(torch.float8_e4m3fn)
    assert (message[4 : 4 + len(scales)] == scales.view(torch.uint8)).all()
    assert 0 < scales.float().count_nonzero() < len(scales)

    scale = (whole * scales.float()).repeat_interleave(16)[: len(gradient)]
    codes = halves(message[4 + len(scales) :], len(gradient))
    inverse = torch.where(scale > 0, 1 / scale, 0)
    assert (codes == nearest_e2m1(gradient * inverse)).all()
    assert (decoded == e2m1(codes) * scale).all()
