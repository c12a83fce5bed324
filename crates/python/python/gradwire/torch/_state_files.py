"""The states of the ranks of a run in a folder, a file for each rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import torch

from .. import _core
from . import _saved
from ._states import State


def _file(folder: Path, rank: int) -> Path:
    """The file of a rank's state in the folder of a checkpoint."""
    return folder / f"gradwire-rank{rank}.pt"


def _marker(folder: Path, rank: int) -> Path:
    """The file that a rank writes in place of its state if it has none to save."""
    return folder / f"gradwire-rank{rank}.without-residuals"


def write(folder: Path, rank: int, state: State) -> None:
    """Writes a rank's state, which appears whole or not at all, or a marker if it is empty."""
    folder.mkdir(parents=True, exist_ok=True)
    if not state:
        _marker(folder, rank).touch()
        return
    target = _file(folder, rank)
    partial = target.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(target)
    _marker(folder, rank).unlink(missing_ok=True)


def remove_stale(folder: Path, size: int) -> None:
    """Removes the files of an earlier run with more than ``size`` ranks."""
    for file in folder.glob("gradwire-rank*.*"):
        number = file.stem[len("gradwire-rank") :]
        if number.isdecimal() and int(number) >= size:
            file.unlink(missing_ok=True)


def read(folder: Path, rank: int, size: int) -> Optional[Any]:
    """A rank's state, or the states of all ranks if another number of ranks saved them; ``None`` if
    there are none."""
    if next(folder.glob("gradwire-rank*.pt"), None) is None or next(folder.glob("gradwire-rank*.without-residuals"), None):
        return None
    # All ranks decide by the file of rank 0, or by their own file on a node whose disk lacks rank
    # 0's.
    first = next((one for one in (0, rank) if _file(folder, one).is_file()), 0)
    saved: int = _load(folder, first)["world_size"]
    states = [_load(folder, one) for one in ([rank] if saved == size else range(saved))]
    for state in states:
        if state["world_size"] != saved:
            raise _core.StateError(
                f"{folder} has states of runs with {saved} and with {state['world_size']} ranks; remove the gradwire-rank*.pt files of "
                "one run"
            )
    return states[0] if saved == size else states


def _load(folder: Path, rank: int) -> Any:
    file = _file(folder, rank)
    if not file.is_file():
        raise _core.StateError(
            f"{file} is missing. Every rank of the saved run wrote its own file, and a run on another number of ranks needs all of them; "
            "copy the file from the machine of that rank"
        )
    # Mapped into memory, because all ranks read the number of ranks from one file.
    state = torch.load(str(file), weights_only=True, map_location="cpu", mmap=True)
    try:
        _saved.check(state, "hook")
    except _core.StateError as error:
        raise _core.StateError(f"{file}: {error}") from error
    return state
