"""The communication hook for DistributedDataParallel, and local steps."""

from ._hook import Hook, hook, register
from ._local import LocalSteps, Nesterov

__all__ = ["Hook", "LocalSteps", "Nesterov", "hook", "register"]
