"""Two levels whose messages between nodes stay on the device, beside those through the host."""

import os

import pytest
import torch
from torch.distributed.algorithms.join import Join

pytest.importorskip("triton", reason="PyTorch came without Triton")

import gradwire
from gradwire.torch._inside import HostInside
from gradwire.torch.cuda._collectives import Peers
from transports import Run, check, entries
from world import outcomes, ranks

# Buckets of some parameters each. Both ranks of a node own slices of the first tensor; others are
# whole, so a rank owns nothing in some buckets.
SPECS = ["int8", "3lc", "eden", "none", "signsgd", "eden:bits=3,ef=on"]
SIZES = [2 * 4096 + 5, 300, 2 * 4096, 5, 0, 700]
# Of these, a rank owns nothing in the bucket of the second.
FEW, FEW_SIZES = ["int8", "3lc", "none"], [2 * 4096, 300, 5]


def both(rank, specs=SPECS, sizes=SIZES, dtype=torch.float32, **options):
    """The same run through the host and on the device."""
    make = lambda transport: Run(rank, specs, sizes, dtype, ddp={"bucket_cap_mb": 0.001}, nodes=2, transport=transport, **options)
    return make("host"), make("device")


def compare(rank, size, exchange, dtype, options):
    host, device = both(rank, dtype=dtype, exchange=exchange, **options)
    check(SPECS, SIZES, host.step(0), device.step(0), 0)
    states = [run.handle.state_dict() for run in (host, device)]
    assert entries(states[0]) == entries(states[1])
    of_all = [run.handle.state_dict(all_ranks=True) for run in (host, device)]
    host_states, device_states = ([bytes(one[0].numpy()) for one in state["exchange"].values()] for state in of_all)
    assert host_states == device_states and len(host_states) == size
    host.handle.load_state_dict(of_all[1])
    device.handle.load_state_dict(states[0])
    # Residuals of the first step count in the second.
    check(SPECS, SIZES, host.step(1), device.step(1), 1)
    stats = [run.handle.stats() for run in (host, device)]
    for name in ("step", "elements", "skipped", "inside_bytes_up", "total_inside_bytes", "total_steps"):
        assert stats[0][name] == stats[1][name], name
    assert sum(one.elements for one in device.handle.describe().tensors) == stats[1]["elements"]
    return stats[1], str(device.handle.describe())


def compare_all(rank, size):
    cases = [("all-gather", torch.bfloat16, {}), ("scatter-reduce", torch.float32, {"inside": "bf16"})]
    return [compare(rank, size, *case) for case in cases], order(rank)


def order(rank):
    """The collectives of a step of three buckets, in the order in which this rank enqueues them."""
    run = Run(rank, ["int8"] * 3, [2 * 4096] * 3, ddp={"bucket_cap_mb": 0.01}, nodes=2, transport="device")
    # The second step has buckets of one parameter.
    run.step(0)
    enqueued = []

    def noted(name, call):
        return lambda *arguments: (enqueued.append(name), call(*arguments))[1]

    with pytest.MonkeyPatch.context() as patch:
        for of, method, name in ((HostInside, "scatter", "scatter"), (Peers, "all_gather", "column"), (HostInside, "gather", "gather")):
            patch.setattr(of, method, noted(name, getattr(of, method)))
        run.step(1)
    return enqueued


def test_means_and_states_are_those_of_two_levels_through_the_host():
    for found, enqueued in ranks(4, compare_all):
        # A bucket is gathered behind the next one, which is on its way to other nodes meanwhile.
        assert enqueued == ["scatter", "column", "scatter", "column", "gather", "scatter", "column", "gather", "gather"]
        for (stats, text), exchange in zip(found, ("all-gather", "scatter-reduce")):
            assert f"{exchange} over 2 nodes of 2 ranks" in text and "messages travel through the device" in text
            assert "compressed on the GPU" in text and stats["bytes_up"] > 0


