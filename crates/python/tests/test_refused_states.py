"""Tests that unfit states are refused, on all ranks or on none."""

import pytest
import torch
from torch import nn

import gradwire.torch
from models import Net, build, data, exchange_bytes, train
from world import outcomes, ranks


def of_more_layers(rank, size):
    """Why the state of a larger model is refused, with the compressor that keeps nothing."""
    larger, handle = build("eden", module=lambda: nn.Sequential(nn.Linear(64, 64), Net()))
    train(larger, torch.optim.SGD(larger.parameters(), lr=0.1), rank, range(1))
    with pytest.raises(gradwire.StateError) as refused:
        build("eden")[1].load_state_dict(handle.state_dict())
    return str(refused.value)


def test_a_state_with_tensors_that_the_model_lacks_says_so():
    for message in ranks(1, of_more_layers):
        assert "a tensor that this model does not have" in message, message


def misused_states(rank, size):
    model, handle = build("3lc")
    found = []

    def saved(gradient):
        try:
            handle.state_dict()
        except gradwire.ConfigError as error:
            found.append(str(error))
        return gradient

    # A residual is there from the first step on.
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, [0])
    x, labels = data(rank, 1)
    x.requires_grad_().register_hook(saved)
    nn.functional.cross_entropy(model(x), labels).backward()
    try:
        handle.load_state_dict(None)
    except gradwire.StateError as error:
        found.append(str(error))
    return found


def test_states_in_a_backward_pass_and_none_are_refused():
    for torn, none in ranks(2, misused_states):
        assert "between two steps" in torn and "the state is None" in none


def one_sided(rank, size):
    model, handle = build("topk:ratio=0.1")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(3))
    good, other = handle.state_dict(), gradwire.torch.Hook(Net(inputs=32), "topk:ratio=0.1").state_dict()
    train(model, optimizer, rank, range(3, 5))
    before, steps = exchange_bytes(handle.state_dict()), handle.step
    try:
        handle.load_state_dict(good if rank == 0 else {**other, "gradwire": "local"})
    except gradwire.StateError as error:
        unchanged = before == exchange_bytes(handle.state_dict()) and handle.step == steps
        train(model, optimizer, rank, range(5, 7))
        return str(error), unchanged
    return "nothing was refused", False


def test_a_state_is_loaded_on_all_ranks_or_on_none():
    (_, (told, unchanged)), (_, (own, same)) = outcomes(2, one_sided)
    assert unchanged and same
    assert "rank 1 cannot load" in told and "not the state of a gradwire hook" in own


def late(rank, size):
    model, handle = build("3lc")
    extra = nn.Linear(4, 4)
    torch.distributed.barrier()
    other = Net(inputs=32)
    foreign = handle.state_dict()
    hook = gradwire.torch.Hook(other, "3lc")
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, range(2))
    messages = []
    for state in (handle.state_dict(), {"some": "dict"}, []):
        try:
            hook.load_state_dict(state)
        except gradwire.StateError as error:
            messages.append(str(error))
    return messages, foreign["step"], extra is not None


def test_a_state_of_another_model_is_refused():
    for result in outcomes(2, late):
        assert result[0] == "ok", result
        messages = result[1][0]
        assert len(messages) == 3
        assert "another model" in messages[0] and "state_dict()" in messages[1], messages
