"""Tests local steps of ranks that take different numbers of steps."""

from functools import partial

import numpy
import pytest
import torch
from torch import nn
from torch.distributed.algorithms.join import Join, Joinable

import gradwire.torch
from device import DEVICE
from models import VOTING, one_layer
from world import outcomes, ranks

LINE = {"every": 4, "compressor": "none"}


class Line(nn.Module):
    """A few layers, with a buffer that counts what it has seen."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(2)))
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x):
        self.seen += 1
        return self.layers(x)


def gradient(rank, step, parameter):
    """A gradient that depends on neither parameters nor data, so that the right parameters can be
    added up."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(parameter.shape, generator=generator, device="cpu").to(parameter.device)


def take(model, steps, rank, at):
    model(torch.ones(1, 4, device=DEVICE))
    for parameter in model.parameters():
        parameter.grad = gradient(rank, at, parameter)
    steps.step()


def uneven(rank, size, counts, options, synchronized=()):
    torch.manual_seed(0)
    model = Line()
    start = [parameter.detach().clone() for parameter in model.parameters()]
    steps = gradwire.torch.LocalSteps(model, torch.optim.SGD(model.parameters(), lr=0.1), **options)
    assert isinstance(steps, Joinable)
    for epoch in range(2):
        with Join([steps]):
            for at in range(counts[rank]):
                take(model, steps, rank, 100 * epoch + at)
                if at + 1 in synchronized:
                    steps.synchronize()
    # Outside of the block rounds are as before.
    take(model, steps, rank, 500)
    steps.synchronize()
    moved = [(parameter.detach() - one).cpu() for parameter, one in zip(model.parameters(), start)]
    return moved, steps.completed_steps, model.seen.tolist()


def moved_by_hand(counts):
    """Every step of a rank moves the mean by its share, whenever it is exchanged."""
    steps = [100 * epoch + at for epoch in range(2) for at in range(max(counts))]
    shape = torch.empty(4, 4)
    taken = lambda rank: [at for at in steps if at % 100 < counts[rank]] + [500]
    return sum(-0.1 * gradient(rank, at, shape) for rank in range(len(counts)) for at in taken(rank)) / len(counts)


@pytest.mark.parametrize("counts, options, synchronized, completed", [
    # The last rank alone takes the rounds after 4 and 8 steps; the others shadow them.
    ((3, 6, 10), LINE, (), 21),
    ((10, 3), {**LINE, "sync_until": 2, "outer": partial(torch.optim.SGD, lr=1.0)}, (5,), 21),
    # Fragments with a delay of one step, at rounds in which parameters become the common ones.
    ((3, 9), {**LINE, "fragments": 2, "fragment_sync_delay": 1, "fragment_update_alpha": 0.0}, (), 19),
])
def test_ranks_without_further_batches_take_part_in_the_rounds_of_the_others(counts, options, synchronized, completed):
    found = ranks(len(counts), uneven, counts, options, synchronized)
    for moved, steps, seen in found:
        assert all(torch.equal(one, other) for one, other in zip(moved, found[0][0]))
        assert steps == completed and seen == found[0][2]
    if "fragment_update_alpha" not in options:
        # With a delay a rank's own steps during the exchange are replaced by the common parameters.
        for one in found[0][0]:
            numpy.testing.assert_allclose(one, moved_by_hand(counts), atol=1e-5)


def ended_early(rank, size, counts, options, scheduled):
    """What each rank says if it takes another number of steps than the others."""
    torch.manual_seed(0)
    model = Line()
    steps = gradwire.torch.LocalSteps(model, torch.optim.SGD(model.parameters(), lr=0.1), deadline=60.0, **options)
    for at in range(counts[rank]):
        take(model, steps, rank, at)
    if rank == 0 or not scheduled:
        steps.synchronize()


@pytest.mark.parametrize("counts, every, scheduled", [
    ((10, 13), 50, False),
    # The round of rank 1 after 16 steps meets synchronize() of rank 0.
    ((10, 16), 8, True),
    # Directly after a round the numbers of both rounds would be the same.
    ((8, 9), 8, False),
])
def test_all_ranks_tell_how_many_steps_each_has_taken(counts, every, scheduled):
    one, two = outcomes(2, ended_early, counts, {"every": every, "compressor": "topk"}, scheduled)
    few, many = counts
    assert one[1] == two[1] == "ConfigError", (one, two)
    assert f"this rank has taken {few} steps, but rank 1 has taken {many}, " in one[2] and "Join([steps])" in one[2]
    assert f"this rank has taken {many} steps, but rank 0 has taken {few}, " in two[2]


