"""``powersgd`` and ``gradzip``: two thin factors of a matrix.

The gradient ``C``, rows × columns, stays on the device. The host averages and orthonormalises
factors, rank × (rows + columns) numbers. PyTorch computes the products with ``C``, because a rank's
own addends may be summed in any order. The product of the averaged factors must have the same bits
on all ranks, so its terms are added in the host's order, and each is rounded.
"""

from __future__ import annotations

from math import prod
from typing import List, NamedTuple, Tuple

import torch
import triton
import triton.language as tl

from ._batch import Batch, Slot
from ._forms import Forms
from ._launch import over
from ._rounds import Round, Rounds
from ._source import Source
from ._tensors import Tensors, add_at, block_of, in_bucket


class _Factors(NamedTuple):
    """A factor of each tensor in an array, and the index of its first number."""

    data: torch.Tensor
    starts: torch.Tensor


class Factored(Rounds):
    """Both methods. They differ in the factors that the host makes."""

    def dimensions(self, slot: Slot) -> Tuple[int, int]:
        """The rows and columns of a tensor with factors, as on the host; zeros for a tensor that is
        sent uncompressed."""
        if len(slot.shape) < 2 or slot.elements == 0:
            return 0, 0
        rows, columns = slot.shape[0], prod(slot.shape[1:])
        smaller = (rows + columns) * self.config.whole("rank") < rows * columns
        return (rows, columns) if smaller else (0, 0)

    def contribute(self, batch: Batch, source: Source, round: Round) -> None:
        for at, slot in enumerate(batch.slots):
            if round.places[at] is None:
                continue
            c, addend = self.values(source, slot), round.addend(at)
            if self.dimensions(slot) == (0, 0):
                addend.copy_(c)
            else:
                self._multiply(c.view(self.dimensions(slot)), round.number, round.form(at), addend)

    def _multiply(self, c: torch.Tensor, number: int, form: torch.Tensor, addend: torch.Tensor) -> None:
        """``C·Q`` in the first round, ``Cᵀ·P`` in the second; zeros if a number is too large."""
        (rows, _), rank = c.shape, self.config.whole("rank")
        limit, factors = form[0], form[1:].view(-1)
        if number == 0:
            c = c.T
        elif factors.numel() > rank * rows:
            # Skips ``P``; the factor to multiply by, ``Q``, follows it.
            factors = factors[rank * rows :]
        product = addend.view(rank, -1)
        # The host determines the length of an addend, and ``dimensions`` must agree.
        assert product.shape[1] == c.shape[1], f"an addend of {product.shape[1]} numbers for a matrix with {c.shape[1]}"
        multiply(factors.view(rank, -1), c, product)
        # A comparison with NaN is false.
        product.masked_fill_(~(product.abs().amax() <= limit), 0.0)

    def take_out(self, batch: Batch, source: Source, round: Round) -> None:
        if source.residual is None:
            return
        lengths = []
        for at, slot in enumerate(batch.slots):
            last = round.number == (0 if self.dimensions(slot) == (0, 0) else 1)
            lengths.append(slot.elements if last and round.places[at] is not None else 0)
        if not any(lengths):
            return
        places = [one or (0, 0, 0, 0) for one in round.places]
        p = _Factors(round.forms, batch.vector([start // 4 + 1 for start, _, _, _ in places]))
        q = _Factors(round.addends, batch.vector([start // 4 for _, _, start, _ in places]))
        self._add(batch, p, q, Tensors(source.residual, batch.kept, batch.vector(lengths)), -1.0)

    def add(self, batch: Batch, forms: Forms, out: torch.Tensor, weight: float, step: int, rank: int) -> None:
        numbers, at = forms.bytes.view(torch.float32), forms.starts // 4
        first = batch.vector([self.dimensions(slot)[0] * self.config.whole("rank") for slot in batch.slots])
        self._add(batch, _Factors(numbers, at), _Factors(numbers, at + first), in_bucket(batch, out), weight)

    def _add(self, batch: Batch, p: _Factors, q: _Factors, out: Tensors, scale: float) -> None:
        """Adds ``scale`` times the products of factors. If a tensor has no factors, its elements
        are in the place of its ``Q``."""
        sizes: List[Tuple[int, int]] = [self.dimensions(slot) for slot in batch.slots]
        over(
            batch,
            _add_product,
            batch.vector([rows for rows, _ in sizes]),
            batch.vector([columns for _, columns in sizes]),
            p,
            q,
            out,
            scale,
            RANK=self.config.whole("rank"),
            NARROW=max(slot.elements for slot in batch.slots) < 1 << 31,
        )


def multiply(factor: torch.Tensor, matrix: torch.Tensor, out: torch.Tensor) -> None:
    """``factor·matrix``, with 24-bit mantissas even if the program lets PyTorch use fewer bits
    (TF32)."""
    if _is_precise():
        torch.mm(factor, matrix, out=out)
        return
    # The setting holds for all threads. Products of a matrix and a vector do not depend on it.
    for row, product in zip(factor, out):
        torch.mv(matrix.T, row, out=product)


def _is_precise() -> bool:
    """Whether matrix products use the full 24-bit mantissas."""
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:
        # Since PyTorch 2.9 the precision can be set for CUDA alone, and then this function raises
        # an error.
        return False


@triton.jit
def _add_product(
    table, rows, columns, p, q, out, scale, RANK: tl.constexpr, NARROW: tl.constexpr, BLOCK: tl.constexpr
):
    tensor, element, mask = block_of(table, out.lengths, BLOCK)
    height, width = tl.load(rows + tensor), tl.load(columns + tensor)
    left_factor = p.data + tl.load(p.starts + tensor)
    right_factor = q.data + tl.load(q.starts + tensor)
    if width == 0:
        value = tl.load(right_factor + element, mask=mask, other=0.0)
    else:
        # Divisions of 64 bits are slow.
        if NARROW:
            row = (element.to(tl.int32) // width.to(tl.int32)).to(tl.int64)
        else:
            row = element // width
        column = element - row * width
        value = tl.zeros([BLOCK], tl.float32)
        for at in range(RANK):
            left = tl.load(left_factor + at * height + row, mask=mask, other=0.0)
            right = tl.load(right_factor + at * width + column, mask=mask, other=0.0)
            value += left * right
    add_at(out, tensor, element, mask, value * scale)
