"""Methods in rounds of all-reduce whose gradients are on a device, under Triton's interpreter or on
a GPU, beside the host."""

import pytest
import torch

pytest.importorskip("triton", reason="PyTorch came without Triton")

from device import DEVICE
import gradwire.torch
from gradwire.torch.cuda import factors
from models import build, exchange_bytes, flat, train
from world import in_turn, ranks

SETTINGS = [
    ("powersgd:rank=2", {}),
    # Vectors and the smaller matrix are sent uncompressed, by the method itself.
    ("powersgd:rank=16,ef=off", {"raw_vectors": False, "raw_below": 0}),
    ("gradzip:rank=2", {}),
    ("none until 1 then powersgd:rank=3,beta=0.9", {"seed": 5, "rules": {"<2000": "fp16:ef=on"}}),
    ("powersgd:rank=2", {"dtype": torch.bfloat16}),
]


def run(rank, size, compressor, options, where, steps=3):
    model, handle = build(compressor, device=where[rank], **options)
    if options.get("dtype") is None:
        train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), rank, range(steps))
        return flat(model), handle.stats()["total_bytes_up"]
    means = []
    for step in range(steps):
        inputs = torch.randn(32, 64, generator=torch.Generator().manual_seed(step * size + rank), device="cpu")
        model(inputs.to(DEVICE, options["dtype"])).float().square().mean().backward()
        means += [parameter.grad.float().flatten().cpu() for parameter in model.parameters()]
        model.zero_grad()
    return torch.cat(means).numpy(), handle.stats()["total_bytes_up"]


# In the second, the first rank multiplies on the host, so equal replicas show that both sides
# expand factors alike.
PLACES = [["host", "host"], ["host", "gpu"]]


def test_a_run_with_a_device_is_near_one_on_the_host_and_replicas_are_equal():
    runs = in_turn(2, *((run, *setting, where) for setting in SETTINGS for where in PLACES))
    for setting, ((expected, sent), _), ((first, own), (second, also)) in zip(SETTINGS, runs[::2], runs[1::2]):
        rounding = 1e-6 if "dtype" not in setting[1] else 1e-3
        assert (first == second).all(), f"replicas differ: {setting}"
        assert abs(first - expected).max() <= rounding * abs(expected).max(), setting
        assert own == also == sent, setting


class Layers(torch.nn.Module):
    """Four layers of equal shape, with vectors between them, and another one."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)), torch.nn.Linear(64, 10))

    def forward(self, x):
        return self.layers(x)


def batched(rank, size, options, where):
    """The parameters after three steps, and the numbers of matrices in each product of the last."""
    counts, multiply = [], factors.multiply
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factors, "multiply", lambda left, right, out: (counts.append(len(right)), multiply(left, right, out)))
        model, _ = build("powersgd:rank=2", module=Layers, small_buckets=False, device=where[rank], **options)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer, rank, range(2))
        counts.clear()
        train(model, optimizer, rank, [2])
    return flat(model), sorted(counts)


def test_matrices_of_equal_shape_are_multiplied_together():
    settings = [{}, {"rules": {"*.4.*": "powersgd:ef=off", "*.weight": "powersgd:rank=2,ef=off"}}]
    runs = in_turn(2, *((batched, options, where) for options in settings for where in PLACES))
    for options, ((expected, none), _), ((first, _), (second, counts)) in zip(settings, runs[::2], runs[1::2]):
        assert (first == second).all() and abs(first - expected).max() <= 1e-6 * abs(expected).max(), options
        # In each of two rounds the four layers, and the last one.
        assert none == [] and counts == [1, 1, 4, 4], options


def resumed(rank, size, where):
    """The parameters after six steps; after two and after four, a state is saved and loaded."""
    state = parameters = None
    for part, place in enumerate(where):
        model, handle = build("powersgd:rank=2", device=place)
        assert (handle._device_exchange is not None) == (place == "gpu")
        if state is not None:
            model.load_state_dict(parameters)
            handle.load_state_dict(state)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(2 * part, 2 * part + 2))
        state, parameters = handle.state_dict(), model.state_dict()
    return flat(model)


def test_states_move_between_host_and_device():
    (expected, _), (first, second) = in_turn(2, (resumed, ["host"] * 3), (resumed, ["host", "gpu", "host"]))
    assert (first == second).all()
    assert abs(first - expected).max() <= 1e-6 * abs(expected).max()


def poisoned(rank, size):
    """Whether a step is skipped in which the last bucket has an infinite value, and leaves the
    state as it was."""
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=1.0)
    model, handle = build("powersgd:rank=2", device="gpu", on_nonfinite="skip", scaler=scaler)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, [0, 1])
    before = exchange_bytes(handle.state_dict())
    if rank == 1:
        model.module.first.weight.register_hook(lambda gradient: torch.full_like(gradient, float("inf")))
    model(torch.ones(4, 64, device=DEVICE)).square().sum().backward()
    skipped = bool(torch.isnan(model.module.first.weight.grad).all())
    return skipped, exchange_bytes(handle.state_dict()) == before


def test_a_skipped_step_rolls_back_residuals_and_factors():
    assert ranks(2, poisoned) == [(True, True)] * 2


def products(rank, size):
    generator = torch.Generator().manual_seed(1)
    matrix, factor = (torch.randn(2, rows, 50, generator=generator, device="cpu").to(DEVICE) for rows in (30, 3))
    exact = factor.double() @ matrix.mT.double()

    def check():
        found = torch.empty(2, 3, 30, device=DEVICE)
        factors.multiply(factor, matrix.mT, found)
        assert (found - exact).abs().max() <= 1e-5

    for precision in ("highest", "high", "medium"):
        torch.set_float32_matmul_precision(precision)
        check()
    torch.set_float32_matmul_precision("highest")
    settings = torch.backends.cuda.matmul
    if hasattr(settings, "fp32_precision"):
        settings.fp32_precision = "tf32"
        check()


def test_products_do_not_use_fewer_bits_where_the_program_does():
    # In a process of its own, as ranks cannot be forked from one that has used a GPU.
    ranks(1, products)


def chosen(rank, size):
    refused = [("none", {}), ("fp16", {"rules": {">=2000": "sketched-sgd"}}), ("powersgd", {"exchange": "all-gather"})]
    messages = []
    for compressor, options in refused:
        with pytest.raises(gradwire.ConfigError) as error:
            build(compressor, device="gpu", **options)
        messages.append(str(error.value))
        build(compressor, **options)
    return messages


def test_what_needs_the_host_is_refused_with_the_reason():
    for messages in ranks(2, chosen):
        assert "no compressor is a multi-round method" in messages[0]
        assert "no kernel for 'sketched-sgd" in messages[1]
        assert "does not work with all-gather" in messages[2]
