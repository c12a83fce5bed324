"""Process groups whose messages stay on the device, beside those through the host. Kernels run
under Triton's interpreter, and collectives over gloo."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

pytest.importorskip("triton", reason="PyTorch came without Triton")

import gradwire
import gradwire.torch
from gradwire.torch._group_calls import Calls
from gradwire.torch._group_options import GroupOptions
from gradwire.torch._staging import Output, Staging
from gradwire.torch.cuda._kept import Kept
from gradwire.torch.cuda._room import Room
from models import flat
from transports import entries
from world import ranks

BOTH = ("host", "device")
# Random draws and momentum, residuals, and a schedule; by whole messages and by slices.
CASES = [("terngrad:momentum=0.9", "all-gather"), ("3lc", "scatter-reduce"), ("none until 2 then int8", "scatter-reduce")]


def values(rank, step, elements, dtype=torch.float32):
    return torch.randn(elements, generator=torch.Generator().manual_seed(10 * step + rank)).to(dtype)


def calls(group, rank, step):
    """The results of the collectives of a step. The second step has infinity on one rank."""
    # Scatter-reduce cuts long tensors into slices.
    long, even, found = 900 if group._calls.options.exchange == "all-gather" else 2 * 4096 + 5, 800, []
    with gradwire.torch.gradients():
        for elements, dtype, op in [(long, torch.float32, "SUM"), (300, torch.float32, "AVG"), (500, torch.float16, "SUM")]:
            tensor = values(rank, step, elements, dtype)
            if step == 1 and elements == 300 and rank == 1:
                tensor[7] = torch.inf
            dist.all_reduce(tensor, getattr(dist.ReduceOp, op), group)
            found.append(tensor)
        works, outputs = [], []
        for dtype in (torch.float32, torch.bfloat16):
            inputs, output = values(rank, step, even, dtype), torch.empty(even // 2, dtype=dtype)
            works.append(dist.reduce_scatter_tensor(output, inputs, group=group, async_op=True))
            outputs.append(output)
            # The input stays, unless the output is a part of it.
            assert torch.equal(inputs, values(rank, step, even, dtype))
        own = values(rank, step, 600).chunk(2)[rank]
        dist.reduce_scatter_tensor(own, own._base, dist.ReduceOp.AVG, group)
        for work in works:
            assert work.wait() and work.is_completed()
    group.step()
    return torch.cat([one.float() for one in (*found, *outputs, own)])


def compared(rank, size, spec, exchange):
    """Both transports side by side; then each continues with the other's state."""
    make = lambda name: gradwire.torch.wrap(dist.new_group(), spec, exchange=exchange, seed=7, raw_below=100, transport=name)
    groups = [make(name) for name in BOTH]
    for step in range(3):
        host, device = (calls(group, rank, step) for group in groups)
        assert torch.equal(host.view(torch.int32), device.view(torch.int32)), step
        assert bool(host.isfinite().all()) == (step != 1)
    states = [group.state_dict() for group in groups]
    for kind in ("all-reduce", "reduce-scatter"):
        assert entries(states[0][kind]) == entries(states[1][kind]), kind
    again = [make(name) for name in BOTH]
    for group, state in zip(again, reversed(states)):
        group.load_state_dict(state)
    host, device, whole = (calls(group, rank, 3) for group in (*again, groups[0]))
    assert torch.equal(host, whole) and torch.equal(device, whole)
    # A group goes on after it has loaded.
    groups[1].load_state_dict(states[1])
    assert torch.equal(calls(groups[1], rank, 3), whole)
    descriptions = [str(group.describe()) for group in groups]
    assert all("travel through the host" in text for text in descriptions[:1])
    assert "messages of all-reduce travel through the device, " in descriptions[1]
    stats = [group.stats()["all-reduce"] for group in groups]
    assert stats[0]["elements"] == stats[1]["elements"] and stats[1]["message_bytes"] > 0
    assert stats[0]["total_skipped"] == stats[1]["total_skipped"] == 1, stats


@pytest.mark.parametrize("spec, exchange", CASES)
def test_results_residuals_and_states_are_the_hosts(spec, exchange):
    ranks(2, compared, spec, exchange)


def experts(rank, size, transport):
    """A residual that is kept for a place that is left out, and one that is dropped."""
    group = gradwire.torch.wrap(dist.new_group(), "3lc", raw_below=100, transport=transport)
    found = []
    with pytest.warns(RuntimeWarning, match="residuals are dropped"):
        for step, sizes in enumerate([(200, 300, 300), (300, 300), (200, 300, 300), (200, 300), (200, 300)]):
            with gradwire.torch.gradients():
                for at, elements in enumerate(sizes):
                    found.append(values(rank, 3 * step + at, elements))
                    dist.all_reduce(found[-1], group=group)
            group.step()
    return torch.cat(found)


def gathered(rank, size):
    """Parameters, whose parts all ranks decode to the same bits."""
    found = []
    for transport in BOTH:
        group = Calls(dist.group.WORLD, GroupOptions("int8", raw_below=0, when="always", transport=transport))
        for step in range(2):
            output = torch.empty(1200)
            group.gather("all-gather", output, values(rank, step, 600)).wait()
            group.tell_step()
            found.append(output)
    return found


def trained(rank, size, transport):
    """DistributedDataParallel over a group, whose optimizer ends the steps. The second step has
    infinity on one rank, so the optimizer takes none."""
    group = gradwire.torch.wrap(dist.new_group(), "3lc", raw_below=100, transport=transport)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 40, bias=False), nn.Linear(40, 10, bias=False)), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        x = values(rank, step, 200).view(10, 20)
        model(x * (torch.inf if step == 1 and rank == 1 else 1.0)).square().sum().backward()
        if all(one.grad.isfinite().all() for one in model.parameters()):
            optimizer.step()
    return flat(model), group.describe().step


