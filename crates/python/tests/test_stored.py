"""Tests files and frames in which the command line keeps tensors as they are."""

import json

import numpy
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import gradwire
from gradwire import _core


def command(line):
    assert _core.main(["gradwire", *map(str, line)]) == 0


def bits(tensor):
    return tensor.reshape(-1).view(torch.uint8).tolist()


def test_a_checkpoint_of_a_model_survives_compression(tmp_path):
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))
    tensors = {
        **net.state_dict(),
        "mask": torch.full((4, 4), float("-inf")).triu(1),
        "nan": torch.tensor([1.0, float("nan")], dtype=torch.bfloat16),
        "scales": torch.arange(6.0).to(torch.float8_e4m3fn),
        "doubles": torch.rand(3, dtype=torch.float64),
        "flags": torch.tensor([True, False]),
        "empty": torch.zeros(0, 3),
        "ids": torch.arange(5).to(torch.uint16),
        "spectrum": torch.tensor([1 + 2j]),
    }
    metadata = {"format": "pt", "ss_network_dim": "8", "note": 'ä "quoted"'}
    whole, frames, back = (tmp_path / name for name in ("m.safetensors", "m.gw", "back.safetensors"))
    save_file(tensors, whole, metadata)
    command(["compress", whole, frames, "--compressor", "topk:ratio=0.5"])
    command(["decompress", frames, back])
    with safe_open(whole, "pt") as a, safe_open(back, "pt") as b:
        assert a.metadata() == b.metadata() == metadata
        assert list(a.keys()) == list(b.keys())
        for name in a.keys():
            one, other = a.get_tensor(name), b.get_tensor(name)
            # Compressed as float32.
            expected = torch.float32 if name == "doubles" else one.dtype
            assert (expected, one.shape) == (other.dtype, other.shape), name
            compressed = name in net.state_dict() and one.dtype == torch.float32
            assert compressed or name == "doubles" or bits(one) == bits(other), name
    # A lossless compressor gives the same file, but for the order of the metadata.
    command(["compress", "--force", whole, frames, "--compressor", "none"])
    command(["decompress", "--force", frames, back])
    headers = [json.loads(path.read_bytes()[8:].split(b"}}", 1)[0] + b"}}") for path in (whole, back)]
    assert list(headers[0]) == list(headers[1]) and headers[0] == headers[1]
    size = len(whole.read_bytes())
    data = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    assert len(back.read_bytes()) == size and back.read_bytes()[-data:] == whole.read_bytes()[-data:]


NUMPY = ["int64", "uint8", "bool", "complex64"]


@pytest.mark.parametrize("dtype", NUMPY)
def test_decompress_restores_arrays_that_a_file_stores(tmp_path, dtype):
    array = numpy.arange(6).reshape(2, 3).astype(dtype)
    numpy.save(tmp_path / "a.npy", array)
    command(["compress", tmp_path / "a.npy", tmp_path / "a.gw", "--compressor", "eden"])
    frame = (tmp_path / "a.gw").read_bytes()
    back = gradwire.decompress(frame)
    assert back.dtype == array.dtype and (back == array).all() and back.flags.writeable
    assert torch.equal(gradwire.decompress(frame, to="torch"), torch.from_numpy(array))
    with pytest.raises(gradwire.MessageError, match="max_bytes"):
        gradwire.decompress(frame, max_bytes=array.nbytes - 1)


def test_element_types_that_a_library_does_not_have_are_named(tmp_path):
    def frame(tensor):
        save_file({"t": tensor}, tmp_path / "t.safetensors")
        command(["compress", "-f", tmp_path / "t.safetensors", tmp_path / "t.gw", "--compressor", "none"])
        return (tmp_path / "t.gw").read_bytes()

    small = frame(torch.ones(2).to(torch.float8_e5m2))
    with pytest.raises(gradwire.ConfigError, match="f8_e5m2, which numpy lacks"):
        gradwire.decompress(small)
    assert gradwire.decompress(small, to="torch").dtype == torch.float8_e5m2
    infinite = frame(torch.tensor([1.0, float("inf")], dtype=torch.bfloat16))
    assert gradwire.decompress(infinite).tolist() == [1.0, numpy.inf]
    empty = frame(torch.zeros(0, 3, dtype=torch.int32))
    assert gradwire.decompress(empty).shape == gradwire.decompress(empty, to="torch").shape == (0, 3)


def test_metadata_is_no_tensor(tmp_path):
    save_file({"t": torch.ones(2)}, tmp_path / "t.safetensors", {"format": "pt"})
    command(["compress", tmp_path / "t.safetensors", tmp_path / "t.gw", "--compressor", "none"])
    frames = (tmp_path / "t.gw").read_bytes()
    with pytest.raises(gradwire.MessageError, match="bytes follow the frame"):
        gradwire.decompress(frames)
    first = _core.Frame(frames, 0)
    with pytest.raises(gradwire.MessageError, match="holds metadata"):
        gradwire.decompress(frames[first.end :])
