"""The configuration of a compressor, from its spec string."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Dict, Optional, Tuple

import torch

from ... import _core


@dataclass(frozen=True)
class Config:
    """A compressor with all its parameters, and the seed, rank and ranks of its run."""

    id: str
    parameters: Dict[str, str]
    seed: int
    rank: int
    ranks: int

    @classmethod
    def of(cls, spec: str, seed: int = 0, rank: int = 0, ranks: int = 1) -> Config:
        """From a spec string."""
        name, _, given = _core.canonical(spec).partition(":")
        parameters = dict(_defaults()[name])
        parameters.update(one.split("=", 1) for one in given.split(",") if one)
        return cls(name, parameters, seed, rank, ranks)

    def real(self, key: str) -> float:
        return float(self.parameters[key])

    def whole(self, key: str) -> int:
        return int(self.parameters[key])

    def word(self, key: str) -> str:
        return self.parameters[key]

    @property
    def weights(self) -> Optional[Tuple[float, float]]:
        """The weights of residual and gradient; ``None`` without error feedback."""
        return (self.real("beta"), self.real("gamma")) if self.word("ef") == "on" else None


def rounded(value: float) -> float:
    """A parameter rounded to float32, as on the host."""
    return float(torch.tensor(value, dtype=torch.float32, device="cpu"))


@lru_cache
def _defaults() -> Dict[str, Dict[str, str]]:
    return {
        one["id"]: {key: parameter["default"] for key, parameter in one["parameters"].items()} for one in _core.compressors()
    }
