"""Compressed collectives as functions, and averages of gradients without a wrapper."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradwire
import gradwire.torch
from gradwire._arrays import buffer
from gradwire.torch._channel import Channel, private_groups
from gradwire.torch._options import Options
from models import Net, data, flat
from world import ranks


def values(rank, seed=0):
    return torch.randn(4096, generator=torch.Generator().manual_seed(10 * seed + rank))


def decoded(tensor, spec, name, step, rank):
    return gradwire.decompress(gradwire.compress(tensor, spec, name=name, step=step, rank=rank), to="torch")


def functions(rank, size):
    found = {}
    for step in range(2):
        # The same name again is the next step.
        tensor = values(rank, step)
        work = gradwire.torch.all_reduce(tensor, "eden", async_op=True, name="embedding")
        work.wait()
        assert work.is_completed() and work.result()[0] is tensor
        found["named", step] = tensor
    found["mean"] = values(rank).view(64, 64).t()
    assert gradwire.torch.all_reduce(found["mean"], "eden", dist.ReduceOp.AVG) is None
    found["scattered"] = torch.empty(2048)
    gradwire.torch.reduce_scatter_tensor(found["scattered"], values(rank), "eden")
    found["gathered"] = torch.empty(4096)
    gradwire.torch.all_gather_into_tensor(found["gathered"], values(rank)[:2048], name="weights")
    # Each is a step of its own, in the same place.
    for _ in range(3):
        gradwire.torch.all_reduce(values(rank), "eden:bits=2")
    found["kept"] = list(gradwire.torch._functions._calls[dist.group.WORLD]["eden:bits=2"]._exchanges["all-reduce"]._tensors)
    return found


def test_functions_compress_by_name_or_place():
    zero, one = ranks(2, functions)
    assert zero["kept"] == ["all-reduce float32[4096] #0"]
    for step in range(2):
        parts = [decoded(values(rank, step), "eden", "embedding float32[4096]", step, rank) for rank in range(2)]
        assert torch.equal(zero["named", step], sum(parts)), step
    # In memory, a transposed matrix has the order of its rows. The call is a step of its own.
    parts = [decoded(values(rank), "eden", "all-reduce float32[4096] #0", 2, rank) for rank in range(2)]
    assert torch.equal(zero["mean"], (sum(parts) / 2).view(64, 64).t())
    for rank, found in enumerate((zero, one)):
        place = f"reduce-scatter float32[4096] #0[{2048 * rank}..{2048 * rank + 2048}]"
        parts = [decoded(values(other).chunk(2)[rank], "eden", place, 0, other) for other in range(2)]
        assert torch.equal(found["scattered"], sum(parts)), rank
        place = f"weights float32[4096][{2048 * rank}..{2048 * rank + 2048}]"
        part = decoded(values(rank)[:2048], "int8", place, 0, rank)
        for other in (zero, one):
            assert torch.equal(other["gathered"].chunk(2)[rank], part), rank


def tokens(rank, size):
    """Uneven numbers of tokens; a loss of their squares."""
    send = [[5, 3], [2, 6]][rank]
    receive = [[5, 2], [3, 6]][rank]
    rows = torch.randn(8, 16, generator=torch.Generator().manual_seed(rank), requires_grad=True)
    received = gradwire.torch.all_to_all_single(torch.empty(sum(receive), 16), rows, receive, send)
    (received**2).sum().backward()
    equal = gradwire.torch.all_to_all_single(torch.empty(8, 16), rows.detach())
    work = gradwire.torch.all_to_all_single(torch.zeros(8, 16), rows.detach(), async_op=True)
    assert not work.is_completed() and work.wait() and work.is_completed()
    assert torch.equal(work.result()[0], equal)
    with pytest.raises(gradwire.ConfigError, match="no backward pass"):
        gradwire.torch.all_to_all_single(torch.zeros(8, 16), rows, async_op=True)
    bad = torch.full((2, 4), torch.nan if rank == 1 else 0.0)
    with pytest.raises(gradwire.NonFiniteError, match="rank 1|NaN"):
        gradwire.torch.all_to_all_single(torch.empty(2, 4), bad)
    return rows.detach(), rows.grad, received.detach(), equal


def test_tokens_go_to_their_experts_and_gradients_come_back():
    (zero, one) = ranks(2, tokens)
    expected = torch.cat([zero[0][:5], one[0][:2]]), torch.cat([zero[0][5:], one[0][2:]])
    for rank, found in enumerate((zero, one)):
        rows, gradient, received, equal = found
        # A row that leaves its rank has 8 bits, and one that stays is exact.
        own = slice(0, 5) if rank == 0 else slice(3, 9)
        assert torch.equal(received[own], expected[rank][own])
        error = (received - expected[rank]).abs().max()
        assert 0 < error < 0.05
        stays = slice(0, 5) if rank == 0 else slice(2, 8)
        assert torch.equal(gradient[stays], 2 * rows[stays])
        assert 0 < (gradient - 2 * rows).abs().max() < 0.2
        assert torch.allclose(equal, torch.cat([zero[0].chunk(2)[rank], one[0].chunk(2)[rank]]), atol=0.05)


def outside(rank, size):
    """What the functions return over a group of rank 0, and the tensors that they write."""
    group, sums, part, both, rows = dist.new_group([0]), torch.ones(4), torch.zeros(4), torch.zeros(4), torch.zeros(4, 1)
    found = [
        gradwire.torch.all_reduce(sums, group=group),
        gradwire.torch.reduce_scatter_tensor(part, torch.ones(4), "none", group=group),
        gradwire.torch.all_gather_into_tensor(both, torch.ones(4), group=group),
    ]
    assert gradwire.torch.all_to_all_single(rows, torch.ones(4, 1), group=group) is rows
    if rank == 1:
        found.append(gradwire.torch.all_to_all_single(rows, torch.ones(4, 1), group=group, async_op=True))
    assert found == [None] * len(found)
    return [one.sum().item() for one in (part, both, rows)]


def test_functions_do_nothing_on_ranks_outside_of_the_group():
    assert ranks(2, outside) == [[4.0] * 3, [0.0] * 3]


def loop(rank, size, compressor):
    results = {}
    for what in ("hook", "loop"):
        torch.manual_seed(0)
        net = Net()
        model = DistributedDataParallel(net) if what == "hook" else net
        if what == "hook":
            gradwire.torch.register(model, compressor)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(4):
            x, labels = data(rank, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), labels).backward()
            if what == "loop":
                handle = gradwire.torch.average_gradients(model, compressor)
                assert handle.step == step + 1
            optimizer.step()
        results[what] = flat(net)
    with pytest.raises(gradwire.ConfigError, match="other arguments"):
        gradwire.torch.average_gradients(net, "none")
    return results


@pytest.mark.parametrize("compressor", ["topk:ratio=0.1", "powersgd"])
def test_averages_of_a_loop_are_those_of_the_hook(compressor):
    zero, one = ranks(2, loop, compressor)
    assert (zero["loop"] == zero["hook"]).all() and (one["loop"] == zero["loop"]).all()


def refused(rank, size):
    refuse = pytest.raises(gradwire.ConfigError, match="torch.distributed.all_reduce|sparse|gaps|times as many|numbers whose sum")
    reduce, gather, swap = gradwire.torch.all_reduce, gradwire.torch.all_gather_into_tensor, gradwire.torch.all_to_all_single
    bad = [
        lambda: reduce(torch.ones(10, dtype=torch.int64)),
        lambda: reduce(torch.ones(10), op=dist.ReduceOp.MAX),
        lambda: reduce(torch.ones(10).to_sparse()),
        lambda: reduce(torch.ones(10, 10)[:, :3]),
        lambda: gather(torch.ones(10), torch.ones(9)),
        lambda: swap(torch.ones(3, 2), torch.ones(4, 2), [1, 1], [2, 2]),
    ]
    for call in bad:
        with refuse:
            call()
    for spec in ("powersgd", "signsgd"):
        with pytest.raises(gradwire.ConfigError):
            reduce(torch.ones(10), spec)
    with pytest.raises(gradwire.ConfigError, match="give name="):
        reduce(torch.ones(10), "topk")
    with pytest.raises(gradwire.ConfigError, match="without ef="):
        swap(torch.ones(4, 2), torch.ones(4, 2), compressor="eden:ef=on")


def test_wrong_arguments_of_functions_are_refused():
    ranks(1, refused)


def part_of_means(rank, size):
    reducer = Options("none").reducer([("w", torch.empty(8, dtype=torch.bfloat16))], Channel(private_groups()))
    tensor, part = torch.arange(8.0).bfloat16() * (rank + 1), torch.zeros(4, dtype=torch.bfloat16)
    reducer.average(reducer.tensor_group(["w"]), 0, buffer(tensor), output=(2, buffer(part)))
    reducer.wait()
    return tensor, part


def test_a_part_of_means_in_16_bits_leaves_the_tensor():
    for rank, (tensor, part) in enumerate(ranks(2, part_of_means)):
        assert part.tolist() == [3.0, 4.5, 6.0, 7.5]
        assert tensor.tolist() == [at * (rank + 1.0) for at in range(8)]


def closed_by_another_thread(rank, size):
    reducer = Options("none").reducer([("w", torch.empty(4))], Channel(private_groups()))
    tensor = torch.full((4,), rank + 1.0)
    # Rank 0 waits for this long.
    time.sleep(0.5 * rank)
    reducer.average(reducer.tensor_group(["w"]), 0, buffer(tensor))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reducer.wait)
        time.sleep(0.2)
        reducer.nonfinite_remedy, is_waiting = "none", not waiting.done()
        reducer.close()
        waiting.result()
    return tensor.tolist(), is_waiting


def test_a_thread_closes_an_exchange_for_which_another_one_waits():
    first, second = ranks(2, closed_by_another_thread)
    assert first == ([1.5] * 4, True) and second[0] == [1.5] * 4
