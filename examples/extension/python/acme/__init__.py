"""The compressors of acme in gradwire. Import this package before gradwire."""

import sys

from . import _native

if sys.modules.setdefault("gradwire._core", _native) is not _native:
    raise ImportError("gradwire was imported first, without the compressors of acme; import acme before gradwire")
