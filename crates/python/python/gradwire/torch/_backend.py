"""The backend ``gradwire`` of PyTorch's process groups, and process groups that are wrapped."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any, Dict, List, Optional
from weakref import WeakKeyDictionary, ref

import torch
import torch.distributed as dist

from .. import _core
from . import _functions, _saved
from ._call_sites import GroupDescription
from ._compressed_group import CompressedGroup, LiveGroups
from ._crates import check_crates
from ._deadlines import deadline_of, deadline_of_group
from ._group_options import GroupOptions
from ._rendezvous import Rendezvous, named

_NAME = "gradwire"
# In states, the name of the part of functions such as ``gradwire.torch.all_reduce``.
_FUNCTIONS = "functions of gradwire.torch"

# The options that ``configure`` has set.
_configured: List[GroupOptions] = []
# The groups of this process that compress.
_made = LiveGroups()
# The groups that have been wrapped, with their wrappers, which own the groups.
_wrapped: WeakKeyDictionary[Any, ref[CompressedGroup]] = WeakKeyDictionary()


def configure(
    compressor: str = "eden",
    *,
    exchange: str = "auto",
    seed: int = 0,
    deadline: Optional[float] = None,
    on_nonfinite: str = "skip",
    raw_below: int = 4096,
    total_steps: Optional[int] = None,
    threads: int = 1,
    when: str = "backward",
    transport: str = "auto",
) -> None:
    """Sets how process groups with the backend ``gradwire`` compress. Call it on all ranks, with
    the same arguments, before ``torch.distributed.init_process_group("gradwire")``: groups that
    exist keep their settings. If these are others, the next sum of such a group raises a
    ``RuntimeWarning``, unless another group was made meanwhile, for which the new settings are.

    Without it, the environment variable ``GRADWIRE_COMPRESSOR`` names the compressor.

    Args:
        compressor: a spec string (``"eden"``, ``"topk:ratio=0.01"``), or a schedule. Methods of low
            rank and votes are refused. Default: ``"eden"``
        exchange: how all-reduces are done: ``"all-gather"``, ``"scatter-reduce"``, ``"all-reduce"``
            or ``"auto"``. Default: ``"auto"``
        seed: the seed of all random draws, from 0. Default: 0
        deadline: the longest wait for another rank, in seconds, above 0, at most 86,400.
            Default: the timeout of the process group, as when it was made
        on_nonfinite: ``"skip"``: if a value of a rank is NaN or infinity, the results of all later
            calls in the step are NaN on all ranks, and residuals stay as they were. ``"error"``: an
            error that names the call; saves a copy of the residuals. Default: ``"skip"``
        raw_below: sums with fewer elements are passed on. Default: 4096
        total_steps: the number of steps of the run, for schedules with fractions of it.
            Default: ``None``
        threads: the number of host threads that compress a tensor. Default: 1
        when: ``"backward"``: sums are compressed while a backward pass runs and inside
            ``gradwire.torch.gradients()``. ``"always"``: everywhere, so also large metrics and
            averages of parameters. Default: ``"backward"``
        transport: where messages of tensors on a GPU travel: ``"device"``, ``"host"`` or
            ``"auto"``, the device if that is possible; as for ``register``. Default: ``"auto"``

    Raises:
        ConfigError: an argument is wrong.
    """
    options = GroupOptions(**locals())
    options.check_alone()
    _configured[:] = [options]
    for group in groups():
        group.warning = _of_late(options, group)


def _of_late(options: GroupOptions, group: CompressedGroup) -> str:
    """What to say if a group of the backend goes on with other settings than those that
    ``configure`` sets; "" if they are the same."""
    kept = group.configured
    changes = [] if kept is None else options.changes(kept)
    if not changes:
        return ""
    return (
        f"process group '{group.group_name}' was made before gradwire.torch.configure was called, and keeps "
        f"{', '.join(f'{name}={getattr(kept, name)!r}' for name in changes)}; no group has the new settings. Call configure before "
        "torch.distributed.init_process_group, or give a group settings of its own with gradwire.torch.wrap"
    )


def wrap(group: Optional[Any] = None, compressor: str = "eden", **options: Any) -> CompressedGroup:
    """A process group of the same ranks that compresses gradients, and passes everything else on to
    ``group``; the default group if it is ``None``.

    All ranks of the group must call it at the same time, with the same arguments. Give the result
    to the framework in the place of ``group``: as ``process_group=`` of DistributedDataParallel, or
    in ``DeviceMesh.from_group``. ``options`` are those of ``configure``. The group itself stays as
    it is. ``torch.distributed.destroy_process_group`` of the result ends only the compression.

    Raises:
        ConfigError: an argument is wrong, differs between ranks, or the group is wrapped already.
        DeadlineError: a rank did not call ``wrap`` within ``deadline``; without one, within the
            timeout of the group, or 300 s if that is less.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise _core.ConfigError("torch.distributed is not initialized; call init_process_group first")
    _check_version()
    inner = dist.group.WORLD if group is None else group
    if not isinstance(inner, dist.ProcessGroup):
        raise _core.ConfigError(f"group={group!r} is no process group of this rank; of a DeviceMesh, give mesh.get_group()")
    before = _wrapped[inner]() if inner in _wrapped else None
    if isinstance(inner, CompressedGroup) or (before is not None and not before.ended):
        raise _core.ConfigError(f"process group '{inner.group_name}' compresses already; use the group that wrap() has returned")
    given, timeout = _options_of(compressor, options), deadline_of_group(inner)
    checked = given.within(timeout)
    ranks = dist.get_process_group_ranks(inner)
    check_crates(checked, ranks, "gradwire.torch.wrap")
    checked.check_alone()
    seconds = given.to_meet(timeout)
    rendezvous = Rendezvous(ranks, "gradwire.torch.wrap", seconds)
    store = dist.PrefixStore(f"{rendezvous.prefix}/wrap", dist.distributed_c10d._get_default_store())
    _compare(store, inner.rank(), inner.size(), checked, seconds)
    rendezvous.leave()
    wrapped = _over(inner, checked, owns=False)
    wrapped.bound_device_id = inner.bound_device_id
    name = f"{inner.group_name}/gradwire"
    wrapped._set_group_name(name)
    wrapped._set_group_desc(f"gradwire over {inner.group_desc or inner.group_name}")
    _enter(wrapped, name, store, {rank: at for at, rank in enumerate(ranks)})
    _wrapped[inner] = ref(wrapped)
    return wrapped


