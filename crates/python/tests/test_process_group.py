"""The backend gradwire, and process groups that are wrapped."""

import copy
import re
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import gradwire
import gradwire.torch
from gradwire.torch._compressed_group import CompressedGroup
from models import flat
from world import ranks

# A method with error feedback and without random draws.
TOPK = "topk:ratio=0.1"


def values(rank, elements=4096, seed=0):
    return torch.randn(elements, generator=torch.Generator().manual_seed(10 * seed + rank))


def sums(rank, size):
    """Compressed sums, and what stays exact."""
    group = gradwire.torch.wrap(dist.new_group(), "eden", raw_below=1000)
    found = {}
    with gradwire.torch.gradients():
        for step in range(2):
            for call in range(2):
                found["sum", step, call] = tensor = values(rank, seed=call)
                dist.all_reduce(tensor, group=group)
            group.step()
        found["mean"] = values(rank)
        dist.all_reduce(found["mean"], dist.ReduceOp.AVG, group)
        found["reduce"] = values(rank)
        dist.reduce(found["reduce"], 1, group=group)
        found["narrow"] = values(rank).bfloat16()
        dist.all_reduce(found["narrow"], group=group)
        inputs = values(rank)
        found["scattered"] = torch.empty(2048)
        dist.reduce_scatter_tensor(found["scattered"], inputs, group=group)
        assert torch.equal(inputs, values(rank))
        found["listed"] = torch.empty(2048)
        dist.reduce_scatter(found["listed"], list(values(rank).chunk(2)), group=group)
        # Compressed together, and asynchronously.
        several = [values(rank), torch.arange(5.0) + rank]
        with dist._coalescing_manager(group, async_ops=True) as manager:
            for one in several:
                dist.all_reduce(one, group=group)
        manager.wait()
        found["several"] = several
        # PyTorch gives a group the real and imaginary parts.
        found["complex"] = torch.complex(values(rank), values(rank, seed=1))
        dist.all_reduce(found["complex"], group=group)
        exact = {"short": values(rank, 10), "double": values(rank).double(), "integer": torch.arange(2000) + rank}
        for tensor in exact.values():
            dist.all_reduce(tensor, group=group)
        for op in ("MAX", "PRODUCT"):
            exact[op] = values(rank)
            dist.all_reduce(exact[op], getattr(dist.ReduceOp, op), group)
    exact["outside"] = values(rank)
    dist.all_reduce(exact["outside"], group=group)
    work = dist.broadcast(torch.ones(3), 0, group=group, async_op=True)
    work.wait()
    gathered = [None, None]
    dist.all_gather_object(gathered, {"rank": rank}, group=group)
    assert gathered == [{"rank": 0}, {"rank": 1}]
    return found, exact, group.describe()


def decoded(name, step, tensors, exact=False):
    """The sum of what the compressor leaves of each rank's tensor."""
    messages = [gradwire.compress(one, "eden", name=name, step=step, rank=rank) for rank, one in enumerate(tensors)]
    return sum(gradwire.decompress(one, to="torch") for one in messages)


