"""``int8`` and ``qsgd``: evenly spaced levels.

The form of ``int8`` is the message: the step as float32 and a signed byte for each element. The form of ``qsgd`` is the step
of each bucket as float32, then level + s of each element; see ``gradwire::device``.

Messages are the host's, byte for byte, unless ``qsgd`` has the Euclidean norm: a norm is then the root of a sum in float64,
which the host adds in another order, so a step may differ in its last bit, and a level where an element is as far from it as
its draw. Messages decode to the same bits as on the host.
"""

from __future__ import annotations

from typing import Optional

import torch
import triton
import triton.language as tl

from ._batch import Batch, place
from ._config import Config
from ._kernel import Dense
from ._philox import keys, rounding
from ._launch import BLOCK, FEW_WARPS, for_tensors, launch, over
from ._source import LARGEST, Source, add_at, corrected, keep, largest, replaceable
from ._symbols import bytes_of, put_block, take, width_of

# The longest bucket whose norm one program computes.
LONGEST = 1 << 16


class Int8(Dense):
    """Levels from −127 to 127."""

    def form_bytes(self, elements: int) -> int:
        return 4 + elements

    def encode(
        self, batch: Batch, source: Source, maxima: torch.Tensor, forms: torch.Tensor, at: torch.Tensor, step: int
    ) -> None:
        for_tensors(batch, _int8_step, maxima, forms.view(torch.float32), at)
        over(batch, _int8, *source.of(batch), maxima, forms, at, FEEDBACK=source.feedback)

    def add(
        self, batch: Batch, forms: torch.Tensor, at: torch.Tensor, out: torch.Tensor, weight: float, step: int, rank: int
    ) -> None:
        over(batch, _int8_add, forms, at, batch.starts, batch.lengths, out, weight)


def qsgd(config: Config) -> Optional[Qsgd]:
    """The kernels for buckets that one program can read."""
    return Qsgd(config) if 0 < config.whole("bucket") <= LONGEST else None


