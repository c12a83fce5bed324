"""Tests predictions of whether compression pays."""

import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import gradwire.torch
from gradwire.torch import _advice, _link
from gradwire.torch._recording import Alone, Recording
from models import Net, data, flat
from world import ranks


class Trained:
    """A model with its optimizer, and a step that trains it on new data each time."""

    def __init__(self, rank=0, seconds=0.0):
        torch.manual_seed(0)
        self.model = Net()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.rank, self.seconds, self.number = rank, seconds, 0

    def step(self):
        x, labels = data(self.rank, self.number)
        self.number += 1
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(x), labels).backward()
        time.sleep(self.seconds)
        self.optimizer.step()

    def advise(self, **options):
        return gradwire.torch.advise(self.model, self.step, optimizer=self.optimizer, **options)


def test_slow_links_call_for_compression_and_fast_ones_for_none():
    # 29 kB of gradients take 230 ms at 1 Mbit/s, and nothing at 1000 Gbit/s.
    slow = Trained().advise(link="1mbit", ranks=2)
    assert slow.compressor is not None and "At 1 Mbit/s: " + slow.compressor in str(slow)
    assert set(slow.rules) <= {"first.bias", "norm.weight", "norm.bias", "second.bias", "second.weight"}
    fast = Trained(seconds=0.05).advise(link="1000gbit", ranks=2)
    assert fast.compressor is None and fast.tensors == [] and "do not compress" in str(fast)
    assert repr(fast) == "<Advice do not compress>"


def test_figures_are_those_of_the_links_arithmetic():
    found = Trained().advise(link=["1mbit", "2mbit"], ranks=2, candidates=["none", "fp16"]).data
    elements = 64 * 96 + 96 + 2 * 96 + 96 * 10 + 10
    assert found["elements"] == elements and found["links"] == [1e6, 2e6]
    slow, fast = (on["seconds"] for on in found["plain"]["on_links"])
    # Twice the bandwidth saves half of the seconds on the link.
    assert slow - fast == pytest.approx(32 * elements / 2e6, rel=0.02)
    assert found["predictions"][1]["ratio"] == pytest.approx(2.0, rel=0.1)
    assert found["predictions"][0]["error"] < 1e-6 < found["predictions"][1]["error"] < 1e-3


def slow_link(rank, size):
    _link._LONG = 0.0
    link = _link.MeasuredLink(None, 1 << 17, 30.0)
    link.close()
    return link.bits_per_second, link.messages.overhead


def test_a_link_is_measured_on_which_the_shortest_message_takes_long():
    one, two = ranks(2, slow_link)
    assert one == two and one[0] > 0


def test_candidates_have_exchanges_and_rules():
    asked = {"compressor": "topk:ratio=0.001", "exchange": "scatter-reduce", "rules": {"second.*": "fp16"}}
    one, two = Trained().advise(link="1mbit", ranks=3, candidates=[asked, "3lc:every=4"]).data["predictions"]
    assert (one["candidate"], one["exchange"]) == ("topk:ratio=0.001 by scatter-reduce, second.* -> fp16", "scatter-reduce")
    assert one["spec"] == "topk:ratio=0.001" and two["every"] == 4 and two["exchange"] == "all-gather"
    # Error feedback ahead of Adam, and local steps.
    assert "Adam" in one["doubt"] and "local steps" in two["doubt"]


def test_model_and_optimizer_are_put_back():
    trained, untouched = Trained(), Trained()
    trained.step(), untouched.step()
    trained.advise(link="1mbit", ranks=2, candidates=["fp16"])
    assert (flat(trained.model) == flat(untouched.model)).all()
    # The moments of Adam, too: the next step is the same.
    trained.number = untouched.number
    trained.step(), untouched.step()
    assert (flat(trained.model) == flat(untouched.model)).all()


def test_gradients_are_recorded_with_the_times_at_which_they_are_ready():
    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            time.sleep(0.05)
            return gradient

    torch.manual_seed(0)
    first, second, unused = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(2, 2)
    model = nn.ModuleList([first, second, unused])

    def step():
        model.zero_grad()
        second(Slow.apply(first(torch.ones(1, 4)))).sum().backward()

    recording = Recording(model, step, 2, Alone())
    ready = dict((name, at) for name, _, at in recording.tensors)
    assert ready["0.weight"] - ready["1.weight"] >= 0.05
    assert ready["2.weight"] == max(ready["0.weight"], ready["0.bias"])
    assert recording.seconds >= ready["0.weight"]
    weight = [name for name, _, _ in recording.tensors].index("1.bias")
    assert all((gradients[weight] == 1.0).all() for gradients in recording.gradients) and len(recording.gradients) == 2


