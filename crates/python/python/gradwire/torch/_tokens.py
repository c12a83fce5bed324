"""All-to-all of the tokens of experts, compressed in the forward and the backward pass."""

from __future__ import annotations

import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from .. import _core
from .._arrays import buffer
from .._specs import has_error_feedback

# A message of this length says that its rank has failed.
_FAILED = -1


def all_to_all_single(
    output: torch.Tensor,
    input: torch.Tensor,
    output_split_sizes: Optional[Sequence[int]] = None,
    input_split_sizes: Optional[Sequence[int]] = None,
    compressor: str = "int8",
    group: Optional[Any] = None,
    async_op: bool = False,
) -> Any:
    """Sends each rank its rows of ``input``, compressed, and writes the rows of all ranks to
    ``output``; for the tokens of experts. In the backward pass gradients take the way back, also
    compressed. As ``torch.distributed.nn.functional.all_to_all_single``, which see.

    Rows that stay on their rank are not compressed. All ranks must call it in the same order. What
    a message leaves out is not kept, so give a quantizer of 8 bits or so.

    Args:
        output: of float32, float16 or bfloat16
        input: of the same type, on the same device, with rows of the same shape
        output_split_sizes: the number of rows from each rank. Default: equal numbers
        input_split_sizes: the number of rows for each rank. Default: equal numbers
        compressor: a spec string. Default: ``"int8"``
        group: a process group. Default: all ranks
        async_op: return a work handle, whose ``wait`` writes the rows. Then there is no backward
            pass: neither ``input`` nor ``output`` may require gradients. Default: ``False``

    Returns:
        ``output``; a work handle if ``async_op``.

    Raises:
        ConfigError: an argument is wrong.
        NonFiniteError: a row has NaN or infinity, on any rank.
    """
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        return None if async_op else output
    own = dist.group.WORLD if group is None else group
    tokens = _tokens_of(own, compressor)
    splits = _splits(output, output_split_sizes, own.size(), "output"), _splits(input, input_split_sizes, own.size(), "input")
    if output.dtype != input.dtype or output.device != input.device or output.shape[1:] != input.shape[1:]:
        raise _core.ConfigError(
            f"output has rows of {tuple(output.shape[1:])} {output.dtype} on {output.device}, and input of {tuple(input.shape[1:])} "
            f"{input.dtype} on {input.device}; give the same"
        )
    if not async_op:
        return _AllToAll.apply(output, input, tokens, splits)
    if torch.is_grad_enabled() and (input.requires_grad or output.requires_grad):
        raise _core.ConfigError("async_op=True has no backward pass; leave it out, or give tensors that require no gradients (.detach())")
    return Swap(tokens.start(output, input.contiguous(), *splits), output)


Splits = List[int]


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, output: torch.Tensor, input: torch.Tensor, tokens: _Tokens, splits: Tuple[Splits, Splits]) -> torch.Tensor:
        ctx.tokens, ctx.splits = tokens, splits
        ctx.shape = input.shape
        ctx.mark_dirty(output)
        tokens.exchange(output, input.contiguous(), *splits)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:
        back = gradient.new_empty(ctx.shape)
        received, sent = ctx.splits
        ctx.tokens.exchange(back, gradient.contiguous(), sent, received)
        return None, back, None, None


class Swap(Work):  # type: ignore[misc]
    """The work of an exchange of tokens."""

    def __init__(self, finish: Callable[[], None], output: torch.Tensor) -> None:
        super().__init__()
        self._finish: Optional[Callable[[], None]] = finish
        self._output = output

    def wait(self, timeout: Any = None) -> bool:
        """Waits for the rows, and writes them. The process group has the timeout."""
        if self._finish is not None:
            # After a failure it is called again, and fails again.
            self._finish()
            self._finish = None
        return True

    def synchronize(self) -> None:
        """Like ``wait``."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether the rows are written, by ``wait``."""
        return self._finish is None

    def result(self) -> List[torch.Tensor]:
        """The output, after ``wait``."""
        self.wait()
        return [self._output]


