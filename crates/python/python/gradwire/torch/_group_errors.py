"""Errors of ranks that wait in vain for others in a compressed call of a process group."""

from __future__ import annotations

from .. import _core
from ._group_options import GroupOptions


def named(error: _core.DeadlineError, call: str, group: str, options: GroupOptions) -> _core.DeadlineError:
    """The error of a call of a process group with the call's name, and with the reasons why a rank
    that is running may not answer."""
    return _core.DeadlineError(f"{error}. The call is {call} of process group '{group}'{_why(options)}")


def _why(options: GroupOptions) -> str:
    """Why another rank may have passed its call on, and what to do."""
    reasons = []
    if options.when == "backward":
        reasons.append("it came outside of a backward pass and of gradients()")
    if options.raw_below:
        reasons.append(f"its tensor has fewer than {options.raw_below} elements (raw_below)")
    if not reasons:
        return ""
    return (
        f". If that rank is running, it may have passed its call on, because {' or '.join(reasons)}: make the same calls on all ranks; "
        "describe() of the group lists what a rank has passed on"
    )
