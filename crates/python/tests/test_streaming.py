"""Tests local steps whose layers are exchanged in fragments, while training goes on."""

import copy

import numpy
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn

import gradwire.torch
from gradwire.torch._fragments import strided
from models import Net, data, flat, local
from world import in_turn, ranks


def by_hand(size, steps, every, layers, delay, alpha, outer_rate):
    """The ranks' parameters after Streaming DiLoCo with plain SGD as the outer optimizer."""
    torch.manual_seed(0)
    common = dict(Net().named_parameters())
    nets = []
    for _ in range(size):
        torch.manual_seed(0)
        nets.append(Net())
    inners = [torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9) for net in nets]
    means, due = {}, -1
    for step in range(1, steps + 1):
        for rank, net in enumerate(nets):
            x, labels = data(rank, step - 1)
            inners[rank].zero_grad()
            nn.functional.cross_entropy(net(x), labels).backward()
            inners[rank].step()
        with torch.no_grad():
            if step == due:
                for name, mean in means.items():
                    common[name].add_(mean, alpha=outer_rate)
                    for net in nets:
                        own = dict(net.named_parameters())[name]
                        own.copy_((1 - alpha) * common[name] + alpha * own)
            for at, layer in enumerate(layers):
                if step % every == (at + 1) * every // len(layers) % every:
                    names = [name for name in common if name.split(".")[0] in layer]
                    changes = [[dict(net.named_parameters())[name] - common[name] for net in nets] for name in names]
                    means, due = {name: sum(of) / size for name, of in zip(names, changes)}, step + delay
    return [flat(net) for net in nets]


def test_fragments_equal_streaming_diloco_by_hand():
    options = {"every": 6, "compressor": "none", "outer": lambda parameters: torch.optim.SGD(parameters, lr=0.7), "fragments": 2}
    waits = [(1, None), (2, 0.25), (2, 0.0)]
    cases = [{**options, "fragment_sync_delay": delay, "fragment_update_alpha": alpha} for delay, alpha in waits]
    # The second of three layers is in the second fragment.
    layers = [("first", "second"), ("norm",)]
    for (delay, alpha), found in zip(waits, in_turn(2, *((trained, 20, case) for case in cases))):
        expected = by_hand(2, 20, 6, layers, delay, 0.5 if alpha is None else alpha, 0.7)
        for parameters, by_rank in zip(found, expected):
            numpy.testing.assert_allclose(parameters, by_rank, rtol=1e-4, atol=1e-5, err_msg=f"{delay} {alpha}")


def trained(rank, size, steps, options):
    torch.manual_seed(0)
    net = Net()
    inner = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    wrapped = gradwire.torch.LocalSteps(net, inner, **options)
    for step in range(steps):
        x, labels = data(rank, step)
        wrapped.zero_grad()
        nn.functional.cross_entropy(net(x), labels).backward()
        wrapped.step()
    return flat(net)


FRAGMENTS = [
    {"every": 6, "compressor": "eden", "fragments": 3, "fragment_sync_delay": 1, "outer": gradwire.torch.Nesterov()},
    {"every": 4, "compressor": "sbc:p=0.1", "fragments": 2, "sync_until": 5},
    {"every": 5, "compressor": "3lc", "fragment_sync_delay": 4, "median_clip": True},
]


@pytest.mark.parametrize("options", FRAGMENTS)
def test_runs_resume_in_the_middle_of_an_exchange(options):
    middles = (20, 23)
    whole, *halves = in_turn(2, *((local, range(end), options) for end in (40, *middles)))
    cases = [(local, range(at, 40), options, "sgd", [one[2] for one in half]) for at, half in zip(middles, halves)]
    for at, resumed in zip(middles, in_turn(2, *cases)):
        for rank in range(2):
            assert (resumed[rank][0] == whole[rank][0]).all(), at
    assert numpy.mean(whole[0][1][-5:]) < 0.6 * numpy.mean(whole[0][1][:3])
    assert whole[0][3]["wait_seconds"] >= 0.0


def resumed_together(rank, size, steps, options, states):
    """A run that goes on from the states of all ranks in one, and from each rank's own model."""
    return local(rank, size, steps, options, "sgd", states and [{**one, "local": states[0]["local"]} for one in states])


def all_ranks(rank, size, steps, options):
    """A run, with the states of all ranks in one."""
    original = gradwire.torch.LocalSteps.state_dict
    gradwire.torch.LocalSteps.state_dict = lambda self: original(self, all_ranks=True)
    return local(rank, size, steps, options)


MASKED = {"every": 6, "compressor": "sbc:p=0.1", "fragments": 2, "fragment_sync_delay": 2, "fragment_update_alpha": 0.25}


def test_a_resumed_exchange_masks_the_momentum_of_what_each_rank_had_sent():
    # An exchange began after the sixth step, and its mean is applied after the eighth.
    cases = [(12, MASKED), (12, {**MASKED, "mask": False}), (7, MASKED)]
    whole, unmasked, half = in_turn(2, *((local, range(end), options) for end, options in cases))
    half = [one[2] for one in half]
    together = [one[2] for one in ranks(2, all_ranks, range(7), MASKED)]
    for resumed in (
        ranks(2, local, range(7, 12), MASKED, "sgd", half),
        ranks(2, resumed_together, range(7, 12), MASKED, together),
    ):
        for rank in range(2):
            assert (resumed[rank][0] == whole[rank][0]).all() and (resumed[rank][0] != unmasked[rank][0]).any()
    assert list(half[1]["local"]["sent"]) == ["rank1"] and len(together[1]["local"]["sent"]) == 2
    # A single rank has not sent what the first of two had.
    (alone,) = ranks(1, resumed_together, range(7, 12), MASKED, together)
    assert numpy.isfinite(alone[0]).all()


