"""The communication hook for DistributedDataParallel, FSDP2, and local steps."""

from . import fsdp
from ._advice import Advice, advise
from ._checkpoint import read_checkpoint
from ._custom_check import check
from ._handle import Handle
from ._hook import Hook, hook
from ._local import LocalSteps
from ._mid_step import MidStepError
from ._onebit_adam import OneBitAdam
from ._outer import Nesterov
from ._register import register

__all__ = [
    "Advice",
    "Handle",
    "Hook",
    "LocalSteps",
    "Nesterov",
    "OneBitAdam",
    "MidStepError",
    "advise",
    "check",
    "fsdp",
    "hook",
    "read_checkpoint",
    "register",
]
