"""Tests which tensors local steps take: complex ones, those of inference mode, and those that
cannot be copied."""

from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import gradwire.torch
from gradwire.torch import _replica
from models import Net, data, flat
from world import in_turn, ranks


class Holder(nn.Module):
    """A layer beside a tensor."""

    def __init__(self, make, kind):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        if kind == "buffer":
            self.register_buffer("odd", make())
        else:
            self.odd = nn.Parameter(make(), requires_grad=kind == "parameter")


def quantized():
    return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)


@pytest.mark.parametrize("kind, make, says", [
    ("buffer", lambda: torch.eye(3).to_sparse(), "is a tensor with the layout torch.sparse_coo"),
    ("buffer", lambda: torch.eye(3).to_sparse_csr(), "is a tensor with the layout torch.sparse_csr"),
    ("frozen", lambda: torch.eye(3).to_sparse(), "is a tensor with the layout torch.sparse_coo"),
    ("parameter", lambda: torch.eye(3).to_sparse(), "is a tensor with the layout torch.sparse_coo"),
    ("buffer", lambda: torch.ones(3).to_mkldnn(), "is a tensor with the layout torch._mkldnn"),
    ("buffer", lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "is a nested tensor"),
    ("buffer", lambda: torch.ones(1).expand(3), "is expanded"),
    ("parameter", lambda: torch.ones(2, 1).expand(2, 3), "is expanded"),
    ("buffer", quantized, "is quantized"),
    ("frozen", lambda: torch.ones(3, device="meta"), "is on the meta device"),
    ("parameter", lambda: torch.ones(3, device="meta"), "is on the meta device"),
])
def test_what_cannot_be_copied_is_refused_with_its_name(kind, make, says):
    # Before any rank is asked: there is no process group.
    model = Holder(make, kind)
    optimizer = torch.optim.SGD(model.layer.parameters(), lr=0.1)
    with pytest.raises(gradwire.ConfigError) as refused:
        gradwire.torch.LocalSteps(model, optimizer)
    assert f"the {'buffer' if kind == 'buffer' else 'parameter'} 'odd' {says}" in str(refused.value), refused.value


@pytest.mark.parametrize("lazy, name", [(lambda: nn.LazyLinear(3), "1.weight"), (lambda: nn.LazyBatchNorm1d(affine=False), "1.running_mean")])
def test_lazy_modules_are_refused_until_they_have_a_shape(lazy, name):
    model = nn.Sequential(nn.Linear(4, 3), lazy())
    with pytest.raises(gradwire.ConfigError, match=f"'{name}' has no shape yet"):
        gradwire.torch.LocalSteps(model, torch.optim.SGD(model[0].parameters(), lr=0.1))


def in_inference_mode():
    with torch.inference_mode():
        return torch.ones(3)


TAKEN = {
    "conjugate": lambda: (torch.ones(3) + 2j).conj(),
    "negative": lambda: (torch.ones(3) + 2j).conj().imag,
    "complex": lambda: torch.ones(2, 3, dtype=torch.complex128).t(),
    "overlapping": lambda: torch.arange(6.0).as_strided((3, 3), (1, 1)),
    "positions": lambda: torch.arange(6).expand((1, -1)),
    "float8": lambda: torch.ones(3).to(torch.float8_e4m3fn),
    "int16": lambda: torch.ones(3).short(),
    "inference": in_inference_mode,
    "empty": lambda: torch.ones(0, 3),
}


def taken(rank, size):
    """The tensors of each kind that differ between ranks after the start and after a round."""
    found = []
    for name, make in TAKEN.items():
        for kind in ("buffer", "frozen"):
            model = Holder(make, kind)
            twin = Holder(make, kind)
            change = lambda: model.odd.detach().copy_((rank + 2 * torch.ones(model.odd.shape)).to(model.odd.dtype))
            with torch.inference_mode(name == "inference"), torch.no_grad():
                change()
            with gradwire.torch.LocalSteps(model, torch.optim.SGD(model.layer.parameters(), lr=0.1), compressor="none") as steps:
                assert steps.completed_steps == 0
                started = model.odd.detach().cpu().to(torch.complex64)
                if kind == "buffer":
                    with torch.inference_mode(name == "inference"), torch.no_grad():
                        change()
                steps.synchronize()
            found.append((name, kind, started.resolve_conj(), model.odd.detach().cpu().to(torch.complex64).resolve_conj()))
            assert model.odd.is_conj() == twin.odd.is_conj() and model.odd.stride() == twin.odd.stride()
    return found


def test_buffers_and_frozen_parameters_that_distributed_data_parallel_takes_are_taken():
    for name, kind, *values in [one for found in ranks(2, taken) for one in found]:
        assert all(torch.equal(one, torch.full_like(one, 2.0)) for one in values), (name, kind, values)


class Spectral(nn.Module):
    """A layer with complex weights, as Fourier neural operators have."""

    def __init__(self):
        super().__init__()
        weight, bias = torch.randn(40, 30, dtype=torch.complex64).t(), torch.randn((), dtype=torch.complex64)
        self.layers = nn.ParameterList([weight, bias, torch.randn(30)])


def complex_gradient(rank, step, parameter):
    generator = torch.Generator().manual_seed(10 * step + rank)
    return torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype, device="cpu").to(parameter.device)


