"""Tests the steps of 1-bit Adam after the freeze: elements that had no gradient before it, and the
largest step."""

import copy
import math

import numpy
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import gradwire.torch
from device import DEVICE
from world import ranks

FREEZE, STEPS = 4, 8
SETTINGS = {"lr": 0.01, "weight_decay": 0.1}
KEPT = 1 - SETTINGS["lr"] * SETTINGS["weight_decay"]


class Rare(nn.Module):
    """A net with elements that have no gradient: rows of embeddings, a dead unit, pruned weights,
    and an expert that is not used."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(40, 16, padding_idx=0)
        self.positions = nn.Embedding(16, 16)
        self.hidden = nn.Linear(16, 32)
        self.experts = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))
        self.head = nn.Linear(32, 10)
        with torch.no_grad():
            self.hidden.bias[3] = -100.0
            # A unit of zeros would hide what changes it.
            self.tokens.weight[0] = 0.5
        mask = torch.ones_like(self.head.weight)
        mask[:, ::2] = 0
        prune.custom_from_mask(self.head, "weight", mask)

    def forward(self, tokens, expert):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        x = torch.relu(self.hidden(x))
        # The gradients of the other expert are zeros, as those of experts that no token was routed
        # to.
        x = self.experts[expert](x) + 0.0 * self.experts[1 - expert](x)
        return self.head(x.mean(1))

    def unseen(self):
        """The names of parameters, with an index of their elements that have no gradient before the
        freeze."""
        return {
            "tokens.weight": torch.cat([torch.tensor([0]), torch.arange(20, 40)]),
            "positions.weight": torch.arange(8, 16),
            "hidden.weight": torch.tensor([3]),
            "head.weight_orig": (slice(None), slice(None, None, 2)),
            "experts.1.weight": slice(None),
        }


def rarely(rank, size, compressors):
    """For each compressor and type: what is left of the elements, compared with weight decay, and
    how far others moved."""
    found = {}
    for compressor in compressors:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            torch.manual_seed(0)
            net = Rare().to(dtype)
            model = nn.parallel.DistributedDataParallel(net)
            optimizer = gradwire.torch.OneBitAdam(model.parameters(), **SETTINGS, freeze=FREEZE)
            spec = f"none until {FREEZE} then {compressor}"
            handle = gradwire.torch.register(model, spec, optimizer=optimizer, raw_below=0)
            sent = recorded(optimizer, net)
            for step in range(STEPS):
                frozen = step >= FREEZE
                if step == FREEZE:
                    before = {name: one.detach().clone() for name, one in net.named_parameters()}
                generator = torch.Generator().manual_seed(10 * step + rank)
                # Afterwards the expert, and tokens that no batch had, are used.
                tokens = torch.randint(1, 25 if frozen else 20, (16, 8), generator=generator, device="cpu").to(DEVICE)
                tokens[:, -1] = 0
                labels = torch.randint(10, (16,), generator=generator, device="cpu").to(DEVICE)
                optimizer.zero_grad(set_to_none=False)
                nn.functional.cross_entropy(model(tokens, int(frozen)).float(), labels).backward()
                optimizer.step()
            handle.close()
            found[compressor, dtype] = compared(net, before, optimizer), sent
    return found


def recorded(optimizer, net):
    """Collects the largest numbers that this rank sends for elements without a gradient before the
    freeze."""
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    original, sent = optimizer.to_exchange, []

    def to_exchange(parameters, gradients, scale):
        original(parameters, gradients, scale)
        for parameter, gradient in zip(parameters, gradients):
            index = net.unseen().get(names[id(parameter)])
            if index is not None and optimizer.state.get(parameter, {"step": 0})["step"] >= FREEZE:
                sent.append(gradient[index].abs().max().item())

    optimizer.to_exchange = to_exchange
    return sent


def compared(net, before, optimizer):
    """Of each parameter: the elements without a gradient, divided by what they were; their
    momentum; the largest change of the others."""
    parameters = dict(net.named_parameters())
    found = {}
    for name, index in net.unseen().items():
        old, new = before[name].float(), parameters[name].detach().float()
        others = (new - old).abs()
        others[index] = 0
        momentum = optimizer.state[parameters[name]]["exp_avg"][index]
        found[name] = ((new[index] / old[index]).cpu().numpy(), momentum.abs().max().item(), others.max().item())
    return found


def test_elements_that_had_no_gradient_before_the_freeze_only_decay():
    one, two = ranks(2, rarely, ["eden", "onebit", "topk:ratio=0.05", "powersgd:rank=2"])
    for (compressor, dtype), (found, sent) in one.items():
        case = f"{compressor}, {dtype}"
        assert len(sent) >= 5 * (STEPS - FREEZE) and max(sent) == 0, case
        for name, (left, momentum, others) in found.items():
            # A step of weight decay is below the precision of 16 bits; there it rounds.
            tolerance = 1e-6 if dtype == torch.float32 else 0.02
            numpy.testing.assert_allclose(left, KEPT ** (STEPS - FREEZE), rtol=0, atol=tolerance, err_msg=f"{case}, {name}")
            assert momentum == 0, f"{case}, {name}"
            assert name == "experts.1.weight" or others > 0.5 * SETTINGS["lr"], f"{case}, {name}: {others}"
            assert (left == two[compressor, dtype][0][name][0]).all(), f"{case}, {name}"


def stepped(optimizer, parameter, gradients):
    for gradient in gradients:
        parameter.grad = gradient.to(parameter.dtype)
        optimizer.step()


def noisy(shape):
    """Gradients whose even columns are 0 until the freeze, and then noise, as compression leaves it
    where a gradient is 0."""
    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(shape, generator=generator) for _ in range(STEPS)]
    for gradient in gradients[:FREEZE]:
        gradient[:, ::2] = 0
    return gradients


def by_hand(start, gradients, first=0.9, second=0.999):
    """The columns that had gradients, by the paper's algorithm, in float64."""
    parameter, mean, square = start.double(), torch.zeros_like(start, dtype=torch.float64), torch.zeros_like(start, dtype=torch.float64)
    for step, gradient in enumerate(gradients, 1):
        mean = first * mean + (1 - first) * gradient
        if step <= FREEZE:
            square = second * square + (1 - second) * gradient**2
        root = (square / (1 - second ** min(step, FREEZE))).sqrt() + 1e-8
        parameter = KEPT * parameter - SETTINGS["lr"] * mean / (1 - first**step) / root
    return parameter


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-6), (torch.float16, 2e-3)])
def test_compressed_gradients_change_only_elements_that_had_gradients(memory_format, dtype, tolerance):
    start = torch.randn(6, 8, 3, 3, generator=torch.Generator().manual_seed(1)).to(dtype)
    gradients = [1e-3 * one for one in noisy(start.shape)]
    parameter = nn.Parameter(start.clone().to(memory_format=memory_format))
    optimizer = gradwire.torch.OneBitAdam([parameter], **SETTINGS, freeze=FREEZE)
    stepped(optimizer, parameter, gradients)
    found = parameter.detach().double()
    numpy.testing.assert_allclose(found[:, ::2], start[:, ::2] * KEPT**STEPS, rtol=0, atol=4 * tolerance)
    numpy.testing.assert_allclose(found[:, 1::2], by_hand(start, gradients)[:, 1::2], rtol=0, atol=4 * tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_loaded_state_knows_which_elements_had_gradients(dtype):
    gradients = [1e-3 * one for one in noisy((6, 8))]
    first, second = (nn.Parameter(torch.ones(6, 8, dtype=dtype)) for _ in range(2))
    unused = nn.Parameter(torch.ones(3, dtype=dtype))
    optimizer, loaded = (gradwire.torch.OneBitAdam([unused, one], **SETTINGS, freeze=FREEZE) for one in (first, second))
    stepped(optimizer, first, gradients[: FREEZE + 1])
    with torch.no_grad():
        second.copy_(first)
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one, parameter in ((optimizer, first), (loaded, second)):
        stepped(one, parameter, gradients[FREEZE + 1 :])
    assert (first == second).all()
    # In 16 bits a step of weight decay may round to none.
    moved = (first.detach().float() - KEPT**STEPS).abs()
    assert moved[:, ::2].max() < 0.01 and moved[:, 1::2].max() > 0.03


def test_parameters_freeze_by_their_own_steps():
    # The second parameter has no gradient in the first three steps, so that it freezes three steps
    # later.
    early, late = (nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = gradwire.torch.OneBitAdam([early, late], lr=0.01, weight_decay=0.0, freeze=2)
    for step in range(6):
        early.grad = torch.tensor([1.0, 0.0 if step < 2 else 1.0])
        late.grad = torch.tensor([1.0, 0.0 if step < 4 else 1.0]) if step >= 3 else None
        optimizer.step()
    assert early[1] == 1 and late[1] < 1 and late[0] < 1


def largest_of_adamw(betas):
    """The learning rates of the largest step that AdamW takes when each gradient is second/first
    times the one before it."""
    first, second = betas
    parameter = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.AdamW([parameter], lr=1.0, betas=betas, eps=0.0, weight_decay=0.0)
    gradient, largest = 1e-100, 0.0
    while gradient < 1e100:
        before = parameter.item()
        parameter.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
        largest = max(largest, abs(parameter.item() - before))
        gradient *= second / first
    return largest


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.8, 0.99), (0.5, 0.95)])
def test_no_step_after_the_freeze_is_larger_than_any_of_adamw(betas):
    expected = largest_of_adamw(betas)
    parameter = nn.Parameter(torch.zeros(3))
    optimizer = gradwire.torch.OneBitAdam([parameter], lr=0.5, betas=betas, weight_decay=0.0, freeze=1)
    # Two gradients that were tiny by chance, and one that was not.
    stepped(optimizer, parameter, [torch.tensor([1e-6, 1e-6, 1.0])])
    before = parameter.detach().clone()
    stepped(optimizer, parameter, [torch.tensor([1.0, -1.0, 1.0])])
    moved = (before - parameter.detach()) / 0.5
    numpy.testing.assert_allclose(moved, [expected, -expected, 1.0], rtol=0.02)


