"""Tests predictions of whether compression pays."""

import copy
import io
import itertools
import json
import os
import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import gradwire.torch
from gradwire import _core
from gradwire._arrays import buffer
from gradwire.torch import _advice, _link
from gradwire.torch._progress import DEFAULT_TRIALS, Progress
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

    recording = Recording(model, step, 2, Alone(), Progress(0, shown=False))
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
        ({"link": "fast", "ranks": 2}, "'fast' is not a link"),
        ({"link": "1mbit", "ranks": 1}, "number of ranks"),
        ({"link": "1mbit", "ranks": 2, "steps": 0}, "at least one step"),
        ({"link": "1mbit", "ranks": 2, "steps": 1 << 70}, "steps=.* is out of range"),
        ({"link": "1mbit", "ranks": 2, "steps": 1001}, "at most 1000"),
        ({"link": "1mbit", "ranks": -1}, "ranks=-1 is out of range"),
        ({"link": 5, "ranks": 2}, "link is a int; give a list"),
        ({"link": ["1mbit", None], "ranks": 2}, "link contains None"),
        ({"link": "1mbit", "ranks": 2, "candidates": [{"compressor": "3lc", "exchange": 5}]}, "'exchange' of the candidate .* has the type int"),
        ({"link": "1mbit", "ranks": 1 << 40}, "ranks=.* is out of range"),
        ({"link": "1mbit", "ranks": 2.5}, "ranks=2.5 is not an integer"),
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
    assert all("before you wrap it" in message for message in ranks(2, of_a_wrapped_model))


def test_the_recommended_compressor_is_a_spec_that_register_takes():
    asked = {"compressor": "fp16", "exchange": "all-gather", "rules": {"second.*": "none"}}
    found = Trained().advise(link="1mbit", ranks=2, candidates=[asked])
    assert found.compressor == "fp16" == gradwire.canonical(found.compressor)


class Counting(nn.Module):
    """A layer that counts its passes in buffers, one of which no state has, and puts a new tensor
    into the other."""

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


def test_what_was_measured_and_how_much_it_varies_is_passed_on():
    speeds = [_link.Speed(1e-4, 0.0, 1e8, 1e-5), _link.Speed(1e-4, 0.0, 1e10, 3e-5)]
    measured = SimpleNamespace(local_ranks=2, messages=speeds[0], plain=speeds[1], bits_per_second=1e10)
    recording = SimpleNamespace(staging=lambda: 0.0, noise=1e-3, buckets=lambda: [[0]])
    cluster = _advice._cluster(recording, measured, 0.0)
    assert cluster["efficiency"] == pytest.approx(0.01) and cluster["plain_efficiency"] == 1.0
    assert cluster["noise"] == pytest.approx(2e-3 + 4e-5)
    assert "noise" not in _advice._cluster(recording, None, 0.0)
    assert _link.deviation([1.0, 2.0, 4.0, 9.0, 3.0]) == 1.0


def test_a_bucket_has_gradients_of_one_type():
    tensors = [("head", (10,), 0.1), ("norm", (4,), 0.2), ("embed", (10,), 0.3)]
    assert _core.buckets(tensors, ["bfloat16", "float32", "bfloat16"]) == [[1], [0, 2]]
    with pytest.raises(gradwire.ConfigError, match="each tensor has one type"):
        _core.buckets(tensors, ["float32"])


def predicted(link, efficiencies, noise=0.0):
    """The crossover and the speedup of fp16 for a megabyte that is ready after a millisecond. The
    measured link has 5 Gbit/s, of which gradwire's and PyTorch's messages use these parts."""
    values = torch.ones(1 << 18)
    # A measured step that took as long as its parts.
    step = 0.001 + 8e6 / (efficiencies[0] * 5e9)
    cluster = {"spare_core": 1.0, "efficiency": efficiencies[0], "plain_efficiency": efficiencies[1], "noise": noise}
    data, _ = _core.advice(
        [("weight", (512, 512), 0.001)], [[buffer(values)]], 0.001, ranks=2, cluster=cluster, links=[link], optimizer="sgd",
        candidates=[("fp16", "auto", [])], measured=("none", 2, "5000mbit", step, 1e6), progress=lambda *_: None,
    )
    found = json.loads(data)
    return found["crossover"], found["crossover_range"], found["predictions"][0]["on_links"][0]["speedup"]


