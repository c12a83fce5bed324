"""Which collectives exchange gradients, and when an optimizer ends a step."""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, Optional, Tuple

import torch

from ._optimizer_steps import after_steps

# A backward pass, or a block of ``gradients()``.
Pass = Tuple[str, int]

# The function of autograd that is running in this thread, which some versions of PyTorch do not
# tell.
running_function: Callable[[], Any] = getattr(torch._C, "_current_autograd_node", lambda: None)


class _Blocks:
    """The blocks of ``gradients()``."""

    def __init__(self) -> None:
        self.open = 0
        self.number = 0
        self._at_end: List[Any] = []

    def at_end(self, listener: Callable[[bool], None]) -> None:
        """Calls a method at the end of the present block, if its object is alive."""
        self._at_end.append(weakref.WeakMethod(listener))

    def end(self, failed: bool) -> None:
        """Calls the methods of ``at_end``. ``failed``: an exception ends the block. Raises the
        first error of a method after calling all."""
        references, self._at_end = self._at_end, []
        first: Optional[Exception] = None
        for reference in references:
            listener = reference()
            try:
                if listener is not None:
                    listener(failed)
            except Exception as error:
                first = first or error
        if first is not None:
            raise first


_blocks = _Blocks()


@contextmanager
def gradients() -> Iterator[None]:
    """A block whose sums and means are gradients, and so are compressed.

    Process groups of gradwire compress only during a backward pass, unless they were created with
    ``when="always"``. Put code into this block that exchanges gradients afterwards: a loop that
    calls ``torch.distributed.all_reduce`` for each ``parameter.grad``, or DeepSpeed's
    ``engine.backward(loss)``. All ranks must enter it.
    """
    if _blocks.open == 0:
        _blocks.number += 1
    _blocks.open += 1
    failed = True
    try:
        yield
        failed = False
    finally:
        _blocks.open -= 1
        if _blocks.open == 0:
            _blocks.end(failed)


def after_block(listener: Callable[[bool], None]) -> None:
    """Calls a method of an object after the block that is open, or now if there is none, and tells
    whether an exception has ended the block."""
    if _blocks.open:
        _blocks.at_end(listener)
    else:
        listener(False)


def present_pass() -> Optional[Pass]:
    """The backward pass that is running in this thread, else the block that is open; ``None``
    outside of both."""
    task = torch._C._current_graph_task_id()
    if task != -1:
        return "backward", task
    return ("block", _blocks.number) if _blocks.open else None


def is_of_function() -> bool:
    """Whether a function of the model calls, in its backward pass, such as SyncBatchNorm, or a
    layer that is computed again. Gradients of parameters come from where they are accumulated, from
    FSDP2, or after all functions. In a block of ``gradients()`` everything is a gradient."""
    node = None if _blocks.open else running_function()
    return node is not None and "AccumulateGrad" not in node.name() and not hasattr(node, "param_group")


class StepEnds:
    """Tells a process group when a step has ended: an optimizer has taken its step since the first
    collective, or its values were not finite, so the optimizer takes none, and another pass begins.

    A step does not end in the middle of a backward pass, although optimizers may run there.
    """

    def __init__(self) -> None:
        # Whether an optimizer has taken a step since the present step began, and whether the last
        # one was outside of a backward pass.
        self._stepped = self._stepped_outside = False
        after_steps(self._note)
        self._pass: Optional[Pass] = None
        # The block that was open at the last call, and the number of functions that the forward
        # passes of this thread had called.
        self._block: Optional[int] = None
        self._functions = 0
        self._told = False

    def tell(self) -> None:
        """The step has ended."""
        self._told = True

    def begins_pass(self) -> bool:
        """Whether a call is the first one of its pass. Call it once for each call.

        Calls after a backward pass, in the block around it, belong to it. Calls outside of both
        belong to the last one, until a forward pass has called a function.
        """
        before, self._pass = self._pass, present_pass()
        block, self._block = self._block, _blocks.number if _blocks.open else None
        if self._pass is None:
            functions, self._functions = self._functions, torch._C._autograd._get_sequence_nr()
            return functions != self._functions and (before is None or before[0] != "backward")
        if self._pass[0] == "block" and self._block == block:
            return False
        return self._pass != before

    def begins_step(self, begins_pass: bool, is_skipped: Callable[[], bool]) -> bool:
        """Whether a call, which may be the first of its pass, is the first of its step.
        ``is_skipped`` tells whether values of the present step were not finite."""
        stepped = self._stepped and (begins_pass or self._stepped_outside)
        if not (self._told or stepped or (begins_pass and is_skipped())):
            return False
        self._stepped = self._stepped_outside = self._told = False
        return True

    def _note(self, *_: Any) -> None:
        self._stepped, self._stepped_outside = True, torch._C._current_graph_task_id() == -1
