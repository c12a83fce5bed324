"""Checks whether the tensors of a model can be copied and sent, and converts them to bytes."""

from __future__ import annotations

from typing import Iterable, Optional

import torch
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .. import _core
from ._channel import Groups
from ._modes import write
from ._tensors import as_reals, own_part, plain


def check_copyable(model: torch.nn.Module) -> None:
    """Refuses a model with parameters or buffers that cannot be copied, or cannot be sent.

    Accepts every model that DistributedDataParallel accepts. Changes nothing.
    """
    for kind, named in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
        for name, tensor in named:
            reason = _reason_against(own_part(tensor), kind)
            if reason is not None:
                raise _core.ConfigError(f"the {kind} '{plain(name)}' {reason}")


def _reason_against(tensor: torch.Tensor, kind: str) -> Optional[str]:
    if is_lazy(tensor):
        return "has no shape yet, because its module is lazy; run the model on a batch first"
    if tensor.layout != torch.strided or tensor.is_nested:
        layout = "a nested tensor" if tensor.is_nested else f"a tensor with the layout {tensor.layout}"
        return f"is {layout}, whose elements have no fixed places in memory; make it dense with .to_dense()"
    if tensor.is_quantized:
        return "is quantized and cannot be sent; keep tensor.int_repr() and the scale instead, or quantize the model after training"
    if is_traceable_wrapper_subclass(tensor):
        return f"is a {type(tensor).__name__}, which contains other tensors; replace it by a plain tensor"
    if tensor.device.type == "meta" and kind == "parameter":
        return "is on the meta device and has no values; call model.to_empty(device=...) and initialise the model first"
    if any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride())):
        return "is expanded: several of its elements share one place in memory and cannot be changed separately; use .expand(...).clone()"
    return None


def has_values(tensor: torch.Tensor) -> bool:
    """Whether a tensor has values; a buffer on the meta device has none."""
    return tensor.device.type != "meta"


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor on any device, of any type and in any order in memory, as bytes in
    main memory in the order of its shape."""
    dense = as_reals(tensor.detach().resolve_conj().resolve_neg()).cpu().contiguous()
    return dense.view(-1).view(torch.uint8)


def from_bytes(data: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The tensor that ``as_bytes`` turned into these bytes, in main memory, with the type and shape
    of ``like``."""
    return data.view(like.dtype).view(like.shape)


def broadcast(groups: Groups, tensors: Iterable[torch.Tensor]) -> None:
    """Replaces tensors by the first rank's."""
    for tensor in filter(has_values, tensors):
        # As bytes: gloo does not know all types.
        data = as_bytes(tensor).clone()
        groups[0].broadcast(data, 0).wait()
        write(tensor, from_bytes(data, tensor))
