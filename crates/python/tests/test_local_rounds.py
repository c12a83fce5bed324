"""Tests when rounds of local steps end, and which steps they count."""

import numpy
import torch
from torch import nn

import gradwire.torch
from device import DEVICE
from models import Net, data, flat, one_layer
from world import in_turn, ranks


def planned(rank, size, compressor, options, resume):
    layer, steps = one_layer(compressor, **options)
    if resume is not None:
        steps.load_state_dict(resume[rank])
    sent = []
    for _ in range(4):
        for _ in range(5):
            steps.step()
        # Directly after a round of step(), with no step between the two rounds.
        steps.synchronize()
        stats = steps.stats()
        sent.append((stats["step"], stats["message_bytes"] < 1000))
    return sent, steps.state_dict()


def test_plans_count_steps_and_round_numbers_never_repeat():
    cases = [
        ("none until 12 then topk", {"every": 5}),
        ("none until 0.3 then topk", {"every": 5, "total_steps": 40}),
        ("none:every=5 until 12 then topk:every=5", {}),
    ]
    begun = in_turn(2, *((planned, *case, None) for case in cases))
    resumed = in_turn(2, *((planned, *case, [state for _, state in found]) for case, found in zip(cases, begun)))
    for case, found, (first, _) in zip(cases, begun, resumed):
        assert [one[0] for one in found] == [[(5, False), (10, False), (15, True), (20, True)]] * 2, case
        assert first[0] == [(25, True), (30, True), (35, True), (40, True)], case


def staged(rank, size, compressor, options):
    """The steps after which there was a round."""
    layer, steps = one_layer(compressor, **options)
    ends = []
    for step in range(20):
        steps.zero_grad()
        layer(torch.ones(1, layer.in_features)).sum().backward()
        before = steps.stats()["total_steps"]
        steps.step()
        if steps.stats()["total_steps"] > before:
            ends.append(step + 1)
    return ends


def test_stages_have_rounds_of_their_own_length():
    cases = [
        ("topk:every=4 until 10 then topk:every=6", {}, [4, 8, 10, 16]),
        ("none until 3 then topk:every=7", {}, [1, 2, 3, 10, 17]),
        ("topk:every=7 until 0.5 then topk", {"total_steps": 16, "sync_until": 2}, [1, 2, 8, *range(9, 21)]),
        ("topk:every=4 until 10 then topk:every=6", {"every": 8}, [8, 16]),
        ("topk:every=1", {}, list(range(1, 21))),
        ("none until 3 then topk:every=1", {}, list(range(1, 21))),
        ("topk", {}, []),
    ]
    for (*case, ends), (found,) in zip(cases, in_turn(1, *((staged, *case) for *case, _ in cases))):
        assert found == ends, case


def scheduled(rank, size):
    torch.manual_seed(0)
    net = Net()
    steps = gradwire.torch.LocalSteps(net, torch.optim.SGD(net.parameters(), lr=0.1), every=2, compressor="none")
    scheduler = torch.optim.lr_scheduler.StepLR(steps, step_size=1, gamma=0.5)
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=8.0)
    for step in range(4):
        x, labels = data(rank, step)
        steps.zero_grad()
        scaler.scale(nn.functional.cross_entropy(net(x), labels)).backward()
        scaler.step(steps)
        scaler.update()
        scheduler.step()
    rate, step = steps.param_groups[0]["lr"], steps.completed_steps
    steps.close()
    return rate, step, flat(net)


def test_schedulers_and_scalers_take_local_steps_as_an_optimizer():
    one, two = ranks(2, scheduled)
    assert one[:2] == (0.1 / 16, 4) and (one[2] == two[2]).all()


def overflowing(rank, size):
    torch.manual_seed(0)
    net = Net()
    inner = torch.optim.SGD(net.parameters(), lr=0.1)
    steps = gradwire.torch.LocalSteps(net, inner, every=2, compressor="none")
    called = []
    steps.register_step_post_hook(lambda *_: called.append(steps.completed_steps))
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=8.0)
    for step in range(4):
        x, labels = data(rank, step)
        steps.zero_grad()
        loss = nn.functional.cross_entropy(net(x), labels)
        scaler.scale(loss * float("inf") if (rank, step) == (1, 1) else loss).backward()
        scaler.step(steps)
        scaler.update()
    return flat(net), steps.completed_steps, called, scaler.get_scale()


def test_an_overflow_skips_the_local_step_and_not_the_round():
    one, two = ranks(2, overflowing)
    assert (one[0] == two[0]).all() and numpy.isfinite(one[0]).all() and one[1] == two[1] == 4
    assert one[2] == [0, 1, 2, 3] and two[2] == [0, 2, 3]
    assert (one[3], two[3]) == (8.0, 4.0)
