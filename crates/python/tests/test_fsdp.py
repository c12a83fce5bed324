"""Tests compression in models that ``fully_shard`` has sharded, beside FSDP2 alone."""

import ctypes
import gc
import weakref

import numpy
import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import gradwire
import gradwire.torch
from device import DEVICE
from models import Net, data
from sharded import Branches, Layer, adam, run, shard, train, whole
from test_compressors import LR, SLOW, STEPS
from world import in_turn, ranks

POLICIES = [
    {},
    {"reshard_after_forward": False},
    {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)},
]


def beside_fsdp_alone(size, policies):
    """The results of FSDP2 alone and with ``none``, for each policy."""
    found = in_turn(size, *((run, compressor, {}, fsdp, False) for fsdp in policies for compressor in (None, "none")))
    return zip(policies, found[::2], found[1::2])


def test_none_has_the_bits_of_fsdp_alone():
    for fsdp, plain, found in beside_fsdp_alone(2, POLICIES):
        for (expected, losses, _), (parameters, others, (steps, stats)) in zip(plain, found):
            assert (parameters == expected).all() and others == losses, fsdp
            assert steps == 8 and stats["step"] == 7, fsdp


@pytest.mark.parametrize("size, dtypes", [(3, [torch.float32]), (2, [torch.bfloat16, torch.float16])])
def test_none_equals_fsdp_alone_where_sums_are_rounded(size, dtypes):
    policies = [{"mp_policy": MixedPrecisionPolicy(reduce_dtype=dtype)} for dtype in dtypes]
    for fsdp, plain, found in beside_fsdp_alone(size, policies):
        tolerance = 1e-5 if fsdp["mp_policy"].reduce_dtype == torch.float32 else 0.02
        for (_, losses, _), (parameters, others, _) in zip(plain, found):
            numpy.testing.assert_allclose(others, losses, atol=tolerance, err_msg=str(fsdp))
            assert (parameters == found[0][0]).all(), fsdp


def test_a_step_may_leave_parameters_out():
    # Every other step uses one net and not the other; ranks agree which.
    plain, found, compressed = in_turn(2, *((run, one, {}, {}, True) for one in (None, "none", "topk:ratio=0.1")))
    assert (found[0][0] == plain[0][0]).all()
    assert (compressed[0][0] == compressed[1][0]).all()


def threaded(rank, size, threads):
    """A model large enough for threads to share its tensors."""
    torch.manual_seed(0)
    model = nn.Sequential(Net(hidden=8000), nn.ReLU(), nn.Linear(10, 10))
    fully_shard(model, mesh=init_device_mesh(DEVICE.type, (size,)))
    gradwire.torch.fsdp.register(model, "3lc", parameters="int8", threads=threads)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(2))
    return whole(model)


def test_threads_change_no_bit():
    one, two = in_turn(2, (threaded, 1), (threaded, 2))
    assert all((a == b).all() for a, b in zip(one, two))


