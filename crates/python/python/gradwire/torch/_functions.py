"""Compressed collectives as functions."""

from __future__ import annotations

import warnings
from typing import Any, Dict, List, Mapping, Optional
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from .. import _core
from . import _saved
from ._channel import is_own
from ._deadlines import deadline_of_group
from ._group_calls import Averaging, Calls, flat_or_none, is_mean
from ._group_options import GroupOptions
from ._modes import without_gradients
from ._states import State

# The exchanges of each process group, by compressor.
_calls: WeakKeyDictionary[Any, Dict[str, Calls]] = WeakKeyDictionary()


@without_gradients
def all_reduce(
    tensor: torch.Tensor,
    compressor: str = "eden",
    op: Any = dist.ReduceOp.SUM,
    group: Optional[Any] = None,
    async_op: bool = False,
    *,
    name: Optional[str] = None,
) -> Optional[Averaging]:
    """Replaces a tensor by its sum or mean over all ranks, with compressed messages; all ranks get
    the same bits. As ``torch.distributed.all_reduce``, which see.

    All ranks of ``group`` must call it in the same order, with the same compressor and name; they
    connect at the first call. Residuals belong to ``name``: the same name again means the next step
    of the same tensor. A call without a name is a step of its own, and its compressor must keep
    nothing for the next one.

    Args:
        tensor: of float32, float16 or bfloat16, in main memory or on a CUDA device
        compressor: a spec string; not of low rank, no vote. Default: ``"eden"``
        op: ``ReduceOp.SUM`` or ``ReduceOp.AVG``. Default: ``SUM``
        group: a process group. Default: all ranks
        async_op: return without waiting. Default: ``False``
        name: the name of the tensor, the same on all ranks. Default: ``None``

    Returns:
        A work handle if ``async_op``, else ``None``.

    Raises:
        ConfigError: an argument is wrong, or differs between ranks.
        PeerLostError, DeadlineError: a rank is gone, or does not answer.
    """
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        return None
    calls = _calls_of(group, compressor, name)
    _check(tensor, op, "torch.distributed.all_reduce")
    _check_memory(tensor)
    return _ended(calls.all_reduce("all-reduce", tensor, op, name), async_op)


@without_gradients
def reduce_scatter_tensor(
    output: torch.Tensor,
    input: torch.Tensor,
    compressor: str = "eden",
    op: Any = dist.ReduceOp.SUM,
    group: Optional[Any] = None,
    async_op: bool = False,
    *,
    name: Optional[str] = None,
) -> Optional[Averaging]:
    """Writes this rank's part of a sum or mean to ``output``, with compressed messages. As
    ``torch.distributed.reduce_scatter_tensor``, which see; the other arguments are those of
    ``all_reduce``."""
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        return None
    calls = _calls_of(group, compressor, name)
    _check(input, op, "torch.distributed.reduce_scatter_tensor")
    _check_parts(input, output, calls.ranks, "input", "output")
    return _ended(calls.reduce_scatter("reduce-scatter", output, input.view(-1), op, name), async_op)


@without_gradients
def all_gather_into_tensor(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    compressor: str = "int8",
    group: Optional[Any] = None,
    async_op: bool = False,
    *,
    name: Optional[str] = None,
) -> Optional[Averaging]:
    """Gathers the tensors of all ranks in ``output_tensor``, with compressed messages; for
    parameters. All ranks get the same bits, so a rank's own part is as rounded as the others get
    it. As ``torch.distributed.all_gather_into_tensor``, which see; the other arguments are those of
    ``all_reduce``. Values that a message leaves out are not kept, so give a quantizer of 8 bits or
    so."""
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        return None
    calls = _calls_of(group, compressor, name, keeps=False)
    _check(output_tensor, dist.ReduceOp.SUM, "torch.distributed.all_gather_into_tensor")
    _check_parts(output_tensor, input_tensor, calls.ranks, "output_tensor", "input_tensor")
    return _ended(calls.gather("all-gather", output_tensor.view(-1), input_tensor.reshape(-1), name), async_op)


def _calls_of(group: Optional[Any], compressor: str, name: Optional[str], keeps: bool = True) -> Calls:
    """``keeps``: residuals are kept, if the compressor has them."""
    if not dist.is_available() or not dist.is_initialized():
        raise _core.ConfigError("torch.distributed is not initialized; call init_process_group first")
    own = dist.group.WORLD if group is None else group
    if not isinstance(own, dist.ProcessGroup):
        raise _core.ConfigError(f"group={group!r} is no process group; of a DeviceMesh, give mesh.get_group()")
    is_first = _key(compressor) not in _calls.get(own, {})
    calls = _known(own, compressor)
    if is_first and calls.options.keeps():
        _warn_of_waiting(own, compressor)
    if name is None:
        if keeps and calls.options.keeps():
            raise _core.ConfigError(
                f"'{compressor}' keeps a residual or momentum of each tensor, and only a name tells which tensor it is; give name=, the same "
                "at each step, or use a compressor without error feedback, such as eden"
            )
        calls.tell_step()
    return calls


