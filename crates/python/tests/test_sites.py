"""Tests local steps of replicas that ``fully_shard`` has sharded over the ranks of a site."""

import os

import numpy
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import gradwire.torch
from device import DEVICE
from gradwire._arrays import buffer, keeping
from gradwire.torch._channel import connect
from gradwire.torch._options import Options
from gradwire.torch._rows import Rows, cut, pack_optimizer, unpack_optimizer
from models import Net, data
from world import outcomes, ranks


class Uneven(Net):
    """A net whose rows cannot be divided by two ranks; of `scale` only one rank has a row."""

    def __init__(self):
        super().__init__(hidden=97, outputs=5)
        self.scale = nn.Parameter(torch.ones(1))
        self.offset = nn.Parameter(torch.zeros(97), requires_grad=False)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        return self.second(self.scale * torch.relu(self.norm(self.first(x)) + self.offset))


def test_rows_are_those_that_fsdp_gives_a_rank():
    for shape, dtype, arguments, expected in [
        # Parameter; dimension, shard and number of shards; whole shape and rows.
        ((5, 3), torch.float32, (0, 1, 3), ((5, 3), 2, 4)),
        ((5, 3), torch.float32, (0, 2, 3), ((5, 3), 4, 5)),
        ((1,), torch.float32, (0, 1, 2), ((1,), 1, 1)),
        # Shards of columns are stacked.
        ((4, 6), torch.float32, (1, 2, 3), ((12, 2), 8, 12)),
        # Complex numbers are pairs of reals.
        ((5,), torch.complex64, (0, 1, 2), ((10,), 6, 10)),
        ((5, 3), torch.complex64, (0, 1, 2), ((5, 6), 3, 5)),
    ]:
        rows = Rows.of(torch.empty(shape, dtype=dtype), *arguments)
        assert (rows.shape, rows.first, rows.end) == expected


def test_rows_are_cut_from_saved_rows():
    whole = torch.arange(15.0).view(5, 3)
    saved = [{"start": 9, "values": whole[3:].flatten()}, {"start": 0, "values": whole[:3].flatten()}]
    assert torch.equal(cut(saved, Rows((5, 3), 1, 4), torch.empty(3, 3), "w"), whole[1:4])
    assert cut(saved, Rows((5, 3), 5, 5), torch.empty(0, 3), "w").shape == (0, 3)
    with pytest.raises(gradwire.StateError, match="lacks rows of 'w'"):
        cut(saved[1:], Rows((5, 3), 1, 4), torch.empty(3, 3), "w")


def test_optimizer_state_without_rows_stays_with_its_rows():
    # As the factors of Adafactor: of another shape than the parameter.
    parameters, rows, state = [torch.empty(5, 3)], [Rows((5, 3), 0, 5)], {"factor": torch.arange(5.0)}
    packed = pack_optimizer({"state": {0: state}}, parameters, rows)
    assert torch.equal(unpack_optimizer([packed], parameters, rows, moves=False)["state"][0]["factor"], state["factor"])
    with pytest.raises(gradwire.StateError, match="'factor' of the optimizer has no rows"):
        unpack_optimizer([packed], [torch.empty(3, 3)], [Rows((5, 3), 0, 3)], moves=True)


