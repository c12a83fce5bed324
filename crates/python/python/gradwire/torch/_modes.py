"""Autograd modes: makes methods work in each of them, and writes to tensors created in any of
them."""

from __future__ import annotations

from functools import wraps
from typing import Any, Callable, TypeVar, cast

import torch

Method = TypeVar("Method", bound=Callable[..., Any])


def without_gradients(method: Method) -> Method:
    """Runs a method without recording gradients, and outside of ``torch.inference_mode``, because
    tensors created there cannot be changed later."""

    @wraps(method)
    def run(*arguments: Any, **options: Any) -> Any:
        with torch.inference_mode(False), torch.no_grad():
            return method(*arguments, **options)

    return cast(Method, run)


def outside_inference(method: Method) -> Method:
    """Runs a method outside of ``torch.inference_mode``. Whether gradients are recorded is up to
    its caller."""

    @wraps(method)
    def run(*arguments: Any, **options: Any) -> Any:
        enabled = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.set_grad_enabled(enabled):
            return method(*arguments, **options)

    return cast(Method, run)


def with_gradients(closure: Callable[[], Any]) -> Callable[[], Any]:
    """A closure of an optimizer that records gradients, whatever its caller does."""

    def run() -> Any:
        with torch.enable_grad():
            return closure()

    return run


def write(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Replaces the elements of a tensor, even if it was created under ``torch.inference_mode``."""
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        tensor.copy_(values)