def test_the_share_of_a_measured_bandwidth_counts_on_this_link_alone():
    given, elsewhere, speedup = predicted("10mbit", (1.0, 1.0))
    # At 10 Mbit/s the bytes decide.
    assert speedup == pytest.approx(2.0, rel=0.05) and given > 1e9
    for efficiency in (0.2, 0.3):
        # Half of the bytes at less than a third of the speed do not pay on the measured link, but
        # on slower ones. Half of the speed would be too near to a draw: the compressor's time is
        # measured on this machine, which other work may disturb.
        crossover, _, speedup = predicted("5000mbit", (efficiency, 1.0))
        assert speedup < 1.0 and 1e9 < crossover <= 5e9
        crossover, _, speedup = predicted("10mbit", (efficiency, 1.0))
        assert speedup == pytest.approx(2.0, rel=0.05) and crossover > 1e9
    _, (least, most), _ = predicted("10mbit", (1.0, 1.0), noise=1e-3)
    assert least < given < most


def crossovers(rank, size):
    """The crossover and its range, by a given link and by the measured one."""
    trained = Trained(rank)
    options = {"candidates": ["none", "fp16"], "progress": False}
    found = [trained.advise(link=link, **options) for link in ("10mbit", None)]
    return [(one.crossover, one.crossover_range) for one in found]


def test_crossovers_have_ranges_by_a_given_link_and_by_the_measured_one():
    # Their values depend on a busy machine; the test above compares them for given times.
    for crossover, (least, most) in itertools.chain(*ranks(2, crossovers)):
        assert crossover is None or (least or 0.0) <= crossover <= most


def test_a_link_that_is_too_fast_to_measure_has_a_bandwidth():
    link = SimpleNamespace(_sizes=[1 << 14, 1 << 17, 1 << 20], _slowest=lambda action: 0.01)
    speed = _link.MeasuredLink._speed(link, lambda size: None, 1.0)
    # A long message takes no longer than a short one: that the difference is a tenth is assumed.
    assert speed.bits_per_second == pytest.approx(32 * (7 / 8) * (1 << 20) / 0.001)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_a_line_on_a_terminal_and_lines_elsewhere_for_large_models():
    def told(stream, elements, shown=True):
        progress = Progress(elements, shown, stream)
        progress.estimate(3_000_000_000, 17, 4, 10, 2, 2)
        for step in range(3):
            progress.step(step, 17)
        for done in (0.0, 0.05, 0.1):
            progress.trial("eden", int(done == 0.1), 10, done)
        progress.close()
        return stream.getvalue()

    # 12 million elements, 4 steps, 2 ranks, 10 trials and 30 ns on 2 cores.
    estimate = "runs 17 training steps of 12.0 million parameters, then trials of 10 compressors between 2 ranks (about 14 s), and takes up to 3.0 GB"
    plain = told(io.StringIO(), 12_000_000)
    assert estimate in plain and "\r" not in plain and len(plain.splitlines()) == 3 and "trial 1 of 10, eden" in plain
    shown = told(Terminal(), 12_000_000)
    assert estimate in shown and shown.count("\n") == 1 and shown.endswith("\r\x1b[K") and "trial 2 of 10, eden" in shown
    assert "\n" not in told(Terminal(), 1000) and "training step 3 of 17" in told(Terminal(), 1000)
    assert told(io.StringIO(), 1000) == told(Terminal(), 12_000_000, shown=False) == ""


