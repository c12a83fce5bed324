"""Tests frames of numpy arrays and tensors, and refused arguments."""

import threading

import numpy
import pytest
import torch

import gradwire
from gradwire import _arrays, _core
from world import ranks


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


def test_a_numpy_scalar_round_trips():
    value = numpy.full(3, 1.5, "float32").mean()
    back = gradwire.decompress(gradwire.compress(value, "none"))
    assert back.shape == () and back == value
    # The address of a scalar is that of memory that is free again.
    assert isinstance(_arrays._snapshot(value), numpy.ndarray)


@pytest.mark.parametrize("option, says", [
    ({"seed": -1}, "seed=-1 is out of range"),
    ({"step": 1 << 64}, "step=18446744073709551616 is out of range"),
    ({"rank": 1 << 32}, "rank=4294967296 is out of range"),
    ({"rank": "0"}, "rank='0' is not an integer"),
])
def test_numbers_out_of_range_are_refused(option, says):
    with pytest.raises(gradwire.ConfigError, match=says):
        gradwire.compress(numpy.zeros(3, "float32"), "none", **option)


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


class Quantity(numpy.ndarray):
    """An array with a unit."""


class Exporter:
    """Describes memory as arrays do."""

    __array_interface__ = numpy.zeros(3, "float32").__array_interface__


class Image(torch.Tensor):
    """A tensor whose class has a meaning."""


def freed():
    tensor = torch.zeros(300)
    tensor.untyped_storage().resize_(0)
    return tensor


def of_a_fake(rank, size):
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        fake = torch.zeros(3)
    with pytest.raises(gradwire.ConfigError, match="FakeTensor.*values"):
        gradwire.compress(fake, "none")


