"""The values of a bucket that keep the factor of a ``GradScaler`` on their way.

``none`` sends gradients of 16 bits as they are, as the host does; others are divided by the factor
before they are sent, and their means are multiplied by it. If this is not possible, because the
factor is 0 or not finite, the first of the values that keep it become NaN: values that were divided
are not finite then, either.
"""

from __future__ import annotations

import math
from typing import List, Sequence

import torch

from .._staging import Scale, divides, is_one
from ._batch import Slot


class Scaled:
    """The places of values in a bucket. ``kept`` are those that keep the factor, and ``divided``
    those of the results that do not."""

    def __init__(self, kept: Sequence[Slot], divided: Sequence[Slot]) -> None:
        self._kept, self._divided = kept, divided

    def keep(self, values: torch.Tensor, bucket: torch.Tensor, scale: Scale) -> None:
        """Gives values that were divided by the factor, where they keep it, the numbers of the
        bucket again."""
        if values is bucket or not self._kept:
            return
        torch._foreach_copy_(_parts(values, self._kept), _parts(bucket, self._kept))
        if isinstance(scale, torch.Tensor) or not divides(scale):
            # 1 or NaN; the host does not know a factor on the device.
            one = scale / scale if isinstance(scale, torch.Tensor) else math.nan
            for first in _firsts(values, self._kept):
                first.mul_(one)

    def multiply(self, results: torch.Tensor, scale: Scale) -> Scale:
        """The factor that all results lack. If some have it, multiplies the others here."""
        if is_one(scale) or not self._kept:
            return scale
        if self._divided:
            torch._foreach_mul_(_parts(results, self._divided), scale)
        return 1.0


def _parts(values: torch.Tensor, slots: Sequence[Slot]) -> List[torch.Tensor]:
    return [values[slot.start : slot.start + slot.elements] for slot in slots]


def _firsts(values: torch.Tensor, slots: Sequence[Slot]) -> List[torch.Tensor]:
    return [values[slot.start : slot.start + 1] for slot in slots if slot.elements]
