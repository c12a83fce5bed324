"""States of all ranks from a distributed checkpoint."""

from __future__ import annotations

import os
from typing import Any, Dict, Union

from .. import _core
from ._setup import State


def read_checkpoint(checkpoint_id: Union[str, os.PathLike[str]], name: str = "gradwire") -> State:
    """The states of all ranks in a checkpoint of ``torch.distributed.checkpoint``, for ``handle.load_state_dict``.

    ``dcp.load`` gives each rank the state that it saved. After a change of the number of ranks, each rank needs those of all
    old ranks. ``name`` is the key under which ``handle.state_dict()`` was saved. All ranks must call it at the same time.
    """
    # Imported here, because it takes as long as the rest of this package.
    import torch.distributed.checkpoint as dcp

    found = dcp.FileSystemReader(checkpoint_id).read_metadata().state_dict_metadata
    state: State = {}
    for key in found:
        if key.startswith(f"{name}."):
            *folders, last = key[len(name) + 1 :].split(".")
            place = state
            for folder in folders:
                place = place.setdefault(folder, {})
            place[last] = None
    if not state.get("exchange"):
        raise _core.StateError(
            f"{os.fspath(checkpoint_id)} has no state of gradwire under '{name}'; give the key that it was saved under"
        )
    dcp.load({name: state}, checkpoint_id=checkpoint_id)
    return state
