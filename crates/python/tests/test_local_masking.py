"""Tests that the momentum of sent elements is set to zero, and which optimizers allow it."""

import copy

import pytest
import torch
from torch import nn

import gradwire.torch
from gradwire.torch._masking import check_maskable, sent_in_part
from gradwire.torch._options import Options
from models import Net, data
from world import in_turn, ranks


class Coded(torch.Tensor):
    """A tensor in another format, as 8-bit optimizers keep it, which knows only a few
    operations."""

    @staticmethod
    def __new__(cls, values):
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=values.dtype)

    def __init__(self, values):
        self.inner = values

    def __repr__(self):
        return "Coded"

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        if function not in (torch.ops.aten.mul_.Tensor, torch.ops.aten.add_.Tensor):
            raise NotImplementedError(f"{function} of Coded")
        arguments[0].inner.copy_(function(arguments[0].inner, *arguments[1:]))
        return arguments[0]


class Momentum(torch.optim.Optimizer):
    """SGD with momentum, under any name and in any format."""

    def __init__(self, parameters, key="momentum_buffer", make=torch.zeros_like):
        super().__init__(parameters, {"lr": 0.0, "weight_decay": 0.1})
        self.key, self.make = key, make
        # As LBFGS does.
        self.own = self.param_groups[0]["params"]

    @torch.no_grad()
    def step(self):
        for parameter in self.own:
            state = self.state[parameter]
            momentum = state.setdefault(self.key, self.make(parameter))
            added = (parameter.grad + 0.1 * parameter).view(momentum.shape)
            if momentum.dtype == torch.int8:
                momentum.copy_(0.9 * momentum + added)
            else:
                momentum.mul_(0.9).add_(added)
            parameter.sub_(self.param_groups[0]["lr"] * (momentum.inner if isinstance(momentum, Coded) else momentum).view(parameter.shape))


def large():
    # 8-bit optimizers keep only tensors of 4096 elements or more in 8 bits.
    return nn.Sequential(nn.Linear(200, 300), nn.Linear(300, 5), nn.Embedding(3000, 40))


ACCEPTED = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "Nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "Adam": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.0), amsgrad=True, weight_decay=0.1),
    "fused": lambda p: torch.optim.AdamW(p, fused=True),
    "foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "Adamax": lambda p: torch.optim.Adamax(p, weight_decay=0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True),
    "Adagrad": torch.optim.Adagrad,
    "Adadelta": torch.optim.Adadelta,
    "LBFGS": torch.optim.LBFGS,
    "OneBitAdam": lambda p: gradwire.torch.OneBitAdam(p, lr=0.1, freeze=3),
    "Momentum": Momentum,
}
REFUSED = {
    "is not in momentum_buffer or exp_avg": lambda p: Momentum(p, "state1"),
    "it is a Coded of type torch.float32": lambda p: Momentum(p, "exp_avg", lambda one: Coded(torch.zeros_like(one))),
    "it is a Tensor of type torch.int8": lambda p: Momentum(p, "exp_avg", lambda one: torch.zeros_like(one, dtype=torch.int8)),
    "it is a Tensor of type torch.float32 and shape (": lambda p: Momentum(p, "exp_avg", lambda one: torch.zeros_like(one).view(-1)),
}


def unchanged(model, optimizer):
    """A function that checks that neither model nor optimizer nor random generator has changed."""
    parameters, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    generator = torch.get_rng_state()

    def check():
        assert all(torch.equal(one, parameters[name]) for name, one in model.state_dict().items())
        assert all(parameter.grad is None for parameter in model.parameters())
        assert optimizer.state_dict() == state and torch.equal(torch.get_rng_state(), generator)

    return check


@pytest.mark.parametrize("name", ACCEPTED)
def test_optimizers_whose_momentum_can_be_masked_are_accepted(name):
    model = large()
    optimizer = ACCEPTED[name](list(model.parameters()))
    # A scheduler replaces the method step.
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0)
    optimizer.register_step_pre_hook(lambda *_: pytest.fail("the optimizer took a step"))
    if name != "Adagrad":
        check = unchanged(model, optimizer)
        check_maskable(optimizer, list(model.named_parameters()))
        check()
    else:
        check_maskable(optimizer, list(model.named_parameters()))


@pytest.mark.parametrize("says", REFUSED)
def test_optimizers_whose_momentum_cannot_be_masked_are_refused_at_once(says):
    model = large()
    optimizer = REFUSED[says](list(model.parameters()))
    check = unchanged(model, optimizer)
    for wrapped in (optimizer, Wrapper(optimizer)):
        with pytest.raises(gradwire.ConfigError) as refused:
            gradwire.torch.LocalSteps(model, wrapped, compressor="none until 9 then topk")
        assert says in str(refused.value) and "pass mask=False" in str(refused.value) and "Momentum" in str(refused.value)
        # Goes on to the process group, which is missing.
        for options in ({"compressor": "topk", "mask": False}, {"compressor": "eden"}):
            with pytest.raises(gradwire.ConfigError, match="init_process_group"):
                gradwire.torch.LocalSteps(model, wrapped, **options)
    check()


class Wrapper(torch.optim.Optimizer):
    """What a framework makes of an optimizer."""

    def __init__(self, optimizer):
        self.optimizer, self.param_groups = optimizer, optimizer.param_groups


def test_what_is_sent_in_part():
    named = list(large().named_parameters())
    names = lambda *arguments, **options: [name for name, _ in sent_in_part(named, Options(*arguments, **options))]
    assert names("eden") == names("int8") == names("powersgd") == []
    assert names("none until 5 then sbc") == ["0.weight", "1.weight", "2.weight"]
    assert names("eden", rules={"2.*": "topk"}) == ["2.weight"]
    assert names("topk", rules={">=3000": "none"}) == ["1.weight"]
    assert names("topk", raw_vectors=False, raw_below=0) == [name for name, _ in named]


def masked(rank, size, mask):
    net = Net()
    inner = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    steps = gradwire.torch.LocalSteps(net, inner, every=2, compressor="topk:ratio=0.1", mask=mask)
    for step in range(2):
        x, labels = data(rank, step)
        nn.functional.cross_entropy(net(x), labels).backward()
        steps.step()
    return (inner.state[net.first.weight]["momentum_buffer"] == 0).sum().item()


def test_momentum_of_sent_elements_is_masked():
    with_mask, without = in_turn(2, (masked, True), (masked, False))
    assert all(found >= 614 for found in with_mask) and all(found < 300 for found in without)


def channels_last(rank, size):
    torch.manual_seed(0)
    layer = nn.Conv2d(16, 16, 3, bias=False).to(memory_format=torch.channels_last)
    inner = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    steps = gradwire.torch.LocalSteps(layer, inner, every=1, compressor="sbc:p=0.05")
    before = layer.weight.detach().clone()
    layer(torch.randn(4, 16, 8, 8).to(memory_format=torch.channels_last)).square().sum().backward()
    steps.step()
    momentum = inner.state[layer.weight]["momentum_buffer"]
    forgotten = momentum == 0
    return momentum.is_contiguous(), forgotten.sum().item(), (forgotten == (layer.weight != before)).all().item()


def test_momentum_in_another_memory_order_is_masked():
    # With a single rank the elements that were sent are those that changed: a twentieth of 2304.
    assert ranks(1, channels_last) == [(False, 115, True)]
