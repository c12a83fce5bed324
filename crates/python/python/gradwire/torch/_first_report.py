"""The first report of a lost rank, for ranks that notice the loss after the reporter has ended."""

from __future__ import annotations

from threading import Thread
from typing import List

import torch.distributed as dist

# The seconds that the store has to answer. It may be on the machine that is lost.
_PATIENCE = 5.0


def first_report(key: str, own: str) -> str:
    """The report that a rank of the job gave first under a key; ``own`` if it is this one, or if
    the job's store does not answer."""
    answers: List[str] = []

    def ask() -> None:
        try:
            store = dist.distributed_c10d._get_default_store()
            answers.append(store.compare_set(f"gradwire/lost/{key}", "", own).decode())
        except Exception:
            # The store may have ended with its process.
            pass

    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_PATIENCE)
    return answers[0] if answers and answers[0] else own
