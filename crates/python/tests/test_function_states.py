"""States of compressed collectives as functions: a run that goes on in new processes, on the same
number of ranks or on another one."""

import functools
import warnings

import pytest
import torch
import torch.distributed as dist

import gradwire
import gradwire.torch
from gradwire.torch import _saved
from world import ranks

TOPK = "topk:ratio=0.1"
PLACE = "embedding float32[1200]"
FUNCTIONS = "functions of gradwire.torch"


def values(rank, step):
    return torch.randn(1200, generator=torch.Generator().manual_seed(10 * step + rank))


def steps(rank, numbers):
    """What two tensors with names receive in some steps, and one without a name."""
    found = []
    for step in numbers:
        tensor, part = values(rank, step), torch.empty(1200 // dist.get_world_size())
        gradwire.torch.all_reduce(tensor, TOPK, name="embedding")
        gradwire.torch.reduce_scatter_tensor(part, values(rank, step + 100), "eden:ef=on", name="head")
        drawn = values(rank, step)
        gradwire.torch.all_reduce(drawn, "eden")
        found += [tensor, part, drawn]
    return torch.cat(found)


def residual(compressor=TOPK):
    """What this rank keeps for the embedding; zeros for nothing."""
    reducer = gradwire.torch._functions._calls[dist.group.WORLD][compressor]._exchanges["all-reduce"]._reducer
    return torch.frombuffer(bytearray(reducer.array(PLACE, "residual") or 4800), dtype=torch.float32)


def saved(rank, size):
    assert gradwire.torch.state_dict() == {}
    steps(rank, range(3))
    own, everyone = gradwire.torch.state_dict(), gradwire.torch.state_dict(all_ranks=True)
    return own, everyone, residual(), steps(rank, range(3, 5))


@functools.cache
def saved_by_two():
    """What two ranks have saved, for all tests that go on from it."""
    return ranks(2, saved)


def exchanges(states):
    """The bytes of the states of exchanges in a state, by place in it."""
    return {
        (group, compressor, kind, rank): packed.numpy().tobytes()
        for group, parts in states["functions of gradwire.torch"].items()
        for compressor, kinds in parts.items()
        for kind, state in kinds.items()
        for rank, (packed, *_) in state["exchange"].items()
    }


def resumed(rank, size, states):
    gradwire.torch.load_state_dict(states[rank] if isinstance(states, list) else states)
    # Before the first call, too.
    again = exchanges(gradwire.torch.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return again, steps(rank, range(3, 5))


def test_a_run_goes_on_in_new_processes():
    first, second = saved_by_two()
    expected = [first[3], second[3]]
    assert sorted(exchanges(first[1])) == sorted([*exchanges(first[0]), *exchanges(second[0])])
    # Each rank its own state, and all ranks the states of all.
    for states in ([first[0], second[0]], first[1]):
        results = ranks(2, resumed, states)
        for (again, found), whole, (own, *_) in zip(results, expected, (first, second)):
            assert torch.equal(found, whole)
            assert again == exchanges(own)


def on_three(rank, size, states):
    gradwire.torch.load_state_dict(states)
    # All ranks connect to collect the states of all, and the loaded ones are shared out.
    everyone = gradwire.torch.state_dict(all_ranks=True)
    return residual(), len({key[-1] for key in exchanges(everyone)}), steps(rank, range(1))


def test_another_number_of_ranks_shares_the_residuals():
    (first, second) = saved_by_two()
    mean = (first[2] + second[2]) / 2
    assert mean.any()
    for states in (first[1], [first[0], second[0]]):
        results = ranks(3, on_three, states)
        assert torch.allclose(sum(found for found, _, _ in results) / 3, mean, atol=1e-6)
        assert all(count == 3 and torch.equal(found[:1200], results[0][2][:1200]) for _, count, found in results)


def misused(rank, size, state):
    with pytest.raises(gradwire.StateError, match="process group '77', but this run has '"):
        gradwire.torch.load_state_dict({"functions of gradwire.torch": {"77": {TOPK: {}}}})
    with pytest.raises(gradwire.StateError, match="the state is None"):
        gradwire.torch.load_state_dict(None)
    gradwire.torch.load_state_dict(state)
    with pytest.warns(RuntimeWarning, match="residuals of 'topk:ratio=0.2' begin empty, but .* of 'topk:ratio=0.1' that no call has used"):
        gradwire.torch.all_reduce(values(rank, 0), "topk:ratio=0.2", name="embedding")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradwire.torch.all_reduce(values(rank, 0), "topk:ratio=0.2", name="embedding")


def test_states_that_fit_no_call_are_noticed():
    (own, _, _, _), _ = saved_by_two()
    state = {name: {group: {TOPK: parts[TOPK]} for group, parts in groups.items()} for name, groups in own.items()}
    ranks(2, misused, state)


def unused(rank, size, state, before, steps):
    """The warnings of steps after which a name has no call, and whether its residual is kept. The
    first calls are before these steps, or in the run that has saved a state."""
    if state is not None:
        gradwire.torch.load_state_dict(state[rank])
    for step in range(before):
        gradwire.torch.all_reduce(values(rank, step), TOPK, name="embedding")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(steps):
            gradwire.torch.all_reduce(values(rank, 0), TOPK, name="other")
    return [str(one.message) for one in seen], bool(residual().any())


def test_names_without_calls_are_noticed_and_their_residuals_kept():
    assert ranks(2, unused, None, 3, 101) == [([], True)] * 2
    (first, *_), (second, *_) = saved_by_two()
    for found in (*ranks(2, unused, None, 3, 210), *ranks(2, unused, [first, second], 0, 210)):
        (told,), kept = found
        assert kept and f"'{PLACE}' has had no call for 100 steps; its residual is kept" in told


def spelled(rank, size):
    """The residual that two ways to write a compressor share."""
    found = []
    for step, compressor in enumerate((TOPK, "topk:ratio=0.10")):
        gradwire.torch.all_reduce(values(rank, step), compressor, name="embedding")
        found.append(residual())
    assert list(gradwire.torch._functions._calls[dist.group.WORLD]) == [TOPK]
    return found


def test_a_compressor_may_be_written_in_several_ways():
    for before, after in ranks(2, spelled):
        assert not torch.equal(before, after)


def resaved(rank, size, states):
    """A rank's state, saved again before the first call."""
    gradwire.torch.load_state_dict(states)
    return gradwire.torch.state_dict()


def test_states_that_were_not_used_are_saved_again_for_all_ranks():
    first, second = saved_by_two()
    expected = [first[3], second[3]]
    again = ranks(3, resaved, [second[0], first[0]])
    assert [len(exchanges(state)) if state else 0 for state in again] == [3, 3, 0]
    # As many ranks as in the first run go on with the states of all.
    for found, whole in zip(ranks(2, going_on, again), expected):
        assert torch.equal(found, whole)


def going_on(rank, size, states):
    gradwire.torch.load_state_dict(states)
    return steps(rank, range(3, 5))


def test_the_parts_of_loaded_states_are_what_was_loaded():
    state = lambda *numbers: {"step": 3, "world_size": 11, "exchange": {f"rank{number}": number for number in numbers}}
    own = lambda part: list(part["exchange"].values()) if part else []
    # As names of files are sorted: 0, 1, 10, 2 …
    given = [state(number) for number in sorted(range(11), key=str)]
    for size in (1, 3, 11, 20):
        parts = [_saved.share(given, rank, size) for rank in range(size)]
        assert sorted(number for part in parts for number in own(part)) == list(range(11)), size
        # A part is saved again whole.
        assert all(_saved.share([part], rank, size) == part for rank, part in enumerate(parts) if part)
        if size >= 11:
            assert [own(part) for part in parts] == [[rank] if rank < 11 else [] for rank in range(size)]
    assert _saved.share([state(4)], 4, 11) == state(4)
    with pytest.raises(gradwire.StateError, match="cannot be read"):
        _saved.share([{**state(), "world_size": 1, "exchange": {"zero": 0}}], 0, 1)


def of_a_group(rank, size):
    """The state of a call over a second group, and the name of this group."""
    group = dist.new_group()
    gradwire.torch.all_reduce(values(rank, 0), TOPK, group=group, name="embedding")
    return gradwire.torch.state_dict(), group.group_name


def beside_own_groups(rank, size, state, name):
    # Connects, through groups that are not the user's.
    gradwire.torch.all_reduce(values(rank, 0), "eden")
    assert name in {group.group_name for group in dist.distributed_c10d._world.pg_map}
    with pytest.raises(gradwire.StateError, match=f"process group '{name}', but this run has '0'; first make the groups"):
        gradwire.torch.load_state_dict(state)


def test_groups_of_gradwire_take_no_state():
    (state, name), _ = ranks(2, of_a_group)
    ranks(2, beside_own_groups, state, name)


def damaged(rank, size, state):
    """The errors of states with an entry that does not fit after one that does."""
    parts = state[FUNCTIONS]
    [(group, compressors)] = parts.items()
    found = []
    for wrong in (
        [state, 5],
        {**state, FUNCTIONS: 5},
        {FUNCTIONS: {**parts, "other": 5}},
        {FUNCTIONS: {group: {**compressors, "eden": 5}}},
        {FUNCTIONS: {group: {**compressors, "eden": {"all-reduce": 5}}}},
        {**state, "0/gradwire": {"all-reduce": 5}},
        {**state, "0/gradwire": {}},
    ):
        with pytest.raises(gradwire.StateError) as refused:
            gradwire.torch.load_state_dict(wrong)
        found.append(str(refused.value))
    assert gradwire.torch.state_dict() == {}
    return found


def test_a_state_that_does_not_fit_loads_nothing():
    (own, _, _, _), _ = saved_by_two()
    (group,) = own[FUNCTIONS]
    for found in ranks(2, damaged, own):
        entries = ["", f"['{FUNCTIONS}']", f"['{FUNCTIONS}']['other']", f"['{FUNCTIONS}']['{group}']['eden']"]
        entries += [f"['{FUNCTIONS}']['{group}']['eden']['all-reduce']", "['0/gradwire']['all-reduce']"]
        for entry, error in zip(entries, found):
            assert f"the state{entry} has the type int, but must be a mapping" in error, error
        assert "the state has a process group '0/gradwire', but this run has none that compresses; first make" in found[-1]