def check_sums(results):
    found, exact, description = results[0]
    own = [values(rank) for rank in range(2)]
    for step in range(2):
        for call in range(2):
            own = [values(rank, seed=call) for rank in range(2)]
            expected = decoded(f"all-reduce float32[4096] #{call}", step, own)
            assert torch.equal(found["sum", step, call], expected), (step, call)
    own = [values(rank) for rank in range(2)]
    assert torch.equal(found["mean"], decoded("all-reduce float32[4096] #0", 2, own) / 2)
    reduced = decoded("reduce float32[4096] #0", 2, own)
    assert torch.equal(results[1][0]["reduce"], reduced)
    narrow = decoded("all-reduce bfloat16[4096] #0", 2, [one.bfloat16().float() for one in own])
    assert torch.equal(found["narrow"], narrow.bfloat16())
    for call, what in enumerate(("scattered", "listed")):
        for rank in range(2):
            place = f"reduce-scatter float32[4096] #{call}[{2048 * rank}..{2048 * rank + 2048}]"
            part = decoded(place, 0, [one.chunk(2)[rank] for one in own])
            assert torch.equal(results[rank][0][what], part), (what, rank)
    together = decoded("all-reduce float32[4096] #1", 2, own)
    assert torch.equal(found["several"][0], together) and torch.equal(found["several"][1], 2 * torch.arange(5.0) + 1)
    assert torch.equal(exact["short"], values(0, 10) + values(1, 10))
    assert torch.equal(exact["double"], own[0].double() + own[1].double())
    assert torch.equal(exact["integer"], 2 * torch.arange(2000) + 1)
    assert torch.equal(exact["MAX"], torch.maximum(*own)) and torch.equal(exact["PRODUCT"], own[0] * own[1])
    parts = [torch.stack([values(rank), values(rank, seed=1)], 1).view(-1) for rank in range(2)]
    pairs = torch.view_as_real(found["complex"]).reshape(-1)
    assert torch.equal(pairs, decoded("all-reduce float32[8192] #0", 2, parts))
    assert torch.equal(exact["outside"], own[0] + own[1])
    text = str(description)
    for reason in (
        "fewer than 1000 elements", "float64 is not compressed", "int64 is not compressed", "MAX is no sum or mean", "PRODUCT is no sum or mean",
        "outside of a backward pass", "broadcast",
    ):  # fmt: skip
        assert reason in text, (reason, text)
    row = next(one for one in description.sites if one.collective == "all-reduce" and one.compressed and one.elements == 4096)
    assert (row.elements, row.calls, row.compressor) == (4096, 6, "eden") and 0 < row.bytes_per_call < 2000


class Layers(nn.Module):
    """Two layers of one size, and a third one; no biases, so each parameter is a bucket."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 96, bias=False), nn.Linear(96, 64, bias=False)
        self.last = nn.Linear(64, 20, bias=False)

    def forward(self, x):
        return self.last(torch.relu(self.second(torch.relu(self.first(x)))))


def batch(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(16, 64, generator=generator)
    return x, x[:, :20].argmax(1)


def steps(model, rank, average=lambda: None, count=4, first=0):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(first, first + count):
        x, labels = batch(rank, step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        average()
        optimizer.step()
    return flat(model)


def layers():
    torch.manual_seed(0)
    return Layers()


def by_hand(rank, size):
    """A loop by hand, DistributedDataParallel and its hook on the same model."""
    # Each parameter is a bucket, from the first step on.
    dist._DEFAULT_FIRST_BUCKET_BYTES = 1
    options, results = {"bucket_cap_mb": 0.001, "find_unused_parameters": True}, {}
    hooked = DistributedDataParallel(layers(), **options)
    gradwire.torch.register(hooked, TOPK)
    results["hook"] = steps(hooked, rank)
    group = gradwire.torch.wrap(dist.new_group(), TOPK, raw_below=256)
    results["ddp"] = steps(DistributedDataParallel(layers(), process_group=group, **options), rank)
    compressed = [site for site in group.describe().sites if site.compressed]
    dist.destroy_process_group(group)
    loop, group = layers(), gradwire.torch.wrap(dist.new_group(), TOPK, raw_below=256)

    def average():
        with gradwire.torch.gradients():
            works = [dist.all_reduce(one.grad, dist.ReduceOp.AVG, group, async_op=True) for one in loop.parameters()]
        for work in works:
            work.wait()

    results["loop"] = steps(loop, rank, average)
    return results, compressed


def check_by_hand(results):
    (own, compressed), (other, _) = results
    for what in ("ddp", "loop"):
        assert (own[what] == own["hook"]).all(), what
        assert (own[what] == other[what]).all(), what
    assert sorted((site.elements, site.calls) for site in compressed) == [(1280, 4), (6144, 8)]


class Sharded(nn.Sequential):
    """Layers without biases, which fully_shard shards one by one."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__(*(nn.Linear(64, 64, bias=False) for _ in range(2)), nn.Linear(64, 20, bias=False))


