"""``powersgd`` and ``gradzip``: two thin factors of a matrix.

The gradient ``C``, rows × columns, stays on the device. The host averages and orthonormalises
factors, rank × (rows + columns) numbers. PyTorch computes the products with ``C``, because a rank's
own addends may be summed in any order. Matrices of equal shape at equal distances, such as those of
repeated layers, take one batched product. The product of the averaged factors must have the same
bits on all ranks, so its terms are added in the host's order, and each is rounded.
"""

from __future__ import annotations

from math import prod
from typing import List, NamedTuple, Sequence, Tuple

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
        present = [at for at, place in enumerate(round.places) if place is not None]
        matrices = [at for at in present if self.dimensions(batch.slots[at]) != (0, 0)]
        whole = [at for at in present if self.dimensions(batch.slots[at]) == (0, 0)]
        if whole:
            values, starts = _stored(batch, source)
            parts = [values[starts[at] : starts[at] + batch.slots[at].elements] for at in whole]
            torch._foreach_copy_([round.addend(at) for at in whole], parts)
        for run in self._runs(batch, source, matrices):
            self._multiply(self._matrices(batch, source, run), round, run)

    def _runs(self, batch: Batch, source: Source, places: Sequence[int]) -> List[List[int]]:
        """The places of matrices in runs of equal shape and equal distance, in the order of their
        memory."""
        _, starts = _stored(batch, source)
        shapes = {at: self.dimensions(batch.slots[at]) for at in places}
        runs: List[List[int]] = []
        for at in sorted(places, key=lambda at: (shapes[at], starts[at])):
            run = runs[-1] if runs else []
            equal = bool(run) and shapes[run[0]] == shapes[at]
            if equal and (len(run) == 1 or starts[at] - starts[run[-1]] == starts[run[1]] - starts[run[0]]):
                run.append(at)
            else:
                runs.append([at])
        return runs

    def _matrices(self, batch: Batch, source: Source, run: Sequence[int]) -> torch.Tensor:
        """The corrected gradients of a run, as float32: a number of matrices."""
        values, starts = _stored(batch, source)
        rows, columns = self.dimensions(batch.slots[run[0]])
        distance = starts[run[1]] - starts[run[0]] if len(run) > 1 else rows * columns
        first = values.storage_offset() + starts[run[0]]
        return values.as_strided((len(run), rows, columns), (distance, columns, 1), first).float()

    def _multiply(self, c: torch.Tensor, round: Round, run: Sequence[int]) -> None:
        """``C·Q`` in the first round, ``Cᵀ·P`` in the second, for each matrix of a run; zeros for a
        matrix with a number that is too large."""
        (count, rows, _), rank = c.shape, self.config.whole("rank")
        forms = torch.stack([round.form(at) for at in run])
        limits, factors = forms[:, 0], forms[:, 1:]
        if round.number == 0:
            c = c.transpose(1, 2)
        elif factors.shape[1] > rank * rows:
            # Skips ``P``; the factor to multiply by, ``Q``, follows it.
            factors = factors[:, rank * rows :]
        addends = [round.addend(at).view(rank, -1) for at in run]
        # The host determines the length of an addend, and ``dimensions`` must agree.
        assert addends[0].shape[1] == c.shape[2], f"an addend of {addends[0].shape[1]} numbers for a matrix with {c.shape[2]}"
        products = torch.empty((count, rank, c.shape[2]), dtype=torch.float32, device=c.device)
        multiply(factors.reshape(count, rank, -1), c, products)
        # A comparison with NaN is false.
        fits = products.abs().amax(dim=(1, 2)) <= limits
        products.masked_fill_(~fits[:, None, None], 0.0)
        torch._foreach_copy_(addends, list(products))

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


def _stored(batch: Batch, source: Source) -> Tuple[torch.Tensor, List[int]]:
    """The array with the corrected gradients of a batch, and the first element of each tensor."""
    if source.residual is not None:
        return source.residual, [slot.kept for slot in batch.slots]
    return source.data, [slot.start for slot in batch.slots]


def multiply(factors: torch.Tensor, matrices: torch.Tensor, out: torch.Tensor) -> None:
    """``factors·matrices``, a batched product, with 24-bit mantissas even if the program lets
    PyTorch use fewer bits (TF32)."""
    if _is_precise():
        torch.bmm(factors, matrices, out=out)
        return
    # The setting holds for all threads. Products of a matrix and a vector do not depend on it.
    for factor, matrix, products in zip(factors, matrices, out):
        for row, product in zip(factor, products):
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
