"""Elements that are not finite, in exchanges that do not wait for the device.

The messages of a rank to another begin with a word, ``HEAD`` bytes long. It is 0, or tells which
tensor of the sender has such an element. So all ranks learn the same from the same messages.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple, Optional, Sequence

import torch
import triton
import triton.language as tl

from .._staging import Stream
from ._batch import moved
from ._forms import words
from ._launch import BLOCK, run
from ._repeated import permanent
from ._source import FINITE

# Forms follow it, and begin at multiples of four.
HEAD = 4
# The sender of an element that is not finite, if it is not in the messages of this exchange.
ELSEWHERE = -1
# The word of the first tensor. Words of later ones are smaller, so the largest word is the first
# tensor's.
_FIRST = (1 << 31) - 1


class Found(NamedTuple):
    """The first element of a step that is not finite."""

    # The number of the exchange in its step, in the order of ``note``.
    exchange: int
    # The rank that sent the messages, or ``ELSEWHERE``, and the place of the tensor among them.
    sender: int
    place: int


class Maxima:
    """The maxima of ``Source`` for the tensors of a message, whose parts are compressed apart.
    ``places`` are the places of each part's tensors among all."""

    def __init__(self, places: Sequence[Sequence[int]], device: torch.device) -> None:
        # Kernels are compiled once for arrays that begin at multiples of 16 bytes.
        lengths = [len(of_part) + -len(of_part) % 4 for of_part in places]
        starts = [end - length for end, length in zip(accumulate(lengths), lengths)]
        codes = torch.zeros(sum(lengths), dtype=torch.int32, device="cpu")
        for start, of_part in zip(starts, places):
            codes[start : start + len(of_part)] = _FIRST - torch.tensor(of_part, dtype=torch.int32, device="cpu")
        # The words of the tensors.
        self._codes, self._count = permanent(moved(codes, device)), len(codes)
        self._all = permanent(torch.zeros(len(codes), dtype=torch.int32, device=device))
        # The maxima of each part, which are 0 before a step.
        self.parts = [permanent(self._all[start : start + len(of_part)]) for start, of_part in zip(starts, places)]

    def put_heads(self, heads: torch.Tensor, room: torch.Tensor) -> None:
        """Writes the word of the first tensor with an element that is not finite at the bytes
        ``heads`` of ``room``. Then the maxima are 0 again."""
        run(_put_heads, (1,), self._all, self._codes, self._count, heads, heads.numel(), room, BLOCK=1024)


class NonFinite:
    """What the messages of a step told, on the device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # The word, the sender and the exchange; the word is 0 as long as all elements are finite.
        self.state = torch.zeros(3, dtype=torch.int32, device=device)
        self._elsewhere = torch.tensor([_FIRST, ELSEWHERE, 0], dtype=torch.int32, device=device)

    def begin(self) -> None:
        """Forgets the last step."""
        self.state = torch.zeros_like(self.state)

    def note_elsewhere(self, found: torch.Tensor) -> None:
        """If the truth value ``found`` is true, an element is not finite that no message
        contains."""
        self.state = torch.where(found & ~self.skips(), self._elsewhere, self.state)

    def spoil(self, values: torch.Tensor) -> None:
        """Replaces values of any type by NaN if some element of the step was not finite."""
        run(_spoil, (triton.cdiv(values.numel(), 4 * BLOCK),), values, values.numel(), self.state, BLOCK=4 * BLOCK, warps=16)

    def skips(self) -> torch.Tensor:
        """Whether some element of the step was not finite, as a truth value on the device."""
        return self.state[0] != 0

    def reading(self, stream: Stream) -> Reading:
        """Starts to copy what was found to main memory, in the entered stream."""
        return Reading(self.state, stream)


def note(messages: torch.Tensor, stride: int, senders: int, exchange: int, state: torch.Tensor, values: torch.Tensor) -> None:
    """Reads the words of received messages to ``NonFinite.state``; those of rank r begin at byte
    r · ``stride``. If some element of the step was not finite, replaces the float32 ``values`` by
    NaN."""
    elements = values.numel()
    grid = (max(-(-elements // (4 * BLOCK)), 1),)
    run(_note, grid, messages, stride, senders, exchange, state, values, elements, HEADS=1024, BLOCK=4 * BLOCK, warps=16)


class Reading:
    """A copy of ``NonFinite.state`` that is under way."""

    def __init__(self, state: torch.Tensor, stream: Stream) -> None:
        self._host = torch.empty_like(state, device="cpu", pin_memory=state.is_cuda)
        self._host.copy_(state, non_blocking=True)
        self._copied = stream.waiter()

    def found(self) -> Optional[Found]:
        """What was found, if anything. Waits for the device."""
        self._copied()
        word, sender, exchange = self._host.tolist()
        return Found(exchange, sender, _FIRST - word) if word else None


@triton.jit
def _put_heads(maxima, codes, count, heads, messages, room, BLOCK: tl.constexpr):
    found = tl.zeros([BLOCK], dtype=tl.int32)
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        bits = tl.load(maxima + at, mask=at < count, other=0)
        code = tl.load(codes + at, mask=at < count, other=0)
        found = tl.maximum(found, tl.where(bits > FINITE, code, 0))
    # The maximum needs all loads, so they are done before the maxima become 0.
    word = tl.max(found, 0)
    tl.debug_barrier()
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(maxima + at, 0, mask=at < count)
    for start in range(0, messages, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < messages
        tl.store(words(room + tl.load(heads + at, mask=inside, other=0)), word, mask=inside)


@triton.jit(do_not_specialize=["exchange"])
def _note(messages, stride, senders, exchange, state, values, count, HEADS: tl.constexpr, BLOCK: tl.constexpr):
    # Earlier findings stay.
    found = tl.load(state)
    for start in range(0, senders, HEADS):
        sender = start + tl.arange(0, HEADS)
        word = tl.load(words(messages + sender.to(tl.int64) * stride), mask=sender < senders, other=0)
        first = tl.min(tl.where(word != 0, sender, 0x7FFFFFFF), 0)
        code = tl.max(tl.where(sender == first, word, 0), 0)
        # All programs find the same, and one stores it. The others may read it already.
        new = (found == 0) & (code != 0) & (tl.program_id(0) == 0)
        tl.store(state + 1, first, mask=new)
        tl.store(state + 2, exchange, mask=new)
        tl.store(state, code, mask=new)
        found = tl.where(found == 0, code, found)
    if found != 0:
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        tl.store(values + at, float("nan"), mask=at < count)


@triton.jit
def _spoil(values, count, state, BLOCK: tl.constexpr):
    if tl.load(state) != 0:
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        tl.store(values + at, float("nan"), mask=at < count)