def test_cores_are_counted_on_systems_that_pin_no_processes(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert _link.cores() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert _link.cores() == 1


def test_the_number_of_default_trials_is_known():
    trials = set()
    tensors, gradients = [("w", (8, 4), 0.1)], [[buffer(torch.ones(8, 4))]]
    cluster = {"spare_core": 1.0, "crowding": 1.0}
    options = {"ranks": 2, "cluster": cluster, "links": ["1mbit"], "optimizer": "adam", "candidates": None, "measured": None}
    _core.advice(tensors, gradients, 1.0, progress=lambda name, finished, of, done: trials.add((of, done <= 1.0)), **options)
    assert trials == {(DEFAULT_TRIALS, True)}


def test_an_error_or_ctrl_c_during_trials_ends_them():
    def interrupt(*_):
        raise KeyboardInterrupt

    trained = Trained()
    before = flat(trained.model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Progress, "trial", interrupt)
        with pytest.raises(KeyboardInterrupt):
            trained.advise(link="1mbit", ranks=2)
    assert (flat(trained.model) == before).all()


def test_memory_does_not_grow_with_the_steps_that_are_recorded_beyond_their_gradients():
    # Of 16-bit gradients two bytes are kept, and those of a step are one allocation.
    model = nn.Linear(64, 32).bfloat16()
    recording = Recording(model, lambda: model(torch.ones(1, 64, dtype=torch.bfloat16)).sum().backward(), 3, Alone(), Progress(0, shown=False))
    for step in recording.gradients:
        assert {one.dtype for one in step} == {torch.bfloat16}
        assert len({one.untyped_storage().data_ptr() for one in step}) == 1
        assert step[0].untyped_storage().nbytes() == 2 * (64 * 32 + 32)
    kept = Recording(model, lambda: model(torch.ones(1, 64, dtype=torch.bfloat16)).sum().backward(), 3, Alone(), Progress(0, shown=False), keeps=False)
    assert kept.gradients == []


def restored(model, step, optimizer=None):
    """Whether ``advise`` leaves the state as it was; the error that it raised."""
    def state():
        named = [*model.named_parameters(), *model.named_buffers()]
        return [(name, one.requires_grad, values_of(one)) for name, one in named] + [module.training for module in model.modules()]

    before, settings = state(), copy.deepcopy(optimizer.state_dict()) if optimizer else None
    raised = None
    try:
        gradwire.torch.advise(model, step, optimizer=optimizer, link="1mbit", ranks=2, candidates=["fp16"])
    except Exception as error:
        raised = error
    same = repr(state()) == repr(before) and (optimizer is None or repr(optimizer.state_dict()) == repr(settings))
    return same and all(parameter.grad is None for parameter in model.parameters()), raised


def values_of(tensor):
    if tensor.device.type == "meta":
        return None
    if tensor.is_quantized:
        return tensor.int_repr().tolist()
    if tensor.is_nested:
        return [one.tolist() for one in tensor.unbind()]
    return tensor.detach().to_dense().tolist() if tensor.layout != torch.strided else tensor.detach().tolist()


BUFFERS = {
    "expanded": (lambda: torch.ones(1).expand(5), lambda buffer: buffer[:1].add_(1)),
    "overlapping": (lambda: torch.ones(3).as_strided((2, 2), (1, 1)), lambda buffer: buffer[0].add_(1)),
    "conjugate": (lambda: torch.ones(3, dtype=torch.complex64).conj(), lambda buffer: buffer.add_(1j)),
    "sparse": (lambda: torch.eye(3).to_sparse(), lambda buffer: buffer.mul_(2)),
    "csr": (lambda: torch.eye(3).to_sparse_csr(), lambda buffer: buffer.mul_(2)),
    "quantized": (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), lambda buffer: buffer.copy_(torch.zeros(3))),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), lambda buffer: buffer.mul_(2)),
    "integers": (lambda: torch.arange(3), lambda buffer: buffer.add_(1)),
    "inference": (lambda: torch.inference_mode()(torch.ones)(3), lambda buffer: None),
    "meta": (lambda: torch.ones(3, device="meta"), lambda buffer: None),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", BUFFERS)
