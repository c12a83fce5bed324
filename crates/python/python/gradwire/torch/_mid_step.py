"""Ensures that the state of an exchange is taken between two steps."""

from __future__ import annotations

import sys
import threading
import warnings
from contextlib import contextmanager
from types import FrameType
from typing import Any, Callable, Dict, Iterator, Tuple

import torch

from .. import _core


class MidStepError(_core.ConfigError):
    """The state of an exchange was requested in the middle of a step. At that time some residuals
    are from before the step, and some from after it."""


class Stepping:
    """Knows whether a step of an exchange is under way. Create it in the thread that trains."""

    def __init__(self) -> None:
        # A signal handler may take a state while its thread is in one of these methods.
        self._changed = threading.Condition(threading.RLock())
        self._trainer = self._stepper = threading.get_ident()
        self._in_step = self._failed = self._is_local = False

    def set_trainer(self, thread: int) -> None:
        """Sets the thread that trains, if this object was created in a thread of autograd."""
        self._trainer = thread

    @property
    def in_step(self) -> bool:
        """Whether a step is under way, or the last one has failed."""
        return self._in_step

    def begin(self, local: bool = False) -> None:
        """A step begins, as soon as no other thread takes a state.

        A ``local`` step changes no residual. An exception may end it without a call of ``end``.
        """
        with self._changed:
            self._in_step, self._failed, self._is_local = True, False, local
            self._stepper = threading.get_ident()
            if _is_of_python(self._stepper):
                self._trainer = self._stepper

    def end(self, failed: bool = False) -> None:
        """The step is over. After a ``failed`` step, no state is complete."""
        with self._changed:
            self._in_step, self._failed, self._is_local = failed, failed, False
            self._changed.notify_all()

    def abandon_local(self) -> None:
        """Ends a local step that is under way."""
        with self._changed:
            if self._is_local:
                self.end()

    @contextmanager
    def step(self) -> Iterator[None]:
        """A block that ends a step, and begins it if none is under way."""
        self.begin()
        failed = True
        try:
            yield
            failed = False
        finally:
            self.end(failed)

    @contextmanager
    def between_steps(self, all_ranks: bool, seconds: float) -> Iterator[None]:
        """A block that runs between two steps. In a thread that does not train, it first waits for
        the end of a step, for ``seconds`` at most.

        Raises ``MidStepError`` if that is impossible. With ``all_ranks``, the states of all ranks
        are requested. Other ranks may be in another step, so this also raises the error in a signal
        handler and in a thread that does not train.
        """
        thread = threading.get_ident()
        if all_ranks and (thread != self._trainer or in_signal_handler()):
            raise MidStepError(
                "all ranks must save their states after the same step, but a signal handler, or a thread that does not train, cannot "
                "know which step the other ranks are in; set a flag, and call state_dict on all ranks after the step"
            )
        with self._changed:
            waits = thread not in (self._trainer, self._stepper) and torch._C._current_graph_task_id() == -1
            if waits:
                self._changed.wait_for(lambda: self._failed or not self._in_step, seconds)
            if thread == self._stepper and not in_signal_handler():
                self.abandon_local()
            if self._in_step or torch._C._current_graph_task_id() != -1:
                what = "a step that failed" if self._failed else "a step that is still running, or that an error ended,"
                raise MidStepError(
                    f"{what} has changed some of the residuals, so they do not belong to one step; call state_dict between two steps. In "
                    "a signal handler, set a flag and save after the step"
                )
            yield


def _is_of_python(thread: int) -> bool:
    """Whether Python has started a thread. Gradients on a GPU come in a thread of autograd, which
    works for the thread that trains."""
    return any(one.ident == thread and not isinstance(one, threading._DummyThread) for one in threading.enumerate())


def in_signal_handler() -> bool:
    """Whether a Python signal handler is running in this thread.

    Python calls a handler with the interrupted frame. So one argument of the handler is the frame
    that it returns to.
    """
    frame = sys._getframe()
    while frame.f_back is not None:
        if any(one is frame.f_back for one in _arguments(frame)):
            return True
        frame = frame.f_back
    return False


def _arguments(frame: FrameType) -> Tuple[Any, ...]:
    """The positional arguments of the function that a frame runs."""
    code, values = frame.f_code, frame.f_locals
    names = code.co_varnames[: code.co_argcount]
    rest: Tuple[Any, ...] = ()
    if code.co_flags & _HAS_VARARGS:
        rest = values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())
    return (*(values.get(name) for name in names), *(rest if isinstance(rest, tuple) else ()))


# A function with ``*arguments``.
_HAS_VARARGS = 0x04


# The warning of a run that resumes from a checkpoint without a state of gradwire.
NO_STATE = "{} has no state of gradwire; residuals begin empty, and schedules begin at step 0"


def state_or_nothing(take: Callable[[], Dict[str, Any]]) -> Dict[str, Any]:
    """The result of ``take``, for the checkpoint of a framework. In the middle of a step the result
    is empty, with a warning: a checkpoint without residuals is better than none."""
    try:
        return take()
    except MidStepError as error:
        warnings.warn(
            f"this checkpoint has no state of gradwire ({error}); a run that resumes from it begins with empty residuals, and schedules at "
            "step 0",
            RuntimeWarning,
            stacklevel=3,
        )
        return {}
