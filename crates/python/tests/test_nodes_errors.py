"""What two levels refuse, and how they name ranks and nodes that are lost."""

import os
import time

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradwire
import gradwire.torch
from test_nodes import Given, averages, given, gradients
from world import outcomes, ranks

# The ranks that are lost, whether they end, and the error of the others.
LOSSES = pytest.mark.parametrize(
    "culprits, ends, error", [([3], True, "PeerLostError"), ([1], False, "DeadlineError"), ([2, 3], True, "PeerLostError")]
)


def check_named(work, culprits, ends, error):
    """Checks that the errors of the other ranks name a lost one and its node."""
    named = [f"rank {culprit} (node {culprit // 2}" for culprit in culprits]
    for rank, result in enumerate(outcomes(4, work, culprits, ends)):
        if rank not in culprits:
            assert result[1] == error and any(one in result[2] for one in named), result


def lost(rank, size, culprits, ends):
    model, handle = given("eden", nodes=2, deadline=5.0)
    for step in (0, 1):
        # In the second step, DistributedDataParallel itself connects ranks to form its buckets.
        averages(model, gradients(rank, step))
    if rank in culprits:
        if ends:
            os._exit(0)
        time.sleep(18)
    averages(model, gradients(rank, 2))


@LOSSES
def test_a_lost_rank_or_node_is_named_on_all_ranks(culprits, ends, error):
    check_named(lost, culprits, ends, error)


def lost_in_rounds(rank, size, culprits, ends):
    torch.manual_seed(rank)
    model = nn.Linear(160, 80)
    local_steps = gradwire.torch.LocalSteps(model, torch.optim.SGD(model.parameters(), lr=0.1), every=1, nodes=2, deadline=5.0)
    for step in range(3):
        if step == 2 and rank in culprits:
            if ends:
                os._exit(0)
            time.sleep(18)
        local_steps.zero_grad()
        model(torch.ones(4, 160)).square().mean().backward()
        local_steps.step()


@LOSSES
def test_a_rank_or_node_lost_in_a_round_is_named_on_all_ranks(culprits, ends, error):
    check_named(lost_in_rounds, culprits, ends, error)


def lost_in_the_middle(rank, size, culprit):
    model, handle = given("eden", nodes=2, deadline=5.0)
    for step in (0, 1):
        averages(model, gradients(rank, step))
    submit, submitted = handle._reducer.average_bucket, []

    def average_bucket(*arguments):
        if submitted and rank == culprit:
            os._exit(0)
        if submitted:
            # Meanwhile the loss is noticed.
            time.sleep(1)
        submitted.append(arguments)
        return submit(*arguments)

    handle._reducer.average_bucket = average_bucket
    averages(model, gradients(rank, 2))


def test_a_rank_lost_in_the_middle_of_a_backward_pass_is_named_on_all_ranks():
    for rank, result in enumerate(outcomes(4, lost_in_the_middle, 1)):
        if rank != 1:
            assert "PeerLostError" in result[1:] and "rank 1 (node 0, local rank 1)" in result[2], result


def refused(rank, size):
    mesh = torch.distributed.device_mesh.init_device_mesh
    wrong_order = torch.distributed.device_mesh.DeviceMesh("cpu", torch.tensor([[0, 2], [1, 3]]))
    model = DistributedDataParallel(Given())
    groups = torch.distributed.distributed_c10d._world.pg_map
    before, messages = len(groups), []
    for options in [
        {"nodes": 3},
        {"nodes": True},
        {"nodes": "two"},
        {"nodes": mesh("cpu", (4,))},
        {"nodes": wrong_order},
        {"nodes": 2 if rank else 1},
        {"nodes": 2, "seed": rank},
        {"nodes": 2, "compressor": object()},
        {"nodes": 2, "exchange": "all-reduce"},
        {"nodes": 2, "inside": "fp8"},
        {"inside": "bf16"},
    ]:
        try:
            gradwire.torch.register(model, **options)
            messages.append("accepted")
        except gradwire.ConfigError as error:
            messages.append(str(error))
    layer = nn.Linear(128, 128)
    momentum = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    for options in ({"compressor": "topk"}, {"lighthouse": "http://localhost:1"}):
        with pytest.raises(gradwire.ConfigError, match="mask=False|remove nodes"):
            gradwire.torch.LocalSteps(layer, momentum, nodes=2, **options)
    assert len(groups) == before
    flat_handle = gradwire.torch.register(model, "eden", nodes=4)
    averages(model, gradients(rank, 0))
    whole = DistributedDataParallel(Given())
    two = gradwire.torch.register(whole, "eden", nodes=mesh("cpu", (2, 2)))
    averages(whole, gradients(rank, 0))
    return messages, str(flat_handle.describe()), str(two.describe())


def test_nodes_that_do_not_fit_are_refused_on_all_ranks():
    found = ranks(4, refused)
    says = ["divides 4", "number of nodes", "'auto'", "not 2", "another order", "differs between ranks", "seed differs", "compress", "all-gather", "'bf16'", "give nodes"]
    for messages, one_level, two_levels in found:
        for message, text in zip(messages, says):
            assert text in message, (text, message)
        assert len(messages) == len(says)
        assert "over 4 ranks, in one level, because every node has one rank" in one_level and "2 nodes of 2 ranks" in two_levels


def placed(rank, size, cases):
    """The refusals of nodes that torchrun's variables would give, and the process groups left."""
    model, found = DistributedDataParallel(Given()), []
    groups = torch.distributed.distributed_c10d._world.pg_map
    before = len(groups)
    for nodes in cases:
        os.environ.update(GROUP_RANK=str(nodes[rank]), LOCAL_WORLD_SIZE=str(nodes.count(nodes[rank])))
        with pytest.raises(gradwire.ConfigError) as refused:
            gradwire.torch.register(model, nodes="auto")
        found.append(str(refused.value))
        assert len(groups) == before
    return found


def test_ranks_of_torchrun_that_form_no_equal_nodes_are_refused_on_all_ranks():
    for unequal, apart in ranks(4, placed, [(0, 0, 0, 1), (0, 1, 0, 1)]):
        assert "(node 0 has 3, node 1 has 1)" in unequal and "start the same number on each, or use nodes=None" in unequal, unequal
        assert "the ranks of node 0 do not follow each other: rank 2 is there, but rank 1 is not" in apart and "nodes=None" in apart, apart
