"""Tests 1-bit Adam: momentum is exchanged in place of gradients after the freeze."""

import copy
import pickle
import warnings

import numpy
import pytest
import torch
from torch import nn

import gradwire.torch
from device import DEVICE
from models import Net, build, data, flat
from world import in_turn, outcomes, ranks

FREEZE = 6
SETTINGS = {"lr": 0.01, "betas": (0.8, 0.99), "weight_decay": 0.1}


def by_hand(size, steps):
    """One process: AdamW up to the freeze, then with the second moments that it had."""
    torch.manual_seed(0)
    net = Net()
    adam = torch.optim.AdamW(net.parameters(), **SETTINGS)
    for step in range(steps):
        adam.zero_grad()
        for rank in range(size):
            x, labels = data(rank, step)
            (nn.functional.cross_entropy(net(x), labels) / size).backward()
        if step < FREEZE:
            adam.step()
            continue
        first, second = SETTINGS["betas"]
        with torch.no_grad():
            for parameter in net.parameters():
                state = adam.state[parameter]
                state["exp_avg"].mul_(first).add_(parameter.grad, alpha=1 - first)
                mean = state["exp_avg"] / (1 - first ** (step + 1))
                root = (state["exp_avg_sq"] / (1 - second**FREEZE)).sqrt() + 1e-8
                parameter.sub_(SETTINGS["lr"] * (SETTINGS["weight_decay"] * parameter + mean / root))
    return flat(net)


def averaged(rank, size, steps):
    """With gradients that DistributedDataParallel averages, the optimizer keeps its own
    momentum."""
    model, _ = build()
    optimizer = gradwire.torch.OneBitAdam(model.parameters(), **SETTINGS, freeze=FREEZE)
    for step in range(steps):
        x, labels = data(rank, step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    return flat(model.module)


def test_without_an_exchange_of_momentum_it_is_that_of_the_gradients():
    for found in ranks(2, averaged, 12):
        numpy.testing.assert_allclose(found, by_hand(2, 12), rtol=0, atol=1e-5)


def convolved(rank, size, memory_format):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 10)).to(memory_format=memory_format)
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = gradwire.torch.OneBitAdam(model.parameters(), **SETTINGS, freeze=2)
    gradwire.torch.register(model, "none", optimizer=optimizer)
    for step in range(6):
        torch.manual_seed(100 * step + rank)
        x, labels = torch.randn(4, 3, 8, 8).to(memory_format=memory_format), torch.randint(10, (4,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    return flat(model)


def test_momentum_is_added_to_gradients_in_any_memory_format():
    (rows, _), (channels, _) = in_turn(2, *((convolved, order) for order in (torch.contiguous_format, torch.channels_last)))
    numpy.testing.assert_allclose(channels, rows, rtol=0, atol=1e-4)


def warned(rank, size, given):
    """The warnings of steps before the freeze, and of those after it."""
    model, _ = build()
    optimizer = gradwire.torch.OneBitAdam(model.parameters(), **SETTINGS, freeze=2)
    gradwire.torch.register(model, "none", optimizer=optimizer if given else None)
    found = []
    for steps in (range(2), range(2, 5)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step in steps:
                x, labels = data(rank, step)
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), labels).backward()
                optimizer.step()
        found.append(sum("ranks exchanged no momentum" in str(one.message) for one in caught))
    return found


def test_steps_that_exchange_no_momentum_warn_once():
    assert in_turn(2, (warned, False), (warned, True)) == [([0, 1],) * 2, ([0, 0],) * 2]
    assert ranks(1, warned, False) == [[0, 0]]


def trained(rank, size, compressor, steps, scaled=False, resume=None, **options):
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=1024.0, enabled=scaled)
    model, _ = build()
    optimizer = gradwire.torch.OneBitAdam(model.parameters(), **SETTINGS, freeze=FREEZE)
    handle = gradwire.torch.register(model, compressor, optimizer=optimizer, scaler=scaler if scaled else None, **options)
    if resume is not None:
        model.load_state_dict(resume[rank]["model"])
        optimizer.load_state_dict(resume[rank]["optimizer"])
        handle.load_state_dict(resume[rank]["handle"])
    losses = []
    for step in steps:
        x, labels = data(rank, step)
        loss = nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "handle": handle.state_dict()}
    return flat(model), losses, copy.deepcopy(saved)


