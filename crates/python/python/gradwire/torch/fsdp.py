"""Compressed gradients for models that ``fully_shard`` (FSDP2) has sharded.

Every rank holds a shard of each parameter: usually a chunk of its rows. In a backward pass FSDP2 reduce-scatters gradients, module
by module: each rank gets the mean of its shard. ``register`` compresses these messages. With ``replicas``, FSDP2's own
reduce-scatter stays, for fast links inside a node, and the means of shards are averaged with compressed messages
between nodes.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import torch

from .. import _core
from .._specs import check_quantizer, sample_side
from . import _setup, _units
from ._handle import Handle
from ._names import selected
from ._sharded import AllGather, AllReduce, ReduceScatter, Sharded, check_free, check_zeros
from ._timed_gather import TimedAllGather
from ._traffic import warn_of_more

__all__ = ["Handle", "register"]


def register(
    model: torch.nn.Module,
    compressor: str = "eden",
    *,
    replicas: Optional[Any] = None,
    parameters: Optional[str] = None,
    rules: _setup.Rules = None,
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
) -> Handle:
    """Compresses the gradients that a model sharded by ``fully_shard`` exchanges.

    Call it after ``fully_shard``, on all ranks at the same time. Without ``replicas``, the reduce-scatter of the shards is
    compressed; with a mesh of two dimensions (HSDP), PyTorch's all-reduce between replicas stays uncompressed. With
    ``replicas``, a process group or a mesh of one dimension with the ranks that hold the same shard, the mean of each
    shard is averaged over these ranks with compressed messages, by ``exchange``; the model must then be sharded over a
    mesh of one dimension, and ``set_requires_all_reduce(False)`` has no effect. Without ``replicas``, ``exchange`` must be ``auto`` or
    ``reduce-scatter``, which both are the reduce-scatter of the shards; others raise ``ConfigError``.

    ``parameters``, such as ``"int8"``, ``"8bit"`` or ``"fp16"``, also compresses the parameters that FSDP2 gathers for the
    forward pass, and again for the backward pass if it frees them in between. They are sent whole each time, without
    error feedback: training goes on with rounded parameters, while each rank's shards, which the optimizer updates and
    checkpoints contain, stay exact. Modules of which nothing is trained at registration are gathered as they are.
    ``raw_vectors``, ``raw_below`` and ``raw_names`` apply, ``rules`` do not.

    ``rules``, ``raw_…`` and all other arguments are those of ``gradwire.torch.register``. Names and sizes are those of whole
    parameters; with ``replicas``, sizes are those of shards. Low-rank methods see a shard as a matrix: the rows of a parameter, or
    its columns if ``shard_placement_fn`` says so. Parameters must be sharded over the same ranks, and must not be DTensors of
    tensor or expert parallelism before ``fully_shard``. One that is trained and in no module of ``fully_shard`` raises
    ``ConfigError``, since nothing averages it; those in ``ignored_params`` are the caller's. Over a single rank FSDP2 exchanges
    nothing, and neither does gradwire.

    With ``on_nonfinite="skip"``, which needs a ``scaler``, a mesh of one dimension and no ``replicas``, gradients become NaN in the
    first module where they are not finite and in all later ones.
    """
    common: Dict[str, Any] = dict(
        seed=seed,
        deadline=deadline,
        raw_vectors=raw_vectors,
        raw_below=raw_below,
        raw_names=raw_names,
        total_steps=total_steps,
        threads=threads,
    )
    options = {**common, "rules": rules, "on_nonfinite": on_nonfinite}
    _setup.check_given(compressor)
    _check(replicas, exchange)
    _setup.check_scaler(scaler, on_nonfinite)
    units = _units.of(model)
    skips = replicas is None and _units.replica_rank(units) is None
    if on_nonfinite == "skip" and not skips:
        raise _core.ConfigError(
            "on_nonfinite='skip' needs a mesh of one dimension and no replicas: ranks with other shards would not skip the "
            "step; leave it out"
        )
    # The parameters of units, some of which may be frozen.
    options = selected(model, dict(_units.whole(units)), {**options, "raw_names": raw_names})
    # Refused before groups are created, so that a refusal leaves nothing behind.
    for unit in units:
        check_free(unit)
    # Parameters that are not trained are sent as they are.
    gathered = [unit for unit in units if unit.trains] if parameters is not None else []
    if parameters is not None:
        _check_parameters(parameters, gathered)
    shards = _units.shard_group(units)
    check_zeros(units, compressor, _setup.votes(_units.whole(units), compressor, **options))
    if replicas is None:
        # Replicas average what they reduce; with equal random draws, their errors would not cancel.
        options["seed"] = _setup.whole_number("seed", seed) + ((_units.replica_rank(units) or 0) << 32)
        handle = Sharded(units, _units.whole(units), compressor, shards, "reduce-scatter", options, scaler)
    else:
        group = _units.replica_group(replicas, units)
        handle = Sharded(units, _units.shards(units), compressor, group, exchange, options, scaler)
        handle._compare({"the shard that a rank of replicas holds": str(shards.rank())})
        warn_of_more(handle._reducer, 4 * sum(shard.numel() for _, shard in _units.shards(units)), "the gradients", stacklevel=3)
    if skips:
        handle._suggest_skipping()
    handle._has_replicas = replicas is not None or _units.replicas(units) > 1
    handle._compare({"parameters": str(parameters), "scaler": "none" if scaler is None else "GradScaler"})
    if parameters is not None:
        named = _units.whole(gathered)
        handle.gather(named, parameters, shards, selected(model, dict(named), common))
    for unit in units:
        if replicas is None:
            handle.install(unit, "_reduce_scatter_comm", ReduceScatter(handle, unit))
        else:
            handle.install(unit, "_all_reduce_hook", AllReduce(handle, unit))
    for unit in units:
        if unit in gathered:
            handle.install(unit, "_all_gather_comm", AllGather(handle, unit))
        elif TimedAllGather.suits(unit):
            handle.install(unit, "_all_gather_comm", TimedAllGather(handle, unit, unit.group._all_gather_comm))
    return handle


def _check_parameters(parameters: str, gathered: List[_units.Unit]) -> None:
    """Refuses a compressor that changes much of the parameters, and units that cannot gather them by gradwire."""
    side = sample_side(max((size.numel() for unit in gathered for size in unit.padded), default=0))
    generator = torch.Generator("cpu").manual_seed(0)
    sample = torch.randn((side, side), generator=generator, dtype=torch.float32, device="cpu")
    check_quantizer("parameters", parameters, sample)
    _units.check_gathering(gathered)


def _check(replicas: Optional[Any], exchange: str) -> None:
    """Refuses an exchange that does not suit."""
    if replicas is not None:
        _setup.check_replicated({"exchange": exchange}, "leave out exchange")
    elif exchange not in ("auto", "reduce-scatter"):
        raise _core.ConfigError(
            f"exchange={exchange!r} needs replicas, the process group of the ranks that hold the same shard; gradients "
            "of shards are averaged by reduce-scatter"
        )
