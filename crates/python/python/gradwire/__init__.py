"""Compresses the gradients and updates that workers exchange in distributed training.

``gradwire.torch`` registers a communication hook with DistributedDataParallel. ``compress`` and
``decompress`` convert arrays and tensors to self-describing bytes and back.
"""

from ._arrays import compress, decompress
from ._core import (
    ConfigError,
    DeadlineError,
    GradwireError,
    MessageError,
    NonFiniteError,
    PeerLostError,
    StateError,
    __version__,
    canonical,
)
from ._core import compressors as _compressors

# Not in ``__all__``: ``from gradwire import *`` must leave Python's own list as it is.
list = _compressors

__all__ = [
    "ConfigError",
    "DeadlineError",
    "GradwireError",
    "MessageError",
    "NonFiniteError",
    "PeerLostError",
    "StateError",
    "__version__",
    "canonical",
    "compress",
    "decompress",
]
