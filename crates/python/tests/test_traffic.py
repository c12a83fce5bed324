"""Tests of warnings about choices that cost traffic or residuals."""

import warnings

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.nn.parallel import DistributedDataParallel

from device import DEVICE
import gradwire.torch
from models import Net, build, data, flat, train
from sharded import shard
from world import ranks


def warned(create):
    """What a rank is told by `create()`, whose result is closed."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        create().close()
    return [str(one.message) for one in told if "gradwire" in one.filename or "sends about" in str(one.message)]


GATHERED = {"exchange": "all-gather"}
HALVES = {"dtype": torch.bfloat16}

CHOICES = [
    ("none until 100 then eden", GATHERED),
    ("topk:ratio=0.9", GATHERED),
    ("topk:ratio=0.25", GATHERED),
    ("eden until 10 then none until 20 then eden", GATHERED),
    ("none", {**GATHERED, **HALVES}),
    # A residual has 32 bits.
    ("none:ef=on", HALVES),
    ("eden", {"rules": {"*": "none"}, **GATHERED}),
    # These save traffic, or may.
    ("eden", {}),
    ("int8:ef=off", {}),
    ("threshold:v=0.1", GATHERED),
    ("none", {}),
    ("none until 5 then eden", {"exchange": "scatter-reduce"}),
    ("none until 5 then eden", {}),
    ("eden", {"rules": {"*second*": "none"}}),
    ("none", HALVES),
    ("bf16", HALVES),
    ("int8", {"raw_names": ["first"], **HALVES}),
]


def of_choices(rank, size):
    found = [warned(lambda: build(spec, **options)[1]) for spec, options in CHOICES]
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return found + [warned(lambda: gradwire.torch.LocalSteps(net, optimizer, compressor="none", exchange="all-gather"))]


def test_a_choice_that_sends_more_than_an_all_reduce_is_told_once_with_the_remedy():
    first, *others = ranks(8, of_choices)
    assert not any(told for found in others for told in found)
    told, silent, local = first[:7], first[7:-1], first[-1]
    # An all-gather over 8 ranks sends 8 / 2 times as much of each message.
    (message,) = told[0]
    assert "over 8 ranks sends about 4 times the bytes" in message and "in its steps 0 to 99" in message, message
    assert "exchange='scatter-reduce' sends 1 times as many" in message, message
    (message,) = told[1]
    assert "about 3.7 times" in message and "exchange='scatter-reduce' sends 0.93 times" in message, message
    # A quarter of the values, each with about three bits for its position, times 8 / 2, and vectors
    # as they are.
    (message,) = told[2]
    assert "about 1.2 times" in message, message
    (message,) = told[3]
    assert "in its steps 10 to 19" in message, message
    for (message,) in (told[4], told[6], local):
        assert "about 4 times" in message and "exchange='scatter-reduce' sends 1 times" in message, message
    (message,) = told[5]
    assert "about 2 times the bytes of an uncompressed all-reduce" in message and "such as eden" in message, message
    for choice, none in zip(CHOICES[7:], silent):
        assert none == [], (choice, none)


def of_shards(rank, size):
    found = []
    for spec, types, options in SHARDED:
        model = shard(init_device_mesh(DEVICE.type, (size,)), mp_policy=MixedPrecisionPolicy(**types))
        found.append(warned(lambda: gradwire.torch.fsdp.register(model, spec, **options)))
    return found


SHARDED = [
    ("topk:ratio=0.9", {"reduce_dtype": torch.bfloat16}, {}),
    ("eden", {"param_dtype": torch.bfloat16}, {"parameters": "topk:ratio=0.9"}),
    ("none", {"reduce_dtype": torch.bfloat16}, {"parameters": "none"}),
    ("topk:ratio=0.9", {}, {"parameters": "topk:ratio=0.9"}),
    ("none", {"param_dtype": torch.float16, "reduce_dtype": torch.float16}, {"parameters": "fp16"}),
]


@pytest.mark.skipif(not hasattr(FSDPModule, "set_custom_reduce_scatter"), reason="this version of PyTorch is too old for gradwire.torch.fsdp")
def test_shards_that_send_more_than_their_types_need_are_told():
    (gradients, parameters, *silent), others = ranks(2, of_shards)
    (message,) = gradients
    # Nine tenths of the values, of 32 bits, with positions, in place of 16 bits.
    assert "about 1.8 times the bytes of an uncompressed reduce-scatter of the gradients; use a compressor" in message, message
    (message,) = parameters
    assert "about 1.8 times the bytes of an uncompressed all-gather of the parameters; use one that sends less, such as int8" in message, message
    assert silent == [[]] * 3 and others == [[]] * 5


def described(rank, size):
    """The exchange of a run with stages, before and after it changes, and what its steps send."""
    model, handle = build("none until 2 then eden", small_buckets=False)
    found = []
    for step in range(4):
        text = str(handle.describe()).splitlines()[0], repr(handle)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, [step])
        found.append((*text, handle.stats()["bytes_up"], flat(model)))
    return found


def test_each_stage_of_a_schedule_has_the_exchange_that_suits_it():
    elements, found = sum(one.numel() for one in Net().parameters()), ranks(4, described)
    for step, name in enumerate(["all-reduce", "all-reduce", "all-gather", "all-gather"]):
        for head, text, _, _ in (one[step] for one in found):
            assert head.startswith(f"{name} over 4 ranks, step {step}") and f"by {name} over 4 ranks" in text, (head, text)
        assert all((one[step][3] == found[0][step][3]).all() for one in found)
    # All ranks together, in step 1: headers, and each part to its owner and from it to three ranks.
    assert sum(one[1][2] for one in found) == 4 * 2 * 3 * 12 + 2 * 3 * 4 * elements
    # Two bits an element, and vectors as they are, to three ranks each.
    assert sum(one[3][2] for one in found) < 12 * elements / 3


def toggled(rank, size, spec):
    """Alternates between two parts of a model, as a GAN does."""
    model = DistributedDataParallel(Net(), find_unused_parameters=True)
    gradwire.torch.register(model, spec)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(4):
            for at, part in enumerate((model.module.first, model.module.second)):
                part.requires_grad_(at == step % 2)
            x, labels = data(rank, step)
            nn.functional.cross_entropy(model(x), labels).backward()
    return [str(one.message) for one in told if "residual" in str(one.message)]


def test_toggled_parameters_lose_residuals_with_one_warning():
    for (message,) in ranks(2, toggled, "3lc"):
        assert "does not require gradients in this step" in message and "such as eden" in message
    assert ranks(2, toggled, "eden") == [[], []]


def mixed(rank, size):
    model = DistributedDataParallel(Net())
    # What the argument sets; it needs a GPU.
    model.mixed_precision = object()
    with pytest.raises(gradwire.ConfigError) as refused:
        gradwire.torch.register(model)
    # The remedy works.
    model = DistributedDataParallel(Net())
    handle = gradwire.torch.register(model)
    x, labels = data(rank, 0)
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x), labels)
    loss.backward()
    return str(refused.value), handle.stats()["step"]


def test_mixed_precision_of_ddp_is_refused_with_a_remedy_that_works():
    ((message, step),) = ranks(1, mixed)
    assert "leave the argument out" in message and "torch.autocast" in message and step == 0


NODES = [
    # Of these the second has 16-bit gradients, and slices have 32 bits.
    ("none", GATHERED),
    ("none", HALVES),
    ("none", {}),
    ("bf16", HALVES),
]


def of_nodes(rank, size):
    """What is told of two levels, by ``register`` and by ``LocalSteps``."""
    found = [warned(lambda: build(spec, nodes=3, **options)[1]) for spec, options in NODES]
    for options in (GATHERED, {}):
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        found.append(warned(lambda: gradwire.torch.LocalSteps(net, optimizer, compressor="none", nodes=3, **options)))
    return found


def of_groups(rank, size):
    """What the calls of process groups tell."""
    found = []
    for options in (GATHERED, {}):
        group = gradwire.torch.wrap(torch.distributed.new_group(), "none", when="always", **options)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for elements in (6000, 12000):
                for dtype in (torch.float32, torch.bfloat16):
                    torch.distributed.all_reduce(torch.ones(elements, dtype=dtype), group=group)
                torch.distributed.reduce_scatter_tensor(torch.ones(elements // size), torch.ones(elements), group=group)
        found.append([str(one.message) for one in told if "sends about" in str(one.message)])
    return found


def of_nodes_and_groups(rank, size):
    return of_nodes(rank, size), of_groups(rank, size)


def test_nodes_and_process_groups_that_send_more_tell_it_once():
    (nodes, groups), *others = ranks(6, of_nodes_and_groups)
    assert others == [([[]] * 6, [[], []])] * 5
    for (message,), times in ((nodes[0], "1.5"), (nodes[1], "2"), (nodes[4], "1.5")):
        assert f"over 3 ranks sends about {times} times the bytes of an uncompressed all-reduce" in message, message
        assert "between nodes" in message, message
    assert nodes[2] == nodes[3] == nodes[5] == []
    ((message,), silent) = groups
    assert "over 6 ranks sends about 3 times the bytes of an uncompressed all-reduce of the tensors of process group" in message, message
    assert "exchange='scatter-reduce' sends 1 times as many" in message and silent == [], (message, silent)
