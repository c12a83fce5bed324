"""The compressors that have kernels."""

from __future__ import annotations

from typing import Callable, Dict, Optional, Tuple

from ._config import Config
from ._kernel import Kernel
from .bins import AdaComp, LocalSelection
from .blocks import BlockScaled, Nvfp4
from .dgc import Dgc
from .eden import eden
from .factors import Factored
from .halves import Bf16, Fp16, Uncompressed
from .int4 import int4
from .levels import Int8, qsgd
from ._memory import Memory
from .memories import memory, plain_memory
from .powers import Natural
from .signs import EfSignSgd, OneBit, SignSgd
from .sparse import Dryden, RandomK, sbc, strom, threshold, topk
from .ternary import TernGrad, ThreeLc
from .tree import DynamicTree

KERNELS: Dict[str, Callable[[Config], Optional[Kernel]]] = {
    "3lc": ThreeLc,
    "terngrad": TernGrad,
    "none": Uncompressed,
    "fp16": Fp16,
    "bf16": Bf16,
    "int8": Int8,
    "int4": int4,
    "mxfp8": BlockScaled,
    "mxfp4": BlockScaled,
    "nvfp4": Nvfp4,
    "8bit": DynamicTree,
    "qsgd": qsgd,
    "natural": Natural,
    "signsgd": SignSgd,
    "signum": SignSgd,
    "efsignsgd": EfSignSgd,
    "onebit": OneBit,
    "eden": eden,
    "topk": topk,
    "gradient-dropping": topk,
    "threshold": threshold,
    "sbc": sbc,
    "adacomp": AdaComp,
    "local-selection": LocalSelection,
    "dryden": Dryden,
    "randomk": RandomK,
    "strom": strom,
    "dgc": Dgc,
    "sgc": Dgc,
}

# Methods in rounds of all-reduce.
ROUNDS: Dict[str, Callable[[Config], Optional[Kernel]]] = {"powersgd": Factored, "gradzip": Factored}


def kernel_and_memory(config: Config, plain: bool = False) -> Optional[Tuple[Kernel, Memory]]:
    """The kernel and the memory of a compressor with these parameters; ``None`` if it works on the
    host only. With ``plain``, the memory is ``plain_memory``."""
    kept = memory(config)
    make = KERNELS.get(config.id) or ROUNDS.get(config.id)
    if kept is None or make is None:
        return None
    # A method in rounds computes its residual from the factors of all rounds, so a memory of
    # another kind needs the host.
    if config.id in ROUNDS and type(kept) is not Memory:
        return None
    kernel = make(config)
    if kernel is None:
        return None
    if plain:
        kept = plain_memory(config)
    kept.finds_maxima = not kernel.FINDS_MAXIMA
    return kernel, kept
