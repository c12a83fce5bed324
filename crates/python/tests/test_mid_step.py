"""Tests of states that are taken at a wrong moment: in a signal handler, in another thread, in the
middle of a step."""

import os
import signal
import threading
import time
import warnings
from functools import partial

import pytest
import torch

import gradwire.torch
from gradwire.torch._mid_step import in_signal_handler
from models import build, exchange_bytes, train
from world import ranks


class Handler:
    def __init__(self):
        self.seen = []

    def method(self, number, frame):
        self.nested()

    def nested(self):
        self.seen.append(in_signal_handler())

    def __call__(self, *arguments):
        self.nested()


def test_a_signal_handler_is_recognised_in_every_form():
    handler = Handler()
    before = signal.getsignal(signal.SIGUSR1)
    forms = [handler, handler.method, lambda number, frame: handler.nested(), partial(lambda which, number, frame: handler.nested(), 1)]
    try:
        for form in forms:
            signal.signal(signal.SIGUSR1, form)
            signal.raise_signal(signal.SIGUSR1)
            form(signal.SIGUSR1, None)
    finally:
        signal.signal(signal.SIGUSR1, before)
    handler.nested()
    assert handler.seen == [True, False] * 4 + [False]


def state_of(handle, all_ranks=False):
    state = handle.state_dict(all_ranks=all_ranks)
    return state["step"], exchange_bytes(state)


def take(found, name, state):
    """Notes a state, or why there is none."""
    try:
        found[name] = state()
    except gradwire.torch.MidStepError as error:
        found[name] = str(error)


def interrupted(exchange, rank, step, in_handler, in_thread):
    """Takes a step in which rank 0 waits for rank 1, and meanwhile runs one function in a signal
    handler and another one in a thread."""
    if rank > 0:
        time.sleep(1.5)
        step()
        return
    thread = threading.Thread(target=in_thread)

    def late():
        # The main thread waits for the exchange, because rank 1 has not sent anything.
        while not exchange._stepping.in_step:
            time.sleep(0.01)
        thread.start()
        os.kill(os.getpid(), signal.SIGUSR1)

    signal.signal(signal.SIGUSR1, lambda number, frame: in_handler())
    helper = threading.Thread(target=late)
    helper.start()
    step()
    helper.join()
    thread.join()


def taken_in_a_step(rank, size, spec):
    """What a rank gets that asks for states while the last bucket of step 3 waits for rank 1, by a
    signal handler and by another thread, and the states after steps 2 and 3."""
    model, handle = build(spec, deadline=60.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(2))
    before, found = state_of(handle), {}

    def in_handler():
        take(found, "handler", lambda: state_of(handle))
        take(found, "handler of all", lambda: state_of(handle, all_ranks=True))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found["for a framework"] = handle.all_ranks.state_dict(), [str(one.message) for one in told]

    in_thread = partial(take, found, "thread", lambda: state_of(handle))
    interrupted(handle, rank, lambda: train(model, optimizer, rank, [2]), in_handler, in_thread)
    if rank == 0:
        for name, all_ranks in (("thread between steps", False), ("thread of all", True)):
            thread = threading.Thread(target=take, args=(found, name, partial(state_of, handle, all_ranks)))
            thread.start()
            thread.join()
    after = state_of(handle)
    # The exchange goes on.
    train(model, optimizer, rank, [3])
    return before, after, found


def test_a_state_in_the_middle_of_a_step_is_whole_or_refused():
    before, after, found = ranks(2, taken_in_a_step, "3lc")[0]
    assert before[1] != after[1], "residuals change in a step, or the test could not fail"
    assert "a step that is still running" in found["handler"] and "set a flag" in found["handler"]
    assert "signal handler" in found["handler of all"]
    state, told = found["for a framework"]
    assert state == {} and any("no state of gradwire" in one for one in told), found
    # Another thread waits for the end of the step.
    assert found["thread"] == after == found["thread between steps"]
    assert "does not train" in found["thread of all"]


def test_a_compressor_that_keeps_nothing_gives_its_state_at_any_moment():
    before, after, found = ranks(2, taken_in_a_step, "eden")[0]
    assert (before[0], after[0]) == (2, 3)
    assert found["handler"] == before and found["handler of all"] == before
    state, told = found["for a framework"]
    assert state["step"] == 2 and not told
    assert found["thread"] == after


def failed(rank, size):
    model, handle = build("3lc", deadline=60.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(2))
    with pytest.raises(gradwire.GradwireError):
        loss = model(torch.full((4, 64), float("nan") if rank == 0 else 1.0)).sum()
        loss.backward()
    with pytest.raises(gradwire.ConfigError) as refused:
        handle.state_dict()
    return str(refused.value)


def test_after_a_step_that_failed_no_state_is_whole():
    for message in ranks(2, failed):
        assert "a step that failed" in message, message


def resumed_from_nothing(rank, size):
    model, handle = build("3lc")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        handle.all_ranks.load_state_dict({})
    return handle.step, [str(one.message) for one in told]


def test_a_checkpoint_without_a_state_resumes_with_a_warning():
    ((step, (message,)),) = ranks(1, resumed_from_nothing)
    assert step == 0 and "residuals begin empty" in message


def taken_in_local_steps(rank, size):
    """As ``taken_in_a_step``, for a round of local steps."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 32)
    steps = gradwire.torch.LocalSteps(layer, torch.optim.Adam(layer.parameters()), every=2, compressor="topk", deadline=60.0)
    found = {}

    def train_one():
        layer(torch.full((4, 64), rank + 1.0)).square().sum().backward()
        steps.step()

    def state():
        taken = steps.state_dict()
        return taken["step"], taken["common"].clone()

    train_one()
    interrupted(steps, rank, train_one, partial(take, found, "handler", state), partial(take, found, "thread", state))
    take(found, "after", state)
    train_one()
    return found


def test_a_state_in_the_middle_of_a_round_is_refused_or_waits():
    found = ranks(2, taken_in_local_steps)[0]
    assert "a step that is still running" in found["handler"], found["handler"]
    assert found["thread"][0] == found["after"][0] == 2 and torch.equal(found["thread"][1], found["after"][1])