def test_uncompressed_momentum_is_adam_with_frozen_mean_squares():
    expected = by_hand(2, 15)
    for scaled, found in enumerate(in_turn(2, *((trained, "none", range(15), scaled) for scaled in (False, True)))):
        assert (found[0][0] == found[1][0]).all(), bool(scaled)
        numpy.testing.assert_allclose(found[0][0], expected, rtol=2e-4, atol=2e-5, err_msg=f"{scaled=}")


def test_compressed_momentum_trains_and_resumes():
    compressor = f"none until {FREEZE} then onebit"
    whole, half = in_turn(2, (trained, compressor, range(40)), (trained, compressor, range(17)))
    assert (whole[0][0] == whole[1][0]).all()
    assert numpy.mean(whole[0][1][-5:]) < 0.5 * numpy.mean(whole[0][1][:3])
    resumed = ranks(2, trained, compressor, range(17, 40), False, [one[2] for one in half])
    assert (resumed[1][0] == whole[1][0]).all()


def stepped(rank, size, way):
    """Two backward passes after the freeze that both exchange momentum, with something in
    between."""
    model, _ = build()
    optimizer = gradwire.torch.OneBitAdam(model.parameters(), **SETTINGS, freeze=1)
    gradwire.torch.register(model, "none", optimizer=optimizer)

    def backward(step):
        x, labels = data(rank, step)
        nn.functional.cross_entropy(model(x), labels).backward()

    backward(0)
    optimizer.step()
    optimizer.zero_grad()
    if way == "no_sync":
        with model.no_sync():
            backward(1)
    else:
        backward(1)
    if way in ("step", "zero_grad"):
        getattr(optimizer, way)()
    backward(2)
    optimizer.step()
    return flat(model)


def test_momentum_is_exchanged_once_for_each_step():
    ways = ["no_sync", "step", "zero_grad"]
    for way, (one, two) in zip(ways, in_turn(2, *((stepped, way) for way in ways))):
        assert (one == two).all(), way


def test_momentum_is_not_exchanged_twice_for_a_step():
    for failed in outcomes(2, stepped, "accumulation"):
        assert failed[0] == "error" and "under model.no_sync()" in failed[2], failed


def accumulating_on_one(rank, size):
    """After the freeze rank 0 has a second backward pass without a step in between."""
    model, _ = build()
    optimizer = gradwire.torch.OneBitAdam(model.parameters(), **SETTINGS, freeze=1)
    gradwire.torch.register(model, "none", optimizer=optimizer)
    for step in range(3):
        x, labels = data(rank, step)
        nn.functional.cross_entropy(model(x), labels).backward()
        if rank == 1 or step == 0:
            optimizer.step()
            optimizer.zero_grad()


def test_a_refused_exchange_ends_the_other_ranks():
    accumulating, other = outcomes(2, accumulating_on_one)
    assert accumulating[1] == "ConfigError" and "under model.no_sync()" in accumulating[2], accumulating
    assert other[1] == "PeerLostError" and "rank 0" in other[2], other


def joined(rank, size):
    """After the freeze rank 0 has no more batches."""
    model, _ = build()
    optimizer = gradwire.torch.OneBitAdam(model.parameters(), **SETTINGS, freeze=2)
    gradwire.torch.register(model, "none", optimizer=optimizer)
    with torch.distributed.algorithms.Join([model]):
        for step in range(3 + rank):
            x, labels = data(rank, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), labels).backward()
            optimizer.step()


def test_a_rank_without_data_is_refused_after_the_freeze():
    without, other = outcomes(2, joined)
    assert without[1] == "ConfigError" and "algorithms.Join after its freeze" in without[2], without
    assert other[1] == "PeerLostError" and "rank 0" in other[2], other


