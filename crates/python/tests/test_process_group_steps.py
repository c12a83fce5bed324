"""Steps of process groups that compress: which residual belongs to which call, when a step ends,
values that are not finite, and averages that fail."""

import _thread
import threading
import time
import warnings
from contextlib import nullcontext
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from test_process_group_errors import gradients, refusal, summed, wrap
from world import ranks


def residual(group, elements, number):
    """What is kept for a place."""
    reducer = group._calls.exchange("all-reduce")._reducer
    return reducer.array(f"all-reduce float32[{elements}] #{number}", "residual")


def changing(rank, size, compressor):
    """Steps of which some leave out a call."""
    group = wrap(dist.new_group(), compressor, raw_below=100)
    kept = {}
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for step, sizes in enumerate([(200, 300, 300), (300, 300), (200, 300, 300), (200, 300), (200, 300)]):
            with gradients():
                for at, elements in enumerate(sizes):
                    dist.all_reduce(torch.arange(1.0, elements + 1) + rank, group=group)
            group.step()
            if "ef" in compressor or compressor.startswith("topk"):
                kept[step] = [residual(group, elements, number) is not None for elements, number in ((200, 0), (300, 0), (300, 1))]
    return kept, [str(one.message) for one in seen if "dropped" in str(one.message)]


def check_changing(with_feedback, without):
    kept, warned = with_feedback
    # The only call of 200 elements keeps its residual without a call. After the step with one call
    # of 300, the next step drops both, and then has one of its own.
    assert kept == {0: [True] * 3, 1: [True] * 3, 2: [True] * 3, 3: [True] * 3, 4: [True, True, False]}
    assert len(warned) == 1 and "all-reduce float32[300] #0" in warned[0]
    assert without == ({}, [])


def vanished(rank, size):
    """A residual whose place does not come up any more, and one of the first step alone."""
    group, kept = wrap(dist.new_group(), "topk:ratio=0.1", raw_below=100), []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for step in range(104):
            with gradients():
                for elements in (200, *(300,) * (step < 2), *(400,) * (step < 1)):
                    dist.all_reduce(torch.arange(1.0, elements + 1), group=group)
            group.step()
            kept.append([residual(group, elements, 0) is not None for elements in (200, 300, 400)])
    return kept, [str(one.message) for one in seen]


def check_vanished(results):
    for kept, (warned,) in results:
        assert kept == [[True] * 3] * 102 + [[True, True, False], [True, False, False]]
        assert "'all-reduce float32[300] #0' has not come up for 100 steps; its residual is dropped" in warned


def experts(rank, size):
    """A loop whose experts have equal sizes, and of which a step uses one."""
    group = wrap(dist.new_group(), "topk:ratio=0.1", raw_below=100)
    parameters = [torch.nn.Parameter(torch.zeros(1000)) for _ in range(2)]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    generator = torch.Generator().manual_seed(rank)
    sent = [torch.zeros(1000), torch.zeros(1000)]
    given = [torch.zeros(1000), torch.zeros(1000)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for used in [(0, 1), (0, 1), (1,), (0, 1), (0,), (1, 0)]:
            optimizer.zero_grad()
            for at in used:
                parameters[at].grad = torch.randn(1000, generator=generator)
                given[at] += parameters[at].grad
            with gradients():
                for at in used:
                    dist.all_reduce(parameters[at].grad, dist.ReduceOp.AVG, group)
            for at in used:
                sent[at] += parameters[at].grad
            optimizer.step()
    residuals = [torch.frombuffer(bytearray(residual(group, 1000, number)), dtype=torch.float32) for number in range(2)]
    return given, sent, residuals


def check_experts(results):
    for at in range(2):
        # What a rank gave was sent, or is kept for the same parameter.
        given, residual = (sum(result[what][at] for result in results) / 2 for what in (0, 2))
        assert torch.allclose(given, results[0][1][at] + residual, atol=1e-4)


def two_models(rank, size, in_ddp):
    """Two models of one size, each with its optimizer, which take turns."""
    group = wrap(dist.new_group(), "topk:ratio=0.1", raw_below=100)
    models = [torch.nn.Linear(1000, 1, bias=False) for _ in range(2)]
    forward = [DistributedDataParallel(one, process_group=group) if in_ddp else one for one in models]
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.0) for one in models]
    given, sent = [torch.zeros(1, 1000) for _ in range(2)], [torch.zeros(1, 1000) for _ in range(2)]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for step in range(6):
            at = step % 2
            x = torch.randn(1, 1000, generator=torch.Generator().manual_seed(10 * step + rank))
            optimizers[at].zero_grad()
            forward[at](x).sum().backward()
            given[at] += x
            if not in_ddp:
                with gradients():
                    dist.all_reduce(models[at].weight.grad, dist.ReduceOp.AVG, group)
            sent[at] += models[at].weight.grad
            optimizers[at].step()
    places = [] if in_ddp else [torch.frombuffer(bytearray(residual(group, 1000, at)), dtype=torch.float32) for at in range(2)]
    return given, sent, places, [str(one.message) for one in seen if "take turns" in str(one.message)]