def test_bytes_are_those_of_the_other_ranks_shards():
    parameters = sum(p.numel() for p in Branches().parameters()) - sum(p.numel() for p in Net(outputs=33).parameters())
    halves = {"mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)}
    for size in (2, 4):
        *found, compressed = in_turn(size, *((run, *case, False) for case in (("none", {}, {}), ("none", {}, halves), ("3lc", {}, {}))))
        sent, narrow = (sum(stats["bytes_up"] for _, _, (_, stats) in one) for one in found)
        # Of four bytes each; all ranks together send every element to all but its owner.
        assert 4 * parameters * (size - 1) < sent < 1.05 * 4 * parameters * (size - 1) + 1000 * size
        # Half of them in 16 bits. The lengths of messages may take fewer bytes, too.
        assert 0 <= sent - narrow - 2 * parameters * (size - 1) < 10 * size * size
        _, losses, (_, stats) = compressed[0]
        assert stats["ratio"] > 9 and losses[-1] < losses[0]


def every_compressor(rank, size, specs):
    found = {}
    for spec in specs:
        torch.manual_seed(1)
        model = Net()
        fully_shard(model.first)
        fully_shard(model)
        handle = gradwire.torch.fsdp.register(model, spec, seed=1)
        losses = train(model, torch.optim.SGD(model.parameters(), lr=LR), rank, range(STEPS))
        found[spec] = (losses, whole(model), handle.stats()["message_bytes"])
    return found


def test_every_compressor_lowers_the_loss():
    specs = [entry["id"] for entry in gradwire.list()]
    one, two = ranks(2, every_compressor, specs)
    for spec in specs:
        (losses, parameters, size), (_, same, _) = one[spec], two[spec]
        assert (parameters == same).all() and size > 0, spec
        best = numpy.mean(losses[-5:]) / numpy.mean(losses[:2])
        assert best < (0.97 if spec in SLOW else 0.9), f"{spec}: {losses[0]} to {losses[-1]}"


def staged(rank, size, compressor, options):
    """A run whose values are copied to other memory and back, as those of a GPU are."""
    memory = gradwire.torch._unit_exchanges.Pinned.of

    def of(self, length):
        found = memory(self, length)
        # What was not copied must not count.
        return found.fill_(0xFF)

    gradwire.torch._unit_exchanges.Pinned.of = of
    gradwire.torch._unit_exchanges._is_in_main_memory = lambda values: False
    return run(rank, size, compressor, options, {}, False)


def test_what_a_device_copies_is_all_that_is_needed():
    cases = [("3lc", {}), ("none", {"parameters": "int8"})]
    # What ``staged`` changes stays, so plain runs come first.
    found = in_turn(2, *((run, *case, {}, False) for case in cases), *((staged, *case) for case in cases))
    for case, plain, through in zip(cases, found[:2], found[2:]):
        assert all((one[0] == other[0]).all() for one, other in zip(plain, through)), case


class Ends:
    """Stands for a reducer: makes all values one."""

    def tensor_group(self, names):
        return 0

    def average(self, tensor_group, step, tensor, done, scale):
        address, elements, _ = tensor
        self.seen = numpy.ctypeslib.as_array((ctypes.c_float * elements).from_address(address)).copy()
        ctypes.memmove(address, numpy.ones(elements, "float32").ctypes.data, 4 * elements)

    def wait(self):
        pass


def test_only_parts_are_copied(monkeypatch):
    monkeypatch.setattr(gradwire.torch._unit_exchanges, "_is_in_main_memory", lambda values: False)
    reducer = Ends()
    exchange = gradwire.torch._unit_exchanges.ThroughHost(reducer)
    exchange._memory(torch.device("cpu")).of(16).zero_()
    values = torch.full((4,), 2.0)
    exchange.exchange(0, [], values, read=slice(0, 2), written=slice(2, 4))
    assert reducer.seen.tolist() == [2.0, 2.0, 0.0, 0.0] and values.tolist() == [2.0, 2.0, 1.0, 1.0]


def accumulate(rank, size, compressor):
    model = shard(init_device_mesh(DEVICE.type, (size,)))
    handle = gradwire.torch.fsdp.register(model, compressor) if compressor else None
    optimizer = adam(model)
    for step in range(4):
        optimizer.zero_grad()
        for part in range(3):
            model.set_requires_gradient_sync(part == 2)
            x, labels = data(rank, 3 * step + part, batch=20 + rank)
            nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    return whole(model), handle and handle.step


def test_accumulated_gradients_are_one_step():
    plain, found, compressed = in_turn(2, (accumulate, None), (accumulate, "none"), (accumulate, "3lc"))
    assert (found[0][0] == plain[0][0]).all() and found[0][1] == 4
    assert (compressed[0][0] == compressed[1][0]).all() and compressed[0][1] == 4


def test_gathered_parameters_are_compressed():
    cases = [({}, {}), *(({"parameters": spec}, {}) for spec in ("none", "fp16", "int8"))]
    # Kept after the forward pass, they are gathered once a step.
    cases.append(({"parameters": "none"}, {"reshard_after_forward": False}))
    exact, same, *narrow, kept = in_turn(2, *((run, "none", *case, False) for case in cases))
    assert (same[0][0] == exact[0][0]).all()
    size = same[0][2][1]["parameter_total_bytes_up"]
    for found, ratio in zip(narrow, (1.9, 3.5)):
        assert (found[0][0] == found[1][0]).all()
        assert size > ratio * found[0][2][1]["parameter_total_bytes_up"]
        numpy.testing.assert_allclose(found[0][1], exact[0][1], atol=0.05)
    assert kept[0][2][1]["parameter_total_bytes_up"] < 0.7 * size


def again(rank, size):
    mesh = init_device_mesh(DEVICE.type, (size,))
    model = shard(mesh)
    for parameter in model.nets[0].second.parameters():
        parameter.requires_grad = False
    # The outermost module holds whole parameters after a forward pass.
    model(data(rank, 0)[0])
    handle = gradwire.torch.fsdp.register(model, "3lc", parameters="int8")
    frozen = model.nets[0].second.weight.full_tensor().clone()
    optimizer = adam(model)
    train(model, optimizer, rank, range(2))
    assert (frozen == model.nets[0].second.weight.full_tensor()).all()
    for options in ({}, {"parameters": "int7"}):
        try:
            gradwire.torch.fsdp.register(model, **options)
        except gradwire.ConfigError as error:
            assert "registered already" in str(error) or "unknown compressor 'int7'" in str(error), error
        else:
            raise AssertionError("it was registered twice")
    train(model, optimizer, rank, [2])
    assert handle.step == 3
    handle.close()
    train(model, optimizer, rank, [3])
    assert handle.step == 3
    with gradwire.torch.fsdp.register(model, "none") as other:
        train(model, optimizer, rank, [4])
        assert other.step == 1 and "parameter_bytes_up" not in other.stats()
    return whole(model)


def test_a_model_is_registered_closed_and_registered_again():
    one, two = ranks(2, again)
    assert (one == two).all()


def with_words(rank, size, words):
    model = shard(init_device_mesh(DEVICE.type, (size,)))
    # One unit with weights that are not trained.
    model.nets[0].first.requires_grad_(False)
    handle = gradwire.torch.fsdp.register(model, "none", parameters="int8", raw_names=words)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(1))
    return {one[0]: one[2] for one in handle._parameters.reducer.plan(0)}, handle.stats()["parameter_bytes_up"]