def complex_steps(rank, size, options, inner, resume):
    torch.manual_seed(0)
    model = Spectral()
    start = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = inner(model.parameters())
    steps = gradwire.torch.LocalSteps(model, optimizer, **options)
    if resume is not None:
        model.load_state_dict(resume[rank][2])
        steps.load_state_dict(resume[rank][3])
    for at in range(steps.completed_steps, 4 if resume is None else 8):
        for parameter in model.parameters():
            parameter.grad = complex_gradient(rank, at, parameter)
        steps.step()
    if "mask" in options:
        steps.synchronize()
    moved = [(parameter.detach() - one).cpu() for parameter, one in zip(model.parameters(), start)]
    zeros = [(torch.view_as_real(s["momentum_buffer"]) == 0).sum().item() for p, s in optimizer.state.items() if p.is_complex() and s]
    return moved, zeros, model.state_dict(), steps.state_dict()


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def test_complex_parameters_are_averaged():
    cases = (
        {"every": 2, "outer": gradwire.torch.Nesterov(lr=1.0, momentum=0.0)},
        {"every": 2, "median_clip": True},
        {"every": 6, "fragments": 3, "fragment_sync_delay": 1, "fragment_update_alpha": 0.5},
    )
    exact = {"compressor": "none", "mask": False}
    for options, found in zip(cases, in_turn(2, *((complex_steps, {**exact, **case}, sgd, None) for case in cases))):
        for moved, *_ in found:
            for one, other, parameter in zip(moved, found[0][0], Spectral().parameters()):
                mean = sum(-0.1 * complex_gradient(rank, at, parameter.detach().cpu()) for rank in range(2) for at in range(4)) / 2
                assert torch.equal(one, other)
                if "outer" in options:
                    torch.testing.assert_close(one, mean, rtol=1e-4, atol=1e-5)


def test_complex_parameters_have_masks_and_states():
    options = {"every": 4, "compressor": "topk:ratio=0.1"}
    first = ranks(2, complex_steps, options, momentum, None)
    # A tenth of 2400 reals of the matrix; the scalar is sent whole, and keeps its momentum.
    assert [one[1] for one in first] == [[240, 0]] * 2
    whole = ranks(2, complex_steps, options, momentum, first)
    assert all(torch.equal(one, other) for one, other in zip(whole[0][0], whole[1][0]))


def in_all_modes(rank, size, options, inner):
    """Calls everything in inference mode between steps of training."""
    with torch.inference_mode():
        outside = torch.ones(2)
    model = Net()
    optimizer = inner(model.parameters())
    with torch.inference_mode():
        steps = gradwire.torch.LocalSteps(model, optimizer, **options)

    def train(count):
        for at in range(count):
            x, labels = data(rank, at)
            steps.zero_grad()
            nn.functional.cross_entropy(model(x), labels).backward()
            steps.step()

    def closure():
        x, labels = data(rank, 0)
        steps.zero_grad()
        loss = nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        return loss

    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        train(3)
        with mode():
            steps.synchronize()
            saved = steps.state_dict()
            steps.load_state_dict(saved)
            # Without gradients that were recorded here: those of the last backward pass.
            steps.step()
            if mode is not torch.inference_mode:
                assert steps.step(closure).requires_grad
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled() and outside.is_inference()
    train(2)
    steps.synchronize()
    state = [value for one in optimizer.state.values() for value in one.values()]
    assert not any(one.is_inference() for one in [*state, *model.parameters(), steps.state_dict()["common"]] if torch.is_tensor(one))
    return flat(model)


@pytest.mark.parametrize("options, inner", [
    ({"every": 50, "compressor": "topk:ratio=0.1"}, momentum),
    ({"every": 4, "outer": gradwire.torch.Nesterov(), "fragments": 2, "fragment_sync_delay": 1}, torch.optim.Adam),
])
def test_local_steps_work_in_every_autograd_mode(options, inner):
    one, two = ranks(2, in_all_modes, options, inner)
    assert numpy.array_equal(one, two)


def flattened(rank, size):
    """In a process of its own, because fake tensors give it fake GPUs."""
    waits = []
    stream = lambda device: SimpleNamespace(synchronize=lambda: waits.append(str(device)))
    # Fake tensors have a device, and no memory on it.
    with pytest.MonkeyPatch.context() as patch, FakeTensorMode():
        patch.setattr(torch.cuda, "current_stream", stream)
        parameters = [torch.empty(3, 4, device="cuda:0", dtype=torch.bfloat16), torch.empty(5, device="cuda:1"), torch.empty(2)]
        flat = _replica._flat([*parameters, torch.empty(0, device="cuda:1")])
        # On a device nothing waits for it.
        on_device = _replica._flat(parameters[:1], torch.device("cuda:0"))
        moved = _replica._in_main_memory(on_device)
    return sorted(waits), [(str(one.device), one.dtype, tuple(one.shape)) for one in (flat, on_device, moved)]


def test_parameters_of_several_devices_become_one_tensor():
    forms = [("cpu", torch.float32, (19,)), ("cuda:0", torch.float32, (12,)), ("cpu", torch.float32, (12,))]
    assert ranks(1, flattened) == [(["cuda:0", "cuda:1"], forms)]


def test_the_elements_of_parameters_are_in_the_order_of_their_shapes():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(4, 3, 2, 2, generator=generator).to(torch.bfloat16, memory_format=torch.channels_last)
    bias = torch.randn(5, generator=generator)
    assert torch.equal(_replica._flat([weight, bias]), torch.cat([weight.float().reshape(-1), bias]))
