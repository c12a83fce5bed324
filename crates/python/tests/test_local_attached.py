"""Tests of local steps that follow the local optimizer itself."""

import os

import pytest
import torch
import torch.distributed.checkpoint.state_dict as of_checkpoints
from torch import nn

import gradwire.torch
from models import Net, data, flat
from world import ranks


def local(kind=torch.optim.Adam, every=3, **options):
    torch.manual_seed(0)
    net = Net()
    inner = kind(net.parameters(), lr=0.01)
    return net, inner, gradwire.torch.LocalSteps(net, inner, every, "topk:ratio=0.1", **options)


def train(net, optimizer, rank, steps, scheduler=None):
    for step in steps:
        x, labels = data(rank, step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), labels).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def beside_the_proxy(rank, size, options):
    """The parameters of training by ``LocalSteps``, and by the optimizer that it follows for the
    steps 4 to 9."""
    results = []
    for attached in (False, True):
        net, inner, steps = local(**options)
        scheduler = torch.optim.lr_scheduler.StepLR(inner, 2, 0.9)
        train(net, steps, rank, range(4), scheduler)
        if attached:
            with steps.attach():
                train(net, inner, rank, range(4, 10), scheduler)
        else:
            train(net, steps, rank, range(4, 10), scheduler)
        train(net, steps, rank, range(10, 13), scheduler)
        assert steps.completed_steps == 13
        results.append((flat(net), steps.stats()["total_bytes_up"]))
        steps.close()
    return results


@pytest.mark.parametrize("options", [
    {"outer": gradwire.torch.Nesterov()},
    {"every": 6, "fragments": 2, "fragment_sync_delay": 1},
])
def test_rounds_that_follow_the_optimizer_have_the_bits_of_local_steps(options):
    for (own, sent), (other, others) in ranks(2, beside_the_proxy, options):
        assert (own == other).all() and sent == others > 0


def misused(rank, size):
    net, inner, steps = local()
    attached = steps.attach()
    refusals = []
    for call in (steps.step, steps.attach):
        with pytest.raises(gradwire.ConfigError) as refused:
            call()
        refusals.append(str(refused.value))
    train(net, inner, rank, range(2))
    inner.add_param_group({"params": [torch.zeros(3, requires_grad=True)]})
    with pytest.raises(gradwire.ConfigError) as refused:
        inner.step()
    refusals.append(str(refused.value))
    attached.close()
    inner.step()
    counted = steps.completed_steps
    steps.attach()
    steps.close()
    # Nothing follows after the end.
    inner.step()
    return refusals, counted


def test_misuse_is_refused_and_nothing_follows_after_the_end():
    ((stepped, twice, grown), counted), _ = ranks(2, misused)
    assert "rounds follow the local optimizer; call its step()" in stepped and "is attached already" in twice and "other parameters" in grown
    assert counted == 2


class Hookless(torch.optim.Optimizer):
    """A wrapper that does not call the constructor of ``Optimizer``, which makes the hooks."""

    def __init__(self, inner):
        self.inner, self.param_groups, self.state = inner, inner.param_groups, inner.state

    def step(self, closure=None):
        return self.inner.step(closure)


def ended_by_errors(rank, size):
    """The steps that were counted when a closure raised, with a state taken right after it within
    the block, and after the block."""
    net, inner, steps = local()
    counted = []

    def fails():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), steps.attach():
        train(net, inner, rank, range(2))
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                inner.step(fails)
            counted.append(steps.state_dict()["step"])
        inner.step(fails)
    counted.append(steps.state_dict()["step"])
    _, _, hookless = local(lambda *arguments, **options: Hookless(torch.optim.SGD(*arguments, **options)))
    with pytest.raises(gradwire.ConfigError, match="no hooks"):
        hookless.attach()
    # Nothing is attached.
    hookless.step()
    return counted, hookless.completed_steps


def test_a_closure_that_raises_ends_its_step():
    for counted, stepped in ranks(2, ended_by_errors):
        assert counted == [2, 2, 2] and stepped == 1


def with_frameworks(rank, size):
    """A run whose optimizer a distributed checkpoint asks for its state, which SGD without momentum
    never has, and Accelerate wraps."""
    accelerate = pytest.importorskip("accelerate")
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "localhost", "MASTER_PORT": 1}
    os.environ.update({name: str(value) for name, value in place.items()})
    accelerator = accelerate.Accelerator(cpu=True)
    net, inner, steps = local(torch.optim.SGD)
    prepared = accelerator.prepare(inner)
    with steps.attach():
        for step in range(7):
            state = of_checkpoints.get_optimizer_state_dict(net, inner)
            of_checkpoints.set_optimizer_state_dict(net, inner, optim_state_dict=state)
            train(net, prepared, rank, [step])
    # LocalSteps may also get the optimizer that Accelerate has wrapped.
    other, _, wrapping = local(lambda *arguments, **options: accelerator.prepare(torch.optim.SGD(*arguments, **options)))
    with wrapping.attach():
        train(other, wrapping._optimizer, rank, range(7))
    plain, _, alone = local(torch.optim.SGD)
    train(plain, alone, rank, range(7))
    counts = [one.completed_steps for one in (steps, wrapping, alone)]
    return counts, sorted(state), [bool((flat(one) == flat(plain)).all()) for one in (net, other)]


def test_frameworks_get_the_optimizer_itself():
    for counts, entries, same in ranks(2, with_frameworks):
        assert counts == [7, 7, 7] and entries == ["param_groups", "state"] and same == [True, True]
