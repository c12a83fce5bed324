"""Tests that objects which follow the steps of optimizers may begin and end within such a step."""

import gc

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gradwire.torch._averaged import Averaged
from gradwire.torch._gradient_calls import StepEnds
from gradwire.torch._optimizer_steps import _after, _before, after_steps, before_steps
from gradwire.torch._owners import Owners
from gradwire.torch._steps import Steps

FOLLOWERS = [StepEnds, Owners, lambda: Steps([]), lambda: Averaged(lambda: 0, {})]


def optimizer():
    parameter = torch.nn.Parameter(torch.zeros(3))
    parameter.grad = torch.ones(3)
    return torch.optim.SGD([parameter], lr=1.0)


class Follower:
    def __init__(self):
        self.steps = []
        self.ends = before_steps(self.before), after_steps(self.after)

    def before(self, *_):
        self.steps.append("before")

    def after(self, *_):
        self.steps.append("after")


@pytest.mark.parametrize("make", FOLLOWERS)
@pytest.mark.parametrize("register", [register_optimizer_step_pre_hook, register_optimizer_step_post_hook])
def test_objects_begin_and_end_within_a_step(make, register):
    kept = [make() for _ in range(3)]
    one = optimizer()

    def change(*_):
        # The last references. A cycle ends with the garbage collector.
        kept[0].itself = kept[0]
        kept.clear()
        gc.collect()
        kept.extend(make() for _ in range(2))

    hook = register(change)
    try:
        for _ in range(3):
            one.step()
    finally:
        hook.remove()
    assert one.param_groups[0]["params"][0].tolist() == [-3.0] * 3


def test_objects_are_told_while_they_are_alive_and_not_ended():
    follower, ended, one = Follower(), Follower(), optimizer()
    one.step()
    for end in ended.ends:
        end()
    gone = Follower()
    steps = gone.steps
    one.step()
    del gone
    one.step()
    assert follower.steps == 3 * ["before", "after"]
    assert ended.steps == steps == ["before", "after"]


def test_objects_that_are_gone_leave_nothing():
    before = [len(one._methods) for one in (_before, _after)]
    for _ in range(20):
        Follower()
    last = Follower()
    assert all(len(one._methods) <= most + 1 for one, most in zip((_before, _after), before))
    for end in last.ends:
        end()
    assert all(len(one._methods) <= most for one, most in zip((_before, _after), before))


def test_an_object_that_a_listener_begins_is_told_of_the_next_step():
    begun = []

    class Beginning(Follower):
        def after(self, *_):
            begun.append(Follower())

    beginning, one = Beginning(), optimizer()
    one.step()
    assert [follower.steps for follower in begun] == [[]]
    for end in beginning.ends:
        end()
    one.step()
    assert [follower.steps for follower in begun] == [["before", "after"]]


def test_compiled_steps_are_told():
    follower, one = Follower(), optimizer()
    step = torch.compile(one.step, backend="eager")
    for _ in range(2):
        step()
    assert follower.steps == 2 * ["before", "after"]
