"""The registration of a model that DistributedDataParallel has wrapped."""

from __future__ import annotations

from typing import Any, FrozenSet, Optional, Sequence

import torch
from torch.nn.parallel import DistributedDataParallel

from .. import _core
from ._averaged import is_awaited
from ._checks import is_sharded
from ._hook import Hook, hook
from ._onebit_adam import OneBitAdam
from ._options import Rules
from ._tensors import trainable, uncompiled


def register(
    model: Any,
    compressor: Any = "eden",
    *,
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
    optimizer: Optional[OneBitAdam] = None,
    device: str = "auto",
    transport: str = "auto",
    threads: int = 1,
    nodes: Optional[Any] = None,
    inside: Optional[str] = None,
) -> Hook:
    """Makes a DistributedDataParallel model average its gradients through gradwire.

    All ranks must call it at the same time, with the same arguments; only ``deadline``, ``device``
    and ``threads`` may differ. If messages cannot stay on the device of one rank, the messages of
    all ranks pass through the host. Messages through main memory travel over gloo, even if the
    process group is NCCL, and so do settings and states. Between machines set
    ``GLOO_SOCKET_IFNAME``.

    Args:
        model: the DistributedDataParallel model. It may be compiled:
            ``torch.compile(DistributedDataParallel(module))``.
        compressor: a spec string (``"eden"``, ``"eden:bits=2"``), a schedule
            (``"none until 200 then eden:bits=2"``), or an object with ``compress(tensor) -> bytes``
            and ``decompress(bytes, shape) -> tensor``. Such an object gets the gradients of all
            tensors, including vectors, and its messages travel by all-gather. ``deadline`` is the
            only other argument that it supports. Default: ``"eden"``
        rules: other compressors for some tensors, selected by name, size or kind:
            ``{"*head*": "none", ">=100000": "int8"}``. The first rule that matches a tensor
            applies. A name pattern must match a tensor. Default: none
        exchange: ``"all-gather"``, ``"scatter-reduce"`` (a reduce-scatter, then an all-gather),
            ``"all-reduce"`` or ``"auto"``. Default: ``"auto"``
        seed: the seed of all random draws, from 0. Default: 0
        deadline: the longest wait for another rank, in seconds, above 0, at most 86,400. Work that
            a rank does alone, such as an evaluation, must take less. Under NCCL with
            ``transport="device"``, steps have the timeout of the process group instead.
            Default: 300.0
        on_nonfinite: ``"error"``, or ``"skip"``: all ranks skip a step in which the gradients of a
            rank contain NaN or infinity. Such a step changes no residual. Gradients become NaN from
            the bucket with the first such value onwards, so the ``GradScaler`` skips the step of an
            optimizer that has all parameters. ``"skip"`` needs ``scaler``. Default: ``"error"``
        scaler: the ``GradScaler`` of mixed precision training. With it, residuals do not depend on
            its scale. Default: ``None``
        raw_vectors: send tensors of one dimension (norms, biases) uncompressed unless a rule
            matches them. Default: ``True``
        raw_below: the same for tensors with fewer elements than this. Default: 256
        raw_names: the same for tensors whose name contains one of these words. Each word must be in
            the name of a parameter. Default: none
        total_steps: the number of steps of the run, from 1, for schedules with fractions of it.
            Default: ``None``
        optimizer: a ``OneBitAdam``. After its freeze, ranks exchange its momentum instead of
            gradients. Default: ``None``
        device: where gradients on a GPU are compressed. ``"auto"``: by Triton kernels on the GPU if
            all compressors have one, else on the host, with a ``RuntimeWarning`` that says why.
            ``"host"``: on the host. ``"gpu"``: on the GPU, or raise an error. Messages are the
            same. Default: ``"auto"``
        transport: how messages travel. ``"device"``: they stay on the device, and travel by the
            model's own process group, as uint8; without lossless codes, so they are longer for some
            compressors. ``"host"``: through main memory, over gloo. ``"auto"``: ``"device"`` if the
            process group is NCCL and the messages of all compressors have a fixed length there.
            Means are the same, up to the last bit of a scale. On a GPU, gradients that are not
            finite are reported one step late, when the optimizer has made the parameters NaN; then
            training continues from a checkpoint. Default: ``"auto"``
        threads: the number of host threads, from 1, that compress and decompress the tensors of a
            bucket in parallel. Except with all-reduce, they divide a tensor that exceeds a thread's
            share of the bucket. More than one thread pays if training leaves cores idle. Messages
            do not depend on it. Default: 1
        nodes: two levels: the ranks of a node add their gradients without compression, over the
            backend of the process group, and each of them compresses a part of the sum and
            exchanges it with the ranks that have the same part on other nodes. ``"auto"``: the
            nodes that torchrun started (``GROUP_RANK``), or else ranks with the same host name. An
            integer: the number of nodes. Or a ``DeviceMesh`` of nodes and ranks a node. Nodes must
            have the same number of ranks, which follow each other. With one node, or one rank a
            node, there is one level. ``exchange`` and ``transport`` are then those between nodes.
            Default: ``None``, one level
        inside: ``"bf16"``: the ranks of a node send each other gradients and averages in bfloat16.
            Sums are float32. Default: ``None``, in the type of the gradients

    Returns:
        The state of the hook: residuals, statistics, and the state of a checkpoint.

    Raises:
        ConfigError: an argument is wrong, differs between ranks, or does not suit the model.
        DeadlineError: a rank did not call ``register`` within ``deadline``.
    """
    arguments = dict(locals())
    model = uncompiled(arguments.pop("model"))
    _check(model)
    ignored = _left_out(model)
    _check_averaged(model, ignored)
    state = Hook(model.module, process_group=model.process_group, ignored=ignored, **arguments)
    try:
        state._follow(model)
        model.register_comm_hook(state, hook)
    except BaseException:
        state.close()
        raise
    return state


