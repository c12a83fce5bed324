"""The communication hook for DistributedDataParallel, FSDP2, and local steps."""

from . import fsdp
from ._advice import Advice, advise
from ._backend import configure, describe, groups, load_state_dict, register_backend, state_dict, wrap
from ._checkpoint import read_checkpoint
from ._custom_check import check
from ._functions import all_gather_into_tensor, all_reduce, reduce_scatter_tensor
from ._gradient_calls import gradients
from ._handle import Handle
from ._hook import Hook, hook
from ._local import LocalSteps
from ._loop import average_gradients
from ._mid_step import MidStepError
from ._onebit_adam import OneBitAdam
from ._outer import Nesterov
from ._register import register
from ._tokens import all_to_all_single

__all__ = [
    "Advice",
    "Handle",
    "Hook",
    "LocalSteps",
    "Nesterov",
    "OneBitAdam",
    "MidStepError",
    "advise",
    "all_gather_into_tensor",
    "all_reduce",
    "all_to_all_single",
    "average_gradients",
    "check",
    "configure",
    "describe",
    "fsdp",
    "gradients",
    "groups",
    "hook",
    "load_state_dict",
    "read_checkpoint",
    "reduce_scatter_tensor",
    "register",
    "state_dict",
    "wrap",
]

register_backend()