def of_a_group(rank, size):
    trained = Trained(rank)
    found = trained.advise(candidates=["none", "3lc", "eden:every=10"])
    try:
        trained.advise(candidates=["3lc:s=9"])
    except gradwire.ConfigError as error:
        refused = str(error)
    # The group works on.
    torch.distributed.barrier()
    return str(found), found.data["ranks"], found.data["links"], refused


def test_ranks_of_a_group_measure_their_link_and_get_the_same_advice():
    outcomes = ranks(2, of_a_group)
    assert outcomes[0] == outcomes[1]
    _, size, (link,), refused = outcomes[0]
    assert size == 2 and link > 1e6
    assert "3lc:s=9" in refused


def test_what_is_missing_or_wrong_is_said():
    trained = Trained()
    wrong = [
        ({}, "ranks="),
        ({"link": "1mbit"}, "ranks="),
        ({"link": "fast", "ranks": 2}, "'fast' is no link"),
        ({"link": "1mbit", "ranks": 1}, "number of ranks"),
        ({"link": "1mbit", "ranks": 2, "steps": 0}, "at least one step"),
        ({"link": "1mbit", "ranks": 2, "candidates": ["3cl"]}, "3lc"),
        ({"link": "1mbit", "ranks": 2, "candidates": [{"spec": "3lc"}]}, "'compressor'"),
        ({"link": "1mbit", "ranks": 2, "candidates": [{"compressor": "3lc", "exchange": "all-reduce"}]}, "all-reduce"),
        ({"link": "1mbit", "ranks": 2, "candidates": "eden"}, "candidates is a string; give a list"),
        ({"link": "1mbit", "ranks": 2, "candidates": {"compressor": "eden"}}, "candidates is a dict; give a list"),
        ({"link": "1mbit", "ranks": 2, "candidates": [3]}, "candidate 3 must"),
        ({"link": "1mbit", "ranks": 2, "deadline": 0}, "deadline=0: give seconds"),
    ]
    for options, says in wrong:
        with pytest.raises(gradwire.ConfigError, match=says):
            trained.advise(**options)
    with pytest.raises(gradwire.ConfigError, match="no gradients"):
        gradwire.torch.advise(trained.model, lambda: None, link="1mbit", ranks=2)


def of_a_wrapped_model(rank, size):
    model = nn.parallel.DistributedDataParallel(Net())
    try:
        gradwire.torch.advise(model, int)
    except gradwire.ConfigError as error:
        return str(error)


def test_wrapped_models_are_refused():
    assert all("before it is wrapped" in message for message in ranks(2, of_a_wrapped_model))


def test_the_recommended_compressor_is_a_spec_that_register_takes():
    asked = {"compressor": "fp16", "exchange": "all-gather", "rules": {"second.*": "none"}}
    found = Trained().advise(link="1mbit", ranks=2, candidates=[asked])
    assert found.compressor == "fp16" == gradwire.canonical(found.compressor)


class Counting(nn.Module):
    """A layer that counts its passes in buffers, one of which no state has, and puts a new tensor into the other."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 2)
        self.register_buffer("passes", torch.zeros(1))
        self.register_buffer("hidden", torch.zeros(1), persistent=False)

    def forward(self, x):
        self.passes = self.passes + 1
        self.hidden += 1
        return self.layer(x)


def test_buffers_are_what_they_were_whether_or_not_a_state_has_them():
    model = Counting()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()

    weight = model.layer.weight.detach().clone()
    gradwire.torch.advise(model, step, optimizer=optimizer, link="1gbit", ranks=2)
    assert model.passes == 0 and model.hidden == 0 and (model.layer.weight == weight).all()


def test_the_share_of_a_measured_bandwidth_is_not_that_of_a_link_that_was_given():
    speeds = [_link.Speed(1e-4, 0.0, 1e8), _link.Speed(1e-4, 0.0, 1e10)]
    measured = SimpleNamespace(local_ranks=2, messages=speeds[0], plain=speeds[1], bits_per_second=1e10)
    recording = SimpleNamespace(staging=lambda: 0.0)
    for measures_link, expected in [(True, 0.01), (False, 1.0)]:
        cluster = _advice._cluster(recording, measured, 0.0, measures_link)
        assert cluster["efficiency"] == pytest.approx(expected) and cluster["plain_efficiency"] == 1.0


def test_a_link_that_is_too_fast_to_measure_has_a_bandwidth():
    link = SimpleNamespace(_sizes=[1 << 14, 1 << 17, 1 << 20], _slowest=lambda action: 0.01)
    speed = _link.MeasuredLink._speed(link, lambda size: None, 1.0)
    # A long message takes no longer than a short one: that the difference is a tenth is assumed.
    assert speed.bits_per_second == pytest.approx(32 * (7 / 8) * (1 << 20) / 0.001)