def groups() -> List[CompressedGroup]:
    """The process groups of this process that compress, in the order in which they were made.
    Frameworks make groups of their own: DeepSpeed exchanges gradients over a copy of the default
    group."""
    return list(_made)


def describe() -> List[GroupDescription]:
    """``describe()`` of each of ``groups()`` that has seen a collective; print one to read it."""
    found = [group.describe() for group in groups()]
    return [one for one in found if one.sites]


def state_dict(*, all_ranks: bool = False) -> Dict[str, Any]:
    """The residuals of all ``groups()``, by name, and those of ``gradwire.torch.all_reduce`` and
    its siblings. See ``state_dict`` of a group. Call it between two steps, on all ranks."""
    states: Dict[str, Any] = {group.group_name: group.state_dict(all_ranks=all_ranks) for group in groups()}
    states[_FUNCTIONS] = _functions.state_dict(all_ranks)
    return {name: state for name, state in states.items() if state}


def load_state_dict(states: Any) -> None:
    """Restores results of ``state_dict`` on all ranks: one, or a list of those of all ranks. Call
    it when the framework has made its groups, in the same order as in the run that was saved."""
    given = _saved.listed(states)
    for one in given:
        _saved.check_mappings(one, "the state", 2)
        _saved.check_mappings(one.get(_FUNCTIONS, {}), f"the state[{_FUNCTIONS!r}]", 3)
    functions = [one[_FUNCTIONS] for one in given if _FUNCTIONS in one]
    own = {group.group_name: group for group in groups()}
    names = dict.fromkeys(name for one in given for name in one if name != _FUNCTIONS)
    missing = [name for name in names if name not in own]
    # Before anything is loaded.
    _functions.check_groups(functions)
    if missing:
        raise _core.StateError(
            f"the state has a process group '{missing[0]}', but this run has {', '.join(map(repr, own)) or 'none'} that compresses; "
            f"{_saved.SAME_GROUPS}"
        )
    _functions.load_state_dict(functions)
    for name in names:
        own[name].load_state_dict([one[name] for one in given if name in one])


def _options_of(compressor: str, options: Dict[str, Any]) -> GroupOptions:
    try:
        return GroupOptions(compressor, **options)
    except TypeError as error:
        raise _core.ConfigError(f"wrap: {error}; options are those of gradwire.torch.configure") from error


def _present_options() -> GroupOptions:
    if _configured:
        return _configured[0]
    options = GroupOptions(os.environ.get("GRADWIRE_COMPRESSOR", GroupOptions.compressor))
    options.check_alone()
    return options


