"""Errors that ranks tell each other, and the names of ranks in them."""

from __future__ import annotations

import json
import re
from typing import Any, Sequence, Tuple

from .. import _core

# The number of a rank, unless its place follows.
_RANK = re.compile(r"\brank (\d+)\b(?! \()")


def packed(error: Exception) -> bytes:
    """The type and text of an error."""
    return json.dumps([type(error).__name__, str(error)]).encode()


def unpacked(report: bytes) -> Tuple[str, str]:
    """The type and text of an error that ``packed`` packed."""
    kind, text = json.loads(report)
    return kind, text


def error_of(kind: str, text: str, where: str = "") -> Exception:
    """An error of another rank, which begins with ``where``: of the same type, if it is
    gradwire's."""
    known: Any = getattr(_core, kind, None)
    if not (isinstance(known, type) and issubclass(known, _core.GradwireError)):
        known, text = _core.PeerLostError, f"{kind}: {text}"
    error: Exception = known(where + text)
    return error


def renumbered(error: Exception, names: Sequence[str]) -> Exception:
    """An error with names of ranks in place of their numbers, from 0."""
    name = lambda found: f"rank {names[int(found[1])]}" if int(found[1]) < len(names) else found[0]
    text = _RANK.sub(name, str(error))
    return error if text == str(error) else type(error)(text)
