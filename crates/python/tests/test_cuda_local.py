"""Local steps whose messages stay on the device, beside those through the host."""

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.join import Join

pytest.importorskip("triton", reason="PyTorch came without Triton")

import gradwire
from gradwire.torch._tensors import as_reals
from models import data
from transports import entries
from world import ranks


class Net(nn.Module):
    """A net with a complex parameter, and with buffers that training changes."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(64, 128), nn.BatchNorm1d(128), nn.Linear(128, 10)
        self.phase = nn.Parameter(torch.ones(128, dtype=torch.complex64))

    def forward(self, x):
        hidden = torch.relu(self.norm(self.first(x)))
        return self.second((hidden * self.phase).real)


class Run:
    """Local training of a net with one transport."""

    def __init__(self, rank, transport, **options):
        torch.manual_seed(rank)
        self.rank, self.net = rank, Net()
        inner = torch.optim.AdamW(self.net.parameters(), lr=0.01)
        outer = gradwire.torch.Nesterov(lr=0.7, momentum=0.5)
        options = {"every": 2, "common_device": "model", "outer": outer, "seed": 7, **options}
        self.local = gradwire.torch.LocalSteps(self.net, inner, transport=transport, **options)

    def step(self, step):
        x, labels = data(self.rank, step)
        self.local.zero_grad()
        nn.functional.cross_entropy(self.net(x), labels).backward()
        self.local.step()

    def bits(self):
        """The parameters and buffers, as bits."""
        return torch.cat([as_reals(one).float().flatten() for one in self.net.state_dict().values()]).view(torch.int32)


def compare(rank, size, options):
    """Runs both transports side by side, then continues each with the other's state."""
    host, device = (Run(rank, name, **options) for name in ("host", "device"))
    for step in range(4):
        host.step(step), device.step(step)
        assert (host.bits() == device.bits()).all(), step
    states = [run.local.state_dict() for run in (host, device)]
    assert entries(states[0]) == entries(states[1]) and (states[0]["common"] == states[1]["common"]).all()
    pending = [state["pending"][0] for state in states]
    assert (pending[0] is not None) == ("fragment_sync_delay" in options)
    assert pending[0] is None or torch.equal(pending[0]["mean"], pending[1]["mean"])
    host.local.load_state_dict(states[1])
    device.local.load_state_dict(states[0])
    # A rank without further batches takes part in the rounds of the others.
    for run in (host, device):
        with Join([run.local]):
            for step in range(4, 5 + 2 * rank):
                run.step(step)
    assert (host.bits() == device.bits()).all()
    stats = [run.local.stats() for run in (host, device)]
    assert stats[0]["elements"] == stats[1]["elements"] and stats[1]["total_bytes_up"] > 0
    of_all = device.local.state_dict(all_ranks=True)
    assert len(of_all["exchange"]) == size
    return str(device.local.describe())


def compare_all(rank, size):
    cases = [
        {"compressor": "none until 2 then int8", "rules": {"second.weight": "eden:bits=3,ef=on"}, "sync_until": 1},
        {"compressor": "eden", "exchange": "scatter-reduce", "fragments": 2, "median_clip": True, "buffers": "mean"},
        # States are saved while a fragment is exchanged.
        {"compressor": "int8", "every": 4, "fragments": 2, "fragment_sync_delay": 1},
    ]
    return [compare(rank, size, options) for options in cases]


def test_parameters_and_states_are_those_of_changes_through_the_host():
    for texts in ranks(2, compare_all):
        assert all("messages travel through the device" in text and "compressed on the GPU" in text for text in texts)


def refused(rank, size):
    found = []
    for options in [
        {"common_device": "cpu"},
        {"nodes": 2},
        {"lighthouse": "http://localhost:1"},
        {"compressor": "topk:ratio=0.1"},
    ]:
        with pytest.raises(gradwire.ConfigError) as error:
            Run(rank, "device", **options)
        found.append(str(error.value))
    with pytest.raises(gradwire.ConfigError, match="did you mean 'device'"):
        Run(rank, "devise")
    with pytest.raises(gradwire.ConfigError, match="transport differs between ranks: device; host"):
        Run(rank, ["device", "host"][rank])
    assert Run(rank, "auto").local.describe().transport == "the host"
    run = Run(rank, "device", compressor="int8")
    run.step(0)
    common = run.local.state_dict()["common"]
    if rank == 1:
        with torch.no_grad():
            run.net.first.weight[3, 3] = float("nan")
    with pytest.raises(gradwire.NonFiniteError) as error:
        run.local.synchronize()
    # The round is refused before anything changes.
    assert (run.local._replica.common == common).all()
    return found, str(error.value)


def test_what_cannot_stay_on_the_device_is_refused_and_a_change_that_is_not_finite_is_an_error():
    says = ["pass common_device='model'", "with nodes", "with lighthouse", "the length of messages of 'topk"]
    for messages, not_finite in ranks(2, refused):
        for message, text in zip(messages, says):
            assert text in message, (text, message)
        assert "the change of 'first.weight' on rank 1 contains NaN or infinity" in not_finite