def overflowing(rank, size):
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=1024.0)
    model, _ = build()
    optimizer = gradwire.torch.OneBitAdam(model.parameters(), **SETTINGS, freeze=2)
    handle = gradwire.torch.register(model, "none", optimizer=optimizer, scaler=scaler, on_nonfinite="skip")
    for step in range(6):
        x, labels = data(rank, step)
        loss = nn.functional.cross_entropy(model(x), labels)
        # As Transformers does, whose optimizer is not told.
        model.zero_grad()
        scaler.scale(loss * float("inf") if step == 4 else loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return flat(model), handle.stats()["total_skipped"]


def test_momentum_is_exchanged_again_after_a_skipped_step():
    (one, skipped), (two, _) = ranks(2, overflowing)
    assert (one == two).all() and numpy.isfinite(one).all() and skipped == 1


def refusals(rank, size):
    model, _ = build()
    for options, part in [
        ({"freeze": 0}, "at least 1 step"),
        ({"freeze": 1, "betas": (0.9, 1.0)}, "from 0 to below 1"),
        ({"freeze": 1, "lr": -0.1}, "lr=-0.1 is out of range"),
        ({"freeze": 1, "eps": float("nan")}, "eps=nan is out of range"),
        ({"freeze": 1, "weight_decay": -1.0}, "weight_decay=-1.0 is out of range"),
    ]:
        with pytest.raises(gradwire.ConfigError, match=part):
            gradwire.torch.OneBitAdam(model.parameters(), **options)
    with pytest.raises(gradwire.ConfigError, match="is a SGD, not gradwire.torch.OneBitAdam"):
        gradwire.torch.register(model, "onebit", optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer = gradwire.torch.OneBitAdam(model.parameters(), freeze=1)
    for compressor, rules in [("none until 1 then signsgd", None), ("signum", None), ("demo", None), ("onebit", {"*weight": "signsgd"})]:
        with pytest.raises(gradwire.ConfigError, match="averages by votes.*OneBitAdam divides"):
            gradwire.torch.register(model, compressor, rules=rules, optimizer=optimizer)


def test_what_cannot_work_is_refused():
    ranks(2, refusals)


class Branches(nn.Module):
    """A net whose second branch is used only if that is asked for."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 10), nn.Linear(64, 10)

    def forward(self, x, both):
        return self.first(x) + self.second(x) if both else self.first(x)


def unused(rank, size, set_to_none):
    """The momentum of a weight in the steps after the freeze; in the second no rank uses it."""
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Branches(), find_unused_parameters=True)
    optimizer = gradwire.torch.OneBitAdam(model.parameters(), **SETTINGS, freeze=1)
    gradwire.torch.register(model, "none", optimizer=optimizer)
    found = []
    for step, both in enumerate([True, True, False, False]):
        x, labels = data(rank, step)
        optimizer.zero_grad(set_to_none)
        nn.functional.cross_entropy(model(x, both), labels).backward()
        optimizer.step()
        found.append(optimizer.state[model.module.second.weight]["exp_avg"].clone().cpu().numpy())
    return found


def test_a_parameter_that_no_rank_uses_keeps_its_momentum():
    # As with AdamW: a step without a gradient leaves the momentum, one with zeros decays it.
    for found, kept in zip(in_turn(2, (unused, True), (unused, False)), (1.0, SETTINGS["betas"][0])):
        for _, before, after, last in found:
            assert abs(before).max() > 0
            numpy.testing.assert_allclose(after, kept * before, rtol=1e-6)
            numpy.testing.assert_allclose(last, kept * after, rtol=1e-6)


def copied(rank, size, copy_of):
    """Copies model and optimizer between the exchange and the step; the step of the copies is that
    of the originals."""
    model, _ = build()
    optimizer = gradwire.torch.OneBitAdam(model.parameters(), **SETTINGS, freeze=2)
    gradwire.torch.register(model, "none", optimizer=optimizer)
    for step in range(4):
        x, labels = data(rank, step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        if step == 3:
            net, again = copy_of((model.module, optimizer))
            for one, other in zip(net.parameters(), model.parameters()):
                one.grad = other.grad.clone()
            again.step()
        optimizer.step()
    return bool((flat(net) == flat(model.module)).all()), again.freeze


def test_copies_know_the_freeze_and_what_was_exchanged():
    found = in_turn(2, (copied, copy.deepcopy), (copied, lambda both: pickle.loads(pickle.dumps(both))))
    assert found == [((True, 2),) * 2] * 2


class Wrapper:
    """Has an optimizer inside, as Accelerate's AcceleratedOptimizer."""

    def __init__(self, optimizer):
        self.optimizer = optimizer


def wrapped(rank, size):
    model, _ = build()
    optimizer = gradwire.torch.OneBitAdam(model.parameters(), freeze=2)
    return gradwire.torch.register(model, "none", optimizer=Wrapper(optimizer))._optimizer is optimizer


def test_an_optimizer_that_accelerate_has_wrapped_is_found():
    assert ranks(1, wrapped) == [True]
