"""Shards of FSDP2 whose messages stay on the device, beside the exchange through the host; and
gathers of changes. Kernels run under Triton's interpreter, and collectives over gloo."""

import json
import struct

import numpy
import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

pytest.importorskip("triton", reason="PyTorch came without Triton")

import gradwire
from device import DEVICE
from models import exchange_bytes
from sharded import Layer
from world import outcomes, ranks

# With 3 ranks: rows with a rest, fewer rows than ranks, and one row a rank.
SHAPES = [(7, 30), (2, 5), (3,), (1, 70)]
SPECS = ["3lc", "int8", "onebit", "eden", "fp16", "none"]


class Given(nn.Module):
    """Parameters whose gradients are given."""

    def __init__(self, shapes):
        super().__init__()
        self.all = nn.ParameterList([torch.randn(shape) for shape in shapes])

    def forward(self, gradients):
        return sum((parameter * gradient).sum() for parameter, gradient in zip(self.all, gradients))


class Model(nn.Module):
    """A unit with a parameter of some shape for each compressor and a frozen one, and a unit with
    the first two."""

    def __init__(self, specs):
        super().__init__()
        self.shapes = [SHAPES[at % len(SHAPES)] for at in range(len(specs))]
        self.units = nn.ModuleList([Given([*self.shapes, (4, 4)]), Given(self.shapes[:2])])
        self.units[0].all[-1].requires_grad_(False)

    def forward(self, gradients):
        return sum(unit(one) for unit, one in zip(self.units, gradients))


class Run:
    """Steps of a model whose parameter i of a unit has the compressor ``specs[i]``."""

    def __init__(self, rank, size, specs, fsdp, **options):
        torch.manual_seed(3)
        self.rank, self.model = rank, Model(specs)
        for unit in self.model.units:
            fully_shard(unit, mesh=init_device_mesh(DEVICE.type, (size,)), **fsdp)
        rules = {f"*all.{at}": spec for at, spec in enumerate(specs)}
        self.handle = gradwire.torch.fsdp.register(self.model, "none", rules=rules, seed=7, **options)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.saved = {name: values.clone() for name, values in self.model.state_dict().items()}

    def step(self, step, passes=1, bad=None):
        """The bits of this rank's gradients and of the gathered parameters. The gradient of a unit
        may be ``bad``."""
        self.optimizer.zero_grad()
        generator = torch.Generator().manual_seed(100 * step + self.rank)
        for unit in self.model.units[:passes]:
            # Several backward passes are one step.
            gradients = [[torch.randn(shape, generator=generator) for shape in self.model.shapes] for _ in self.model.units]
            if bad is not None:
                gradients[bad][0][-1] = float("nan")
            (unit(gradients[0]) if passes > 1 else self.model(gradients)).backward()
        found = [p.grad.to_local() for p in self.model.parameters() if p.grad is not None]
        self.optimizer.step()
        for unit in self.model.units:
            unit.unshard()
            found += [p.detach().clone() for p in unit.all]
            unit.reshard()
        return torch.cat([one.float().flatten() for one in found]).view(torch.int32)


def compare(rank, size, fsdp, options):
    """Runs both transports side by side, then continues each with the other's state."""
    host, device = (Run(rank, size, SPECS, fsdp, transport=name, **options) for name in ("host", "device"))
    # A step of two backward passes.
    assert (host.step(0, 2) == device.step(0, 2)).all()
    states = [run.handle.state_dict() for run in (host, device)]
    (settings, arrays), (others, found) = map(entries, states)
    # The host has no compressor for the frozen parameter, which it never exchanged.
    differ = [one for one in set(settings) ^ set(others) if f".all.{len(SPECS)}" not in one]
    assert not differ and arrays == found
    host.handle.load_state_dict(states[1])
    device.handle.load_state_dict(states[0])
    # Residuals of the first step count in the second.
    assert (host.step(1) == device.step(1)).all()
    stats = [run.handle.stats() for run in (host, device)]
    assert [one["elements"] for one in stats] == [stats[0]["elements"]] * 2 and stats[1]["total_steps"] == 2
    return stats, str(device.handle.describe()), device.handle.describe().tensors


