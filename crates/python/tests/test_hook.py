"""Tests the hook in DistributedDataParallel with 2 and 4 ranks."""

from types import SimpleNamespace

import numpy
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import gradwire.torch
from gradwire.torch import _handle, _sharded
from gradwire.torch._mid_step import Stepping
from models import Net, build, data, flat, train
from world import in_turn, ranks


def run(rank, size, compressor, steps, options):
    model, handle = build(compressor, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = train(model, optimizer, rank, range(steps))
    return flat(model), losses, handle and handle.stats()


def indices(rank, size):
    """The numbers of the buckets of the second step, after DistributedDataParallel has formed them
    again."""
    model, _ = build()
    state, seen = gradwire.torch.Hook(model.module, "none"), []

    def hook(state, bucket):
        seen.append(bucket.index())
        return gradwire.torch.hook(state, bucket)

    model.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, [0])
    seen.clear()
    train(model, optimizer, rank, [1])
    return seen


def test_the_model_of_these_tests_has_several_buckets():
    assert ranks(2, indices) == [[0, 1, 2]] * 2


@pytest.mark.parametrize("size", [2, 4])
def test_none_equals_no_hook(size):
    plain, hooked = in_turn(size, (run, None, 8, {}), (run, "none", 8, {}))
    for (expected, losses, _), (found, others, _) in zip(plain, hooked):
        numpy.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        numpy.testing.assert_allclose(others, losses, rtol=1e-4, atol=1e-5)
    assert all((found == hooked[0][0]).all() for found, _, _ in hooked)


class Scaler:
    """A gradient scaler of a constant factor, which is no power of two."""

    def get_scale(self):
        return 3000.0


def halves(rank, size, dtype, compressor, scaled):
    """The mean gradients of a model of 16 bits, and the bytes of the step."""
    options = {"scaler": Scaler()} if scaled and compressor else {}
    model, handle = build(compressor, dtype=dtype, small_buckets=False, **options)
    x, labels = data(rank, 0)
    loss = torch.nn.functional.cross_entropy(model(x.to(dtype)).float(), labels)
    # So large that no gradient is subnormal: DistributedDataParallel halves gradients before it
    # adds them.
    (3000.0 * loss).backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    if handle is None:
        return gradients
    return gradients, handle.stats()["bytes_up"], handle.describe().expected_ratio


def test_none_sends_gradients_of_16_bits_as_ddp_does():
    cases = [(dtype, scaled) for dtype in (torch.float16, torch.bfloat16) for scaled in (False, True)]
    runs = in_turn(2, *((halves, dtype, compressor, scaled) for dtype, scaled in cases for compressor in (None, "none")))
    elements = sum(one.numel() for one in Net().parameters())
    for case, plain, found in zip(cases, runs[::2], runs[1::2]):
        for expected, (gradients, _, ratio) in zip(plain, found):
            # The sum of two numbers is rounded once, here and there.
            assert all((a == b).all() for a, b in zip(expected, gradients)) and ratio == 2.0, case
        # One bucket: two headers a rank, and both halves of it to the owner and back.
        assert sum(sent for _, sent, _ in found) == 2 * 2 * 12 + 2 * 2 * elements, case


SETTINGS = [
    ("3lc:s=1.75", {}),
    ("topk:ratio=0.05", {"exchange": "scatter-reduce"}),
    ("powersgd:rank=2", {}),
    ("fp16", {"exchange": "all-gather"}),
]


@pytest.mark.parametrize("size", [2, 4])
def test_replicas_are_bit_identical_and_learn(size):
    runs = in_turn(size, *((run, compressor, 30, options) for compressor, options in SETTINGS))
    for setting, found in zip(SETTINGS, runs):
        for parameters, losses, stats in found:
            assert (parameters == found[0][0]).all(), setting
            assert numpy.mean(losses[-5:]) < 0.6 * numpy.mean(losses[:3]), setting
            assert stats["ratio"] > 1.5 and stats["bytes_up"] > 0, setting
            assert stats["total_steps"] == 30, setting