def check_two_models(results, in_ddp):
    for at in range(2):
        given, kept = (sum(result[what][at].view(-1) for result in results) / 2 for what in (0, 2))
        assert torch.allclose(given, results[0][1][at].view(-1) + kept, atol=1e-4)
    assert not results[0][3]
    # The buckets of DistributedDataParallel do not tell whose they are.
    (warned,) = in_ddp[0][3]
    assert "a process group of its own" in warned


def not_finite(rank, size):
    """A step with infinity on one rank, which the optimizer skips, between two others."""
    group = wrap(dist.new_group(), "topk:ratio=0.1", raw_below=100)
    parameter = torch.nn.Parameter(torch.zeros(1000))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    found = []
    for step in range(3):
        parameter.grad = torch.arange(1000.0) + rank
        if step == 1 and rank == 1:
            parameter.grad[3] = torch.inf
        with gradients():
            dist.all_reduce(parameter.grad, group=group, async_op=True).get_future().wait()
        found.append(bool(parameter.grad.isfinite().all()))
        if found[-1]:
            optimizer.step()
    large = torch.full((2000,), 60000.0, dtype=torch.float16)
    with gradients():
        dist.all_reduce(large, group=group)
    return found, bool(large.isfinite().all()), parameter.detach()


def in_pieces(rank, size, when):
    """Steps whose gradients are exchanged in and after the backward pass, or all after it. The
    second step has infinity in its first gradient on one rank."""
    group = wrap(dist.new_group(), "topk:ratio=0.1", raw_below=100, when=when)
    model = torch.nn.Sequential(torch.nn.Linear(30, 40, bias=False), torch.nn.Linear(40, 30, bias=False))
    first, last = model[0].weight, model[1].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    exchange = lambda one: dist.all_reduce(one.grad, group=group)
    if when == "backward":
        last.register_post_accumulate_grad_hook(exchange)
    found = []
    for step in range(3):
        optimizer.zero_grad()
        loss = model(torch.full((2, 30), torch.inf if step == 1 and rank == 1 else 1.0)).sum()
        with gradients() if when == "backward" else nullcontext():
            loss.backward()
            if step == 1:
                first.grad = torch.ones(40, 30)
            if when == "always":
                exchange(last)
            exchange(first)
        found.append([bool(one.grad.isfinite().all()) for one in (last, first)])
        if all(found[-1]):
            optimizer.step()
    return found, group.describe().step


def check_in_pieces(results):
    assert results == [([[True] * 2, [False] * 2, [True] * 2], 3)] * 2