def poisoned(rank, transport, on_nonfinite, at, culprit=3):
    """Steps, of which one rank has an infinity in step 1 in parameter ``at``."""
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    options = {"nodes": 2, "transport": transport, "scaler": scaler, "on_nonfinite": on_nonfinite}
    run = Run(rank, FEW, FEW_SIZES, ddp={"bucket_cap_mb": 0.001}, **options)
    run.step(0)
    before = entries(run.handle.state_dict())
    gradients = [torch.ones(size, 1) for size in FEW_SIZES]
    if rank == culprit:
        gradients[at][-1] = float("inf")
    run.model.zero_grad()
    try:
        run.model(gradients).backward()
    except gradwire.NonFiniteError as error:
        # The exchange has ended: the first error is raised again.
        with pytest.raises(gradwire.NonFiniteError, match="rank 3"):
            run.handle._on_device.average(0, 2, [], torch.ones(5), 1.0)
        return str(error)
    means = [parameter.grad.isnan().all().item() for parameter in run.model.parameters()]
    assert run.handle.stats()["skipped"] and run.handle.stats()["total_skipped"] == 1
    assert entries(run.handle.state_dict())[1] == before[1]
    after = run.step(2)
    assert not run.handle.stats()["skipped"]
    return means, after.tolist()


def not_finite(rank, size):
    # In the bucket of the second tensor one rank of each node owns nothing.
    skipped = [poisoned(rank, transport, "skip", 1) for transport in ("host", "device")]
    return skipped, poisoned(rank, "device", "error", 1), overflowed(rank)


def overflowed(rank):
    """A step in which the residual of one slice makes its gradient infinite, which the node's other
    rank does not see."""
    run = Run(rank, ["eden:ef=on"], [2 * 4096], nodes=2, transport="device")
    run.step(0)
    if rank == 3:
        run.handle._on_device._column.kept[0].arrays["residual"].fill_(float("inf"))
    with pytest.raises(gradwire.NonFiniteError) as error:
        run.step(1)
    return str(error.value)


def test_values_that_are_not_finite_skip_or_fail_the_step_on_all_ranks():
    for (host, device), message, overflow in ranks(4, not_finite):
        assert host == device and any(host[0])
        assert "'all.1'" in message and "rank 3 (node 1, local rank 1)" in message, message
        assert "'all.0[4096..8192]' on node 1" in overflow and "or its sum with the residual does" in overflow, overflow


def lost(rank, size, how):
    run = Run(rank, ["int8"], [2 * 4096], nodes=2, transport="device", deadline=5.0)
    # DistributedDataParallel itself waits for other ranks in the second step.
    run.step(0), run.step(1)
    if rank == 1:
        os._exit(9)
    run.step(2)


def test_a_lost_rank_is_named_by_the_others():
    found = outcomes(4, lost, "killed")
    for rank in (0, 2, 3):
        assert found[rank][1] == "PeerLostError" and "rank 1 (node 0, local rank 1)" in found[rank][2], found[rank]


def small(rank, size):
    """A model in which a rank of each node owns nothing; then one whose compressor is refused."""
    host, device = both(rank, ["int8"], [300])
    check(["int8"], [300], host.step(0), device.step(0), 0)
    assert entries(host.handle.state_dict()) == entries(device.handle.state_dict())
    # Gradients of two passes, and ranks with different numbers of batches, whose zeros must not
    # vote.
    runs = both(rank, FEW, FEW_SIZES)
    for run in runs:
        with run.model.no_sync():
            run.step(0)
        run.found = [run.backward(1).tolist()]
        with Join([run.model]):
            run.found += [run.step(step).tolist() for step in range(2, 3 + rank % 2)]
    assert runs[0].found == runs[1].found
    with pytest.raises(gradwire.ConfigError, match="the length of messages of 'topk.*transport='auto' sends them through the host"):
        both(rank, ["topk:ratio=0.1"], [2 * 4096])
    return device.handle.stats()["elements"]


def test_ranks_without_slices_take_part_and_refusals_are_the_same_on_all():
    assert ranks(4, small) == [300, 0, 300, 0]


def lost_node(rank, size):
    run = Run(rank, ["int8"], [2 * 4096], nodes=2, transport="device", deadline=5.0)
    # DistributedDataParallel itself waits for other ranks in the second step.
    run.step(0), run.step(1)
    if rank > 1:
        os._exit(9)
    run.step(2)


def test_a_rank_of_a_lost_node_is_named_by_the_other_node():
    for found in outcomes(4, lost_node)[:2]:
        assert found[1] == "PeerLostError" and ("rank 2 (node 1, local rank 0)" in found[2] or "rank 3 (node 1, local rank 1)" in found[2]), found
