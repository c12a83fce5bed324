"""Tests two levels: ranks of a node reduce without compression, and slices travel between nodes."""

import importlib.util

import numpy
import pytest
import torch
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import gradwire
import gradwire.torch
from models import Net, build, flat, local, train
from world import in_turn, outcomes, ranks

# Cut for two and for three ranks a node; whole and compressed; whole and raw.
SHAPES = {"big": (160, 80), "small": (20, 30), "tiny": (3, 2), "bias": (40,)}


class Given(nn.Module):
    """A model whose gradients are given."""

    def __init__(self):
        super().__init__()
        for name, shape in SHAPES.items():
            setattr(self, name, nn.Parameter(torch.zeros(shape)))

    def forward(self, gradients):
        return sum((getattr(self, name) * gradient).sum() for name, gradient in gradients.items())


def gradients(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def given(compressor, **options):
    """The model with the hook. Its buckets have one parameter or two."""
    model = DistributedDataParallel(Given(), bucket_cap_mb=0.0001)
    return model, gradwire.torch.register(model, compressor, **options)


def averages(model, given):
    """The averages of given gradients, by name."""
    model.zero_grad()
    model(given).backward()
    return {name: parameter.grad.clone() for name, parameter in model.module.named_parameters()}


def run(rank, size, nodes, specs, options):
    found = {}
    for spec in specs:
        model, handle = given(spec, nodes=nodes, **options)
        found[spec] = [averages(model, gradients(rank, step)) for step in range(3)], handle.stats(), str(handle.describe())
        handle.close()
    return found


class Column:
    """The naive exchange of a slice between two nodes, by all-gather."""

    def __init__(self, spec, name):
        self.spec, self.name, self.residuals = spec, name, [0.0, 0.0]
        self.feedback = any(one["id"] == spec.split(":")[0] and one["error_feedback"] for one in gradwire.list())

    def average(self, values, step):
        decoded = []
        for node, value in enumerate(values):
            corrected = value.reshape(-1, 1) + self.residuals[node]
            decoded.append(gradwire.decompress(gradwire.compress(corrected, self.spec, name=self.name, step=step, rank=node), to="torch"))
            if self.feedback:
                self.residuals[node] = corrected - decoded[-1]
        return ((decoded[0] + decoded[1]) / 2).flatten()


def expected(spec, local, steps, dtype=torch.float32):
    """The averages over two nodes of ``local`` ranks, by step and name. ``spec`` may be a function
    of the name and the step, for compressors that keep nothing."""
    spec_of = spec if callable(spec) else lambda name, step: spec
    whole = {name: [(0, torch.Size(shape).numel())] for name, shape in SHAPES.items()}
    borders = [12800 * at // local for at in range(local + 1)]
    cut = {**whole, "big": list(zip(borders, borders[1:]))}
    names = {name: name for name in whole}
    columns = {}
    for name in ("big", "small"):
        for start, stop in cut[name]:
            columns[name, start] = Column(spec_of(name, 0), f"{name}[{start}..{stop}]" if len(cut[name]) > 1 else names[name])
    found = []
    for step in range(steps):
        means = {}
        for name in SHAPES:
            nodes = []
            for node in (0, 1):
                of_ranks = [gradients(node * local + at, step)[name].to(dtype).float().flatten() for at in range(local)]
                nodes.append(sum(of_ranks[1:], of_ranks[0]) / local)
            # Vectors and tensors of less than 256 elements are not compressed.
            if (name, cut[name][0][0]) in columns:
                for start, _ in cut[name]:
                    columns[name, start].spec = spec_of(name, step)
            parts = [
                columns[name, start].average([node[start:stop] for node in nodes], step)
                if (name, start) in columns and spec_of(name, step) != "none"
                else (nodes[0][start:stop] + nodes[1][start:stop]) / 2
                for start, stop in cut[name]
            ]
            means[name] = torch.cat(parts).to(dtype).view(SHAPES[name])
        found.append(means)
    return found


@pytest.mark.parametrize("count, local, specs", [(2, 2, ["none", "eden", "topk:ratio=0.1", "3lc"]), (2, 3, ["eden"])])
def test_averages_are_those_of_columns_of_slices(count, local, specs):
    found = ranks(count * local, run, count, specs, {})
    for spec in specs:
        oracle = expected(spec, local, 3)
        for rank in range(count * local):
            for step, means in enumerate(found[rank][spec][0]):
                for name, mean in means.items():
                    assert torch.equal(mean, oracle[step][name]), (spec, rank, step, name)
        assert f"{count} nodes of {local} ranks" in found[0][spec][2]
    # Between nodes, the ranks of a node together send their slices to the other node once.
    stats = [found[rank]["eden"][1] for rank in range(count * local)]
    sent = sum(one["bytes_up"] for one in stats[:local])
    assert 12800 / 8 < sent < 12800 / 8 + 6000 and sum(one["elements"] for one in stats[:local]) == 13446
    assert all(one["inside_bytes_up"] > 2 * 4 * 12800 * (local - 1) / local for one in stats)
    # Every rank gets every value of the others twice, as a gradient and as an average. Besides,
    # each chunk of a bucket has a flag.
    flags = sum(one["inside_bytes_up"] for one in stats[:local]) - 2 * 4 * 13446 * (local - 1)
    assert flags % (2 * 4 * local * (local - 1)) == 0 and 0 < flags <= 4 * 2 * 4 * local * (local - 1)


def of_type(rank, size, dtype, options):
    model = DistributedDataParallel(Given().to(dtype), bucket_cap_mb=0.0001)
    handle = gradwire.torch.register(model, nodes=2, **options)
    of_rank = lambda step: {name: one.to(dtype) for name, one in gradients(rank, step).items()}
    found = [averages(model, of_rank(step)) for step in range(2)]
    handle.close()
    return found


def test_slices_follow_rules_schedules_and_types():
    cases = [
        (torch.float32, {"compressor": "none", "rules": {"big": "int8"}}, lambda name, step: "int8" if name == "big" else "none"),
        (torch.float32, {"compressor": "none until 1 then int8"}, lambda name, step: "int8" if step else "none"),
        (torch.bfloat16, {"compressor": "none"}, "none"),
        (torch.bfloat16, {"compressor": "int8"}, "int8"),
    ]
    results = in_turn(4, *((of_type, dtype, options) for dtype, options, _ in cases))
    for (dtype, options, spec), of_ranks in zip(cases, results):
        oracle = expected(spec, 2, 2, dtype)
        for found in of_ranks:
            for step, means in enumerate(found):
                for name, mean in means.items():
                    assert torch.equal(mean, oracle[step][name]), (options, dtype, step, name)


def in_bf16(rank, size):
    model, handle = given("none", nodes=2, inside="bf16")
    return averages(model, gradients(rank, 0)), handle.stats()["inside_bytes_up"]


def test_values_inside_a_node_can_have_sixteen_bits():
    found, oracle = ranks(4, in_bf16), expected("none", 2, 1)[0]
    for means, sent in found:
        for name, mean in means.items():
            assert torch.equal(mean, found[0][0][name])
            # Rounded before and after the sum: 2^-9 of each value, which is at most 5.
            torch.testing.assert_close(mean, oracle[name], rtol=0.01, atol=0.02)
        assert sent < 1.2 * 2 * 2 * 13446 / 2


def flushed(model):
    """The sum of the averages of zero gradients until all residuals are sent."""
    zeros = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    found = [averages(model, zeros) for _ in range(15)]
    return {name: sum(one[name] for one in found) for name in SHAPES}


def saved(rank, size, layouts):
    found = []
    for nodes in layouts:
        model, handle = given("topk:ratio=0.1", nodes=nodes)
        for step in range(3):
            averages(model, gradients(rank, step))
        states = handle.state_dict(), handle.state_dict(all_ranks=True)
        found.append((states, averages(model, gradients(rank, 3))))
        handle.close()
    return found


def resumed(rank, size, cases):
    """For each number of nodes and state: the next averages, and the sum of all that are still to
    come."""
    found = []
    for nodes, states in cases:
        model, handle = given("topk:ratio=0.1", nodes=nodes)
        handle.load_state_dict(states)
        assert handle.step == 3
        # More ranks than before have nothing to add.
        next_ones = averages(model, gradients(rank, 3) if size == 4 else {name: torch.zeros(shape) for name, shape in SHAPES.items()})
        rest = flushed(model)
        found.append((next_ones, {name: one + rest[name] for name, one in next_ones.items()}))
        handle.close()
    return found


def test_states_continue_with_the_same_and_other_numbers_of_nodes():
    before = ranks(4, saved, [2, None])
    two, one_level = before[0][0][0][1], before[0][1][0][1]
    assert two["world_size"] == 4 and len(two["exchange"]) == 4
    found = ranks(4, resumed, [(2, two), (2, [one[0][0][0] for one in before]), (None, two), (2, one_level), (None, one_level)])
    for of_rank, ((_, mean), _) in zip(found, before):
        assert all(torch.equal(mean[name], averaged[name]) for averaged, _ in of_rank[:2] for name in SHAPES)
    more = ranks(6, resumed, [(3, two), (2, two)])
    close = lambda one, other: torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    for name in SHAPES:
        # The mean of what is still to be sent stays.
        same, _, flat, of_flat, of_flat_again = (total[name] for _, total in found[3])
        close(flat, same)
        close(of_flat, of_flat_again)
        own = sum(gradients(rank, 3)[name] for rank in range(4)) / 4
        for _, total in more[5]:
            close(total[name], same - own)


def from_rank_0(rank, size, cases):
    found = []
    for nodes, state in cases:
        model, handle = given("eden", nodes=nodes)
        if state is not None:
            handle.load_state_dict(state)
        found.append((handle.step, averages(model, gradients(rank, handle.step))))
        found.append(handle.state_dict())
        handle.close()
    return found


def test_the_state_of_rank_0_is_enough_if_nothing_is_kept():
    first = ranks(4, from_rank_0, [(2, None)])[0]
    state = first[1]
    for size, layouts in ((4, [2, None]), (6, [3])):
        found = ranks(size, from_rank_0, [(nodes, state) for nodes in layouts])
        for of_rank in found:
            for (step, means), (_, of_first) in zip(of_rank[::2], found[0][::2]):
                assert step == 1 and all(torch.equal(means[name], of_first[name]) for name in SHAPES)


def with_nan(rank, size, skip, name="big", compressor="topk:ratio=0.1", device="auto", culprit=2):
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    options = {"scaler": scaler, "on_nonfinite": "skip"} if skip else {}
    model, handle = given(compressor, nodes=2, device=device, **options)
    scaled = lambda step: {name: 4.0 * one if skip else one for name, one in gradients(rank, step).items()}
    averages(model, scaled(0))
    wrong = scaled(1)
    if rank == culprit:
        wrong[name].view(-1)[-1] = float("nan")
    found = averages(model, wrong)
    assert handle.stats()["skipped"] and found[name].isnan().all()
    return {name: one / 4.0 for name, one in averages(model, scaled(2)).items()}


def test_a_value_that_is_not_finite_fails_or_skips_the_step_on_all_ranks():
    for rank, result in enumerate(outcomes(4, with_nan, False)):
        assert result[1] == "NonFiniteError" and "'big'" in result[2] and "rank 2" in result[2], result
    # A small tensor is whole, so some ranks own nothing in its bucket.
    for local, names in ((2, ["big", "bias"]), (3, ["bias"])):
        oracle = steps_without(1, local)
        for poisoned, found in zip(names, in_turn(2 * local, *((with_nan, True, name) for name in names))):
            for rank, means in enumerate(found):
                for name, mean in means.items():
                    torch.testing.assert_close(mean, oracle[name], rtol=1e-6, atol=1e-7, msg=f"{local} {poisoned} {rank} {name}")


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
def test_on_a_device_a_value_that_is_not_finite_is_found_on_all_ranks():
    for rank, result in enumerate(outcomes(4, with_nan, False, "bias", "int8", "gpu", 3)):
        assert result[1] == "NonFiniteError" and "'bias'" in result[2] and "rank 3 (node 1, local rank 1)" in result[2], result
    for found in ranks(4, with_nan, True, "bias", "int8", "gpu"):
        assert all(mean.isfinite().all() for mean in found.values())


def steps_without(skipped, local):
    """The averages of step 2 over two nodes if a step changed no residual."""
    borders = [12800 * at // local for at in range(local + 1)]
    cuts = {"big": list(zip(borders, borders[1:])), "small": [(0, 600)]}
    columns = {(name, start): Column("topk:ratio=0.1", name) for name, cut in cuts.items() for start, _ in cut}
    for step in range(3):
        if step == skipped:
            continue
        means = {}
        for name, shape in SHAPES.items():
            nodes = [sum(gradients(local * node + at, step)[name].flatten() for at in range(local)) / local for node in (0, 1)]
            if name not in ("big", "small"):
                means[name] = ((nodes[0] + nodes[1]) / 2).view(shape)
                continue
            parts = [columns[name, start].average([one[start:stop] for one in nodes], step) for start, stop in cuts[name]]
            means[name] = torch.cat(parts).view(shape)
    return means


class Spectral(nn.Module):
    """A complex parameter, which is cut for two ranks a node, and a real one, with given
    gradients."""

    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(80, 60, dtype=torch.complex64))
        self.bias = nn.Parameter(torch.zeros(40))

    def forward(self, of_weights, of_bias):
        return (self.weights * of_weights.conj()).real.sum() + (self.bias * of_bias).sum()


def spectral(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(80, 60, dtype=torch.complex64, generator=generator), torch.randn(40, generator=generator)


# The batches of each rank under Join.
COUNTS = [1, 2, 2, 3]


def accumulated_and_joined(rank, size):
    model = DistributedDataParallel(Spectral(), bucket_cap_mb=0.001)
    handle = gradwire.torch.register(model, "none", nodes=2)
    found = []
    for first in (0, 2):
        model.zero_grad()
        with model.no_sync():
            model(*spectral(rank, first)).backward()
        model(*spectral(rank, first + 1)).backward()
        found.append([parameter.grad.clone() for parameter in model.parameters()])
    with Join([model]):
        for step in range(COUNTS[rank]):
            model.zero_grad()
            model(*spectral(rank, 4 + step)).backward()
            found.append([parameter.grad.clone() for parameter in model.parameters()])
    assert handle.step == 2 + max(COUNTS)
    return found


def test_complex_accumulated_and_joined_gradients_are_averaged_over_two_levels():
    total = lambda steps: [sum(one) / 4 for one in zip(*(spectral(rank, step) for rank, step in steps))]
    oracle = [total([(rank, step) for rank in range(4) for step in (first, first + 1)]) for first in (0, 2)]
    # A rank without data counts as zeros.
    oracle += [total([(rank, 4 + step) for rank in range(4) if step < COUNTS[rank]]) for step in range(3)]
    for rank, found in enumerate(ranks(4, accumulated_and_joined)):
        assert len(found) == 2 + COUNTS[rank]
        for step, (means, expected_means) in enumerate(zip(found, oracle)):
            for mean, expected_mean in zip(means, expected_means):
                torch.testing.assert_close(mean, expected_mean, rtol=1e-5, atol=1e-6, msg=lambda text: f"{rank} {step} {text}")


def low_rank(rank, size):
    model, handle = build("powersgd:rank=2", nodes=2)
    losses = train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(20))
    return flat(model), losses, [(one.name, one.elements) for one in handle.describe().tensors if one.compressor.startswith("powersgd")]


def test_low_rank_methods_get_whole_matrices():
    found = ranks(4, low_rank)
    for parameters, losses, _ in found:
        assert (parameters == found[0][0]).all() and numpy.mean(losses[-5:]) < 0.6 * losses[0]
    first, second = (sorted(found[at][2] + found[at + 1][2]) for at in (0, 2))
    assert first == second == [("first.weight", 64 * 96), ("second.weight", 96 * 10)]


def several(rank, size, runs):
    return [local(rank, size, *arguments) for arguments in runs]


def test_local_steps_average_changes_over_two_levels():
    plain = {"every": 3, "compressor": "none"}
    two = {"every": 3, "compressor": "3lc", "nodes": 2}
    # Two fragments, each exchanged while training goes on for a step.
    cut = {"every": 4, "compressor": "none", "fragments": 2, "fragment_sync_delay": 1}
    runs = [(range(6), plain), (range(6), {**plain, "nodes": 2}), (range(12), two), (range(7), two), (range(9), cut), (range(9), {**cut, "nodes": 2})]
    found = ranks(4, several, runs)
    again = ranks(4, several, [(range(7, 12), two, "sgd", [one[3][2] for one in found])])
    for (one_level, two_levels, whole, _, cut_one, cut_two), (resumed_run,) in zip(found, again):
        numpy.testing.assert_allclose(two_levels[0], one_level[0], rtol=1e-4, atol=1e-5)
        numpy.testing.assert_allclose(cut_two[0], cut_one[0], rtol=1e-4, atol=1e-5)
        assert (resumed_run[0] == whole[0]).all() and (whole[0] == found[0][2][0]).all()
        assert whole[1][-1] < 0.7 * whole[1][0] and whole[3]["inside_bytes_up"] > 0


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
def test_kernels_compress_slices_as_the_host_does():
    found, oracle = ranks(4, run, 2, ["int8"], {"device": "gpu"}), expected("int8", 2, 3)
    for of_rank in found:
        for step, means in enumerate(of_rank["int8"][0]):
            assert all(torch.equal(mean, oracle[step][name]) for name, mean in means.items())
        assert "compressed on the GPU" in of_rank["int8"][2]


def one_bit(rank, size, cases):
    """Training with 1-bit Adam, whose momentum is exchanged from the third step on."""
    found = []
    for options in cases:
        torch.manual_seed(0)
        model = DistributedDataParallel(Net(), bucket_cap_mb=0.001)
        optimizer = gradwire.torch.OneBitAdam(model.parameters(), lr=0.01, freeze=2)
        gradwire.torch.register(model, optimizer=optimizer, **options)
        train(model, optimizer, rank, range(6))
        found.append(flat(model))
    return found


def test_one_bit_adam_and_threads_work_over_two_levels():
    cases = [{"compressor": "none"}, {"compressor": "none", "nodes": 2}]
    cases += [{"compressor": "onebit", "nodes": 2, "threads": threads} for threads in (1, 2)]
    found = ranks(4, one_bit, cases)
    for one_level, two_levels, compressed, of_threads in found:
        numpy.testing.assert_allclose(two_levels, one_level, rtol=0, atol=1e-4)
        assert (two_levels == found[0][1]).all() and (compressed == found[0][2]).all() and (of_threads == compressed).all()
        assert abs(compressed - one_level).max() > 1e-4