def _known(group: Any, compressor: str) -> Calls:
    """The calls of a group with a compressor."""
    known, key = _calls.setdefault(group, {}), _key(compressor)
    if key not in known:
        options = GroupOptions(compressor, raw_below=0, when="always").within(deadline_of_group(group))
        options.check_alone()
        # Another thread may be here, too.
        known.setdefault(key, Calls(group, options))
    return known[key]


def _key(compressor: Any) -> Any:
    """The same for all ways to write a spec."""
    return _core.canonical(compressor) if isinstance(compressor, str) else compressor


def _warn_of_waiting(group: Any, compressor: str) -> None:
    """Warns if residuals of another compressor were loaded, and no call has used them."""
    waiting = [calls.options.compressor for calls in _calls[group].values() if calls.is_waiting and calls.options.keeps()]
    if waiting:
        warnings.warn(
            f"residuals of '{compressor}' begin empty, but the loaded state has residuals of '{waiting[0]}' that no call has used; if they "
            "belong to the same tensors, call with the compressor of the saved run",
            RuntimeWarning,
            stacklevel=5,
        )


def state_dict(all_ranks: bool) -> Dict[str, Dict[str, Dict[str, State]]]:
    """The states of the functions, by process group and compressor."""
    found: Dict[str, Dict[str, Dict[str, State]]] = {}
    for name, group in _groups().items():
        # Another thread may call meanwhile, with a compressor of its own.
        for compressor, calls in list(_calls.get(group, {}).items()):
            state = calls.state_dict(all_ranks)
            if state:
                found.setdefault(name, {})[compressor] = state
    return found


def check_groups(states: List[Mapping[str, Any]]) -> None:
    """Refuses results of ``state_dict`` with process groups that this run does not have."""
    known = _groups()
    missing = [name for one in states for name in one if name not in known]
    if missing:
        raise _core.StateError(
            f"the state has residuals of functions such as gradwire.torch.all_reduce over process group '{missing[0]}', but this run has "
            f"{', '.join(map(repr, known)) or 'none'}; {_saved.SAME_GROUPS}"
        )


def load_state_dict(states: List[Mapping[str, Mapping[str, Any]]]) -> None:
    """Restores results of ``state_dict``; each at the first call over its group with its
    compressor."""
    known = _groups()
    for name, compressor in dict.fromkeys((name, compressor) for one in states for name in one for compressor in one[name]):
        _known(known[name], compressor).load_state_dict([one[name][compressor] for one in states if compressor in one.get(name, {})])


def _groups() -> Dict[str, Any]:
    """The process groups of this rank, by name, without those that gradwire has made for itself."""
    if not dist.is_available():
        return {}
    return {group.group_name: group for group in dist.distributed_c10d._world.pg_map if not is_own(group)}


def _check(tensor: Any, op: Any, plain: str) -> None:
    """Refuses tensors and operations that no compressor takes."""
    if not isinstance(tensor, torch.Tensor):
        raise _core.ConfigError(f"a {type(tensor).__name__} is no tensor")
    if tensor.layout != torch.strided:
        raise _core.ConfigError(f"the tensor is sparse; call .to_dense() first, or use {plain}")
    if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise _core.ConfigError(f"the tensor has the type {tensor.dtype}; only float32, float16 and bfloat16 are compressed; use {plain}")
    if not is_mean(op):
        raise _core.ConfigError(f"{op} is no sum or mean; use {plain}")


def _check_memory(tensor: torch.Tensor) -> None:
    if flat_or_none(tensor) is None:
        raise _core.ConfigError("the memory of the tensor has gaps; call .contiguous() first")


def _check_parts(whole: torch.Tensor, part: torch.Tensor, ranks: int, name: str, part_name: str) -> None:
    """Refuses tensors that are not the parts of all ranks and one of them."""
    if whole.numel() != ranks * part.numel() or whole.dtype != part.dtype or whole.device != part.device:
        raise _core.ConfigError(
            f"{name} has {whole.numel()} elements of {whole.dtype} on {whole.device}, and {part_name} {part.numel()} of {part.dtype} on "
            f"{part.device}; {name} must have {ranks} times as many, of the same type and on the same device"
        )
    for tensor, called in ((whole, name), (part, part_name)):
        if not tensor.is_contiguous():
            raise _core.ConfigError(f"{called} is not contiguous; call .contiguous() first")


def _ended(work: Averaging, async_op: bool) -> Optional[Averaging]:
    if async_op:
        return work
    work.wait()
    return None