class WithEmpty(Net):
    """A net with a parameter that has no elements."""

    def __init__(self):
        super().__init__()
        self.empty = torch.nn.Linear(64, 0)

    def forward(self, x):
        return super().forward(x) + self.empty(x).sum()


def with_empty(rank, size):
    model, handle = build("topk:ratio=0.1", module=WithEmpty)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(4))
    assert handle.step == 4
    return flat(model)


def test_parameters_without_elements_are_exchanged():
    one, two = ranks(2, with_empty)
    assert (one == two).all()


def wide(rank, size, compressor, options):
    model, _ = build(compressor, module=lambda: Net(hidden=8000), small_buckets=False, **options)
    train(model, torch.optim.SGD(model.parameters(), lr=0.01), rank, range(3))
    return flat(model)


def test_messages_in_several_parts_arrive():
    # 2.4 MB per message with all-gather, half of it with all-reduce; a part has one mebibyte.
    exchanges = ("all-gather", "all-reduce", "scatter-reduce")
    plain, *others = in_turn(2, (wide, None, {}), *((wide, "none", {"exchange": exchange}) for exchange in exchanges))
    for exchange, found in zip(exchanges, others):
        numpy.testing.assert_allclose(found[0], plain[0], rtol=1e-4, atol=1e-5, err_msg=exchange)
        assert (found[0] == found[1]).all(), exchange


class Layers(torch.nn.Module):
    """Large enough for threads to share its tensors."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(3)])

    def forward(self, x):
        return self.layers(x)


def threaded(rank, size, threads):
    model, _ = build("3lc", module=Layers, small_buckets=False, threads=threads[rank])
    found = []
    for step in range(3):
        generator = torch.Generator().manual_seed(step * size + rank)
        model(torch.randn(8, 256, generator=generator)).square().mean().backward()
        found += [parameter.grad.clone().flatten() for parameter in model.parameters()]
        model.zero_grad()
    return torch.cat(found).numpy()


def test_threads_change_no_bit_and_ranks_may_differ_in_them():
    (expected, _), found = in_turn(2, (threaded, [1, 1]), (threaded, [3, 2]))
    assert all((one == expected).all() for one in found)


class Clock:
    """Time that passes only where a GPU or another rank is waited for. Stands for both, and for
    what measures them."""

    def __init__(self):
        # The time now, and how long the GPU still computes.
        self.now, self.left = 0.0, 10.0

    def perf_counter(self):
        return self.now

    def record(self, stream):
        pass

    def synchronize(self):
        self.now, self.left = self.now + self.left, 0.0

    def wait(self):
        self.synchronize()
        self.now += 1.0

    def exchange(self, *arguments, **options):
        self.wait()


def waited(rank, size, kind):
    """The time after waiting, and how much of it counts. In a process of its own, because fake
    tensors give it fake GPUs."""
    clock, gpu = Clock(), torch.device("cuda:0")
    handle = kind.__new__(kind)
    handle._wait_seconds, handle._stepping = 0.0, Stepping()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_handle if kind is gradwire.torch.Hook else _sharded, "time", clock)
        patch.setattr(torch.cuda, "Event", lambda blocking: clock)
        patch.setattr(torch.cuda, "current_stream", lambda device: device)
        if kind is gradwire.torch.Hook:
            handle._reducer, handle._devices = clock, {gpu}
            handle._wait()
        else:
            handle._gradients, handle._step, handle._scale = clock, 1, 1.0
            handle._reducer = SimpleNamespace(votes=False, spec="none")
            handle._steps = SimpleNamespace(begins_pass=lambda: False, reduce=lambda unit: False)
            handle._same = SimpleNamespace(check=lambda *arguments: None)
            patch.setattr(kind, "_wait", lambda self: None)
            unit = SimpleNamespace(reduced=lambda elements: ["w"])
            with FakeTensorMode():
                handle.average(unit, torch.empty(4, device=gpu))
    return clock.now, handle._wait_seconds


@pytest.mark.parametrize("kind", [gradwire.torch.Hook, _sharded.Sharded])
def test_the_time_of_waiting_leaves_out_what_a_gpu_computes(kind):
    assert ranks(1, waited, kind) == [(11.0, 1.0)]
