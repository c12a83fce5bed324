"""Tests that local steps refuse models that differ between ranks in more than values."""


import torch
from torch import nn

import gradwire.torch
from gradwire.torch._forms import fingerprint
from world import ranks

FLOATS = "type torch.float32 and shape (4,)"
# The tensors beside a layer on two ranks, in order, and how the error ends that all ranks raise.
CASES = {
    "type": (
        {"odd": torch.ones(4, dtype=torch.float64)}, {"odd": torch.ones(4)}, f"type torch.float64 and shape (4,), and rank 1 has it with {FLOATS}"
    ),
    # Both have 16 bytes.
    "same size": (
        {"odd": torch.ones(4)}, {"odd": torch.ones(2, dtype=torch.int64)}, f"{FLOATS}, and rank 1 has it with type torch.int64 and shape (2,)"
    ),
    "shape": ({"odd": torch.ones(4)}, {"odd": torch.ones(5)}, f"{FLOATS}, and rank 1 has it with type torch.float32 and shape (5,)"),
    "order of dimensions": (
        {"odd": torch.ones(2, 3)},
        {"odd": torch.ones(3, 2)},
        "type torch.float32 and shape (2, 3), and rank 1 has it with type torch.float32 and shape (3, 2)",
    ),
    "lacking": ({"odd": torch.ones(4)}, {}, f"{FLOATS}, and rank 1 does not have it"),
    "one more": ({}, {"odd": torch.ones(4)}, f"{FLOATS}, and rank 0 does not have it"),
}
BUFFERS = {
    **CASES,
    "meta": ({"odd": torch.ones(4)}, {"odd": torch.ones(4, device="meta")}, f"{FLOATS}, and rank 1 has it with {FLOATS} on the meta device"),
    "order": (
        {"odd": torch.ones(4), "even": torch.ones(4)},
        {"even": torch.ones(4), "odd": torch.ones(4)},
        "rank 0 has the buffer 'odd' where rank 1 has the buffer 'even'",
    ),
}


def holder(tensors, kind):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    for name, tensor in tensors.items():
        if kind == "buffer":
            model.register_buffer(name, tensor.clone())
        else:
            model.register_parameter(name, nn.Parameter(tensor.clone(), requires_grad=False))
    return model


def local_steps(model, **options):
    return gradwire.torch.LocalSteps(model, torch.optim.SGD([model.weight, model.bias], lr=0.1), deadline=60.0, **options)


def refusals(rank, size):
    found = []
    for kind, cases in (("buffer", BUFFERS), ("parameter", CASES)):
        for case, (one, other, _) in cases.items():
            model = holder((one, other)[rank], kind)
            before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            try:
                local_steps(model, buffers="first" if kind == "parameter" else "own")
                said = None
            except gradwire.ConfigError as error:
                said = str(error)
            same = all(one.device.type == "meta" or torch.equal(one, before[name]) for name, one in model.state_dict().items())
            found.append((kind, case, said, same))
    # Models with the same forms are taken after that, also with tensors that have no values.
    model = holder({"odd": torch.full((4,), float(rank)), "none": torch.ones(4, device="meta")}, "buffer")
    with local_steps(model):
        assert model.odd.tolist() == [0.0] * 4
    return found


def test_all_ranks_name_the_first_tensor_that_differs():
    one, two = ranks(2, refusals)
    assert one == two
    for kind, case, said, same in one:
        expected = (BUFFERS if kind == "buffer" else CASES)[case][2]
        what = "frozen parameter" if kind == "parameter" else kind
        assert said is not None and f"the {kind} 'odd'" in said and same, (what, case, said)
        # The type and shape of a parameter are followed by whether it is frozen.
        assert expected in said.replace(", frozen", ""), (what, case, said)
        assert (", frozen" in said) == (kind == "parameter"), said


def test_workers_that_differ_in_buffers_have_different_fingerprints():
    of = lambda tensors, kind: fingerprint(holder(tensors, kind), {})
    for kind, cases in (("buffer", BUFFERS), ("parameter", CASES)):
        for case, (one, other, _) in cases.items():
            assert of(one, kind) != of(other, kind), (kind, case)
    values = [{"odd": torch.full((4,), float(value))} for value in range(2)]
    assert of(values[0], "buffer") == of(values[1], "buffer")
