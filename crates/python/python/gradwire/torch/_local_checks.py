"""Refuses models and optimizers that local steps cannot train."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch

from .. import _core
from ._checks import check_optimizer, check_others, check_types, check_unwrapped, check_whole, is_sharded
from ._copyable import check_copyable
from ._local_options import LocalOptions
from ._masking import check_maskable, sent_in_part
from ._tensors import Named


def check_model(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, options: LocalOptions, process_group: Optional[Any]
) -> None:
    """Refuses options that are impossible, and models that local steps cannot train."""
    if not isinstance(model, torch.nn.Module) or not hasattr(optimizer, "param_groups"):
        given = f"{type(model).__name__} and {type(optimizer).__name__}"
        raise _core.ConfigError(f"LocalSteps takes a model and its optimizer, but got {given}; write LocalSteps(model, optimizer)")
    options.check()
    sharded = is_sharded(model)
    if sharded:
        _check_sharded(options, process_group)
    check_unwrapped(model, sharded)
    check_whole([*([] if sharded else model.named_parameters()), *model.named_buffers()])
    check_copyable(model)
    check_types(model)


def _check_sharded(options: LocalOptions, process_group: Optional[Any]) -> None:
    """Refuses a model that ``fully_shard`` has sharded, if it is not known which ranks hold the
    same shard."""
    if process_group is None and options.lighthouse is None:
        raise _core.ConfigError(
            "fully_shard has sharded this model, so process_group must be the ranks that hold the same shard in other sites: shard the "
            "model over mesh['shards'] of init_device_mesh(device, (sites, shards), mesh_dim_names=('sites', 'shards')), and pass "
            "process_group=mesh['sites']; or pass the model before you shard it"
        )
    if options.nodes is not None:
        raise _core.ConfigError(
            "fully_shard has sharded this model, so each rank of a site already exchanges its own rows; leave out nodes, which divides whole models"
        )


def check_local_optimizer(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, named: Sequence[Named], options: LocalOptions
) -> None:
    """Refuses an optimizer whose parameters rounds would not average, or that does not suit the
    compressors."""
    check_optimizer(optimizer, [parameter for _, parameter in named])
    check_others(optimizer, model)
    options.check_votes(named)
    if options.mask:
        sparse = sent_in_part(named, options)
        if sparse and options.nodes is not None:
            raise _core.ConfigError(
                f"with nodes, a rank knows which elements of its own slices were sent, but not those of '{sparse[0][0]}' that other ranks own, so it "
                "cannot set their momentum to zero; pass mask=False"
            )
        if sparse:
            check_maskable(optimizer, sparse)