DISTRIBUTED = {**MASKED, "outer": gradwire.torch.Nesterov()}


def through_a_distributed_checkpoint(rank, size, folder, at, begin):
    """Saves a run after ``at`` steps, and loads it into the state of one of ``begin`` steps; goes
    on from that."""
    found, _, saved, _ = local(rank, size, range(at), DISTRIBUTED)
    dcp.save({"steps": saved["local"]}, checkpoint_id=folder)
    fresh = local(rank, size, range(begin), DISTRIBUTED)[2]["local"]
    dcp.load({"steps": fresh}, checkpoint_id=folder)
    resumed = {rank: {**saved, "local": fresh}}
    return local(rank, size, range(at, 16), DISTRIBUTED, "sgd", resumed)[0], fresh["pending"][0] is not None


def test_a_distributed_checkpoint_has_the_outer_optimizer_and_the_exchange_under_way(tmp_path):
    cases = [(7, 0, True), (13, 0, True), (8, 7, False), (1, 0, False)]
    saved = [(through_a_distributed_checkpoint, str(tmp_path / str(at)), at, begin) for at, begin, _ in cases]
    whole, *runs = in_turn(2, (local, range(16), DISTRIBUTED), *saved)
    for case, found in zip(cases, runs):
        for (expected, *_), (parameters, is_pending) in zip(whole, found):
            assert (parameters == expected).all() and is_pending == case[2], case


def damaged(rank, size, entry, value):
    """Why a state does not load that is damaged on rank 1."""
    state = local(rank, size, range(7), DISTRIBUTED)[2]["local"]
    if rank == 1:
        state[entry] = value
    net = Net()
    steps = gradwire.torch.LocalSteps(net, torch.optim.SGD(net.parameters(), lr=0.1), **DISTRIBUTED)
    with pytest.raises(gradwire.StateError) as refused:
        steps.load_state_dict(state)
    return str(refused.value), steps.completed_steps


def test_a_state_that_is_damaged_on_one_rank_loads_on_none():
    entries = [
        ("sent", {"rank1": (torch.zeros(9, dtype=torch.uint8),)}, "damaged"),
        ("pending", ({"fragment": 0},), "damaged"),
        ("outer", ({"kind": "SGD", "state": {"state": {}, "param_groups": []}},), "parameter groups"),
    ]
    found = in_turn(2, *((damaged, entry, value) for entry, value, _ in entries))
    for (entry, _, says), ((other, begun), (own, _)) in zip(entries, found):
        assert says in own and "rank 1 cannot load its state" in other and begun == 0, entry


def synchronized(rank, size):
    torch.manual_seed(rank)
    net = Net()
    inner = torch.optim.SGD(net.parameters(), lr=0.1)
    steps = gradwire.torch.LocalSteps(net, inner, every=4, compressor="onebit", fragments=2, fragment_sync_delay=1)
    for step in range(6):
        x, labels = data(rank, step)
        steps.zero_grad()
        nn.functional.cross_entropy(net(x), labels).backward()
        steps.step()
    # The fragment that was sent after the sixth step is under way.
    steps.synchronize()
    parameters = flat(net)
    steps.close()
    return parameters


def test_synchronize_makes_all_fragments_equal():
    first, second = ranks(2, synchronized)
    assert (first == second).all()


def refusals(rank, size):
    net = Net()
    make = lambda **options: gradwire.torch.LocalSteps(net, torch.optim.SGD(net.parameters(), lr=0.1), **options)
    for options, part in [
        ({"fragments": 4}, "this model has 3 layers"),
        ({"fragments": 0}, "give 1 to 3"),
        ({"fragments": 3, "every": 2}, "every of at least 3"),
        ({"fragments": 2, "every": 6, "fragment_sync_delay": 3}, "give 0 to 2"),
        ({"fragment_sync_delay": -1}, "give an integer from 0"),
        ({"fragment_sync_delay": 1, "fragment_update_alpha": 1.0}, "from 0 to below 1"),
        ({"fragment_update_alpha": 0.5}, "give a delay"),
        ({"fragments": 2, "lighthouse": "http://localhost:1"}, "remove fragments"),
    ]:
        with pytest.raises(gradwire.ConfigError, match=part):
            make(**options)
    saved = make(fragments=2, every=4).state_dict()
    with pytest.raises(gradwire.StateError, match="saved with fragments=2, but this run has 3"):
        make(fragments=3, every=4).load_state_dict(copy.deepcopy(saved))


def test_what_cannot_work_is_refused():
    ranks(2, refusals)


def test_layers_are_dealt_out_in_turn():
    parameter = nn.Parameter(torch.zeros(1))
    names = [
        "transformer.wte.weight",
        *(f"transformer.h.{layer}.{part}.weight" for layer in range(3) for part in ("attn.0", "mlp")),
        "lm_head.weight",
    ]
    fragments = strided([(name, parameter) for name in names], 2)
    assert [[name for name, _ in fragment] for fragment in fragments] == [
        ["transformer.wte.weight", "transformer.h.1.attn.0.weight", "transformer.h.1.mlp.weight", "lm_head.weight"],
        [
            "transformer.h.0.attn.0.weight",
            "transformer.h.0.mlp.weight",
            "transformer.h.2.attn.0.weight",
            "transformer.h.2.mlp.weight",
        ],
    ]
