"""A process group that compresses gradients, and passes everything else on."""

from __future__ import annotations

import warnings
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence

import torch
from torch._C._distributed_c10d import Work
from torch.distributed import ProcessGroup

from .. import _core
from ._call_sites import GroupDescription
from ._group_calls import Averaging, Calls, flat_or_none
from ._group_options import GroupOptions
from ._states import State

# What a group is, not what it does: these stay those of the class itself.
_NOT_PASSED_ON = {
    "BackendType", "boxed", "unbox", "bound_device_id", "group_name", "group_desc", "name", "rank", "size",
    "_device_types", "_get_backend", "get_backend", "_register_backend", "_set_default_backend", "_set_group_name",
    "_set_group_desc", "_get_backend_name", "_backend_id",
}  # fmt: skip

# The names by which C++ calls methods that have another name in Python.
_NAMES_IN_CPP = {
    "recvAnysource": "recv_anysource",
    "start_coalescing": "_start_coalescing",
    "end_coalescing": "_end_coalescing",
    "splitGroup": "split_group",
    "mergeRemoteGroup": "merge_remote_group",
}


class CompressedGroup(ProcessGroup):
    """A process group over an inner one.

    PyTorch runs a method that a Python class does not override with the interpreter lock held,
    while a thread of gloo may wait for this lock to free tensors. So all methods are overridden:
    those below, and every other one by a call of the inner group's, which releases the lock.
    """

    def __init__(self, inner: Any, options: GroupOptions, owns: bool) -> None:
        """With ``owns``, the inner group ends with this one."""
        super().__init__(inner.rank(), inner.size())
        self._inner, self._owns = inner, owns
        self._calls = Calls(self, options)
        self._ended = False
        # What to warn of at the next sum, once.
        self.warning = ""
        self._name = self._description = ""

    def getBackendName(self) -> str:
        """The name of the backend."""
        return "gradwire"

    def size(self) -> int:
        """The number of ranks."""
        found: int = self._inner.size()
        return found

    def rank(self) -> int:
        """The number of this rank in the group."""
        found: int = self._inner.rank()
        return found

    def getGroupName(self) -> str:
        """The name of the group."""
        return self._name

    def setGroupName(self, name: str) -> None:
        """Sets the name of the group. PyTorch keeps the name in the backends, which also belong to
        the inner group."""
        self._name = name
        if self._owns:
            self._inner._set_group_name(name)

    def getGroupDesc(self) -> str:
        """What the group is for."""
        return self._description

    def setGroupDesc(self, description: str) -> None:
        """Sets what the group is for; see ``setGroupName``."""
        self._description = description
        if self._owns:
            self._inner._set_group_desc(description)

    def describe(self) -> GroupDescription:
        """The collectives that the group has seen, each with its size, how often, its bytes, and
        whether it is compressed or why not; prints as a table."""
        return self._calls.describe()

    def stats(self) -> Dict[str, Dict[str, Any]]:
        """For all-reduce and reduce-scatter, the cost of the last step, as ``Handle.stats``."""
        return self._calls.stats()

    def step(self) -> None:
        """Ends a step. Call it on all ranks, where no optimizer of ``torch.optim`` does: residuals
        belong to the place of a call in its step."""
        self._calls.tell_step()

    def state_dict(self, *, all_ranks: bool = False) -> Dict[str, State]:
        """The residuals of this rank, or of all ranks, as ``Handle.state_dict``. Call it between
        two steps."""
        return self._calls.state_dict(all_ranks)

    def load_state_dict(self, states: Any) -> None:
        """Restores results of ``state_dict``, as ``Handle.load_state_dict``. In a new process they
        are restored at the first compressed call."""
        self._calls.load_state_dict(states)

    def allreduce(self, tensors: Any, opts: Any = None, *more: Any, **options: Any) -> Any:
        """The sum of a tensor, compressed if it is a gradient."""
        listed = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        op = _op_of(opts, options)
        reason = self._reason(listed[0], op) if len(listed) == 1 else "it has several tensors"
        if not reason:
            return self._calls.all_reduce("all-reduce", listed[0], op)
        self._calls.pass_on("all-reduce", listed, reason)
        return self._inner.allreduce(tensors, *_given(opts), *more, **options)

    def allreduce_coalesced(self, tensors: List[torch.Tensor], opts: Any = None) -> Any:
        """The sums of several tensors."""
        op = _op_of(opts, {})
        return self._each(
            "all-reduce",
            tensors,
            op,
            lambda at: self._calls.all_reduce("all-reduce", tensors[at], op),
            lambda rest: self._inner.allreduce_coalesced([tensors[at] for at in rest], *_given(opts)),
        )

    def reduce(self, tensors: Any, opts: Any = None, *more: Any, **options: Any) -> Any:
        """The sum of a tensor at one rank. All ranks receive it if it is compressed."""
        listed = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        op = _op_of(opts, options)
        reason = self._reason(listed[0], op) if len(listed) == 1 else "it has several tensors"
        if not reason:
            return self._calls.all_reduce("reduce", listed[0], op)
        self._calls.pass_on("reduce", listed, reason)
        return self._inner.reduce(tensors, *_given(opts), *more, **options)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, *more: Any, **options: Any) -> Any:
        """Each rank's part of sums, given as a list of parts."""
        flat_inputs = inputs[0] if inputs and isinstance(inputs[0], (list, tuple)) else inputs
        output = outputs if isinstance(outputs, torch.Tensor) else outputs[0]
        op = _op_of(opts, options)
        reason = self._reason(output, op, self.size() * output.numel())
        if not reason and any(one.numel() != output.numel() or one.dtype != output.dtype for one in flat_inputs):
            reason = "its parts have different sizes"
        if not reason and not output.is_contiguous():
            reason = "its memory has gaps"
        if not reason:
            joined = torch.cat([one.detach().reshape(-1) for one in flat_inputs])
            return self._calls.reduce_scatter("reduce-scatter", output.detach(), joined, op)
        self._calls.pass_on("reduce-scatter", flat_inputs, reason)
        return self._inner.reduce_scatter(outputs, inputs, *_given(opts), *more, **options)

    def reduce_scatter_single(self, output: torch.Tensor, values: torch.Tensor, opts: Any = None) -> Any:
        """Each rank's part of a sum."""
        op, reason = _op_of(opts, {}), self._scatter_reason(output, values, _op_of(opts, {}))
        if not reason:
            return self._scatter(output, values, op)
        self._calls.pass_on("reduce-scatter", [values], reason)
        return _named(self._inner, "reduce_scatter_single", "_reduce_scatter_base")(output, values, *_given(opts))

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None) -> Any:
        """Each rank's parts of several sums."""
        op = _op_of(opts, {})
        passed = _named(self._inner, "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced")
        return self._each(
            "reduce-scatter",
            inputs,
            op,
            lambda at: self._scatter(outputs[at], inputs[at], op),
            lambda rest: passed([outputs[at] for at in rest], [inputs[at] for at in rest], *_given(opts)),
            lambda at: self._scatter_reason(outputs[at], inputs[at], op),
        )

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def abort(self) -> None:
        """Ends the group at once, with everything that has not begun yet."""
        self._ended = True
        self._calls.abort()
        if self._owns:
            self._inner.abort()

    @property
    def configured(self) -> Optional[GroupOptions]:
        """The options of a group of the backend; ``None`` of a group that ``wrap`` has made."""
        return self._calls.options if self._owns else None

    @property
    def ended(self) -> bool:
        """Whether the group has ended."""
        return self._ended

    def shutdown(self) -> None:
        """Ends the group, after the averages under way."""
        self._ended = True
        self._calls.close()
        if self._owns:
            self._inner.shutdown()

    def _reason(self, tensor: torch.Tensor, op: Any, elements: Optional[int] = None) -> str:
        """Why a sum of a tensor, of ``elements`` if it is only a part, is passed on."""
        if self._ended:
            raise _core.ConfigError("the process group has ended; give the framework another one, or call gradwire.torch.wrap again")
        if self.warning:
            text, self.warning = self.warning, ""
            warnings.warn(text, RuntimeWarning, stacklevel=4)
        reason = self._calls.why_not(tensor, op, tensor.numel() if elements is None else elements)
        return reason or ("its memory has gaps" if not tensor.is_contiguous() and flat_or_none(tensor) is None else "")

    def _scatter_reason(self, output: torch.Tensor, values: torch.Tensor, op: Any) -> str:
        reason = self._reason(values, op)
        if not reason and (output.numel() * self.size() != values.numel() or output.dtype != values.dtype):
            return "its parts have different sizes or types"
        return reason or ("" if values.is_contiguous() and output.is_contiguous() else "its memory has gaps")

    def _scatter(self, output: torch.Tensor, values: torch.Tensor, op: Any) -> Averaging:
        return self._calls.reduce_scatter("reduce-scatter", output.detach(), values.detach().view(-1), op)

    def _each(
        self,
        collective: str,
        tensors: Sequence[torch.Tensor],
        op: Any,
        compress: Callable[[int], Averaging],
        passed: Callable[[List[int]], Any],
        why_not: Optional[Callable[[int], str]] = None,
    ) -> Any:
        """Compresses those of several tensors that are gradients, and passes the others on."""
        find = why_not or (lambda at: self._reason(tensors[at], op))
        reasons = [find(at) for at in range(len(tensors))]
        works: List[Any] = [compress(at) for at, reason in enumerate(reasons) if not reason]
        rest = [at for at, reason in enumerate(reasons) if reason]
        for at in rest:
            self._calls.pass_on(collective, [tensors[at]], reasons[at])
        if rest:
            works.append(passed(rest))
        return works[0] if len(works) == 1 else Several(works)


