"""Compressed gradients for models sharded by ``fully_shard`` (FSDP2).

Every rank holds a shard of each parameter: usually a chunk of its rows. In a backward pass FSDP2
reduce-scatters gradients, module by module: each rank gets the mean of its shard. ``register``
compresses these messages. With ``replicas``, FSDP2's own reduce-scatter stays, for fast links
inside a node. The means of shards are then averaged between nodes with compressed messages.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Optional, Sequence

import torch

from .. import _core
from .._arrays import whole_number
from .._specs import check_quantizer, sample_side
from . import _units
from ._checks import check_scaler
from ._crates import check_crates
from ._custom import Custom
from ._device import Request
from ._names import selected
from ._options import Options, Rules, check_flag, check_given
from ._reference import GatherChanges
from ._sharded import AllGather, AllReduce, ReduceScatter, Sharded, check_free, check_zeros
from ._timed_gather import TimedAllGather
from ._traffic import Plain, bytes_of, sizes_of, warn_of_more

__all__ = ["Sharded", "register"]


def register(
    model: torch.nn.Module,
    compressor: Any = "eden",
    *,
    replicas: Optional[Any] = None,
    parameters: Optional[str] = None,
    parameter_changes: bool = False,
    transport: str = "auto",
    rules: Rules = None,
    exchange: str = "auto",
    seed: int = 0,
    deadline: float = 300.0,
    on_nonfinite: str = "error",
    scaler: Optional[Any] = None,
    raw_vectors: bool = True,
    raw_below: int = 256,
    raw_names: Sequence[str] = (),
    total_steps: Optional[int] = None,
    threads: int = 1,
) -> Sharded:
    """Compresses the gradients that a model sharded by ``fully_shard`` exchanges.

    Call it after ``fully_shard``, on all ranks at the same time. Without ``replicas``, the
    reduce-scatter of the shards is compressed; with a mesh of two dimensions (HSDP), PyTorch's
    all-reduce between replicas stays uncompressed.

    Parameters must be sharded over the same ranks, and must not be DTensors of tensor or expert
    parallelism before ``fully_shard``. A trained parameter outside all modules of ``fully_shard``
    raises ``ConfigError``, since nothing averages it. The caller averages ``ignored_params``. Over
    a single rank FSDP2 exchanges nothing, and neither does gradwire. Low-rank methods see a shard
    as a matrix: the rows of a parameter, or its columns if ``shard_placement_fn`` says so.

    Args:
        model: the model that ``fully_shard`` has sharded
        compressor: a spec string or a schedule, or an object with ``compress(tensor) -> bytes`` and
            ``decompress(bytes, shape) -> tensor``, as in ``register``. Such an object gets the
            gradients of a module as one tensor of one dimension, and every rank receives the
            messages of all. Default: ``"eden"``
        replicas: a process group, or a mesh of one dimension, with the ranks that hold the same
            shard. The mean of each shard is then averaged over these ranks with compressed
            messages. The model must be sharded over a mesh of one dimension, and
            ``set_requires_all_reduce(False)`` has no effect. Default: ``None``
        parameters: the compressor of the gathered parameters, such as ``"int8"``, ``"8bit"`` or
            ``"fp16"``. FSDP2 gathers them for the forward pass, and again for the backward pass if
            it frees them in between. They are sent whole each time, without error feedback.
            Training uses the rounded parameters. Each rank's shards, which the optimizer updates
            and checkpoints contain, stay exact. Modules without trained parameters at registration
            are gathered uncompressed. ``raw_vectors``, ``raw_below`` and ``raw_names`` apply,
            ``rules`` do not. Default: ``None``, uncompressed
        parameter_changes: send the changes of parameters, compressed by ``parameters``, which may
            then have fewer bits, such as ``"int4"``. Every rank keeps the parameters of all ranks
            as they were gathered last: the size of the whole model in ``param_dtype``, on the
            device. A gather in a forward pass sends the difference from them, so errors do not add
            up, and gathers in a backward pass send nothing: they use what the last forward pass of
            the module has gathered. The first gather is uncompressed, also after
            ``load_state_dict`` of the handle. Call ``gather_exactly()`` of the handle after
            ``model.load_state_dict`` and similar changes. Default: ``False``
        transport: ``"device"`` keeps messages on the GPU: they travel by FSDP2's own process group,
            NCCL, and the exchange hides behind the backward pass as FSDP2's own does. ``"host"``
            sends them through main memory over gloo, and FSDP2 waits for them. Gradients,
            parameters and states are the same, up to the last bit of a scale. On a GPU, values that
            are not finite are reported one step late, when the optimizer has made the parameters
            NaN; then training continues from a checkpoint. ``"auto"`` uses the device if it is
            possible, for gradients and for ``parameters`` separately: with NCCL, Triton 3.6 and
            compressors whose kernels write messages of a fixed length. ``describe()`` says how both
            travel. Under NCCL, steps have the timeout of the process group. Default: ``"auto"``
        rules: other compressors for some tensors. Rules see the names and sizes of whole
            parameters; with ``replicas``, the sizes of shards. Default: none
        exchange: with ``replicas``, how they exchange: ``"all-gather"``, ``"scatter-reduce"``,
            ``"all-reduce"`` or ``"auto"``. Without them it must be ``"auto"`` or
            ``"reduce-scatter"``; both mean the reduce-scatter of the shards. Default: ``"auto"``
        seed: the seed of all random draws, from 0. Default: 0
        deadline: the longest wait for another rank, in seconds, above 0, at most 86,400. Default:
            300.0
        on_nonfinite: ``"error"``, or ``"skip"``, which needs a ``scaler``, a mesh of one dimension
            and no ``replicas``. In a skipped step, gradients become NaN from the first module with
            such a value onwards. Default: ``"error"``
        scaler: the ``GradScaler`` of mixed precision training. Default: ``None``
        raw_vectors: send tensors of one dimension uncompressed unless a rule matches them. Default:
            ``True``
        raw_below: the same for tensors with fewer elements than this. Default: 256
        raw_names: the same for tensors whose name contains one of these words. Default: none
        total_steps: the number of steps of the run, from 1, for schedules with fractions of it.
            Default: ``None``
        threads: the number of host threads, from 1, that compress and decompress. Default: 1

    Returns:
        The handle: residuals, statistics, and the state of a checkpoint.

    Raises:
        ConfigError: an argument is wrong, differs between ranks, or does not suit the model.
        DeadlineError: a rank did not call ``register`` within ``deadline``.
    """
    arguments = dict(locals())
    custom = None if compressor is None or isinstance(compressor, str) else compressor
    if custom is not None:
        Custom.check(custom, arguments)
        compressor = "none"
    options = Options.of({**arguments, "compressor": compressor})
    check_given(compressor)
    check_flag("parameter_changes", parameter_changes)
    if parameter_changes and parameters is None:
        raise _core.ConfigError("parameter_changes=True needs parameters, the compressor of the changes, such as 'int4'")
    Request("auto", transport, None).check()
    _check(replicas, options)
    check_scaler(scaler, on_nonfinite)
    units = _units.of(model)
    skips = replicas is None and _units.replica_rank(units) is None
    if on_nonfinite == "skip" and not skips:
        raise _core.ConfigError(
            "on_nonfinite='skip' needs a mesh of one dimension and no replicas: ranks with other shards would not skip the "
            "step; leave it out"
        )
    check_crates(options, _units.ranks(units), "gradwire.torch.fsdp.register", [parameters])
    # The parameters of units, some of which may be frozen.
    chosen = selected(model, dict(_units.whole(units)), options)
    # Refused before groups are created, so a refusal leaves nothing behind.
    for unit in units:
        check_free(unit)
    _units.shard_group(units)
    # Parameters that are not trained are sent as they are.
    gathered = [unit for unit in units if unit.trains] if parameters is not None else []
    if parameters is not None:
        _check_parameters(parameters, gathered, parameter_changes)
    check_zeros(units, compressor, replace(chosen, exchange="auto").votes(_units.whole(units)))
    handle = _handle(units, chosen, replicas, transport, scaler, custom)
    handle._has_replicas = replicas is not None or _units.replicas(units) > 1
    kind = "a spec string" if custom is None else handle._spec
    handle._compare({"compressor": kind, "parameters": parameters, "parameter_changes": parameter_changes, "scaler": "none" if scaler is None else "GradScaler"})
    if parameters is not None:
        named = _units.whole(gathered, gathered=True)
        of_parameters = replace(options, compressor=parameters, rules=None, exchange="gather-shards", on_nonfinite="error")
        gathering = _units.process_group(units, "_all_gather_process_group")
        # Changes are float32.
        request = Request("auto", transport, gathering, f"the messages of {parameters=}", narrow=not parameter_changes, values="parameter")
        on_devices = _units.on_devices(gathered, named, reduced=False)
        reducer = handle.gather(named, on_devices, selected(model, dict(named), of_parameters), request)
        plain = Plain(bytes_of(named), "the parameters", "all-gather", "use one that sends less, such as int8")
        warn_of_more(reducer, plain, stacklevel=3, sizes=sizes_of(handle._parameters_on_device))
    _install(handle, units, gathered, averages_shards=replicas is None, changes=parameter_changes)
    return handle


def _handle(
    units: List[_units.Unit], options: Options, replicas: Optional[Any], transport: str, scaler: Optional[Any], custom: Optional[Any]
) -> Sharded:
    """Connects the ranks that average shards, or the replicas of a shard."""
    if replicas is None:
        # Replicas average their reduced gradients; with equal random draws, their errors would not
        # cancel.
        seed = whole_number("seed", options.seed) + ((_units.replica_rank(units) or 0) << 32)
        options, named = replace(options, exchange="reduce-scatter", seed=seed), _units.whole(units)
        handle = Sharded(units, named, options, _units.shard_group(units), scaler, custom)
        plain = Plain(bytes_of(named), "the gradients", "reduce-scatter")
        if _units.replica_rank(units) is None:
            handle._suggest_skipping()
        group = _units.process_group(units, "_reduce_scatter_process_group")
    else:
        group, named = _units.replica_group(replicas, units), _units.shards(units)
        handle = Sharded(units, named, options, group, scaler, custom)
        handle._compare({"the shard that a rank of replicas holds": _units.shard_group(units).rank()})
        plain = Plain(bytes_of(named), "the gradients")
    if custom is not None:
        return handle
    handle.choose_transport(Request("auto", transport, group), _units.on_devices(units, named), options)
    warn_of_more(handle._reducer, plain, stacklevel=4, sizes=sizes_of(handle._on_device))
    return handle


def _install(handle: Sharded, units: List[_units.Unit], gathered: List[_units.Unit], averages_shards: bool, changes: bool) -> None:
    """Replaces the communication of FSDP2."""
    for unit in units:
        if averages_shards:
            handle.install(unit, "_reduce_scatter_comm", ReduceScatter(handle, unit))
        else:
            handle.install(unit, "_all_reduce_hook", AllReduce(handle, unit))
    for unit in units:
        exact = unit.param_group._all_gather_comm
        if TimedAllGather.suits(unit):
            exact = TimedAllGather(handle, unit, exact)
        if unit in gathered:
            handle.install(unit, "_all_gather_comm", GatherChanges(handle, unit, exact) if changes else AllGather(handle, unit))
        elif isinstance(exact, TimedAllGather):
            handle.install(unit, "_all_gather_comm", exact)


def _check_parameters(parameters: str, gathered: List[_units.Unit], changes: bool) -> None:
    """Refuses a compressor that changes the parameters too much, and units whose parameters
    gradwire cannot gather."""
    side = sample_side(max((size.numel() for unit in gathered for size in unit.padded), default=0))
    generator = torch.Generator("cpu").manual_seed(0)
    sample = torch.randn((side, side), generator=generator, dtype=torch.float32, device="cpu")
    check_quantizer("parameters", parameters, sample, changes)
    _units.check_gathering(gathered)


def _check(replicas: Optional[Any], options: Options) -> None:
    """Refuses an exchange that does not suit the model."""
    if replicas is not None:
        options.check_replicated("leave out exchange")
    elif options.exchange not in ("auto", "reduce-scatter"):
        raise _core.ConfigError(
            f"exchange={options.exchange!r} needs replicas, the process group of the ranks that hold the same shard; gradients "
            "of shards are averaged by reduce-scatter"
        )
