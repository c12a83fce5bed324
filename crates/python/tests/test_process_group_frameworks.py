"""The calls of large frameworks, in their order, over process groups that compress.
large_frameworks.py runs the frameworks themselves."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import gradwire
import gradwire.torch
from world import ranks


def values(rank, elements, seed=0):
    return torch.randn(elements, generator=torch.Generator().manual_seed(10 * seed + rank))


def decoded(place, step, tensors):
    """The sum of what eden leaves of each rank's tensor."""
    messages = [gradwire.compress(one, "eden", name=place, step=step, rank=rank) for rank, one in enumerate(tensors)]
    return sum(gradwire.decompress(one, to="torch") for one in messages)


def megatron(rank, size):
    """Megatron-Core's buckets are parts of one buffer. Without its distributed optimizer it sums
    them in a coalesced call; with it, each rank's part is a part of the bucket."""
    group, results = dist.new_group(list(range(size)), backend="gradwire"), []
    for distributed in (False, True):
        buffer = values(rank, 2 * 4096)
        buckets = buffer.chunk(2)
        buffer.mul_(1.0 / size)
        with gradwire.torch.gradients():
            with dist._coalescing_manager(group, async_ops=distributed) as calls:
                for bucket in buckets:
                    if distributed:
                        dist.reduce_scatter_tensor(bucket.chunk(size)[rank], bucket, group=group, async_op=True)
                    else:
                        dist.all_reduce(bucket, group=group)
            if distributed:
                calls.wait()
        # The norm of gradients, and the gather of parameters, whose parts are parts of a buffer.
        norm = torch.tensor([float(rank + 1)])
        dist.all_reduce(norm, group=group)
        parameters = torch.full((4096,), float(rank))
        dist.all_gather_into_tensor(parameters, parameters.chunk(size)[rank], group=group)
        assert norm.item() == 3.0 and torch.equal(parameters, torch.repeat_interleave(torch.arange(2.0), 2048))
        group.step()
        results.append(torch.cat([bucket.chunk(size)[rank] for bucket in buckets]) if distributed else buffer)
    return results


def zero(rank, size):
    """DeepSpeed's ZeRO 2 averages a bucket in the backward pass, and the last one after it, over a
    copy of the default group; two micro-batches make a step. ZeRO 3 scatters the sums."""
    group = dist.new_group(list(range(size)), backend="gradwire")
    first, last = (nn.Parameter(torch.zeros(2000)) for _ in range(2))
    found = []

    def average(bucket):
        dist.all_reduce(bucket.div_(size), group=group)
        found.append(bucket)

    first.register_post_accumulate_grad_hook(lambda one: average(one.grad.clone()))
    optimizer = torch.optim.SGD([first, last], lr=0.0)
    for batch in range(2):
        with gradwire.torch.gradients():
            loss = (first * values(rank, 2000, batch)).sum() + (last * values(rank, 2000, batch + 2)).sum()
            loss.backward()
            average(last.grad.clone())
        optimizer.zero_grad()
    overflow = torch.tensor([rank])
    dist.all_reduce(overflow, dist.ReduceOp.MAX, group)
    optimizer.step()
    part = torch.empty(1000)
    with gradwire.torch.gradients():
        dist.reduce_scatter_tensor(part, values(rank, 2000).div_(size), group=group)
    return found, part, overflow.item(), [site.elements for site in group.describe().sites if site.compressed]


def both(rank, size):
    gradwire.torch.configure("eden", raw_below=1000)
    return megatron(rank, size), zero(rank, size)


def test_gradients_in_the_buffers_of_megatron_and_deepspeed_are_those_of_their_places():
    results = ranks(2, both)
    buckets = [[(values(rank, 2 * 4096) / 2).chunk(2)[at] for rank in range(2)] for at in range(2)]
    summed = torch.cat([decoded(f"all-reduce float32[4096] #{at}", 0, buckets[at]) for at in range(2)])
    for rank, ((whole, own), (found, part, overflow, sizes)) in enumerate(results):
        assert torch.equal(whole, summed)
        scattered = [decoded_part("4096", at, rank, buckets[at]) for at in range(2)]
        assert torch.equal(own, torch.cat(scattered)), rank
        # The first and the last bucket of each micro-batch.
        for at, seed in enumerate((0, 2, 1, 3)):
            halves = [values(other, 2000, seed) / 2 for other in range(2)]
            assert torch.equal(found[at], decoded(f"all-reduce float32[2000] #{at}", 0, halves)), at
        assert torch.equal(part, decoded_part("2000", 0, rank, [values(other, 2000) / 2 for other in range(2)]))
        assert overflow == 1 and sizes == [2000, 2000]