class LiveGroups:
    """The groups that have not ended, in the order in which they were made."""

    def __init__(self) -> None:
        self._groups: List[weakref.ref[CompressedGroup]] = []

    def append(self, group: CompressedGroup) -> None:
        """Adds a group."""
        self._groups.append(weakref.ref(group))

    def __iter__(self) -> Iterator[CompressedGroup]:
        found = [group for group in (reference() for reference in self._groups) if group is not None and not group.ended]
        self._groups = [weakref.ref(group) for group in found]
        return iter(found)


class Several(Work):  # type: ignore[misc]
    """Several works as one."""

    def __init__(self, works: List[Any]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: Any = None) -> bool:
        """Waits for all."""
        return all([work.wait() if timeout is None else work.wait(timeout) for work in self._works])

    def synchronize(self) -> None:
        """Like ``wait``."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether all results are there."""
        return all(work.is_completed() for work in self._works)

    def get_future(self) -> Any:
        """The future of all."""
        joined = torch.futures.collect_all([work.get_future() for work in self._works])
        return joined.then(lambda futures: self.result())

    def result(self) -> List[torch.Tensor]:
        """The tensors of all."""
        return [tensor for work in self._works for tensor in work.result()]


def _op_of(opts: Any, options: Dict[str, Any]) -> Any:
    """The operation of a call with options, or with an operation in their place."""
    if opts is None:
        return options.get("op", torch.distributed.ReduceOp.SUM)
    return getattr(opts, "reduceOp", opts)


