"""Messages that stay on the device and travel by the process group, beside the exchange through the
host. Kernels run under Triton's interpreter, and collectives over gloo."""

import importlib
import mmap
import os
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

pytest.importorskip("triton", reason="PyTorch came without Triton")

import gradwire
from gradwire import _core
from gradwire._arrays import buffer
from gradwire.torch import _device
from gradwire.torch._hook import Hook
from gradwire.torch._options import Options
from gradwire.torch.cuda._batch import Slot
from gradwire.torch.cuda._collectives import Gather, Peers, Piece, Scatter, Traffic
from gradwire.torch.cuda._config import Config
from gradwire.torch.cuda._kernel import Dense
from gradwire.torch.cuda._nonfinite import Found, NonFinite, note
from gradwire.torch.cuda._outcomes import Outcomes
from gradwire.torch.cuda._packed import Coding, Layout, Packer, Sender, Unpacker
from gradwire.torch.cuda._slices import cut_tensor
from gradwire.torch.cuda.kernels import KERNELS, kernel_and_memory
from transports import Given, Run, check, entries
from world import in_turn, outcomes, ranks

# Every compressor whose messages have a fixed length there; parameters that use other kernels or
# another memory.
FIXED = [name for name in KERNELS if isinstance(kernel_and_memory(Config.of(name))[0], Dense)]
SPECS = [*FIXED, "3lc:beta=0.5,gamma=0.25", "int8:momentum=0.9", "eden:bits=3,ef=on", "terngrad:clip=0,ef=on", "qsgd:s=7,bucket=100,norm=max"]


def compare(rank, size, specs, exchange, dtype=torch.float32, **options):
    """Runs a step of both transports side by side, then continues each with the other's state."""
    # In turn a tensor that is cut into slices, a small one, one of fewer elements than ranks, and
    # an empty one. The slices of the first have a rest.
    sizes = [[size * 4096, 300, 1, 0][at % 4] for at in range(len(specs))]
    sizes[0] += 5
    host, device = (Run(rank, specs, sizes, dtype, exchange=exchange, transport=name, **options) for name in ("host", "device"))
    check(specs, sizes, host.step(0), device.step(0), 0)
    states = [run.handle.state_dict() for run in (host, device)]
    assert entries(states[0]) == entries(states[1])
    host.handle.load_state_dict(states[1])
    device.handle.load_state_dict(states[0])
    # Residuals and velocities of the first step count in the second.
    check(specs, sizes, host.step(1), device.step(1), 1)
    stats = [run.handle.stats() for run in (host, device)]
    assert stats[0]["elements"] == stats[1]["elements"] == sum(sizes) and stats[1]["total_steps"] == 2
    return device.handle.state_dict(), stats[1], str(device.handle.describe())


@pytest.mark.parametrize("size, specs", [(1, ["int8:momentum=0.9", "3lc", "eden", "none"]), (3, SPECS)])
def test_means_of_slices_residuals_and_states_are_the_hosts(size, specs):
    found = ranks(size, compare, specs, "scatter-reduce")
    assert "messages travel through the device" in found[0][2]


def test_means_of_whole_messages_are_the_hosts():
    # One with a memory of its own, one with votes, and one whose draws depend on the sender.
    found = ranks(3, compare, ["int8:momentum=0.9", "signsgd", "eden", "none", "3lc"], "all-gather")
    assert "all-gather over 3 ranks" in found[0][2]


