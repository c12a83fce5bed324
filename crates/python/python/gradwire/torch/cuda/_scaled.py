"""The values of a bucket that keep the factor of a ``GradScaler`` on their way.

``none`` sends gradients of 16 bits as they are, as the host does; others are divided by the factor
before they are sent, and their means are multiplied by it.
"""

from __future__ import annotations

from typing import List, Sequence

import torch

from .._staging import Scale, is_one
from ._batch import Slot


class Scaled:
    """The places of values in a bucket. ``kept`` are those that keep the factor, and ``divided``
    those of the results that do not."""

    def __init__(self, kept: Sequence[Slot], divided: Sequence[Slot]) -> None:
        self._kept, self._divided = kept, divided

    def keep(self, values: torch.Tensor, bucket: torch.Tensor) -> None:
        """Gives values that were divided by the factor, where they keep it, the numbers of the
        bucket again."""
        if values is not bucket and self._kept:
            torch._foreach_copy_(_parts(values, self._kept), _parts(bucket, self._kept))

    def multiply(self, results: torch.Tensor, scale: Scale) -> Scale:
        """The factor that all results lack. If some have it, multiplies the others here."""
        if is_one(scale) or not self._kept:
            return scale
        if self._divided:
            torch._foreach_mul_(_parts(results, self._divided), scale)
        return 1.0


def _parts(values: torch.Tensor, slots: Sequence[Slot]) -> List[torch.Tensor]:
    return [values[slot.start : slot.start + slot.elements] for slot in slots]