def _given(opts: Any) -> Iterable[Any]:
    return () if opts is None else (opts,)


def _named(inner: Any, *names: str) -> Callable[..., Any]:
    """The inner group's method by the first of these names that this version of PyTorch has."""
    found: Callable[..., Any] = next(getattr(inner, name) for name in names if hasattr(inner, name))
    return found


def _tensors_of(arguments: Iterable[Any]) -> List[torch.Tensor]:
    """The tensors of the largest argument of a call."""
    found: List[List[torch.Tensor]] = [[]]
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            found.append([argument])
        elif isinstance(argument, (list, tuple)):
            found.append(_tensors_of([one for one in argument]) if any(isinstance(one, list) for one in argument) else _only(argument))
    return max(found, key=lambda tensors: sum(one.numel() for one in tensors if one.layout == torch.strided))


def _only(values: Iterable[Any]) -> List[torch.Tensor]:
    return [one for one in values if isinstance(one, torch.Tensor)]


def _passing(name: str, inner_name: str) -> Callable[..., Any]:
    """A method that calls the inner group's."""

    def method(self: CompressedGroup, *arguments: Any, **options: Any) -> Any:
        tensors = _tensors_of(arguments)
        if tensors:
            self._calls.pass_on(name.strip("_"), tensors, "it is no sum")
        return getattr(self._inner, inner_name)(*arguments, **options)

    method.__name__ = name
    return method


def _pass_the_rest_on() -> None:
    for name in dir(ProcessGroup):
        own = name in vars(CompressedGroup) or name in _NOT_PASSED_ON or name.startswith("__")
        if not own and callable(getattr(ProcessGroup, name)):
            setattr(CompressedGroup, name, _passing(name, name))
    for name, inner_name in _NAMES_IN_CPP.items():
        if hasattr(ProcessGroup, inner_name):
            setattr(CompressedGroup, name, _passing(name, inner_name))


_pass_the_rest_on()