def others(rank, size):
    """The results of all the above by both transports, and calls that differ between ranks."""
    for run in (experts, trained):
        host, device = (run(rank, size, transport) for transport in BOTH)
        assert str(host) == str(device) if run is trained else torch.equal(host, device), run
    assert trained(rank, size, "device")[1] == 4
    gathers = gathered(rank, size)
    host, device = torch.cat(gathers[:2]), torch.cat(gathers[2:])
    assert torch.equal(host, device)
    group = gradwire.torch.wrap(dist.new_group(), "eden", raw_below=100, transport="device", deadline=5.0)
    with pytest.raises(gradwire.GradwireError, match=r"all-reduce float32\[5000\] #0; all-reduce float32\[6000\] #0"):
        with gradwire.torch.gradients():
            dist.all_reduce(torch.ones(5000 + 1000 * rank), group=group)
    for spec, reason in (("topk", "the length of messages of 'topk"), ("atomo", "factors matrices")):
        with pytest.raises(gradwire.ConfigError, match=reason):
            with gradwire.torch.gradients():
                dist.all_reduce(torch.ones(5000), group=gradwire.torch.wrap(dist.new_group(), spec, transport="device"))
    return host


def thirds(rank, size):
    """Sums and means by each transport."""
    found = []
    for transport in BOTH:
        for spec, exchange in (("terngrad", "all-gather"), ("int8", "scatter-reduce"), ("none", "auto")):
            group = gradwire.torch.wrap(dist.new_group(), spec, exchange=exchange, seed=7, raw_below=1, transport=transport)
            # Three times the first fits in 16 bits, three times the second does not.
            halves = torch.tensor([21000.0, 32752.0], dtype=torch.float16)
            with gradwire.torch.gradients():
                for tensor, op in [(values(rank, 0, 300), "SUM"), (values(rank, 1, 300), "AVG"), (halves, "SUM")][: 3 if spec == "none" else 2]:
                    dist.all_reduce(tensor, getattr(dist.ReduceOp, op), group)
                    found.append(tensor.float())
    return found


def test_sums_of_three_ranks_are_those_through_the_host():
    found = ranks(3, thirds)
    for of_rank in found:
        host, device = of_rank[: len(of_rank) // 2], of_rank[len(of_rank) // 2 :]
        for at, (one, other) in enumerate(zip(host, device)):
            # The backend adds floats in its own order.
            tolerance = 0.0 if at < 4 else 5e-6 if at < 6 else 32.0
            torch.testing.assert_close(one, other, rtol=0.0, atol=tolerance, equal_nan=True)
        exact = sum(values(rank, 0, 300) for rank in range(3))
        torch.testing.assert_close(host[4], exact, rtol=0.0, atol=1e-6)
        assert host[6][0].isfinite() and host[6][1].isnan()


def test_groups_on_the_device_do_what_those_through_the_host_do():
    (zero, one) = ranks(2, others)
    assert torch.equal(zero, one)


def test_a_part_of_the_means_is_copied_to_another_tensor():
    bucket, output = torch.arange(10.0), torch.zeros(4)
    future, host, done, ready = Staging(torch.device("cpu")).stage((0, 0), bucket, 1.0, Output(output, 3))
    assert ready() is None and torch.equal(host, bucket)
    host.mul_(2.0)
    done()
    assert torch.equal(output, torch.arange(6.0, 14.0, 2.0)) and future.value() is output
    assert torch.equal(bucket, torch.arange(10.0))


def test_places_of_tensors_that_are_gone_are_used_again():
    room = Room()
    assert [room.take(elements) for elements in (3, 4, 0, 5)] == [0, 3, 7, 7] and room.end == 12
    room.give_back(0, 3)
    assert room.take(2) == 0 and room.take(2) == 12
    room.give_back(3, 4)
    # Between the first and the fourth are the elements 2 to 6.
    assert room.take(5) == 2 and room.take(1) == 14
    for start, elements in ((14, 1), (7, 5), (12, 2), (0, 2), (2, 5)):
        room.give_back(start, elements)
    assert room.end == 0 and room.take(1) == 0


def test_kept_arrays_grow_rarely_and_begin_with_zeros():
    loaded = {}
    reducer = SimpleNamespace(
        array=lambda name, kind, averages: loaded.get(name), set_array=lambda name, kind, values, averages: loaded.pop(name, None)
    )
    kept, lengths = Kept(reducer, [], torch.device("cpu"), {}), set()
    for at in range(200):
        if at == 150:
            loaded["place 150"] = torch.arange(10.0).numpy().tobytes()
        kept.add([(f"place {at}", (10,))], {"residual": [f"place {at}"]}, skips=True)
        own = kept.array("residual")[kept.starts[f"place {at}"] :][:10]
        assert torch.equal(own, torch.arange(10.0) if at == 150 else torch.zeros(10)), at
        own.fill_(at + 1.0)
        lengths.add(len(kept.array("residual")))
    assert len(lengths) < 15 and max(lengths) <= 3000, lengths
    # Each place has its own values, and those of the last one are free for the next.
    assert kept.array("residual")[:2000].view(200, 10)[149].eq(150.0).all()
    kept.forget("place 7")
    kept.add([("place 200", (10,))], {"residual": ["place 200"]}, skips=True)
    assert kept.starts["place 200"] == 70 and not kept.array("residual")[70:80].any()
    kept.settle(torch.tensor(True))
    assert not kept.array("residual")[70:80].any() and kept.array("residual")[60:70].eq(0.0).all()