def entries(state):
    """The settings and arrays of a saved state, without empty arrays."""
    data = exchange_bytes(state)
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    settings = header.pop("__metadata__")["gradwire"].splitlines()
    found = {name: body[slice(*one["data_offsets"])] for name, one in header.items()}
    return [one for one in settings if not one.startswith("checksum")], {name: values for name, values in found.items() if values}


# Gradients that are sent as they are keep its factor.
SCALER = torch.amp.GradScaler("cpu", init_scale=3.0)
HALF = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float16)}
WHOLE = {"parameters": "int8", "raw_vectors": False, "raw_below": 0, "scaler": SCALER}


@pytest.mark.parametrize("size, fsdp, options", [(3, {}, {}), (2, HALF, WHOLE)])
def test_gradients_parameters_and_states_are_the_hosts(size, fsdp, options):
    for (host, device), text, tensors in ranks(size, compare, fsdp, options):
        assert "messages travel through the device" in text
        assert ("parameters travel through the device" in text) == ("parameters" in options)
        assert device["message_bytes"] == sum(one.message_bytes for one in tensors) > 0


def of_replicas(rank, size):
    """The gradients of two steps, in which replicas of one shard each exchange them."""
    found = []
    for transport in ("host", "device"):
        mesh = init_device_mesh(DEVICE.type, (size, 1), mesh_dim_names=("nodes", "shards"))
        model = fully_shard(Given([(7, 30), (40,)]), mesh=mesh["shards"])
        options = {"replicas": mesh["nodes"], "exchange": "scatter-reduce", "raw_vectors": False, "raw_below": 0}
        handle = gradwire.torch.fsdp.register(model, "3lc", transport=transport, **options)
        for step in range(2):
            generator = torch.Generator().manual_seed(2 * step + rank)
            model([torch.randn(7, 30, generator=generator), torch.randn(40, generator=generator)]).backward()
        found.append(torch.cat([p.grad.to_local().flatten() for p in model.parameters()]))
        assert f"messages travel through the {transport}" in str(handle.describe())
    return torch.equal(*found) and bool(found[0].any())


def test_replicas_of_shards_get_the_hosts_gradients():
    assert ranks(2, of_replicas) == [True, True]


def not_finite(rank, size):
    """Steps of both transports, with NaN in the second one; then the errors of gradients and of
    parameters."""
    skip = {"on_nonfinite": "skip", "scaler": torch.amp.GradScaler("cpu", init_scale=1.0)}
    host, device = (Run(rank, size, ["3lc", "int8"], {}, transport=name, **skip) for name in ("host", "device"))
    for step in range(3):
        # Autograd reduces the second unit first.
        expected, found = (run.step(step, bad=0 if step == 1 and rank == 1 else None) for run in (host, device))
        if step == 1:
            expected, found = (values.view(torch.float32).isnan() for values in (expected, found))
            for run in (host, device):
                # The optimizer has made parameters NaN; a GradScaler would not have called it.
                run.model.load_state_dict(run.saved)
        assert (expected == found).all()
        assert host.handle.stats()["skipped"] == device.handle.stats()["skipped"] == (step == 1)
    messages = []
    for parameters in (None, "int8"):
        run = Run(rank, size, ["3lc", "int8"], {}, transport="device", parameters=parameters)
        if parameters and rank == 1:
            run.model.units[1].all[0].detach().to_local().fill_(float("inf"))
        with pytest.raises(gradwire.NonFiniteError) as error:
            run.step(0, bad=0 if rank == 1 and not parameters else None)
        messages.append(str(error.value))
    return messages


def int8(values):
    """What is decoded of values that ``int8`` has compressed."""
    step = numpy.float32(abs(values).max() / 127.0)
    return numpy.rint(values / step) * step if step else values * 0


def changes(rank, size):
    return [changes_by(transport, size) for transport in ("host", "device")]