class Qsgd(Dense):
    """QSGD without its Elias and Huffman codes, which are the host's."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._s = config.whole("s")
        self._bucket = config.whole("bucket")
        self._width = width_of(2 * self._s + 1)

    def form_bytes(self, elements: int) -> int:
        return 4 * self._buckets_of(elements) + bytes_of(elements, self._width)

    def encode(
        self, batch: Batch, source: Source, maxima: torch.Tensor, forms: torch.Tensor, at: torch.Tensor, step: int
    ) -> None:
        columns = min(triton.next_power_of_2(self._bucket), BLOCK)
        rows = BLOCK // columns
        buckets = batch.table(rows, self._buckets_of)
        counts = [self._buckets_of(slot.elements) for slot in batch.slots]
        first = batch.vector([sum(counts[:at]) for at in range(len(counts))])
        # A division for each element would take longer than reading this.
        inverses = torch.empty(sum(counts), dtype=torch.float32, device=batch.device)
        launch(
            _qsgd_steps,
            buckets,
            *source.of(batch),
            maxima,
            self._s,
            forms.view(torch.float32),
            at,
            inverses,
            first,
            BUCKET=self._bucket,
            EUCLIDEAN=self.config.word("norm") == "2",
            FEEDBACK=source.feedback,
            ROWS=rows,
            COLUMNS=columns,
            warps=4,
        )
        over(
            batch,
            _qsgd,
            keys(batch, self.config.seed, step, 0),
            0,
            self.config.rank,
            step,
            *source.of(batch),
            maxima,
            self._s,
            forms,
            at,
            inverses,
            first,
            BUCKET=self._bucket,
            WIDTH=self._width,
            FEEDBACK=source.feedback,
            warps=FEW_WARPS,
        )

    def add(
        self, batch: Batch, forms: torch.Tensor, at: torch.Tensor, out: torch.Tensor, weight: float, step: int, rank: int
    ) -> None:
        over(
            batch,
            _qsgd_add,
            forms,
            at,
            batch.starts,
            batch.lengths,
            out,
            weight,
            self._s,
            BUCKET=self._bucket,
            WIDTH=self._width,
        )

    def _buckets_of(self, elements: int) -> int:
        return triton.cdiv(elements, self._bucket)


@triton.jit
def invertible(value):
    """A number and its inverse; both 0 if the inverse would overflow."""
    inverse = tl.div_rn(1.0, value)
    finite = inverse <= LARGEST
    return tl.where(finite, value, 0.0), tl.where(finite, inverse, 0.0)


@triton.jit
def step_to(most, levels):
    """The step at which ``levels`` steps reach ``most`` without overflowing, and its inverse."""
    step = tl.div_rn(most, levels)
    # The next number towards zero; a step that overflows is not 0.
    less = (step.to(tl.int32, bitcast=True) - 1).to(tl.float32, bitcast=True)
    return invertible(tl.where(step * levels <= LARGEST, step, less))


@triton.jit
def _int8_step(maxima, forms, at):
    tensor = tl.program_id(0)
    step, _ = step_to(largest(maxima, tensor), 127.0)
    tl.store(forms + tl.load(at + tensor) // 4, step)


@triton.jit
def _int8(
    table,
    values,
    starts,
    residual,
    beta,
    gamma,
    kept,
    lengths,
    maxima,
    forms,
    at,
    FEEDBACK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tensor, element = place(table, BLOCK)
    elements = tl.load(lengths + tensor)
    mask = element < elements
    step, inverse = step_to(largest(maxima, tensor), 127.0)
    value = corrected(values, starts, residual, beta, gamma, kept, tensor, element, mask, FEEDBACK)
    scaled = tl.minimum(tl.maximum(value * inverse, -127.0), 127.0)
    # The sum is a whole number, rounded to even, in units of its last bit.
    rounded = scaled + 12582912.0
    left = value - (rounded - 12582912.0) * step
    keep(residual, kept, tensor, element, mask, maxima, elements, left, FEEDBACK)
    tl.store(forms + tl.load(at + tensor) + 4 + element, rounded.to(tl.int32, bitcast=True).to(tl.uint8), mask=mask)


@triton.jit
def _int8_add(table, forms, at, starts, lengths, out, weight, BLOCK: tl.constexpr):
    tensor, element = place(table, BLOCK)
    mask = element < tl.load(lengths + tensor)
    start = tl.load(at + tensor)
    step = tl.load((forms + start).to(tl.pointer_type(tl.float32))) * weight
    level = tl.load(forms + start + 4 + element, mask=mask, other=0).to(tl.int8, bitcast=True).to(tl.float32)
    add_at(out, starts, tensor, element, mask, step * level)


@triton.jit(do_not_specialize=["s"])
def _qsgd_steps(
    table,
    values,
    starts,
    residual,
    beta,
    gamma,
    kept,
    lengths,
    maxima,
    s,
    forms,
    at,
    inverses,
    first,
    BUCKET: tl.constexpr,
    EUCLIDEAN: tl.constexpr,
    FEEDBACK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    tensor, bucket = place(table, ROWS)
    elements = tl.load(lengths + tensor)
    squares = tl.zeros([ROWS], dtype=tl.float64)
    most = tl.zeros([ROWS], dtype=tl.float32)
    for column_start in range(0, BUCKET, COLUMNS):
        column = column_start + tl.arange(0, COLUMNS)
        element = bucket[:, None] * BUCKET + column[None, :]
        mask = (column[None, :] < BUCKET) & (element < elements)
        value = corrected(values, starts, residual, beta, gamma, kept, tensor, element, mask, FEEDBACK)
        if EUCLIDEAN:
            wide = value.to(tl.float64)
            squares += tl.sum(wide * wide, 1)
        else:
            most = tl.maximum(most, tl.max(tl.abs(value), 1))
    if EUCLIDEAN:
        most = tl.minimum(tl.sqrt(squares), LARGEST).to(tl.float32)
    finite = replaceable(maxima, tensor, 1) == 1
    step, inverse = step_to(tl.where(finite, most, 0.0), s.to(tl.float32))
    mask = bucket < (elements + BUCKET - 1) // BUCKET
    tl.store(forms + tl.load(at + tensor) // 4 + bucket, step, mask=mask)
    tl.store(inverses + tl.load(first + tensor) + bucket, inverse, mask=mask)


@triton.jit(do_not_specialize=["stream", "rank", "step", "s"])
def _qsgd(
    table,
    keys,
    stream,
    rank,
    step,
    values,
    starts,
    residual,
    beta,
    gamma,
    kept,
    lengths,
    maxima,
    s,
    forms,
    at,
    inverses,
    first,
    BUCKET: tl.constexpr,
    WIDTH: tl.constexpr,
    FEEDBACK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tensor, element = place(table, BLOCK)
    elements = tl.load(lengths + tensor)
    mask = element < elements
    start = tl.load(at + tensor)
    bucket = element // BUCKET
    length = tl.load((forms + start).to(tl.pointer_type(tl.float32)) + bucket, mask=mask, other=0.0)
    inverse = tl.load(inverses + tl.load(first + tensor) + bucket, mask=mask, other=0.0)
    value = corrected(values, starts, residual, beta, gamma, kept, tensor, element, mask, FEEDBACK)
    most = s.to(tl.float32)
    scaled = tl.minimum(tl.maximum(value * inverse, -most), most)
    words = rounding(tl.load(keys + tensor), stream, rank, step, table, BLOCK) >> 8
    # In units of 2⁻²⁴, counted from the level -128: whole numbers, as on the host.
    fixed = (tl.minimum(tl.maximum(scaled, -128.0), 127.0) * 16777216.0).to(tl.int32).to(tl.int64)
    few = ((fixed + (128 << 24) + 0xFFFFFF - words.to(tl.int64)) >> 24).to(tl.int32).to(tl.float32) - 128.0
    nearest = (scaled + 12582912.0) - 12582912.0
    below = tl.where(nearest > scaled, nearest - 1.0, nearest)
    chance = words.to(tl.int32).to(tl.float32) * 5.9604644775390625e-08
    many = tl.where(chance < scaled - below, below + 1.0, below)
    level = tl.where(s <= 127, few, many)
    left = value - level * length
    keep(residual, kept, tensor, element, mask, maxima, elements, left, FEEDBACK)
    symbols = tl.where(mask, (level + most).to(tl.int32), 0)
    # An element that is not finite may have no level.
    symbols = tl.minimum(tl.maximum(symbols, 0), 2 * s)
    buckets = (elements + BUCKET - 1) // BUCKET
    put_block(forms, start + 4 * buckets, table, symbols, elements, WIDTH, BLOCK)


@triton.jit(do_not_specialize=["s"])
def _qsgd_add(
    table,
    forms,
    at,
    starts,
    lengths,
    out,
    weight,
    s,
    BUCKET: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tensor, element = place(table, BLOCK)
    elements = tl.load(lengths + tensor)
    mask = element < elements
    start = tl.load(at + tensor)
    step = tl.load((forms + start).to(tl.pointer_type(tl.float32)) + element // BUCKET, mask=mask, other=0.0) * weight
    buckets = (elements + BUCKET - 1) // BUCKET
    symbols = take(forms, start + 4 * buckets, element, mask, WIDTH)
    level = symbols.to(tl.float32) - s.to(tl.float32)
    add_at(out, starts, tensor, element, mask, step * level)
