"""Compiles every kernel for NVIDIA's GPUs, and those of the first compressor for AMD's, without having one, and checks the
instructions. A script, as the interpreter that the other tests run kernels with must be off.

What could differ between the interpreter and a GPU is looked for in the code: fused multiplication and addition, approximate
division and roots, and subnormal numbers flushed to zero.
"""

import os
import re
import sys

assert "TRITON_INTERPRET" not in os.environ, "kernels must be compiled"

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from kernels import Device, tensors

NVIDIA, AMD = GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64)
FORBIDDEN = re.compile(r"\bfma\.|\bmad\.\w*\.?f32|\.approx|div\.full|\.ftz")
TYPES = {
    torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64", torch.uint8: "u8",
    torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.bool: "i1",
}
compiled = {}


def type_of(value):
    if isinstance(value, torch.Tensor):
        return "*" + TYPES[value.dtype]
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        return "i32" if -(1 << 31) <= value < 1 << 31 else "i64"
    return "fp32"


def compile_only(self, *arguments, grid=None, warmup=False, **named):
    """Takes the place of a launch."""
    options = {key: named.pop(key) for key in ("enable_fp_fusion", "num_warps", "num_stages") if key in named}
    values = {**dict(zip(self.arg_names, arguments)), **named}
    fixed = {p.name for p in self.params if p.is_constexpr}
    constants = {name: values[name] for name in fixed}
    signature = {name: "constexpr" if name in fixed else type_of(values[name]) for name in self.arg_names}
    key = (self.fn.__module__, self.fn.__name__, tuple(signature.items()), tuple(sorted(map(repr, constants.items()))))
    if key in compiled:
        return
    assert options.get("enable_fp_fusion") is False, f"{key[:2]} may fuse products and sums; launch it with _launch.run"
    for target in [NVIDIA, AMD] if both else [NVIDIA]:
        source = ASTSource(self, signature=signature, constexprs=constants)
        code = triton.compile(source, target=target, options=options).asm
        if target.backend == "cuda":
            bad = sorted({line.strip() for line in code["ptx"].splitlines() if FORBIDDEN.search(line)})
            assert not bad, f"{key[:2]}: {bad}"
    compiled[key] = True


JITFunction.run = compile_only
# No kernel writes the counts that the host reads.
torch.empty = torch.zeros

for number, spec in enumerate(sys.argv[1:]):
    # Reading another type, and what AMD's compiler may refuse, is alike in all kernels.
    both = number == 0
    for dtype in (torch.float32, torch.bfloat16) if both else (torch.float32,):
        device = Device(spec, {"gaussian": (100, 50), "sparse": (5000,)})
        values = tensors(5000)
        forms = device.encode(0, device.bucket(values, dtype))
        device.add(0, 1, forms, 0.5, torch.zeros(device.size))
        device.aggregate(torch.zeros(device.size))
print(f"{len(compiled)} kernels compiled")
