"""Compressors for what the workers of distributed training exchange.

``gradwire.torch`` makes a DistributedDataParallel script communicate through them; ``compress`` and
``decompress`` turn arrays and tensors into self-describing bytes and back.
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
from ._core import compressors as list

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
    "list",
]