def _check(model: Any) -> None:
    """Refuses models that are not DistributedDataParallel, and arguments of DistributedDataParallel
    that exclude a hook."""
    if isinstance(model, DistributedDataParallel):
        if getattr(model, "mixed_precision", None) is not None:
            raise _core.ConfigError(
                "with mixed_precision=, DistributedDataParallel registers its own communication hook and allows no other; leave the "
                "argument out, and run the forward pass under torch.autocast"
            )
        if getattr(model, "_comm_hooks", None):
            raise _core.ConfigError(
                "the model has a communication hook already, and PyTorch allows only one; wrap the model in DistributedDataParallel "
                "again to register another"
            )
        if getattr(model, "skip_all_reduce_unused_params", False):
            raise _core.ConfigError(
                "with skip_all_reduce_unused_params, DistributedDataParallel skips buckets without telling the hook; leave the argument "
                "out"
            )
        if getattr(model, "_use_python_reducer", False):
            raise _core.ConfigError(
                "torch._dynamo.config.optimize_ddp is 'python_reducer', which calls hooks with single gradients; set it to 'ddp_optimizer'"
            )
        if any(hasattr(parameter, "_in_backward_optimizers") for parameter in model._module_parameters):
            raise _core.ConfigError(
                "an optimizer runs in the backward pass (_apply_optimizer_in_backward), for which DistributedDataParallel registers its "
                "own communication hook and allows no other; call optimizer.step() after the backward pass instead"
            )
        return
    kind = type(model).__name__
    if kind.endswith("ReplicateModule"):
        remedy = "replicate() has no hooks; wrap the model in DistributedDataParallel instead"
    elif isinstance(model, torch.nn.Module) and is_sharded(model):
        remedy = "for a model that fully_shard has sharded use gradwire.torch.fsdp.register"
    elif kind == "FullyShardedDataParallel":
        remedy = "shard it with fully_shard instead, and use gradwire.torch.fsdp.register"
    else:
        remedy = "wrap it in DistributedDataParallel first, or use gradwire.torch.LocalSteps with the plain model"
    raise _core.ConfigError(f"the model is a {kind}, not DistributedDataParallel; {remedy}")


def _check_averaged(model: DistributedDataParallel, ignored: FrozenSet[str]) -> None:
    """Refuses a model with parameters that were unfrozen or converted after it was wrapped."""
    for name, parameter in trainable(model.module, ignored):
        if not is_awaited(parameter):
            raise _core.ConfigError(
                f"DistributedDataParallel does not average '{name}': this parameter did not require gradients when the model was wrapped, "
                "or it was converted later, for example by model.to(torch.bfloat16); unfreeze and convert the model first, then wrap it "
                "and register"
            )


def _left_out(model: DistributedDataParallel) -> FrozenSet[str]:
    """The names of the parameters that DistributedDataParallel ignores.

    It does not ignore parameters of the root module, nor parameters that also have another name.
    """
    named = list(model.module.named_parameters(remove_duplicate=False))
    kept = {id(one) for name, one in named if "." not in name or name not in model.parameters_to_ignore}
    return frozenset(name for name, one in named if id(one) not in kept)