def sharded(rank, size):
    """FSDP2 through the backend, and with its own communication replaced."""
    from torch.distributed.fsdp import fully_shard

    def build(mesh):
        model = Sharded()
        for layer in model:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    def trained(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            x, labels = batch(rank, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), labels).backward()
            optimizer.step()
        return torch.cat([one.full_tensor().detach().flatten() for one in model.parameters()])

    model = build(init_device_mesh("cpu", (size,)))
    handle = gradwire.torch.fsdp.register(model, TOPK, raw_below=256)
    expected = trained(model)
    handle.close()
    group = gradwire.torch.wrap(dist.new_group(), TOPK, raw_below=256)
    from torch.distributed.device_mesh import DeviceMesh

    return expected, trained(build(DeviceMesh.from_group(group, "cpu"))), group.describe()


def check_sharded(results):
    (expected, found, description), _ = results
    assert torch.equal(found, expected)
    compressed = [(site.collective, site.elements, site.calls) for site in description.sites if site.compressed]
    assert sorted(compressed) == [("reduce-scatter", 1280, 3), ("reduce-scatter", 4096, 6)], str(description)
    assert any("gather" in site.collective and not site.compressed for site in description.sites)


def resumed(rank, size):
    """A run that goes on from the state of another one, beside a whole run."""
    def run(count, states=None, model=None, first=0):
        # With residuals, and with random draws that depend on the step.
        group = gradwire.torch.wrap(dist.new_group(), "eden:ef=on", raw_below=256)
        own = model or layers()
        if states is not None:
            group.load_state_dict(states)

        def average():
            with gradwire.torch.gradients():
                for one in own.parameters():
                    dist.all_reduce(one.grad, dist.ReduceOp.AVG, group)

        optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
        for step in range(first, first + count):
            x, labels = batch(rank, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(own(x), labels).backward()
            average()
            optimizer.step()
        return group, own

    whole = flat(run(4)[1])
    group, model = run(2)
    own, everyone = group.state_dict(), group.state_dict(all_ranks=True)
    copies = [copy.deepcopy(model) for _ in range(3)]
    ends = [flat(run(2, states, one, 2)[1]) for states, one in zip((own, everyone, None), copies)]
    return whole, ends


def check_resumed(results):
    (whole, (own, everyone, without)), _ = results
    assert (own == whole).all() and (everyone == whole).all() and not (without == whole).all()


def no_sums(group, rank):
    """What every other collective of gloo gives."""
    own, ours, theirs, found = torch.arange(6.0) + 10 * rank, {"group": group}, 1 - rank, []
    listed = lambda length, count=2: [torch.zeros(length) for _ in range(count)]
    parts, joined, gathered, scattered, swapped, halves = listed(6), torch.zeros(12), listed(6), torch.zeros(6), torch.zeros(6), listed(3)
    dist.all_gather(parts, own, **ours)
    dist.all_gather_into_tensor(joined, own, **ours)
    dist.gather(own, gathered if rank == 0 else None, 0, **ours)
    dist.scatter(scattered, [own, own + 1] if rank == 1 else None, 1, **ours)
    dist.all_to_all_single(swapped, own, **ours)
    dist.all_to_all(halves, list(own.chunk(2)), **ours)
    sent = own.clone()
    dist.broadcast(sent, 1, **ours)
    found += [*parts, joined, *gathered, scattered, swapped, *halves, sent]
    objects, scattered_objects, gathered_objects = [rank, "one"], [None], [None, None] if rank == 0 else None
    dist.broadcast_object_list(objects, 1, **ours)
    dist.scatter_object_list(scattered_objects, [{}, "two"] if rank == 0 else None, 0, **ours)
    dist.gather_object({"rank": rank}, gathered_objects, 0, **ours)
    received, from_any = torch.zeros(6), torch.zeros(6)
    swap = [dist.P2POp(dist.isend, own, theirs, group), dist.P2POp(dist.irecv, received, theirs, group)]
    for work in dist.batch_isend_irecv(swap):
        work.wait()
    work = dist.isend(own, theirs, **ours)
    source = dist.recv(from_any, None, **ours)
    work.wait()
    several = listed(12)
    with dist._coalescing_manager(group, async_ops=True) as works:
        for one in several:
            dist.all_gather_into_tensor(one, own, **ours)
    works.wait()
    bits, least = torch.arange(10) + rank, own.clone()
    dist.all_reduce(bits, dist.ReduceOp.BAND, **ours)
    dist.reduce(least, 0, dist.ReduceOp.MIN, **ours)
    found += [received, from_any, *several, bits, least if rank == 0 else torch.zeros(6)]
    dist.barrier(**ours)
    dist.monitored_barrier(**ours)
    return [one.tolist() for one in found], objects, scattered_objects, gathered_objects, source


def passed_on(rank, size):
    group = gradwire.torch.wrap(dist.new_group(), raw_below=1)
    with gradwire.torch.gradients():
        found = no_sums(dist.new_group(), rank), no_sums(group, rank)
    # It is one of gloo.
    part = dist.split_group(group, [[0, 1]])
    return found, group.describe().sites, isinstance(part, CompressedGroup), part.size()


def check_passed_on(results):
    for (plain, own), sites, compresses, ranks_of_part in results:
        assert own == plain and not compresses and ranks_of_part == 2
        assert len(sites) > 15 and not any(site.compressed for site in sites)


def in_turn(rank, size):
    """The results of all cases, on the same ranks."""
    return [case(rank, size) for case in (sums, passed_on, sharded, resumed, by_hand)]


def test_groups_compress_by_place_and_train_as_hooks_and_resume():
    results = list(map(list, zip(*ranks(2, in_turn))))
    for check, found in zip((check_sums, check_passed_on, check_sharded, check_resumed, check_by_hand), results):
        check(found)


def backend(rank, size):
    """The backend for the default group, groups made from it, and a mesh."""
    group = dist.group.WORLD
    assert "gradwire" in dist.get_backend() and group.getBackendName() == "gradwire"
    trained = steps(DistributedDataParallel(layers()), rank)
    assert [site.compressor for site in group.describe().sites if site.collective == "all-reduce"] == [TOPK], str(group.describe())
    other = dist.new_group([0, 1])
    mesh = init_device_mesh("cpu", (1, size), mesh_dim_names=("outer", "inner"))
    for one in (other, mesh.get_group("inner")):
        tensor = torch.ones(5000)
        with gradwire.torch.gradients():
            dist.all_reduce(tensor, group=one)
        assert torch.allclose(tensor[tensor != 0], torch.tensor(2.0)), tensor
        assert any(site.compressed for site in one.describe().sites)
    alone = torch.ones(5000)
    dist.all_reduce(alone, group=mesh.get_group("outer"))
    assert alone.eq(1).all()
    state, everyone = group.state_dict(), group.state_dict(all_ranks=True)
    for name in ("monitored_barrier", "barrier"):
        getattr(dist, name)()
    sent = torch.full((3,), float(rank))
    work = dist.isend(sent, 1 - rank)
    received = torch.empty(3)
    dist.recv(received, 1 - rank)
    work.wait()
    assert received.eq(1 - rank).all()
    dist.destroy_process_group()
    return trained, state, everyone


def test_the_backend_trains_and_has_a_state(monkeypatch):
    monkeypatch.setenv("GRADWIRE_COMPRESSOR", TOPK)
    (first, state, everyone), (second, other, _) = ranks(2, backend, backend="cpu:gradwire,cuda:gradwire")
    assert (first == second).all()
    (own,) = state["all-reduce"]["exchange"].values()
    (others,) = other["all-reduce"]["exchange"].values()
    assert not torch.equal(own[0], others[0])
    assert sorted(everyone["all-reduce"]["exchange"]) == ["rank0", "rank1"]


def test_every_method_that_cpp_calls_is_overridden():
    # A method that is not runs with the interpreter lock held, and gloo may wait for this lock.
    (header,) = Path(torch.__file__).parent.glob("include/**/PyProcessGroup.hpp")
    text = header.read_text()
    names = set(re.findall(r"/\* Parent class \*/\s+(\w+),", text)) | set(re.findall(r'get_override\([^"]*?"(\w+)"', text))
    facts = {name for name in names if re.fullmatch("[gs]et(Rank|Size|GroupName|GroupDesc|_future)|wait|supports_reconfigure", name)}
    assert len(names) > 30 and "all_gather_single" in names
    assert names - facts <= set(vars(CompressedGroup))
