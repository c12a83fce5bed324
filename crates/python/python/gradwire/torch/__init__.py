"""The communication hook for DistributedDataParallel, FSDP2, and local steps."""

from . import fsdp
from ._checkpoint import read_checkpoint
from ._handle import Handle
from ._hook import Hook, hook, register
from ._local import LocalSteps, Nesterov

__all__ = ["Handle", "Hook", "LocalSteps", "Nesterov", "fsdp", "hook", "read_checkpoint", "register"]