def test_buffers_that_training_takes_are_put_back(kind):
    make, change = BUFFERS[kind]
    model = nn.Linear(8, 40)
    model.register_buffer("kept", make())
    model.register_buffer("cache", None)

    def step():
        change(model.kept)
        model.cache = torch.ones(2)
        model(torch.ones(1, 8)).sum().backward()

    assert restored(model, step) == (True, None) and model.cache is None


@pytest.mark.parametrize("model, says", [
    (lambda: nn.Linear(8, 4, device="meta"), "'weight' is on the meta device"),
    (lambda: nn.Sequential(nn.LazyLinear(4)), "'0.weight' has no shape yet"),
    (lambda: nn.Sequential(nn.Linear(8, 4), nn.LazyBatchNorm1d()), "'1.weight' has no shape yet"),
])
@pytest.mark.filterwarnings("ignore")
def test_models_that_no_step_can_use_are_refused_before_one(model, says):
    with pytest.raises(gradwire.ConfigError, match=says):
        gradwire.torch.advise(model(), lambda: pytest.fail("a step ran"), link="1mbit", ranks=2)


def test_gradients_that_no_average_can_replace_are_refused_in_the_first_step():
    weight = nn.ParameterDict({"w": nn.Parameter(torch.randn(10, 40))})
    same, raised = restored(weight, lambda: nn.functional.embedding(torch.tensor([1]), weight["w"], sparse=True).sum().backward())
    assert same and isinstance(raised, gradwire.ConfigError) and "'w' is torch.sparse_coo" in str(raised)
    model = nn.Linear(8, 4)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda one: setattr(one, "grad", None))
    same, raised = restored(model, lambda: model(torch.ones(1, 8)).sum().backward())
    assert same and isinstance(raised, gradwire.ConfigError) and "steps in the backward pass" in str(raised)


def test_everything_is_put_back_if_a_step_raises():
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)).bfloat16().eval()
    # The moments have another type than the parameters, as those of many optimizers for 16 bits.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moment = torch.full((4, 8), 1 / 3)
    optimizer.state[model[0].weight]["moment"] = moment
    calls = []

    def step():
        calls.append(1)
        model.train()
        if len(calls) == 7:
            model[0].weight.requires_grad_(False)
            optimizer.param_groups[0]["lr"] = 9.0
            raise ZeroDivisionError
        optimizer.zero_grad()
        model(torch.randn(4, 8).bfloat16()).sum().backward()
        optimizer.step()
        moment.add_(1)
        optimizer.state[model[0].bias]["new"] = torch.ones(1)

    same, raised = restored(model, step, optimizer)
    assert same and isinstance(raised, ZeroDivisionError)
    assert optimizer.state[model[0].weight]["moment"] is moment and (moment == 1 / 3).all() and moment.dtype == torch.float32


class Fourier(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.scale = nn.Parameter(torch.randn(8, 40, dtype=torch.complex64)), nn.Parameter(torch.randn((), dtype=torch.complex64))

    def forward(self, x):
        return torch.view_as_real(x.to(torch.complex64) @ self.weight * self.scale)


def of_complex_numbers(rank, size):
    model = Fourier()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        model(torch.full((2, 8), rank + 1.0)).square().sum().backward()
        optimizer.step()

    return gradwire.torch.advise(model, step, optimizer=optimizer, candidates=["fp16"], link="1mbit").data


def test_complex_parameters_count_as_pairs_of_reals():
    for found in ranks(2, of_complex_numbers):
        assert found["elements"] == 2 * (8 * 40 + 1)
        # 40 bytes of headers a bucket at most.
        assert found["predictions"][0]["ratio"] == pytest.approx(2.0, rel=0.1)
