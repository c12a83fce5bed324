"""Tells objects of the steps of all optimizers."""

from __future__ import annotations

import weakref
from functools import partial
from threading import RLock
from typing import Any, Callable, Mapping, Tuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

# A method of an object, called with an optimizer, and the arguments of its step.
Listener = Callable[[torch.optim.Optimizer, Tuple[Any, ...], Mapping[str, Any]], None]


class _Listeners:
    """The methods that a hook of all optimizers calls.

    PyTorch iterates over its hooks while it calls them, and another thread, a hook or the garbage
    collector may begin or end an object meanwhile. So the hook stays, and the tuple of methods is
    replaced, never changed.
    """

    def __init__(self, register: Callable[[Any], Any]) -> None:
        self._methods: Tuple[weakref.WeakMethod[Any], ...] = ()
        self._changing = RLock()
        register(self._tell)

    def add(self, method: Listener) -> Callable[[], None]:
        """Adds a method, without a reference to its object; returns a function that removes it."""
        reference = weakref.WeakMethod(method)
        with self._changing:
            self._methods = (*self._others(None), reference)
        return partial(self._remove, reference)

    def _remove(self, reference: Any) -> None:
        with self._changing:
            self._methods = self._others(reference)

    def _others(self, removed: Any) -> Tuple[weakref.WeakMethod[Any], ...]:
        return tuple(one for one in self._methods if one is not removed and one() is not None)

    def _tell(self, optimizer: torch.optim.Optimizer, arguments: Tuple[Any, ...], named: Mapping[str, Any]) -> None:
        for reference in self._methods:
            method = reference()
            if method is not None:
                method(optimizer, arguments, named)


_before, _after = _Listeners(register_optimizer_step_pre_hook), _Listeners(register_optimizer_step_post_hook)


def before_steps(method: Listener) -> Callable[[], None]:
    """Calls a method before each step of an optimizer, as long as its object is alive. Returns a
    function that ends this."""
    return _before.add(method)


def after_steps(method: Listener) -> Callable[[], None]:
    """Like ``before_steps``, after each step."""
    return _after.add(method)
