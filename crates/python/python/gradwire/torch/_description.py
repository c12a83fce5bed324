"""Describes an exchange: the compressor and size of every tensor, and the cost of the last step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List


@dataclass(frozen=True)
class TensorPlan:
    """How one tensor is sent."""

    name: str
    elements: int
    compressor: str
    # For normally distributed values, not gradients; NaN for compressors written in Python.
    expected_bytes: float
    # Of this rank's last messages; 0 before the first.
    message_bytes: int

    @property
    def expected_ratio(self) -> float:
        """The size in float32 divided by the expected size of a message; see
        ``Description.expected_ratio``."""
        return 4.0 * self.elements / max(self.expected_bytes, 1.0)


@dataclass(frozen=True)
class Description:
    """How the tensors of a model are sent; prints as a table."""

    exchange: str
    ranks: int
    step: int
    # "the GPU", "the host", or for gradients on a GPU "the host, because …".
    compressed_on: str
    tensors: List[TensorPlan]
    # Which memory messages travel through: "the host", for gradients on a GPU with the reason, or
    # "the device" with the length of its messages, which lack the lossless codes of the host.
    transport: str = "the host"
    # With ``nodes``: "2 nodes of 4 ranks", or "8 ranks, in one level, because …".
    nodes: str = ""
    # The same for the parameters that FSDP2 gathers, if they are compressed.
    parameter_transport: str = ""

    @property
    def expected_ratio(self) -> float:
        """The size of the model in float32 divided by the expected size of its messages, each
        counted once.

        With all-gather over n ranks, divide by n / 2 to compare the traffic with an all-reduce.
        """
        elements = sum(tensor.elements for tensor in self.tensors)
        return 4.0 * elements / max(sum(tensor.expected_bytes for tensor in self.tensors), 1.0)

    def __str__(self) -> str:
        rows = [("tensor", "elements", "compressor", "expected", "last")]
        for one in self.tensors:
            last = f"{4.0 * one.elements / one.message_bytes:.1f}x" if one.message_bytes else "-"
            rows.append((one.name, str(one.elements), one.compressor, _expected(one.expected_ratio), last))
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        ranks = self.nodes or f"{self.ranks} ranks"
        head = f"{self.exchange} over {ranks}, step {self.step}, expected {_expected(self.expected_ratio)}"
        gathers = [f"parameters travel through {self.parameter_transport}"] if self.parameter_transport else []
        return "\n".join([head, f"compressed on {self.compressed_on}", f"messages travel through {self.transport}", *gathers, *lines])


def _expected(ratio: float) -> str:
    return "?" if math.isnan(ratio) else f"{ratio:.1f}x"


def summary(stats: Dict[str, Any]) -> str:
    """The result of ``stats()`` in a line."""
    if stats["step"] is None:
        return "gradwire: no step yet"
    if stats["skipped"]:
        return f"gradwire: step {stats['step']}, skipped"
    parts = [f"step {stats['step']}", f"{stats['ratio']:.1f}x", f"{stats['message_bytes'] / 1e6:.3g} MB"]
    parts.append(f"up {stats['bytes_up'] / 1e6:.3g} MB, down {stats['bytes_down'] / 1e6:.3g} MB")
    if "wait_seconds" in stats:
        parts.append(f"waited {1e3 * stats['wait_seconds']:.1f} ms")
    return "gradwire: " + ", ".join(parts)
