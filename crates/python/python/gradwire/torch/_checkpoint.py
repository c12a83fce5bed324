"""States of all ranks from a distributed checkpoint."""

from __future__ import annotations

import os
from typing import Any, Dict, Union

from .. import _core
from ._states import State


def read_checkpoint(checkpoint_id: Union[str, os.PathLike[str]], name: str = "gradwire") -> State:
    """The states of all ranks in a checkpoint of ``torch.distributed.checkpoint``, for
    ``handle.load_state_dict``.

    ``dcp.load`` gives each rank the state that it saved. After a change of the number of ranks,
    each rank needs the states of all old ranks. For ``LocalSteps`` of a model that ``fully_shard``
    has sharded, these have the rows of all ranks of all sites, which every rank reads into main
    memory: common parameters, states of optimizers, and residuals. ``name`` is the key under which
    ``state_dict()`` was saved. All ranks must call it at the same time.

    Raises ``StateError`` if there is no checkpoint with such a state.
    """
    # Imported here, because the import takes as long as the rest of this package.
    import torch.distributed.checkpoint as dcp

    prefix = f"{name}.exchange."
    try:
        found = dcp.FileSystemReader(checkpoint_id).read_metadata().state_dict_metadata
    except Exception as error:
        raise _core.StateError(
            f"{checkpoint_id} is not a distributed checkpoint ({type(error).__name__}: {error}); give the folder that "
            "torch.distributed.checkpoint.save wrote"
        ) from error
    if f"{name}.common" in found:
        raise _core.StateError(
            f"{os.fspath(checkpoint_id)} has a state of LocalSteps under '{name}'; load it with dcp.load on the same number of ranks. To "
            "resume on another number, save the state with torch.save"
        )
    ranks: Dict[str, Any] = {key[len(prefix) :]: None for key in found if key.startswith(prefix)}
    if not ranks:
        raise _core.StateError(
            f"{os.fspath(checkpoint_id)} has no state of gradwire under '{name}'; give the key under which you saved it"
        )
    shards = {key[len(name) + 7 :]: None for key in found if key.startswith(f"{name}.shard.")}
    entries = ("gradwire", "step", "world_size", *(("round", "fragments") if shards else ()))
    for entry in entries:
        if f"{name}.{entry}" not in found:
            raise _core.StateError(
                f"{os.fspath(checkpoint_id)} has no '{name}.{entry}', which state_dict() returns; load another checkpoint"
            )
    state: State = {**dict.fromkeys(entries), "exchange": ranks}
    if shards:
        # Of local steps of sharded replicas.
        state.update(shard=shards, sent=dict.fromkeys(shards))
    dcp.load({name: state}, checkpoint_id=checkpoint_id)
    return state