def in_functions(rank, size):
    """Sums in the backward pass that are no gradients of parameters."""

    class Statistics(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            dist.all_reduce(statistics, group=group)
            return gradient

    group, statistics = wrap(dist.new_group(), "topk:ratio=0.1", raw_below=100), torch.arange(1000.0)
    model = DistributedDataParallel(torch.nn.Linear(100, 100, bias=False), process_group=group)
    Statistics.apply(model(torch.ones(2, 100))).sum().backward()
    return statistics, {(site.elements, site.compressed) for site in group.describe().sites if site.collective == "all-reduce"}


def check_in_functions(results):
    for statistics, sites in results:
        assert torch.equal(statistics, 2 * torch.arange(1000.0)) and sites == {(1000, False), (10000, True)}


def saved_after_a_call_of_autograd(rank, size):
    """All ranks' states, if the first call comes in a thread that Python has not started."""
    group, done = wrap(dist.new_group(), "topk:ratio=0.1", raw_below=100), threading.Event()

    def call():
        summed(group, 1000)
        done.set()

    _thread.start_new_thread(call, ())
    assert done.wait(60)
    return sorted(group.state_dict(all_ranks=True)["all-reduce"]["exchange"])


def check_saved(results):
    assert results == [["rank0", "rank1"]] * 2


def failing(rank, size):
    """The future and the work of an average that fails, and a wait that is too short."""
    group = wrap(dist.new_group(), "eden", deadline=2.0)
    summed(group, 5000)
    if rank == 1:
        time.sleep(4)
        return None
    work = summed(group, 5000, async_op=True)
    early = refusal(lambda: work.wait(timedelta(seconds=0.2)))
    try:
        work.get_future().wait()
        future = "no error"
    except Exception as error:
        future = str(error)
    return early, future, refusal(work.wait), refusal(work.synchronize)


def check_failing(results):
    early, future, *waits = results[0]
    assert "DeadlineError" in early and "0.2 s" in early
    assert "all-reduce float32[5000] #1" in future and "failed" in future
    assert all("DeadlineError" in text and "rank 1" in text for text in waits)


def scattered(rank, size):
    """The input of reduce-scatters: while one is under way, and after one that is skipped."""
    group = wrap(dist.new_group(), "eden", raw_below=100)
    values = torch.arange(1000.0) + rank
    values[0] += torch.inf if rank == 1 else 0.0
    before, found = values.clone(), []
    with gradients():
        works = [dist.reduce_scatter_tensor(torch.empty(500), values, group=group, async_op=True) for _ in range(2)]
        found.append(torch.equal(values, before))
    for work in works:
        work.wait()
    return [*found, torch.equal(values, before)]


def check_scattered(results):
    assert results == [[True, True]] * 2


def check_not_finite(results):
    (found, finite, parameter), (others, _, same) = results
    assert found == others == [True, False, True] and torch.equal(parameter, same)
    # A sum that float16 cannot hold is no number, as without compression.
    assert not finite


# The last one waits, and ends its exchange.
CASES = [
    (changing, "topk:ratio=0.01"), (changing, "eden"), (vanished,), (experts,), (two_models, False), (two_models, True), (not_finite,),
    (in_pieces, "backward"), (in_pieces, "always"), (in_functions,), (saved_after_a_call_of_autograd,), (scattered,), (failing,),
]  # fmt: skip


def in_turn(rank, size):
    """The results of all cases, on the same ranks."""
    return [case(rank, size, *arguments) for case, *arguments in CASES]


def test_residuals_steps_and_errors_are_those_of_the_right_calls():
    results = list(map(list, zip(*ranks(2, in_turn))))
    check_changing(results[0][0], results[1][0])
    check_vanished(results[2])
    check_experts(results[3])
    check_two_models(results[4], results[5])
    check_not_finite(results[6])
    check_in_pieces(results[7])
    check_in_pieces(results[8])
    check_in_functions(results[9])
    check_saved(results[10])
    check_scattered(results[11])
    check_failing(results[12])