class _Tokens:
    """Exchanges rows over a group with one compressor."""

    def __init__(self, group: Any, compressor: str) -> None:
        # The group is the key of this object.
        self._reference = weakref.ref(group)
        self._rank, self._size = group.rank(), group.size()
        self._codec = _core.Codec(compressor, 0, self._rank)
        self._step = 0

    @property
    def _group(self) -> Any:
        return self._reference()

    def exchange(self, output: torch.Tensor, values: torch.Tensor, received: Splits, sent: Splits) -> None:
        """Sends and receives rows."""
        self.start(output, values, received, sent)()

    def start(self, output: torch.Tensor, values: torch.Tensor, received: Splits, sent: Splits) -> Callable[[], None]:
        """Sends rows, and begins to receive; returns a function that waits, and writes what has
        been received."""
        chunks, places = values.detach().split(sent), output.detach().split(received)
        self._step += 1
        failure: Optional[Exception] = None
        messages = [b""] * self._size
        try:
            messages = [b"" if to == self._rank else self._message(to, chunk) for to, chunk in enumerate(chunks)]
        except Exception as error:
            failure = error
        lengths = [_FAILED if failure is not None else len(one) for one in messages]
        heads = self._swap([[length, self._step] for length in lengths], values.device)
        if failure is not None:
            raise failure
        for rank, (length, _) in enumerate(heads):
            if length == _FAILED:
                raise _core.NonFiniteError(f"rank {rank} of the process group could not compress its rows, which may have NaN or infinity")
        sizes = [length for length, _ in heads]
        joined = torch.frombuffer(bytearray(b"".join(messages) or b"\0"), dtype=torch.uint8)[: sum(lengths)].to(values.device)
        bytes_of_all = torch.empty(sum(sizes), dtype=torch.uint8, device=values.device)
        work = dist.all_to_all_single(bytes_of_all, joined, sizes, lengths, group=self._group, async_op=True)

        def finish() -> None:
            work.wait()
            for rank, (part, place) in enumerate(zip(bytes_of_all.cpu().split(sizes), places)):
                if rank == self._rank:
                    place.copy_(chunks[rank])
                elif place.numel():
                    self._decode(rank, heads[rank][1], part, place)

        return finish

    def _message(self, to: int, chunk: torch.Tensor) -> bytes:
        if not chunk.numel():
            return b""
        host = chunk.cpu().contiguous()
        return self._codec.encode(f"tokens for {to}", list(host.shape), self._step, buffer(host, "the rows"))

    def _decode(self, rank: int, step: int, message: torch.Tensor, place: torch.Tensor) -> None:
        rows = torch.zeros(place.shape, dtype=torch.float32, device="cpu")
        name = f"tokens for {self._rank}"
        self._codec.decode_add(name, list(rows.shape), step, rank, message.numpy().tobytes(), 1.0, buffer(rows))
        place.copy_(rows)

    def _swap(self, heads: List[List[int]], device: torch.device) -> List[List[int]]:
        own = torch.tensor(heads, device=device)
        all_heads = torch.empty_like(own)
        dist.all_to_all_single(all_heads, own, group=self._group)
        found: List[List[int]] = all_heads.tolist()
        return found


# Of each process group, by compressor.
_known: weakref.WeakKeyDictionary[Any, Dict[str, _Tokens]] = weakref.WeakKeyDictionary()


def _tokens_of(group: Any, compressor: str) -> _Tokens:
    if not isinstance(group, dist.ProcessGroup):
        raise _core.ConfigError(f"group={group!r} is no process group; of a DeviceMesh, give mesh.get_group()")
    own = _known.setdefault(group, {})
    if compressor not in own:
        own[compressor] = _Tokens(group, _without_feedback(compressor))
    return own[compressor]


def _without_feedback(compressor: str) -> str:
    """A compressor that keeps nothing for the next message, because tokens are sent once."""
    spec = _core.canonical(compressor)
    if " then " in spec or "ef=" in spec or "momentum=" in spec:
        raise _core.ConfigError(f"'{compressor}' changes with the step, or keeps something for the next message; give one spec without ef=")
    return f"{spec}{',' if ':' in spec else ':'}ef=off" if has_error_feedback(spec) else spec


def _splits(tensor: torch.Tensor, given: Optional[Sequence[int]], ranks: int, name: str) -> Splits:
    """The number of rows for or from each rank."""
    if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16) or tensor.dim() == 0:
        raise _core.ConfigError(f"{name} is a {tensor.dtype} of {tensor.dim()} dimensions; give rows of float32, float16 or bfloat16")
    rows = tensor.shape[0]
    if not given:
        if rows % ranks:
            raise _core.ConfigError(f"{name} has {rows} rows, which {ranks} ranks cannot share equally; give {name}_split_sizes")
        return [rows // ranks] * ranks
    splits = [int(one) for one in given]
    if len(splits) != ranks or sum(splits) != rows or min(splits) < 0:
        raise _core.ConfigError(f"{name}_split_sizes is {splits}; give {ranks} numbers whose sum is the number of rows, {rows}")
    return splits