def halves(rank, size):
    # Gradients that are sent as they are keep the factor of a scaler.
    scaler = torch.amp.GradScaler("cpu", init_scale=3.0)
    for exchange, dtype in (("scatter-reduce", torch.float16), ("all-gather", torch.bfloat16)):
        _, stats, text = compare(rank, size, ["3lc", "none"], exchange, dtype, scaler=scaler)
        # 5 elements a byte in each slice, and 16 bits an element.
        slices = [4099, 4098] if exchange == "scatter-reduce" else [8197]
        assert stats["message_bytes"] == sum(4 + -(-one // 5) for one in slices) + 600, (stats, text)


    for dtype in (torch.bfloat16, torch.float32):
        run, plain = Run(rank, [], [300, 7], dtype, transport="device"), DistributedDataParallel(Given([300, 7], dtype))
        found = run.step(0)
        plain(run.gradients(0, rank)).backward()
        # Of two ranks, sums have no order.
        expected = torch.cat([parameter.grad.flatten() for parameter in plain.parameters()])
        assert (found == expected.float().view(torch.int32)).all()
        assert run.handle.stats()["message_bytes"] == 307 * dtype.itemsize


def test_sixteen_bit_buckets_get_the_means_of_the_host_and_of_pytorch():
    ranks(2, halves)


def staged(rank, size):
    """A schedule, whose states are saved at the steps around its boundary, loaded and saved again;
    then a rank without data."""
    # By all-reduce, then by all-gather.
    sizes, schedule = [4096, 300], {"compressor": "none until 2 then int8"}
    host, device = (Run(rank, [], sizes, ddp={"static_graph": True}, transport=name, **schedule) for name in ("host", "device"))
    host.step(0), device.step(0)
    for step in range(1, 4):
        check([schedule] * 2, sizes, host.step(step), device.step(step), step)
        states = [run.handle.state_dict() for run in (host, device)]
        for run, state in zip((host, device), reversed(states)):
            run.handle.load_state_dict(state)
        again = [run.handle.state_dict() for run in (host, device)]
        assert entries(again[0]) == entries(again[1]) == entries(states[0]) == entries(states[1]), step
    # After a boundary, the last messages are still those of the stage before.
    assert [one.message_bytes for one in device.handle.describe().tensors] == [4 + 4096, 304]
    means = []
    for name in ("host", "device"):
        run = Run(rank, ["int8"], [300], transport=name)
        with Join([run.model]):
            means.append([run.step(step).tolist() for step in range(1 + rank)])
    assert means[0] == means[1]


# Compressors whose messages are floats, with the largest error of a mean.
SUMS = {"none": 1e-6, "fp16": 1e-2, "bf16": 1e-1, "fp16:ef=on": 1e-2}


def summed(rank, size):
    sizes = [300, 7, 1, 260]
    host, device = (Run(rank, list(SUMS), sizes, transport=name) for name in ("host", "device"))
    for step in range(2):
        found = [run.step(step).view(torch.float32).split(sizes) for run in (host, device)]
        exact = [sum(of_ranks).flatten() / size for of_ranks in zip(*(device.gradients(step, one) for one in range(size)))]
        for error, on_host, on_device, mean in zip(SUMS.values(), *found, exact):
            assert (on_device - mean).abs().max() <= error and (on_device - on_host).abs().max() <= error
    # Thirds of the largest number of 16 bits are rounded up, but the mean is finite.
    largest = torch.tensor([[65504.0], [-65504.0]])
    for name in ("host", "device"):
        run = Run(rank, ["fp16"], [2], transport=name)
        run.gradients = lambda *_: [largest]
        assert torch.equal(run.step(0).view(torch.float32), largest.flatten()), name
    # Residuals depend on this rank only.
    states = [entries(run.handle.state_dict()) for run in (host, device)]
    assert states[0] == states[1] and any(map(any, states[1][1].values()))
    sent = device.handle.stats()
    # An all-reduce sends two thirds of the message twice.
    assert 0 <= sent["bytes_up"] - 4 * sent["message_bytes"] // 3 < 200, sent
    return torch.cat(found[1]).tolist(), str(device.handle.describe())


def test_messages_that_are_floats_are_summed_by_the_backend():
    found = ranks(3, summed)
    assert found[0][0] == found[1][0] == found[2][0]
    assert "all-reduce over 3 ranks" in found[0][1] and "messages travel through the device" in found[0][1]


def test_stages_states_at_their_boundary_and_ranks_without_data_are_the_hosts():
    ranks(2, staged)


def test_nine_ranks_average_by_slices_by_default():
    found = ranks(9, compare, ["int8", "eden"], "auto")
    assert "scatter-reduce over 9 ranks" in found[0][2]
    # What the collectives of a step send: this rank's messages, to eight of nine owners, and the
    # mean of its slice, to eight ranks; heads and padding to 16 bytes come on top.
    _, stats, _ = found[0]
    slices = stats["message_bytes"] / 9
    assert 16 * slices <= stats["bytes_up"] <= 16 * slices + 9 * 16 * 16, stats


class Alone:
    """Rank 0, which owns everything. The messages of the other ranks are the host's."""

    def __init__(self, size):
        self.rank, self.size, self.others = 0, size, []

    def all_to_all(self, sent, lengths):
        return torch.cat([sent[: lengths[0]], *self.others])

    def all_gather(self, sent):
        return torch.cat([sent, torch.zeros(len(sent) * (self.size - 1), dtype=torch.uint8)])


def means_by_the_host(spec, name, values):
    """The forms of all ranks' messages, and the mean that rank 0 sends."""
    size, (elements,) = len(values), values[0].shape
    codecs = [_core.Codec(spec, 7, rank, size) for rank in range(size)]
    messages = [codec.encode(name, (elements,), 0, buffer(own)) for codec, own in zip(codecs, values)]
    mean, sent = torch.zeros(elements), torch.zeros(elements)
    for rank, message in enumerate(messages):
        codecs[0].decode_add(name, (elements,), 0, rank, message, 1 / size, buffer(mean))
    codecs[0].aggregate(name, buffer(mean))
    owner = _core.Codec(spec, 7, size, size)
    owner.decode_add(name, (elements,), 0, size, owner.encode(name, (elements,), 0, buffer(mean)), 1.0, buffer(sent))
    return [codecs[0].unpack(name, (elements,), 0, rank, message) for rank, message in enumerate(messages)], sent


@pytest.mark.parametrize("size", range(1, 10))
def test_owners_of_any_number_of_ranks_send_the_hosts_means(size):
    specs, coding, peers = FIXED, Coding(torch.device("cpu"), 7, size), Alone(size)
    elements = [100 + at for at in range(len(specs))]
    starts = [sum(elements[:at]) for at in range(len(specs))]
    slots = [Slot(spec, (count,), start, start) for spec, count, start in zip(specs, elements, starts)]
    pieces = [Piece(slot.name, 0, slot, slot) for slot in slots]
    values = [torch.randn(sum(elements), generator=torch.Generator().manual_seed(rank)) for rank in range(size)]
    by_host = [means_by_the_host(spec, spec, of_ranks) for spec, *of_ranks in zip(specs, *(one.split(elements) for one in values))]
    layout = Layout(coding, elements, specs, [0] * len(specs), size)
    for rank in range(1, size):
        block = torch.zeros(layout.lengths[0], dtype=torch.uint8)
        for place, (forms, _) in zip(layout.places, by_host):
            block[place : place + len(forms[rank])] = torch.frombuffer(bytearray(forms[rank]), dtype=torch.uint8)
        peers.others.append(block)
    scatter, gather = Scatter(coding, peers, pieces, sum(elements)), Gather(coding, peers, pieces, drawn_from=size)
    kept = lambda of: {kind: torch.zeros(sum(elements)) for kind in of.kept}
    non_finite, out = NonFinite(torch.device("cpu")), torch.zeros(sum(elements))
    means = scatter.means(scatter.pack(values[0], kept(scatter), 0), 0, non_finite, 0)
    gather.add(gather.pack(means, kept(gather), 0), out, 0, non_finite, 1)
    for spec, found, (_, mean) in zip(specs, out.split(elements), by_host):
        assert torch.equal(found, mean), spec


def saved(rank, size):
    found = []
    for transport in ("host", "device"):
        run = Run(rank, ["int8", "3lc"], [size * 4096, 300], transport=transport, exchange="scatter-reduce")
        run.step(0)
        found.append(run.handle.state_dict())
    assert entries(found[0]) == entries(found[1])
    return found[1]


def resharded(rank, size, states, saved_by):
    """The state of this rank after a step from the states of another number of ranks."""
    sizes = [saved_by * 4096, 300]
    found = []
    for transport in ("host", "device"):
        run = Run(rank, ["int8", "3lc"], sizes, transport=transport, exchange="scatter-reduce")
        run.handle.load_state_dict(states)
        found.append((run.step(1).tolist(), entries(run.handle.state_dict())))
    assert found[0] == found[1]


def test_states_suit_other_numbers_of_ranks():
    ranks(2, resharded, ranks(3, saved), 3)


def small(rank, transport, exchange, **options):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    specs = ["none", "bf16:ef=on", "none"] if exchange == "all-reduce" else ["int8", "3lc", "none"]
    return Run(rank, specs, [8192, 300, 5], transport=transport, exchange=exchange, scaler=scaler, **options)


def poisoned(rank, exchange, bad, on_nonfinite):
    """Steps, of which rank 1 has an infinity in the step ``bad``."""
    run = small(rank, "device", exchange, on_nonfinite=on_nonfinite)
    for step in range(bad):
        run.step(step)
    before = entries(run.handle.state_dict())
    gradients = [torch.ones(size, 1) for size in run.sizes]
    if rank == 1:
        gradients[1][7] = float("inf")
    run.model.zero_grad()
    try:
        run.model(gradients).backward()
    except gradwire.NonFiniteError as error:
        with pytest.raises(gradwire.ConfigError, match="the exchange has ended"):
            run.handle._on_device.average(0, 2, ["all.1"], torch.ones(300), 1.0)
        return str(error)
    assert all(parameter.grad.isnan().all() for parameter in run.model.parameters())
    assert run.handle.stats()["skipped"] and run.handle.stats()["total_skipped"] == 1
    (_, arrays), (_, expected) = entries(run.handle.state_dict()), before
    # In the first step, residuals may be created as zeros.
    assert arrays == expected if bad else not any(map(any, arrays.values()))
    after = run.step(2)
    assert not run.handle.stats()["skipped"]
    return after.tolist()


def not_finite(rank, size, exchange, bad):
    run = small(rank, "host", exchange)
    for step in range(bad):
        run.step(step)
    # A skipped step counts as one.
    run.handle._begin()
    assert poisoned(rank, exchange, bad, "skip") == run.step(2).tolist()
    return poisoned(rank, exchange, bad, "error")


def test_all_ranks_learn_of_values_that_are_not_finite():
    cases = [("all-gather", 1), ("scatter-reduce", 0), ("all-reduce", 1)]
    for (exchange, bad), found in zip(cases, in_turn(2, *((not_finite, *case) for case in cases))):
        for message in found:
            assert f"'all.1' on rank 1 contains NaN or infinity at step {bad}" in message, (exchange, message)
            assert "on_nonfinite=\"skip\"" in message, (exchange, message)


def test_errors_are_raised_one_step_late_by_all_ranks_and_reported_by_one():
    names = [lambda sender: ["a", "b"]]

    def end(outcomes, found):
        # Another pass of the step gives its buckets the same numbers.
        assert outcomes.add(names, 4, 2) == 0
        outcomes.end(SimpleNamespace(found=lambda: found))
        outcomes.check(all_steps=False)

    peers, bad = SimpleNamespace(traffic=Traffic(), kind="rank"), Found(exchange=0, sender=3, place=1)
    for skip in (True, False):
        run = Outcomes(peers, skip, "")
        for step, found in enumerate([None, bad]):
            run.begin(step)
            end(run, found)
        if not skip:
            with pytest.warns(RuntimeWarning, match="'b' on rank 3 contains NaN or infinity at step 1"):
                run.stats()
        assert run.stats()["skipped"] and run.stats()["total_skipped"] == 1
        end(run, bad)
        run.begin(2)
        if skip:
            end(run, None)
            assert not run.stats()["skipped"] and run.stats()["total_skipped"] == 1
            continue
        with pytest.raises(gradwire.NonFiniteError, match="'b' on rank 3 contains NaN or infinity at step 1"):
            end(run, None)
        with pytest.raises(gradwire.ConfigError, match="the exchange has ended"):
            run.check_open()


def lost(rank, size, how):
    run = Run(rank, ["int8"], [300], transport="device", deadline=1.0 if how == "silent" else 300.0)
    # DistributedDataParallel itself waits for other ranks in the second step.
    run.step(0), run.step(1)
    if rank == 1:
        os._exit(9) if how == "killed" else time.sleep(3)
    run.step(2)


def test_a_lost_rank_is_named_by_the_others():
    start = time.monotonic()
    found = outcomes(3, lost, "killed")
    assert found[1] == ("gone",)
    for rank in (0, 2):
        assert found[rank][1] == "PeerLostError" and "rank 1 is gone" in found[rank][2], found[rank]
    # The other ranks did not wait for the deadline.
    assert time.monotonic() - start < 150
    found = outcomes(2, lost, "silent")
    assert found[0][1] == "DeadlineError" and "rank 1" in found[0][2], found[0]


def refused(rank, size):
    def message(specs=("int8",), **options):
        with pytest.raises(gradwire.ConfigError) as error:
            Run(rank, specs, [300] * len(specs), transport="device", **options)
        return str(error.value)

    found = [
        message(["topk:ratio=0.1"]),
        message(["atomo"], exchange="all-gather"),
        message(["powersgd"]),
        message(device="host"),
    ]
    with pytest.raises(gradwire.ConfigError, match="did you mean 'device'"):
        Run(rank, ["int8"], [300], transport="devise")
    with pytest.raises(gradwire.ConfigError, match="transport differs between ranks: device; host"):
        Run(rank, ["int8"], [300], transport=["device", "host"][rank])
    with pytest.MonkeyPatch.context() as patch:
        if rank == 1:
            patch.setattr("gradwire.torch.cuda._transport_support.reason_against", lambda *arguments: "it is raining")
        found.append(message())
        patch.undo()
        if rank == 1:
            send = Peers.all_to_all
            patch.setattr(Peers, "all_to_all", lambda *arguments: send(*arguments) + 1)
        found.append(message())
    run = Run(rank, ["int8"], [300])
    assert run.handle.describe().transport == "the host"
    assert Hook(Given([300]), transport="device").describe().transport.startswith("the device, ")
    return found


def test_what_cannot_stay_on_the_device_is_refused_with_the_remedy():
    for messages in ranks(2, refused):
        assert "the length of messages of 'topk" in messages[0]
        assert "no kernel for 'atomo'" in messages[1]
        assert "ranks compute the result of 'powersgd" in messages[2] and "in several rounds" in messages[2]
        assert "leave device= out" in messages[3]
        assert "on rank 1, it is raining" in messages[4]
        assert "on rank 1, the collectives of the process group deliver wrong bytes" in messages[5]


def test_places_of_many_elements_do_not_wrap():
    elements = 5 << 31
    slices = cut_tensor("w", (elements, 1), 3)
    borders = [0, 3579139413, 7158278826, 10737418240]
    assert [(one.name, one.shape, one.owner) for one in slices] == [
        (f"w[{start}..{end}]", (end - start, 1), owner) for owner, (start, end) in enumerate(zip(borders, borders[1:]))
    ]
    # Heads of 4 bytes, forms of 4 bytes and a byte for each element, at multiples of 4.
    layout = Layout(Coding(torch.device("cpu"), 0, 3), [one.elements for one in slices], ["int8"] * 3, [0, 0, 1], 2)
    assert layout.forms == [3579139417, 3579139417, 3579139418]
    assert layout.places == [4, 3579139424, 4] and layout.lengths == [7158278848, 3579139424]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is reserved as on Linux")
@pytest.mark.parametrize("spec", ["int8:ef=off", "eden"])
def test_messages_may_begin_beyond_the_reach_of_32_bits(spec):
    coding, slot = Coding(torch.device("cpu"), 7, 2), Slot("w", (300,), 0, 0)
    layout = Layout(coding, [300], [spec], [0], 1)
    packer = Packer(coding, [slot], layout, Sender([spec], 0))
    values = torch.randn(300, generator=torch.Generator().manual_seed(1))
    message = packer.pack(values, {}, 0)
    unpacker, found = Unpacker(coding, [slot], layout.places, [spec], [0]), []
    for stride in (1 << 10, (1 << 31) + 16):
        received = torch.frombuffer(mmap.mmap(-1, stride + 1024, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000), dtype=torch.uint8)
        received[: len(message)] = received[stride : stride + len(message)] = message
        out = torch.zeros(300)
        unpacker.add(received, out, 0, 2, stride)
        non_finite = NonFinite(torch.device("cpu"))
        received[stride] = 255
        spoiled = torch.ones(5)
        note(received, stride, 2, 3, non_finite.state, spoiled)
        assert spoiled.isnan().all()
        found.append((out, non_finite.state))
    assert (found[0][0] == found[1][0]).all() and found[0][0].abs().sum() > 1
    assert found[0][1].tolist() == found[1][1].tolist() == [255, 1, 3]


def chosen(transport, backend, spec="int8", exchange="all-gather"):
    """What is chosen for gradients on a GPU, whose kernels work."""
    alone = {"gather": lambda step, own: [own], "wait": lambda: None}
    reducer = SimpleNamespace(rank=0, stages=[(0, 1)], specs=lambda step: [spec], exchange_at=lambda step: exchange, **alone)
    group = SimpleNamespace(_get_backend=lambda device: SimpleNamespace(name=lambda: backend))
    parameter = SimpleNamespace(device=torch.device("cuda:0"), dtype=torch.float32, shape=(4,))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_transport_support", "_support"):
            patch.setattr(f"gradwire.torch.cuda.{name}.reason_against_device", lambda *arguments: None)
        on_device = SimpleNamespace(peers=SimpleNamespace(reason_against=lambda: None))
        # A module that is imported now would keep what is patched.
        importlib.import_module("gradwire.torch.cuda._node_transport")
        patch.setattr("gradwire.torch.cuda._transport.DeviceTransport", lambda *arguments: on_device)
        patch.setattr("gradwire.torch.cuda._exchange.DeviceExchange", lambda *arguments: "messages through the host")
        request = _device.Request("auto", transport, group)
        place = _device.of(request, reducer, [("w", parameter)], Options())
        return "messages on the device" if place.transport is on_device else place.exchange


def test_messages_stay_on_a_gpu_by_default_if_nccl_sends_them():
    assert chosen("auto", "nccl") == chosen("device", "nccl") == chosen("auto", "nccl", exchange="scatter-reduce") == "messages on the device"
    assert chosen("auto", "nccl", "none", "all-reduce") == chosen("auto", "nccl", "fp16", "all-reduce") == "messages on the device"
    assert chosen("auto", "gloo") == chosen("host", "nccl") == chosen("auto", "nccl", "topk") == "messages through the host"
    with pytest.raises(gradwire.ConfigError, match="sends tensors on cuda by gloo; create it with NCCL"):
        chosen("device", "gloo")


def test_the_exchange_by_default_suits_the_lengths_of_forms():
    for spec in FIXED:
        bits = 8 * kernel_and_memory(Config.of(spec))[0].form_bytes(1 << 20) / (1 << 20)
        for size in (3, 4, 7, 8):
            reducer = Options(spec).reducer_alone([("w", torch.empty(64, 64))], size)
            # An all-gather sends (n - 1) messages, an uncompressed all-reduce 64 (n - 1) / n bits a
            # value. Messages of floats add up.
            expected = "all-reduce" if spec in ("none", "fp16", "bf16") else "scatter-reduce" if size * bits >= 32 else "all-gather"
            assert reducer.exchange_at(0) == expected, (spec, size)
            reducer.close()


def test_the_guide_lists_the_compressors_whose_messages_may_stay_on_the_device():
    guide = (Path(__file__).parents[3] / "docs/pytorch-reference.md").read_text()
    listed = guide.split("messages of a fixed length there:\n")[1].split(". ")[0]
    assert re.findall("`([^`]*)`", listed) == FIXED