def decoded_part(elements, number, rank, tensors):
    """A rank's part of a sum, in the first step with such a call."""
    half = int(elements) // 2
    place = f"reduce-scatter float32[{elements}] #{number}[{half * rank}..{half * rank + half}]"
    return decoded(place, 0, [one.chunk(2)[rank] for one in tensors])


class Sharded(nn.Sequential):
    """Layers without biases, which fully_shard shards one by one."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__(*(nn.Linear(64, 64, bias=False) for _ in range(2)), nn.Linear(64, 20, bias=False))


def trained(model, rank, count):
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for step in range(count):
        x = values(rank, 16 * 64, step).view(16, 64)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), x[:, :20].argmax(1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, torch.cat([one.full_tensor().flatten() for one in model.parameters()]).detach()


def hybrid(rank, size):
    """Replicas of sharded models, as torchtitan makes them: only the replicas' group compresses."""
    from torch.distributed.fsdp import fully_shard

    names, results = ("dp_replicate", "dp_shard"), {}
    for compressor in (None, "none", "topk:ratio=0.1"):
        override = None
        if compressor is not None:
            gradwire.torch.configure(compressor, raw_below=256)
            override = {"dp_replicate": "gradwire"}
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=names, backend_override=override)
        model = Sharded()
        for layer in (*model, model):
            fully_shard(layer, mesh=mesh)
        results[compressor] = trained(model, rank, 12)
        if compressor is not None:
            sites = mesh.get_group("dp_replicate").describe().sites
            results[compressor] += sorted((site.collective, site.elements, site.calls, site.compressor) for site in sites),
    return results


def resharded(rank, size):
    """Two ranks go on from the state of three: what was given, sent and left before and after."""
    three, two = dist.new_group([0, 1, 2]), dist.new_group([0, 1])
    if rank == 3:
        return None
    group = gradwire.torch.wrap(three, "topk:ratio=0.1", raw_below=100)
    for step in range(2):
        with gradwire.torch.gradients():
            dist.all_reduce(values(rank, 1000, step), dist.ReduceOp.AVG, group)
        group.step()
    states, before = group.state_dict(all_ranks=True), residual(group)
    if rank == 2:
        return before
    group = gradwire.torch.wrap(two, "topk:ratio=0.1", raw_below=100)
    group.load_state_dict(states)
    sent = values(rank, 1000, 2)
    with gradwire.torch.gradients():
        dist.all_reduce(sent, dist.ReduceOp.AVG, group)
    left = residual(group)
    # Gradients of another size do not use what was loaded.
    group.load_state_dict(states)
    with pytest.warns(RuntimeWarning, match=r"for example 'all-reduce float32\[1000\] #0'"):
        for _ in range(2):
            with gradwire.torch.gradients():
                dist.all_reduce(torch.ones(500), group=group)
            group.step()
    return before, sent, left


def residual(group):
    """What is kept for the only place of a group."""
    reducer = group._calls.exchange("all-reduce")._reducer
    return torch.frombuffer(bytearray(reducer.array("all-reduce float32[1000] #0", "residual")), dtype=torch.float32)


def check_resharded(found):
    (first, sent, left), (second, same, also), third, _ = found
    assert torch.equal(sent, same)
    mean = (values(0, 1000, 2) + values(1, 1000, 2)) / 2
    assert torch.allclose(sent + (left + also) / 2, mean + (first + second + third) / 3, atol=1e-5)


def with_four(rank, size):
    return resharded(rank, size), hybrid(rank, size)


def test_replicas_of_sharded_models_and_other_numbers_of_ranks_exchange_compressed():
    states, results = zip(*ranks(4, with_four))
    check_resharded(states)
    for found in results:
        _, exact = found[None]
        # Only the order of additions may differ.
        assert torch.allclose(found["none"][1], exact, atol=1e-6)
        losses, parameters, sites = found["topk:ratio=0.1"]
        assert torch.equal(parameters, results[0]["topk:ratio=0.1"][1]) and not torch.allclose(parameters, exact, atol=1e-3)
        assert sum(losses[-3:]) < sum(losses[:3])
        # 640 and twice 2048 elements of a shard.
        assert sites == [("all-reduce", 640, 12, "topk:ratio=0.1"), ("all-reduce", 2048, 24, "topk:ratio=0.1")]
