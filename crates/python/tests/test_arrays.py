"""Tests frames of numpy arrays and tensors, and refused arguments."""

import numpy
import pytest
import torch

import gradwire


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_none_is_lossless(dtype):
    array = numpy.random.default_rng(0).standard_normal((3, 40)).astype(dtype)
    frame = gradwire.compress(array, "none", name="w")
    back = gradwire.decompress(frame)
    assert back.dtype == array.dtype and back.shape == array.shape and (back == array).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_tensors_round_trip(dtype):
    tensor = torch.randn(7, 30, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_()
    back = gradwire.decompress(gradwire.compress(tensor, "none"), to="torch")
    assert back.dtype == dtype and torch.equal(back, tensor.detach())


def test_the_known_numbers_of_3lc():
    gradient = numpy.array([[0.5, -0.25, 0.0], [1.0, -1.0, 0.125]], "float32")
    decoded = gradwire.decompress(gradwire.compress(gradient, "3lc:s=1.5"))
    assert decoded.tolist() == [[0.0, 0.0, 0.0], [1.5, -1.5, 0.0]]


def test_an_empty_array_round_trips():
    back = gradwire.decompress(gradwire.compress(numpy.zeros((0, 3), "float32"), "3lc"))
    assert back.shape == (0, 3)


@pytest.mark.parametrize("array, says", [
    (numpy.zeros(3, "int64"), "int64"),
    (numpy.zeros((4, 4), "float32")[:, ::2], "contiguous"),
    (numpy.zeros((4, 4), "float32").T[1:], "contiguous"),
    (numpy.zeros(3, "float64"), "float64"),
    (torch.zeros(4, 4).t(), "contiguous"),
    (torch.zeros(3, dtype=torch.int32), "int32"),
    (torch.zeros(3, 3).to_sparse(), "dense"),
    ([1.0, 2.0], "list"),
])
def test_unsupported_arrays_are_refused(array, says):
    with pytest.raises(gradwire.ConfigError, match=says):
        gradwire.compress(array, "none")


def test_invalid_specs_values_and_frames_are_errors():
    array = numpy.zeros(300, "float32")
    with pytest.raises(gradwire.ConfigError, match="known ones"):
        gradwire.compress(array, "5lc")
    array[5] = numpy.nan
    with pytest.raises(gradwire.NonFiniteError, match="'fc' has NaN at element 5"):
        gradwire.compress(array, "3lc", name="fc")
    frame = bytearray(gradwire.compress(numpy.ones(300, "float32"), "topk"))
    for at in range(len(frame)):
        with pytest.raises(gradwire.GradwireError):
            gradwire.decompress(bytes(frame[:at]))
        frame[at] ^= 1
        with pytest.raises(gradwire.GradwireError):
            gradwire.decompress(bytes(frame))
        frame[at] ^= 1
    with pytest.raises(gradwire.MessageError, match="follow the frame"):
        gradwire.decompress(bytes(frame) + b"x")


def test_the_registry_is_listed():
    listed = {entry["id"]: entry for entry in gradwire.list()}
    assert len(listed) > 30 and listed["3lc"]["error_feedback"]
    assert listed["powersgd"]["aggregation"] == "rounds"
    assert listed["topk"]["parameters"]["ratio"]["default"]
    assert gradwire.canonical("topk: ratio=0.010 , ef=on") == gradwire.canonical("topk:ratio=0.01")
    for entry in listed.values():
        array = numpy.random.default_rng(1).standard_normal((40, 30)).astype("float32")
        decoded = gradwire.decompress(gradwire.compress(array, entry["id"]))
        assert decoded.shape == array.shape and numpy.isfinite(decoded).all()
