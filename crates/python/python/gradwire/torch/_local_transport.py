"""Chooses how the changes of local steps travel."""

from __future__ import annotations

from typing import Any, List, Optional

import torch
import torch.distributed as dist

from . import _device
from ._device import Place, Request
from ._local_options import LocalOptions
from ._replica import Replica
from ._tensors import Named, shape_of


def choose(replica: Replica, options: LocalOptions, process_group: Optional[Any]) -> Place:
    """Keeps the messages of a replica's changes on the device of its parameters if the options ask
    for it, or allow it and it is possible. All ranks of the group must call it."""
    group = dist.group.WORLD if process_group is None else process_group
    devices = {parameter.device for parameter in replica.trained}
    request = Request("auto", options.transport, group, values="change", devices=devices, reason=_reason_for_host(replica, options))
    place = _device.of_transport(request, replica.reducer, _changes(replica), options)
    if place.transport is not None:
        replica.use_transport(place.transport)
    return place


def _reason_for_host(replica: Replica, options: LocalOptions) -> Optional[str]:
    """Why changes are in main memory."""
    if replica.site.is_sharded:
        return "fully_shard has sharded the model"
    if options.common_device != "model":
        return "the common parameters are in main memory; pass common_device='model'"
    return options.reason_for_host()


def _changes(replica: Replica) -> List[Named]:
    """Tensors like the changes of a round, without memory."""
    like = lambda parameter: torch.empty(1, dtype=torch.float32, device=parameter.device)
    return [(name, like(parameter).expand(shape_of(parameter))) for name, parameter in replica.named]