def _create(given: Any, backend_options: Any) -> CompressedGroup:
    """Creates a group for PyTorch."""
    _check_version()
    present, timeout = _present_options(), deadline_of(given.timeout)
    options = present.within(timeout)
    store = dist.PrefixStore("gradwire", given.store)
    _compare(store, given.group_rank, given.group_size, options, present.to_meet(timeout))
    inner = dist.ProcessGroup(store, given.group_rank, given.group_size)
    kinds = dist.ProcessGroup.BackendType
    inner._set_default_backend(kinds.GLOO)
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("cpu", store), given.group_rank, given.group_size, given.timeout)
    inner._register_backend(torch.device("cpu"), kinds.GLOO, gloo)
    if torch.cuda.is_available() and dist.is_nccl_available():
        inner._register_backend(torch.device("cuda"), kinds.NCCL, _nccl(given, store, backend_options))
    group = _over(inner, options, owns=True)
    for one in groups():
        # The present settings are for the new group.
        one.warning = ""
    device = getattr(getattr(given, "process_group", None), "bound_device_id", None)
    if device is not None:
        inner.bound_device_id = group.bound_device_id = device
    return group


def _nccl(given: Any, store: Any, backend_options: Any) -> Any:
    """NCCL's part of a group, as PyTorch creates it."""
    own = backend_options if backend_options is not None else dist.ProcessGroupNCCL.Options()
    own._timeout = given.timeout
    named = {"group_name": given.group_id, "global_ranks_in_group": given.global_ranks_in_group}
    source = getattr(given, "split_from", None)
    if isinstance(source, dist.ProcessGroupNCCL):
        # The other ranks of the group that is split take part in it, too.
        named.update(split_from=source, split_color=dist.distributed_c10d._process_group_color(given.global_ranks_in_group))
    for name, value in named.items():
        setattr(own, name, value)
    return dist.ProcessGroupNCCL(dist.PrefixStore("cuda", store), given.group_rank, given.group_size, own)


def _over(inner: Any, options: GroupOptions, owns: bool) -> CompressedGroup:
    """A group over an inner one, with its backends: PyTorch asks a group for them."""
    group = CompressedGroup(inner, options, owns)
    _made.append(group)
    for device in sorted(inner._device_types, key=str):
        backend = inner._get_backend(device)
        kind = dist.Backend.backend_type_map.get(backend.name().lower(), dist.ProcessGroup.BackendType.CUSTOM)
        group._register_backend(device, kind, backend)
        # That of a GPU comes last.
        group._set_default_backend(kind)
    return group


def _check_version() -> None:
    """Refuses versions of PyTorch in which Python cannot make process groups of several
    backends."""
    if not hasattr(dist.ProcessGroup, "_set_default_backend"):
        raise _core.ConfigError(
            f"PyTorch {torch.__version__} cannot make process groups of several backends in Python; install 2.6 or newer, or use "
            "gradwire.torch.register or gradwire.torch.average_gradients"
        )


def _compare(store: Any, rank: int, size: int, options: GroupOptions, seconds: float) -> None:
    """Refuses settings that differ between ranks, and waits for all ranks, at most this long."""
    own = {name: str(value) for name, value in options.compared().items()}
    store.set(f"settings/{rank}", json.dumps(own))
    keys = [f"settings/{one}" for one in range(size)]
    try:
        store.wait(keys, timedelta(seconds=seconds))
    except RuntimeError as error:
        missing = [one for one, key in enumerate(keys) if not store.check([key])]
        raise _core.DeadlineError(
            f"{named(missing)} of the process group did not create it with the backend gradwire within {seconds:g} s; "
            "give all ranks the same backend"
        ) from error
    for other, key in enumerate(keys):
        settings = json.loads(store.get(key))
        for name, value in own.items():
            if settings.get(name) != value:
                raise _core.ConfigError(
                    f"{name} differs between ranks: {value} on rank {rank} of the process group, {settings.get(name)} on rank {other}"
                )


def _enter(group: CompressedGroup, name: str, store: Any, ranks: Dict[int, int]) -> None:
    """Makes a group known to ``torch.distributed``."""
    world = dist.distributed_c10d._world
    world.pg_map[group] = (_NAME, store)
    world.pg_names[group] = name
    world.pg_group_ranks[group] = ranks
    world.pg_backend_config[group] = _NAME
    world.pg_to_tag[group] = f"ptd:{name}"
    world.tags_to_pg.setdefault(f"ptd:{name}", []).append(group)
    dist.distributed_c10d._register_process_group(name, group)


def register_backend() -> None:
    """Makes the backend known to PyTorch."""
    if dist.is_available() and _NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(_NAME, _create, extended_api=True, devices=["cpu", "cuda"])
