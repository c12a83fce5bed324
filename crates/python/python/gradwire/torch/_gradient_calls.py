"""Which collectives exchange gradients, and when an optimizer ends a step."""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, Optional, Tuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

# A backward pass, or a block of ``gradients()``.
Pass = Tuple[str, int]


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
        """Calls the methods of ``at_end``. ``failed``: an exception ends the block."""
        references, self._at_end = self._at_end, []
        for reference in references:
            listener = reference()
            if listener is not None:
                listener(failed)


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
    node: Any = None if _blocks.open else getattr(torch._C, "_current_autograd_node", lambda: None)()
    return node is not None and "AccumulateGrad" not in node.name() and not hasattr(node, "param_group")


class _OptimizerSteps:
    """Counts the steps of all optimizers."""

    def __init__(self) -> None:
        self.count = 0
        # The backward pass in which the last one was taken; -1 outside of one.
        self.task = -1
        self._listeners: List[Any] = []

    def watch(self) -> None:
        """Begins to count."""
        if not self._watches:
            self._watches = True
            register_optimizer_step_post_hook(self._note)

    def listen(self, listener: Callable[[torch.optim.Optimizer], None]) -> None:
        """Calls a method after each step, as long as its object is alive."""
        self.watch()
        self._listeners.append(weakref.WeakMethod(listener))

    def _note(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.count += 1
        self.task = torch._C._current_graph_task_id()
        for reference in list(self._listeners):
            listener = reference()
            if listener is None:
                self._listeners.remove(reference)
            else:
                listener(optimizer)

    _watches = False


_optimizer_steps = _OptimizerSteps()


def watch_optimizers(listener: Callable[[torch.optim.Optimizer], None]) -> None:
    """Calls a method of an object after each step of an optimizer, as long as the object is
    alive."""
    _optimizer_steps.listen(listener)


class StepEnds:
    """Tells a process group when a step has ended: an optimizer has taken its step since the first
    collective, or its values were not finite, so the optimizer takes none, and another pass begins.

    A step does not end in the middle of a backward pass, although optimizers may run there.
    """

    def __init__(self) -> None:
        _optimizer_steps.watch()
        self._seen = _optimizer_steps.count
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
        stepped = _optimizer_steps.count != self._seen and (begins_pass or _optimizer_steps.task == -1)
        if not (self._told or stepped or (begins_pass and is_skipped())):
            return False
        self._seen = _optimizer_steps.count
        self._told = False
        return True