def test_all_ranks_tell_which_fragments_each_exchanges():
    # Rank 0 takes its eighth step, at which only the second fragment is due, and rank 1 has asked
    # for all of them.
    one, two = outcomes(2, asked_for_all)
    assert one[1] == two[1] == "ConfigError", (one, two)
    assert "after 8 steps this rank exchanges fragment 1, but rank 1 exchanges fragments 0, 1" in one[2], one[2]


def asked_for_all(rank, size):
    model = Line()
    steps = gradwire.torch.LocalSteps(model, torch.optim.SGD(model.parameters(), lr=0.1), deadline=60.0, every=8, fragments=2)
    for at in range(7):
        take(model, steps, rank, at)
    if rank == 1:
        steps._replica.step = 8
        steps.synchronize()
    take(model, steps, rank, 7)


def voting(rank, size):
    for compressor in VOTING:
        _, steps = one_layer(compressor, every=2, outer=partial(torch.optim.SGD, lr=1e-3))
        with pytest.raises(gradwire.ConfigError, match="zeros of a rank without further batches would vote"):
            Join([steps])


def test_votes_are_refused_for_ranks_without_further_batches():
    ranks(1, voting)


def during_a_delay(rank, size, counts):
    model = Line()
    options = {"every": 8, "fragments": 2, "fragment_sync_delay": 2, "buffers": "own", "deadline": 60.0}
    steps = gradwire.torch.LocalSteps(model, torch.optim.SGD(model.parameters(), lr=0.1), **options)
    for at in range(counts[rank]):
        take(model, steps, rank, at)
    steps.synchronize()


def test_rounds_with_a_delay_name_the_steps_of_both_ranks():
    # Rank 1 begins the exchange of a fragment after 16 steps, without asking the others, which
    # would take time.
    found = outcomes(2, during_a_delay, (15, 17))
    said = [result[2] for result in found if result[1] != "PeerLostError"]
    assert said and all("while this rank is at step" in one and "all ranks must take the same number of steps" in one for one in said), found
    for rank, result in enumerate(found):
        # The error may reach rank 1 a step later, from the background.
        assert any(f". This rank has taken {taken} steps; " in result[2] for taken in ((15,), (16, 17))[rank]), result
        assert "Join([steps])" in result[2], result


def two_objects(rank, size):
    _, one = one_layer("none", every=1)
    model, two = one_layer("none", every=2)
    other = nn.parallel.DistributedDataParallel(nn.Linear(3, 2))
    said = []
    for objects in ([one, two], [other, two]):
        try:
            Join(objects)
        except gradwire.ConfigError as error:
            said.append(str(error))
    # A block that changes nothing has any objects, and the next block takes the second object
    # alone.
    with Join([other, two], enable=False):
        two.step()
    with Join([two]):
        for _ in range(2 + rank):
            model.weight.grad = torch.ones_like(model.weight)
            two.step()
    return said, two.completed_steps


def test_a_second_object_in_a_block_is_refused_before_it_begins():
    for said, completed in ranks(2, two_objects):
        assert len(said) == 2 and all("LocalSteps is not the first object in Join([...])" in one for one in said), said
        assert completed == 4


def closed_early(rank, size, counts, options):
    """What each rank says if rank 0 ends after some steps, and rank 1 goes on."""
    model = Line()
    try:
        with gradwire.torch.LocalSteps(model, torch.optim.SGD(model.parameters(), lr=0.1), deadline=60.0, **options) as steps:
            for at in range(counts[rank]):
                take(model, steps, rank, at)
    except gradwire.GradwireError as error:
        return type(error).__name__, str(error)
    return None


@pytest.mark.parametrize("counts, options, taken", [
    ((10, 13), LINE, (12,)),
    # The exchange that begins after 12 steps fails in the background, and rank 1 waits for it after
    # 14.
    ((10, 17), {"every": 8, "fragments": 2, "fragment_sync_delay": 2, "buffers": "own"}, (12, 14)),
])
def test_the_error_for_a_rank_that_has_ended_says_how_many_steps_this_one_has_taken(counts, options, taken):
    (kind, said) = ranks(2, closed_early, counts, options)[1]
    assert kind == "PeerLostError" and "rank 0 is gone" in said, said
    assert sum(said.count(f"This rank has taken {one} steps; ") for one in taken) == 1 and "Join([steps])" in said, said