def test_raw_names_are_those_of_any_parameter_and_gathered_ones_are_sent_whole():
    # The first word fits no parameter that is gathered by gradwire.
    some, none = in_turn(2, (with_words, ["nets.0.first", "head"]), (with_words, []))
    specs, size = some[0]
    assert specs["head.weight"] == "none" and specs["nets.1.first.weight"] == "int8:ef=off"
    assert "nets.0.first.weight" not in specs
    assert size > none[0][1]


def overflow(rank, size):
    model = shard(init_device_mesh(DEVICE.type, (size,)))
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=1024.0)
    handle = gradwire.torch.fsdp.register(model, "topk:ratio=0.1", on_nonfinite="skip", scaler=scaler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scales = []
    for step in range(5):
        x, labels = data(rank, step)
        loss = nn.functional.cross_entropy(model(x), labels)
        if step == 2 and rank == 1:
            loss = loss * float("inf")
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return whole(model), scales, handle.stats()["total_skipped"]


def test_an_overflow_on_one_rank_is_skipped_by_all():
    one, two = ranks(2, overflow)
    assert (one[0] == two[0]).all() and numpy.isfinite(one[0]).all()
    assert one[1] == two[1] == [1024.0, 1024.0, 512.0, 512.0, 512.0] and one[2] == two[2] == 1


def same_bits(rank, size):
    torch.manual_seed(0)
    model = nn.Sequential(Layer(), Layer(), Layer())
    for module in model:
        fully_shard(module, reshard_after_forward=True)
    fully_shard(model)
    gradwire.torch.fsdp.register(model, "none", parameters="qsgd")
    for step in range(3):
        model(torch.randn(8, 64)).sum().backward()
    return [(module.seen[at] == module.seen[at + 1]).all().item() for module in model for at in range(0, 6, 2)]


def test_both_passes_of_a_step_see_the_same_parameters():
    assert ranks(2, same_bits) == [[True] * 9] * 2


def assigned(rank, size, registered):
    """Replaces the parameters that ``fully_shard`` left, before or after registering; tells whether
    the old ones are kept."""
    mesh = init_device_mesh(DEVICE.type, (size,))
    saved = shard(mesh).state_dict()
    with torch.device("meta"):
        model = Branches()
    for module in (model.nets[0].first, model.nets[0], model):
        fully_shard(module, mesh=mesh)
    handle = gradwire.torch.fsdp.register(model, "none", parameters="none") if registered else None
    old = weakref.ref(model.gate.weight)
    model.load_state_dict(saved, assign=True)
    # FSDP2 notices a load at once, and this in the first forward pass.
    model.head.weight = nn.Parameter(model.head.weight.detach().clone())
    model.gate.requires_grad_(False)
    handle = handle or gradwire.torch.fsdp.register(model, "none", parameters="none")
    losses = train(model, adam(model), rank, range(3))
    gc.collect()
    return whole(model), losses, old() is None and handle.step == 3


def plain_run(rank, size):
    model = shard(init_device_mesh(DEVICE.type, (size,)))
    model.gate.requires_grad_(False)
    return whole(model) if train(model, adam(model), rank, range(3)) else None


def test_parameters_may_be_replaced_by_loaded_ones():
    expected, *found = in_turn(2, (plain_run,), (assigned, False), (assigned, True))
    for registered, of_ranks in enumerate(found):
        for (parameters, _, freed), one in zip(of_ranks, expected):
            assert freed and (parameters == one).all(), bool(registered)


def ignoring(rank, size):
    """Trains with a parameter that FSDP2 ignores and one that is frozen outside, both named in
    ``raw_names``."""
    model = Branches()
    model.head.requires_grad_(False)
    mesh = init_device_mesh(DEVICE.type, (size,))
    fully_shard(model.nets[0], mesh=mesh)
    fully_shard(model.nets[1], mesh=mesh, ignored_params={model.nets[1].first.weight})
    # All of a module, which FSDP2 then does not manage.
    model.gate = fully_shard(nn.Sequential(model.gate), mesh=mesh, ignored_params=set(model.gate.parameters()))
    handle = gradwire.torch.fsdp.register(model, "3lc", raw_names=["nets.1.first.weight", "gate", "head", "second.bias"])
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(2), unused=True)
    return sorted(one.name for one in handle.describe().tensors if one.name.endswith("first.weight")), handle.step


def test_parameters_that_fsdp_ignores_are_not_averaged_and_may_have_raw_names():
    for names, step in ranks(2, ignoring):
        assert names == ["nets.0.first.weight"] and step == 2
