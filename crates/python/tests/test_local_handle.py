"""Tests the exchange of ``LocalSteps``: its start, its description, its state, its end."""

import gc
import weakref

import pytest
import torch
from torch import nn

import gradwire.torch
from gradwire.torch import _local
from models import Net, data, one_layer
from world import ranks, seconds_until_interrupted


def described(rank, size):
    net = Net()
    steps = gradwire.torch.LocalSteps(net, torch.optim.SGD(net.parameters(), lr=0.1), every=2, compressor="3lc")
    before = steps.summary()
    for step in range(2):
        x, labels = data(rank, step)
        nn.functional.cross_entropy(net(x), labels).backward()
        steps.step()
    return before, steps.summary(), repr(steps), steps.describe(), steps.stats()["message_bytes"]


def test_local_steps_tell_how_tensors_are_sent():
    before, after, name, description, sent = ranks(2, described)[0]
    assert "no step yet" in before and "step 1" in after and "waited" in after
    assert name == "<LocalSteps 3lc by all-gather over 2 ranks, step 2>"
    assert sum(one.message_bytes for one in description.tensors) == sent
    assert any(one.compressor == "3lc" for one in description.tensors)


def in_a_block(rank, size, saved):
    layer, steps = one_layer("topk:ratio=0.1", every=2)
    with steps as entered:
        if saved is not None:
            entered.all_ranks.load_state_dict(saved)
        layer.weight.grad.normal_(generator=torch.Generator().manual_seed(rank))
        for _ in range(3):
            entered.step()
        saved = entered.all_ranks.state_dict()
        scalars = {tag: step for tag, _, step in entered.scalars("local/")}
    with pytest.raises(gradwire.ConfigError, match="close"):
        steps.synchronize()
    return saved, scalars["local/message_bytes"]


def test_local_steps_end_with_a_block_and_save_the_state_of_all_ranks():
    for saved, step in ranks(2, in_a_block, None):
        assert sorted(saved["exchange"]) == ["rank0", "rank1"] and step == 1
    for saved, step in ranks(2, in_a_block, saved):
        assert saved["step"] == 6 and step == 5


class Interrupted:
    """Simulates Ctrl-C before the averaging thread starts."""

    def __init__(self, exchange):
        self._reducer = exchange

    def average(self, tensor_group, step, tensor, done, **options):
        self.done = done

    def wait(self):
        raise KeyboardInterrupt

    def __getattr__(self, name):
        return getattr(self._reducer, name)


def interrupted(rank, size):
    layer, steps = one_layer("topk", every=1)
    steps._replica.reducer = exchange = Interrupted(steps._replica.reducer)
    find, found = steps._replica.change, []

    def change(fragment=0):
        tensor = find(fragment)
        found.append(weakref.ref(tensor))
        return tensor

    steps._replica.change = change
    try:
        steps.step()
    except KeyboardInterrupt:
        pass
    del steps, find, change
    gc.collect()
    alive = found[0]() is not None
    exchange.done()
    del exchange.done
    gc.collect()
    return alive, found[0]() is None


def test_a_change_stays_alive_until_the_thread_has_finished():
    assert ranks(1, interrupted) == [(True, True)]


def test_workers_that_come_and_go_compare_what_all_must_have(monkeypatch):
    monkeypatch.setattr(_local, "Membership", lambda *_: None)

    class Stop(Exception):
        """Has the digest of the settings, of which nothing else is needed."""

    def elastic(replica, membership, config, deadline):
        raise Stop(config)

    monkeypatch.setattr(_local, "Elastic", elastic)

    def digest(**options):
        torch.manual_seed(0)
        with pytest.raises(Stop) as stop:
            one_layer("topk", lighthouse="http://localhost:1", **options)
        return str(stop.value)

    assert digest() == digest(threads=4)
    assert len({digest(), digest(mask=False), digest(raw_below=1), digest(every=3)}) == 4


class InGaps(nn.Module):
    """Has tensors of many types and orders in memory."""

    def __init__(self, rank):
        super().__init__()
        generator = torch.Generator().manual_seed(rank)
        numbers = lambda *shape: torch.randn(*shape, generator=generator)
        self.narrow = nn.Parameter(numbers(8, 6)[:, ::2])
        self.turned = nn.Parameter(numbers(6, 8).t())
        self.short = nn.Parameter(numbers(5, 3).bfloat16())
        self.empty = nn.Parameter(numbers(0, 3))
        self.register_buffer("flags", numbers(9) > 0)
        self.register_buffer("count", torch.tensor(rank + 1))


def refuse_main_memory(*arguments, **options):
    """Stands for the broadcast of NCCL."""
    raise RuntimeError("a tensor is on the CPU")


def started(rank, size, members):
    group = torch.distributed.new_group(members) if members else None
    if members and rank not in members:
        return None
    if group is None:
        torch.distributed.broadcast = refuse_main_memory
    model = InGaps(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradwire.torch.LocalSteps(model, optimizer, process_group=group).close()
    return {name: one.tolist() for name, one in model.state_dict().items()}


@pytest.mark.parametrize("members", [None, [1, 2]])
def test_all_ranks_start_from_the_model_of_the_first(members):
    expected = {name: one.tolist() for name, one in InGaps(members[0] if members else 0).state_dict().items()}
    found = [one for one in ranks(3, started, members) if one is not None]
    assert found == [expected] * (2 if members else 3)


def interrupted_in_a_block(rank, size):
    """The seconds after which Ctrl-C leaves the block, though the other rank does not answer."""
    layer, steps = one_layer("topk", every=1, deadline=120.0)
    steps.step()
    return seconds_until_interrupted(rank, steps, steps.step)


def test_ctrl_c_leaves_a_block_before_the_deadline():
    assert ranks(2, interrupted_in_a_block)[0] < 60
