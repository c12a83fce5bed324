"""How long ranks wait for each other, in seconds and in parts of the user's deadline."""

from datetime import timedelta
from typing import Any

# The default of the longest wait for another rank, and the most that the user may set: a day.
DEADLINE, LONGEST = 300.0, 86_400

# Ranks that have met wait at least this long for their connections.
CONNECT = 60.0

# A rank that waits for an FSDP2 gather reports its presence after this part of the deadline.
TELL = 0.25

# Workers that have met connect within this time and this part of the deadline. If one does not
# come, there must be time left to meet without it.
CONNECT_WORKERS, PART_TO_CONNECT = 10.0, 1 / 3

# A worker that was in a group before waits this many deadlines: the others may wait for a lost
# worker in the round, and again while they connect.
SURVIVOR_DEADLINES = 3

# The longest waits for an answer of the lighthouse, and for its acknowledgement of a heartbeat.
LIGHTHOUSE, HEARTBEAT = 10.0, 5.0

# A rank that waits for a rank of its site waits this many deadlines: that rank may wait for another
# site. In a round, ranks wait for other sites first.
WAITING_DEADLINES = 2


def deadline_of(timeout: timedelta) -> float:
    """The deadline of a process group with a timeout: as long, at most ``LONGEST``."""
    seconds = timeout.total_seconds()
    return min(seconds, float(LONGEST)) if seconds > 0.0 else DEADLINE


def deadline_of_group(group: Any) -> float:
    """The deadline of a process group by the timeout of its backends; the default if they do not
    tell it."""
    for device in sorted(group._device_types, key=str):
        try:
            return deadline_of(group._get_backend(device).options._timeout)
        except (AttributeError, RuntimeError):
            continue
    return DEADLINE