FLOATS = numpy.arange(6, dtype="float32").reshape(2, 3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("array, says", [
    (lambda: numpy.ma.masked_array(FLOATS, FLOATS > 2), "masked.*filled"),
    # Numbers without masked ones are of the same class.
    (lambda: numpy.ma.masked_array(FLOATS), "masked.*filled"),
    (lambda: numpy.matrix(FLOATS), "matrix.*numpy.asarray"),
    (lambda: FLOATS.view(numpy.recarray), "recarray.*numpy.asarray"),
    (lambda: FLOATS.view(Quantity), "Quantity.*numpy.asarray"),
    (Exporter, "Exporter.*numpy.asarray"),
    (lambda: numpy.zeros(3, [("a", "f4")]), "type"),
    (lambda: FLOATS.astype(">f4"), ">f4"),
    (lambda: FLOATS.astype("complex64"), "complex64; pass pairs of reals"),
    (lambda: torch.zeros(3, dtype=torch.complex64).conj(), "complex64; pass pairs of reals"),
    (lambda: torch.masked.masked_tensor(torch.ones(2), torch.tensor([True, False])), "MaskedTensor.*to_tensor"),
    (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested.*unbind"),
    (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "NestedTensor.*unbind"),
    (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "quantized.*dequantize"),
    (lambda: torch.ones(3).as_subclass(Image), "Image.*as_subclass"),
    (lambda: torch.nn.LazyLinear(3).weight, "lazy"),
    (lambda: torch.zeros(3, device="meta"), "meta device, without values"),
    (lambda: torch.ones(1).expand(4), "contiguous"),
    (freed, "without elements in memory"),
])
def test_arrays_whose_class_or_memory_means_more_are_refused(array, says):
    with pytest.raises(gradwire.ConfigError, match=says):
        gradwire.compress(array(), "none")


def test_tensors_within_transforms_have_no_elements():
    with pytest.raises(gradwire.ConfigError, match="without elements in memory: .*torch.func"):
        torch.vmap(lambda row: gradwire.compress(row, "none"))(torch.zeros(2, 3))


def test_tensors_without_values_are_refused():
    # In a process of its own: the mode prepares the engine of autograd for devices, and then ranks
    # cannot be forked.
    ranks(1, of_a_fake)


def test_plain_arrays_of_other_classes_are_taken(tmp_path):
    numpy.save(tmp_path / "a.npy", FLOATS)
    mapped = numpy.load(tmp_path / "a.npy", mmap_mode="r")
    assert type(mapped) is numpy.memmap
    tensors = [torch.nn.Parameter(torch.tensor(FLOATS)), torch.tensor(FLOATS)]
    with torch.inference_mode():
        tensors.append(torch.tensor(FLOATS))
    for one in (mapped, *tensors):
        assert (gradwire.decompress(gradwire.compress(one, "none")) == FLOATS).all()


@pytest.mark.parametrize("value", [numpy.inf, -numpy.inf, numpy.nan])
def test_an_array_with_infinities_is_no_training(value):
    array = numpy.zeros(300, "float32")
    array[7] = value
    with pytest.raises(gradwire.NonFiniteError, match="array 'bias' has .* at element 7.*replace") as raised:
        gradwire.compress(array, "none", name="bias")
    assert "learning rate" not in str(raised.value) and "gradient" not in str(raised.value)


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


def test_importing_all_names_leaves_those_of_python():
    names = {}
    exec("from gradwire import *", names)
    assert "compress" in names and "list" not in names


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


def test_a_frame_that_is_cut_off_or_changed_is_to_be_copied_again():
    frame = gradwire.compress(numpy.ones(100, "float32"), "none")
    for damaged in (frame[:-3], frame[:-3] + b"abc"):
        with pytest.raises(gradwire.MessageError, match="^the frame.*; copy it again$"):
            gradwire.decompress(damaged)


def test_a_negated_view_keeps_its_sign():
    values = torch.tensor([1.0, -2.0, 3.0])
    view = torch._neg_view(values)
    assert view.is_neg()
    back = gradwire.decompress(gradwire.compress(view, "none"), to="torch")
    assert back.tolist() == [-1.0, 2.0, -3.0]


def test_a_frame_that_asks_for_too_much_is_refused_before_memory_is_allocated():
    small = gradwire.compress(numpy.zeros(1000, "float32"), "threshold")
    assert gradwire.decompress(small, max_bytes=4000).shape == (1000,)
    with pytest.raises(gradwire.MessageError, match="max_bytes"):
        gradwire.decompress(small, max_bytes=3999)
    for wrong in (-1, 1 << 64, 1.5, "4kB"):
        with pytest.raises(gradwire.ConfigError, match="max_bytes="):
            gradwire.decompress(small, max_bytes=wrong)
    # The default for a frame of fewer than 256 KiB is 256 MiB.
    large = gradwire.compress(numpy.zeros((1 << 26) + 1, "float32"), "threshold")
    assert len(large) < 60
    for to in ("numpy", "torch"):
        with pytest.raises(gradwire.MessageError, match="268435460 bytes"):
            gradwire.decompress(large, to=to)


def test_shapes_that_an_array_cannot_have_are_errors():
    # A tensor without elements needs no memory, but this dimension does not fit the signed sizes of
    # arrays.
    hostile = _core.encode((0, 0, "float32"), ((1 << 64) - 1, 0), "none", "t", 0, 0, 0)
    for to in ("numpy", "torch"):
        with pytest.raises(gradwire.MessageError, match=f"{to} cannot hold"):
            gradwire.decompress(hostile, to=to)
    with pytest.raises(gradwire.ConfigError, match="shape"):
        _core.encode((0, 0, "float32"), (1 << 40, 1 << 40), "none", "t", 0, 0, 0)


@pytest.mark.parametrize("spec", ["topk:ratio=0.05", "3lc", "qsgd", "sketchml"])
def test_an_array_may_be_written_while_it_is_compressed(spec):
    array = numpy.random.default_rng(0).standard_normal(1 << 18).astype("float32")
    stop = threading.Event()

    def write():
        generator = numpy.random.default_rng(1)
        while not stop.is_set():
            generator.standard_normal(out=array, dtype="float32")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5):
            decoded = gradwire.decompress(gradwire.compress(array, spec))
            assert numpy.isfinite(decoded).all()
    finally:
        stop.set()
        writer.join()


def test_frames_are_bytes():
    frame = gradwire.compress(numpy.ones(300, "float32"), "3lc")
    for same in (bytearray(frame), memoryview(frame)):
        assert (gradwire.decompress(same) == gradwire.decompress(frame)).all()
    with pytest.raises(gradwire.ConfigError, match="is a ndarray"):
        gradwire.decompress(numpy.frombuffer(frame, "uint8"))


def test_schedules_have_a_canonical_form():
    assert gradwire.canonical("none until 100 then topk:ratio=0.01") == "none until 100 then topk"
    assert gradwire.canonical("3lc:s=1.0") == "3lc"
    with pytest.raises(gradwire.ConfigError, match="did you mean '3lc'"):
        gradwire.canonical("3LC")
