"""Sends new weights as lossless deltas: from a trainer to inference engines, or between sites.

Both ends hold the same base weights. ``Sender.diff`` writes the changes to new ones,
``Receiver.stage`` proves them before a weight is written, and ``Folder`` passes them on through a
shared disk. Weights are numpy arrays, PyTorch tensors, or safetensors files. Every bit arrives as
it was.
"""

from ._folder import Folder, fold, join
from ._receiver import Receiver
from ._sender import Sender
from ._update import Update

__all__ = ["Folder", "Receiver", "Sender", "Update", "fold", "join"]
