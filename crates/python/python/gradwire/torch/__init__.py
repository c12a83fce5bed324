"""The communication hook for DistributedDataParallel, FSDP2, and local steps."""

from . import fsdp
from ._handle import Handle
from ._hook import Hook, hook, register
from ._local import LocalSteps, Nesterov

__all__ = ["Handle", "Hook", "LocalSteps", "Nesterov", "fsdp", "hook", "register"]
