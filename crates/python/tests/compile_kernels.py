"""Compiles every kernel for NVIDIA's GPUs, and the kernels of the first compressor for AMD's,
without a GPU, and checks the instructions. This is a script, because Triton's interpreter, which
runs the kernels in other tests, must be off.

The code must not have instructions that differ from the interpreter: fused multiplication and
addition, approximate division and roots, and subnormal numbers flushed to zero.
"""

import os
import re
import sys

assert "TRITON_INTERPRET" not in os.environ, "kernels must be compiled"

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature

from gradwire.torch.cuda._kernel import Dense
from gradwire.torch.cuda._nonfinite import Maxima, NonFinite, note
from gradwire.torch.cuda.changes import Changes
from kernels import Device, tensors

NVIDIA, AMD = GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64)
FORBIDDEN = re.compile(r"\bfma\.|\bmad\.\w*\.?f32|\.approx|div\.full|\.ftz")
compiled = set()


def compile_only(self, *arguments, grid=None, warmup=False, **named):
    """Takes the place of a launch, and compiles for the arguments as a launch does."""
    for target in [NVIDIA, AMD] if both else [NVIDIA]:
        backend = make_backend(target)
        bind = create_function_from_signature(self.signature, self.params, backend)
        bound, specialization, options = bind(*arguments, **named)
        options, *source = self._pack_args(backend, options, bound, specialization, options)
        key = (target.backend, self.fn.__module__, self.fn.__name__, str(specialization))
        if key in compiled:
            continue
        assert not options.enable_fp_fusion, f"{key[:3]} may fuse products and sums; launch it with _launch.run"
        code = triton.compile(ASTSource(self, *source), target=target, options=options.__dict__).asm
        if target is NVIDIA:
            bad = sorted({line.strip() for line in code["ptx"].splitlines() if FORBIDDEN.search(line)})
            assert not bad, f"{key[:3]}: {bad}"
        compiled.add(key)


JITFunction.run = compile_only
# No kernel writes the counts that the host reads.
torch.empty = torch.zeros

for number, spec in enumerate(sys.argv[1:]):
    # All kernels read other types in the same way, and AMD's compiler treats all of them alike.
    both = number == 0
    for dtype in (torch.float32, torch.bfloat16) if both else (torch.float32,):
        device = Device(spec, {"gaussian": (100, 50), "sparse": (5000,)})
        values = tensors(5000)
        forms = device.encode(0, device.bucket(values, dtype))
        device.add(0, 1, forms, 0.5, torch.zeros(device.size))
        device.aggregate(torch.zeros(device.size))
        if isinstance(device.kernel, Dense):
            # The messages of three ranks in one launch.
            received, senders = device.moved(forms), torch.zeros(2, dtype=torch.int32)
            several = received._replace(messages=3, stride=1600, senders=senders, fresh=1)
            device.kernel.add(device.batch, several, torch.zeros(device.size), 0.5, 0, 0)
both = True
words = torch.zeros(64, dtype=torch.int32)
Maxima([range(5), range(5, 7)], words.device).put_heads(words.long(), words.view(torch.uint8))
note(words.view(torch.uint8), 16, 3, 5, words, words.float())
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    NonFinite(words.device).spoil(words.to(dtype))
for dtype in (torch.uint8, torch.int16, torch.int32, torch.int64):
    Changes(torch.zeros(5000, dtype=dtype), torch.zeros(5000, dtype=dtype)).advance(3)
print(f"{len(compiled)} kernels compiled")