def test_betas_without_a_largest_step_limit_nothing():
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = gradwire.torch.OneBitAdam([parameter], lr=1.0, betas=(0.9, 0.8), weight_decay=0.0, freeze=1)
    stepped(optimizer, parameter, [torch.tensor([1e-3])])
    before = parameter.item()
    stepped(optimizer, parameter, [torch.tensor([1.0])])
    assert math.isclose(before - parameter.item(), (0.09e-3 + 0.1) / 0.19 / 1e-3, rel_tol=1e-3)


def test_complex_parameters_are_pairs_of_reals():
    gradients = noisy((6, 8, 2))
    for gradient in gradients[:FREEZE]:
        # One real part without a gradient before the freeze.
        gradient[0, 1, 0] = 0
    start = torch.randn(6, 8, 2, generator=torch.Generator().manual_seed(1))
    reals, parameter = nn.Parameter(start.clone()), nn.Parameter(torch.view_as_complex(start.clone()))
    for one, given in ((reals, gradients), (parameter, map(torch.view_as_complex, gradients))):
        stepped(gradwire.torch.OneBitAdam([one], **SETTINGS, freeze=FREEZE), one, given)
    assert (torch.view_as_real(parameter) == reals).all()
    assert abs(reals[0, 1, 0] - start[0, 1, 0] * KEPT**STEPS) < 1e-5