def changes_by(transport, size):
    """The weights that the passes of some steps see, and the weights before each of them."""
    torch.manual_seed(0)
    model = nn.Sequential(Layer(), Layer())
    for module in model:
        fully_shard(module, mesh=init_device_mesh(DEVICE.type, (size,)), reshard_after_forward=True)
    fully_shard(model)
    handle = gradwire.torch.fsdp.register(model, "none", parameters="int8", parameter_changes=True, transport=transport)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    exact, sent = [], []
    for step in range(5):
        if step == 3:
            # In the middle of a run the next gather is exact.
            handle.load_state_dict(handle.state_dict()) if transport == "host" else handle.gather_exactly()
        exact.append(model[0].weight.full_tensor().detach().clone().numpy())
        model(torch.randn(8, 64)).square().mean().backward()
        sent.append(handle.stats()["parameter_bytes_up"])
        if step != 1:
            # After step 1, the next gather sends what the last one left out.
            optimizer.step()
        optimizer.zero_grad()
    return exact, [one.numpy() for one in model[0].seen], sent


def test_gathers_of_changes_add_what_is_decoded_to_what_all_ranks_have():
    found = ranks(2, changes)
    for exact, seen, sent in (one for of_rank in found for one in of_rank):
        assert all((one == other).all() for one, other in zip(seen, found[0][0][1]))
        reference = exact[0]
        for step, values in enumerate(exact):
            halves = [int8(values[half] - reference[half]) for half in (slice(0, 32), slice(32, 64))]
            reference = values if step in (0, 3) else reference + numpy.concatenate(halves)
            # The forward pass, and the backward pass, which sends nothing.
            numpy.testing.assert_allclose(seen[2 * step], reference, atol=1e-7)
            assert (seen[2 * step] == seen[2 * step + 1]).all()
        errors = [abs(one - values).max() for one, values in zip(seen[::2], exact)]
        assert errors[0] == errors[3] == 0 < errors[2] < errors[1] / 50
        # A byte for each element of this rank's rows of both layers.
        assert 2 * 32 * 64 < sent[-1] < 1.1 * 2 * 32 * 64


def test_what_is_not_finite_is_skipped_or_named_by_all_ranks():
    for of_gradient, of_parameter in ranks(2, not_finite):
        assert "the gradient of 'units.0.all.0[120..210]' on rank 1 contains" in of_gradient
        assert "the parameter 'units.1.all.0[120..210]' on rank 1 contains" in of_parameter


REFUSED = [
    (torch.float32, {"compressor": "topk:ratio=0.1", "transport": "device", "raw_below": 0}, "use a quantizer, such as eden"),
    (torch.complex64, {"transport": "device"}, "some parameters are complex"),
    (torch.float32, {"transport": "gpu"}, "transport='gpu' is unknown"),
    (torch.float32, {"transport": "device", "parameters": "topk:ratio=0.9", "raw_below": 0}, "of parameters='topk:ratio=0.9' cannot stay"),
    (torch.float32, {"parameter_changes": True}, "needs parameters"),
    (torch.float32, {"parameters": "topk:ratio=0.01", "parameter_changes": True}, "of each change of the parameters"),
]


def refused(rank, size):
    for dtype, options, text in REFUSED:
        model = fully_shard(nn.Linear(16, 16, dtype=dtype), mesh=init_device_mesh(DEVICE.type, (size,)))
        with pytest.raises(gradwire.ConfigError, match=text):
            gradwire.torch.fsdp.register(model, **options)


def test_what_cannot_travel_through_the_device_is_refused_on_all_ranks():
    ranks(2, refused)


def alone(rank, size):
    """Rank 1 ends after a step."""
    run = Run(rank, size, ["int8"], {}, transport="device", parameters="int8")
    run.step(0)
    if rank == 0:
        run.step(1)


def test_a_lost_rank_is_named():
    (kind, name, message, _), other = outcomes(2, alone)
    assert (kind, name, other[0]) == ("error", "PeerLostError", "ok") and "rank 1" in message, message


def narrow(rank, size):
    """The bytes of gradients and of gathered parameters of 32 and of 16 bits, without
    compression."""
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        policy = {"mp_policy": MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)}
        run = Run(rank, size, ["none"] * 4, policy, parameters="none", transport="device")
        run.step(0)
        stats = run.handle.stats()
        assert "messages travel through the device" in str(run.handle.describe())
        found.append((stats["message_bytes"], stats["bytes_up"], stats["parameter_bytes_up"]))
    return found


def test_uncompressed_values_of_16_bits_travel_in_16_bits():
    for whole, halves in ranks(2, narrow):
        for what, one, other in zip(("messages", "gradients", "parameters"), whole, halves):
            # Messages are padded.
            assert 0.5 <= other / one < 0.6, (what, one, other)