def mesh_of(sites, size):
    return init_device_mesh(DEVICE.type, (sites, size // sites), mesh_dim_names=("sites", "shards"))


def shard(mesh, seed=0, **options):
    torch.manual_seed(seed)
    model = Uneven()
    fully_shard(model.first, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.003)


def batch(site, step, parts):
    """The batch of a site, or one of its equal parts."""
    x, labels = data(site, step, batch=24)
    part, of = parts
    return x.chunk(of)[part], labels.chunk(of)[part] % 5


def train(model, steps, site, numbers, parts=(0, 1), take=None):
    for number in numbers:
        x, labels = batch(site, number, parts)
        steps.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        (take or steps.step)()


def whole(model):
    parameters = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return torch.cat([p.detach().float().reshape(-1).cpu() for p in parameters]).numpy()


NESTEROV = gradwire.torch.Nesterov(lr=0.7, momentum=0.5)
CASES = [
    {"every": 3, "outer": NESTEROV, "median_clip": True},
    {"every": 4, "fragments": 2, "fragment_sync_delay": 1, "common_device": "model", "exchange": "scatter-reduce"},
]


def on_plain_workers(rank, size):
    found = []
    for case in CASES:
        torch.manual_seed(0)
        model = Uneven()
        optimizer = adam(model)
        steps = gradwire.torch.LocalSteps(model, optimizer, compressor="none", **case)
        train(model, steps, rank, range(9))
        found.append(whole(model))
    return found


def on_sites(rank, size):
    mesh, found = mesh_of(2, size), []
    site, part = mesh["sites"].get_local_rank(), mesh["shards"].get_local_rank()
    for at, case in enumerate(CASES):
        # Other sites begin with other parameters.
        model = shard(mesh["shards"], seed=site)
        optimizer = adam(model)
        steps = gradwire.torch.LocalSteps(model, optimizer, compressor="none", process_group=mesh["sites"], **case)
        if at:
            with steps.attach():
                train(model, optimizer, site, range(9), (part, 2))
        else:
            train(model, steps, site, range(9), (part, 2))
        found.append(whole(model))
        # Half of 6990 parameters in float32, and small messages.
        assert steps.completed_steps == 9 and steps.stats()["bytes_up"] < 4 * 3700
    return found


def test_sites_train_as_plain_workers_do():
    expected, found = ranks(2, on_plain_workers), ranks(4, on_sites)
    for rank, cases in enumerate(found):
        for at, parameters in enumerate(cases):
            numpy.testing.assert_allclose(parameters, expected[rank // 2][at], rtol=1e-3, atol=2e-5)
            assert (parameters == found[rank - rank % 2][at]).all()
    # The last round of the first case was after the last step.
    assert (found[0][0] == found[2][0]).all()


def rows_by_hand(shard):
    """The names, shapes and compressors of the rows of a shard."""
    first, second = [(49, 3), (48, 2)][shard]
    at = [(0, 3136, 0, 49, 0, 291, 0, 3), (3136, 6208, 49, 97, 291, 485, 3, 5)][shard]
    return [
        (["scale", "scale[1..1]"][shard], (1 - shard,), "none"),
        (f"first.weight[{at[0]}..{at[1]}]", (first, 64), "topk:ratio=0.1"),
        (f"first.bias[{at[2]}..{at[3]}]", (first,), "none"),
        (f"norm.weight[{at[2]}..{at[3]}]", (first,), "fp16"),
        (f"norm.bias[{at[2]}..{at[3]}]", (first,), "none"),
        # Its rows are below `raw_below`, but the whole is not.
        (f"second.weight[{at[4]}..{at[5]}]", (second, 97), "topk:ratio=0.1"),
        (f"second.bias[{at[6]}..{at[7]}]", (second,), "none"),
    ]


def beside_a_plain_reducer(rank, size):
    mesh = mesh_of(2, size)
    site, part = mesh["sites"].get_local_rank(), mesh["shards"].get_local_rank()
    model = shard(mesh["shards"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    steps = gradwire.torch.LocalSteps(
        model, optimizer, every=1, compressor="topk:ratio=0.1", process_group=mesh["sites"], seed=3, rules={"norm.w*": "fp16"}
    )
    sent, replica, by_hand = [], steps._replica, rows_by_hand(part)
    by_name = {one.name: one.compressor.partition(",")[0] for one in steps.describe().tensors}
    # The second shard has no rows of `scale`.
    assert by_name == {name: spec for name, shape, spec in by_hand if shape[0]}
    send = replica.send

    def record(change, fragment=0):
        sent.append((change.clone(), change))
        return send(change, fragment)

    replica.send = record
    rules = {name: spec for name, _, spec in by_hand if spec != "topk:ratio=0.1"}
    options = Options("topk:ratio=0.1", rules=rules, seed=3, raw_vectors=False, raw_below=0)
    named = [(name, torch.empty(shape, device="meta")) for name, shape, _ in by_hand]
    reducer, _ = connect(mesh["sites"].get_group(), lambda channel: options.reducer(named, channel), 60.0, "test")
    for step in range(3):
        train(model, steps, site, [step], (part, 2))
        own, mean = sent[-1]
        reducer.average(reducer.tensor_group([name for name, _ in named]), step, buffer(own), keeping(own))
        reducer.wait()
        assert torch.equal(own, mean)
    with pytest.raises(gradwire.ConfigError, match="may not fit into the memory of one; save the state of every rank"):
        steps.state_dict(all_ranks=True)
    positions = torch.frombuffer(bytearray(reducer.sent(named[1][0])), dtype=torch.int32).long()
    momentum = optimizer.state[model.first.weight]["momentum_buffer"].to_local().reshape(-1)
    assert len(positions) > 100 and not momentum[positions].any() and momentum.count_nonzero() > 1000
    return whole(model)


def test_rows_are_sent_as_a_reducer_of_rows_sends_them():
    found = ranks(4, beside_a_plain_reducer)
    assert all((one == found[0]).all() for one in found)


def state_of(model, steps, site):
    # Between two rounds, sites have different parameters.
    return {"model": {f"site{site}": model.state_dict()}, "gradwire": steps.state_dict()}


def resumed(rank, size, folder, sites, resume):
    mesh = mesh_of(sites, size)
    site, part = mesh["sites"].get_local_rank(), mesh["shards"].get_local_rank()
    model = shard(mesh["shards"])
    optimizer = adam(model)
    options = {"compressor": "topk:ratio=0.1", "outer": NESTEROV, "fragments": 2, "fragment_sync_delay": 1}
    steps = gradwire.torch.LocalSteps(model, optimizer, every=4, process_group=mesh["sites"], **options)
    if resume == "same":
        state = state_of(model, steps, site)
        dcp.load(state, checkpoint_id=folder)
        model.load_state_dict(state["model"][f"site{site}"])
        with pytest.raises(gradwire.StateError, match="'round'" if rank == 3 else "cannot load|rank 3, which has another"):
            steps.load_state_dict({key: one for key, one in state["gradwire"].items() if rank < 3 or key != "round"})
        steps.load_state_dict(state["gradwire"])
    elif resume == "other":
        state = {"model": {"site0": model.state_dict()}}
        dcp.load(state, checkpoint_id=folder)
        model.load_state_dict(state["model"]["site0"])
        saved = gradwire.torch.read_checkpoint(folder)
        with pytest.raises(gradwire.StateError, match="the state of shard 1 of site 0 is missing"):
            steps.load_state_dict({**saved, "shard": {key: one for key, one in saved["shard"].items() if key != "rank1"}})
        steps.load_state_dict(saved)
    else:
        train(model, steps, site, range(6), (part, size // sites))
        # A fragment's mean is under way.
        dcp.save(state_of(model, steps, site), checkpoint_id=folder)
    kept = kept_of(steps, model, optimizer)
    train(model, steps, site, range(6, 12), (part, size // sites))
    return kept, whole(model), steps.completed_steps


def kept_of(steps, model, optimizer):
    """What steps keep, by the names of rows."""
    replica, kept = steps._replica, {}
    sizes = [one.numel() for one in replica.common_parts]
    moments = replica.outer.state
    for name, common in zip(replica.reducer.names, replica.common_parts):
        residual = replica.reducer.array(name, "residual")
        kept["residual", name] = None if residual is None else numpy.frombuffer(residual, "float32").copy()
        kept["common", name] = common.detach().reshape(-1).numpy().copy()
        kept["outer", name] = moments[common]["momentum_buffer"].reshape(-1).numpy().copy()
    for name, parameter in zip(replica.reducer.names, replica.trained):
        kept["inner", name] = optimizer.state[parameter]["exp_avg"].to_local().reshape(-1).numpy().copy()
    pending = steps._rounds._pending
    assert pending is not None and len(sizes) == 7
    kept["pending", "all"] = pending.change.clone().numpy()
    return kept


def joined(parts, sizes):
    """Whole arrays from arrays of rows."""
    found = {}
    for kept in parts:
        for (kind, name), values in kept.items():
            if kind == "pending" or values is None:
                continue
            name, _, rest = name.partition("[")
            start = int(rest.partition("..")[0]) if rest else 0
            into = found.setdefault((kind, name), numpy.zeros(sizes[name], "float32"))
            into[start : start + len(values)] += values
    return found


def test_a_distributed_checkpoint_resumes_on_other_numbers_of_sites_and_shards(tmp_path):
    folder = str(tmp_path)
    saved = ranks(4, resumed, folder, 2, None)
    same = ranks(4, resumed, folder, 2, "same")
    for (_, expected, _), (_, parameters, steps) in zip(saved, same):
        assert (parameters == expected).all() and steps == 12
    sizes = {name: parameter.numel() for name, parameter in Uneven().named_parameters()}
    by_site = [joined([kept for kept, *_ in saved[at : at + 2]], sizes) for at in (0, 2)]
    for sites, shards in ((1, 3), (3, 1)):
        found = ranks(sites * shards, resumed, folder, sites, "other")
        kept = [joined([one for one, *_ in found[at * shards : (at + 1) * shards]], sizes) for at in range(sites)]
        for at, site in enumerate(kept):
            for (kind, name), values in site.items():
                if kind != "residual":
                    # All sites have the same common parameters, and their own moments.
                    assert (values == by_site[at % 2][kind, name]).all(), (sites, kind, name)
        for name in ("first.weight", "second.weight"):
            mean = lambda states: sum(one.get(("residual", name), 0) for one in states) / len(states)
            numpy.testing.assert_allclose(mean(kept), mean(by_site), atol=1e-6)
            assert mean(by_site).any()
        pending = [numpy.concatenate([kept["pending", "all"] for kept, *_ in some]) for some in (saved[:2], found[:shards])]
        numpy.testing.assert_array_equal(*map(numpy.sort, pending))
        assert all(steps == 12 and (parameters == found[0][1]).all() for _, parameters, steps in found[:shards])


def failing(rank, size, how):
    mesh = mesh_of(2, size)
    model = shard(mesh["shards"])
    steps = gradwire.torch.LocalSteps(model, adam(model), every=5, compressor="none", process_group=mesh["sites"], deadline=20.0)
    train(model, steps, rank // 2, range(2), (rank % 2, 2))
    local = model.first.weight.to_local()
    before = local.clone()
    if rank == 3 and how == "dies":
        os._exit(0)
    if rank == 3:
        with torch.no_grad():
            local[0] = float("nan")
    try:
        steps.synchronize()
    except gradwire.GradwireError as error:
        return type(error).__name__, str(error), torch.equal(before, local)


def test_an_error_of_one_column_ends_the_round_on_all_ranks():
    found = ranks(4, failing, "nan")
    # Rank 3 cannot send its change, rank 1 misses it, and the others of both sites follow.
    assert [one[0] for one in found] == ["PeerLostError"] * 2 + ["NonFiniteError"] * 2, found
    assert all(unchanged for _, _, unchanged in found[:3])
    assert "rank 3, which has another shard" in found[2][1] and "'first.weight[3136..6208]'" in found[2][1]
    assert "rank 1, which has another shard" in found[0][1] and "has taken 2 steps" in found[0][1]
    *left, gone = outcomes(4, failing, "dies")
    assert gone[0] == "gone"
    for _, (kind, text, unchanged) in left:
        assert kind in ("PeerLostError", "DeadlineError") and unchanged
    # All name the lost rank of the job, also those that only wait for a rank that waits for it.
    (_, of_0, _), (_, of_1, _), (_, of_2, _) = (one for _, one in left)
    assert "rank 1, which has another shard of this model, failed: " in of_0, of_0
    assert all("rank 3 (site 1, shard 1)" in text for text in (of_0, of_1)), (of_0, of_1)
    assert "rank 3 (shard 1 of this site)" in of_2, of_2


def out_of_step(rank, size):
    mesh = mesh_of(2, size)
    model = shard(mesh["shards"])
    site = gradwire.torch.LocalSteps(model, adam(model), compressor="none", process_group=mesh["sites"])._replica.site
    try:
        with site.agreed("round 0" if rank % 2 else "a meeting"):
            pass
    except gradwire.MessageError as error:
        return str(error)


def test_ranks_of_a_site_that_are_out_of_step_fail_together():
    for rank, text in enumerate(ranks(4, out_of_step)):
        first = rank - rank % 2
        assert f"rank {first} is at 'a meeting'; rank {first + 1} is at 'round 0'" in text


def settled(rank, size, kinds):
    mesh, found = mesh_of(2, size), {}
    for kind in kinds:
        model = shard(mesh["shards"])
        model.seen += rank
        steps = gradwire.torch.LocalSteps(model, adam(model), compressor="none", process_group=mesh["sites"], buffers=kind)
        assert kind == "own" or not model.seen.any()
        model.seen += rank + 1
        steps.synchronize()
        found[kind] = model.seen[0].item()
    return found


def test_buffers_become_equal_in_and_between_sites():
    for rank, found in enumerate(ranks(4, settled, ["first", "mean", "own"])):
        assert found == {"first": 1.0, "mean": 2.5, "own": rank + 1.0}


def uneven_data(rank, size):
    mesh = mesh_of(2, size)
    model = shard(mesh["shards"])
    steps = gradwire.torch.LocalSteps(model, adam(model), every=2, compressor="eden", process_group=mesh["sites"])
    site = rank // 2
    with Join([steps]):
        train(model, steps, site, range(3 if site else 6), (rank % 2, 2))
    return whole(model), steps.completed_steps


def test_a_site_without_further_batches_takes_part_under_join():
    found = ranks(4, uneven_data)
    assert all(steps == 6 and (parameters == found[0][0]).all() for parameters, steps in found)


def refused(rank, size, case):
    mesh = mesh_of(2, size)
    sites, shards, options = mesh["sites"], mesh["shards"], {}
    by_columns = {"shard_placement_fn": lambda one: Shard(1) if one.shape == (97, 64) else Shard(0)}
    if case == "plain":
        mesh = mesh_of(size, size)
        sites, shards = mesh["sites"], mesh["shards"]
    elif case == "places":
        groups = [dist.new_group(one) for one in ([0, 2], [1], [3])]
        sites = groups[[0, 1, 0, 2][rank]]
    elif case == "hsdp":
        shards = mesh
    elif case in ("none", "mesh", "all"):
        sites = {"none": None, "mesh": mesh, "all": dist.group.WORLD}[case]
    elif case == "lighthouse":
        sites, options = None, {"lighthouse": "http://localhost:1"}
    elif case == "differs":
        options = {"every": 2 + rank % 2 + (rank == 3)}
    if case == "tensor parallel":
        model = parallelize_module(Net(), mesh["shards"], {"first": ColwiseParallel()})
    elif case == "ignored":
        model = Net()
        fully_shard(model, mesh=shards, ignored_params={model.first.bias})
    elif case == "plain" and rank == 0:
        model = Uneven()
    else:
        model = shard(shards, **(by_columns if case == "columns" and rank < 2 else {}))
    try:
        gradwire.torch.LocalSteps(model, adam(model), process_group=sites, deadline=20.0, **options)
    except gradwire.ConfigError as error:
        return str(error)
    return "nothing"


REFUSED = {
    "none": "pass process_group=mesh['sites']; or pass the model before you shard it",
    "hsdp": "give it the mesh of the shards of a site",
    "mesh": "process_group is a mesh of 2 dimensions; give the one along which",
    "all": "process_group are the ranks that hold the same shard",
    "ignored": "'first.bias' is not sharded, as a parameter in ignored_params",
    "tensor parallel": "'first.weight' is a DTensor",
    "lighthouse": "there is no lighthouse at 'http://localhost:1'",
    "columns": "and other rows of 'first.weight'; shard the model in the same way",
    "plain": "shard 0 of 1 in site 1, but a model without shards in site 0; shard the model in the same way",
    "places": "the ranks of this site, counted from 0, have different places in process_group: rank ",
    "differs": "every differs between ranks: 3; 4",
}


def all_refused(rank, size):
    return {case: refused(rank, size, case) for case in REFUSED}


def test_models_and_groups_that_do_not_fit_are_refused_on_all_ranks():
    for found in ranks(4, all_refused):
        for case, says in REFUSED.items():
            assert says in found[case], (case, found)


def low_rank(rank, size):
    """Training of sites whose rows a low-rank method sees as matrices."""
    mesh = mesh_of(2, size)
    site, part = mesh["sites"].get_local_rank(), mesh["shards"].get_local_rank()
    model = shard(mesh["shards"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = gradwire.torch.LocalSteps(model, optimizer, every=1, compressor="powersgd:rank=2", process_group=mesh["sites"])
    start = model.first.weight.full_tensor().detach()
    train(model, steps, site, range(2), (part, 2))
    moved = model.first.weight.full_tensor().detach() - start
    sent = {one.name for one in steps.describe().tensors if one.compressor.startswith("powersgd")}
    return whole(model), [torch.linalg.matrix_rank(rows, rtol=1e-3).item() for rows in moved.split([49, 48])], sent, steps.stats()["bytes_up"]


def test_low_rank_methods_see_the_rows_of_a_shard_as_a_matrix():
    found = ranks(4, low_rank)
    for rank, (parameters, matrix_ranks, sent, bytes_up) in enumerate(found):
        assert (parameters == found[0][0]).all()
        # The sum of two steps, each of rank 2, in each shard.
        assert all(1 <= one <= 4 for one in matrix_ranks), matrix_ranks
        assert {name.partition("[")[0] for name in sent} == {"first.weight", "second.weight"}, sent
        # Factors of two matrices, of which the larger has 49 x 64 elements, and small tensors.
        assert bytes_up < 4 * (2 * (49 + 64) + 2 * (3 + 97) + 49 * 3 + 10) + 1000
