"""Estimates how many cycles an element takes in the inner loops of kernels, with llvm-mca, for
processors that are not at hand.

    benchmarks/cycles.py     # prints the estimates of results/bench/kernels.md

llvm-mca models a processor's decoders and execution units, and assumes that all data is in the
first-level cache. An address that a store increments does not wait for the data to be stored, as it
would in llvm-mca's model. `cargo run --release -p gradwire-bits --example kernels` measures the
same on the processor at hand. Needs llvm-mca 22 (Debian: llvm-22) and a Rust toolchain with the
library for aarch64 (see `cargo xtask aarch64`).
"""

import argparse
import collections
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Kernels of the methods that the guides recommend first: functions that may have the inner loop,
# and the bytes an element that the loop loads in vectors.
KERNELS = {
    "accumulate": (("accumulate", "add"), 8),
    "sign_bits": (("sign_bits",), 4),
    "sign_residual": (("sign_residual",), 4),
    "sign_add": (("sign_add",), 4),
    "int8_residual": (("int8_residual",), 4),
    "int8_add": (("int8_add",), 5),
    "ternary_residual": (("ternary_residual",), 5),
    "ternary_add": (("ternary_add", "add_digit"), 5),
    "f32_add": (("f32_add",), 8),
    "abs_max_bits": (("abs_max_bits",), 4),
}
# The functions with intrinsics of an instruction set.
INTRINSICS = {("ternary_add", "avx512"): "look_up_sixteen", ("ternary_add", "avx2"): "look_up_eight"}


class Machine(collections.namedtuple("Machine", "title target march cpu level toolchain options", defaults=((),))):
    """A processor: the target that code is compiled for, llvm-mca's names, the function that has
    the instruction set's loops, the toolchain, and more options of llvm-mca."""


ARM = ["/usr/bin/cargo", "/usr/bin/rustc"]
MACHINES = [
    # Arm's guide to this processor says that it dispatches 8 operations a cycle. LLVM's model has
    # 6, with which compiled programs were fastest.
    Machine("Neoverse V2, NEON", "aarch64-unknown-linux-gnu", "aarch64", "neoverse-v2", "", ARM, ("-dispatch=8",)),
    Machine("Neoverse V2 as LLVM models it", "aarch64-unknown-linux-gnu", "aarch64", "neoverse-v2", "", ARM),
    Machine("Zen 5, AVX-512", "x86_64-unknown-linux-gnu", "x86-64", "znver5", "avx512", ["cargo", "rustc"]),
    Machine("Zen 5, AVX2", "x86_64-unknown-linux-gnu", "x86-64", "znver5", "avx2", ["cargo", "rustc"]),
    Machine("Sapphire Rapids, AVX-512", "x86_64-unknown-linux-gnu", "x86-64", "sapphirerapids", "avx512", ["cargo", "rustc"]),
    Machine("Sapphire Rapids, AVX2", "x86_64-unknown-linux-gnu", "x86-64", "sapphirerapids", "avx2", ["cargo", "rustc"]),
    Machine("Zen 3, AVX2", "x86_64-unknown-linux-gnu", "x86-64", "znver3", "avx2", ["cargo", "rustc"]),
]


def assembly(target, toolchain):
    """The functions of the crate's assembly: names and lines."""
    folder = ROOT / "target" / "cycles"
    cargo, rustc = toolchain
    command = [cargo, "rustc", "--release", "--target", target, "-p", "gradwire-bits", "--lib", "--target-dir", folder]
    command += ["--", "--emit", "asm", "-Ccodegen-units=1", "-Csymbol-mangling-version=v0"]
    if target.startswith("x86"):
        command.append("-Cllvm-args=--x86-asm-syntax=intel")
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "RUSTC": rustc}, stderr=subprocess.DEVNULL)
    files = (folder / target / "release" / "deps").glob("gradwire_bits-*.s")
    functions, name = {}, ""
    for line in max(files, key=lambda file: file.stat().st_mtime).read_text().splitlines():
        if re.match(r"_\w+:$", line):
            name = line[:-1]
        elif not re.match(r"\s*\.(loc|cfi|p2align|file)", line):
            functions.setdefault(name, []).append(line.strip())
    return functions


def loops(body):
    """The innermost loops of a function, from a label to a branch back to it."""
    labels, last = {}, 0
    for at, line in enumerate(body):
        if line.endswith(":"):
            labels[line[:-1]] = at
        elif line and (start := labels.get(line.split()[-1])) is not None:
            if start >= last:
                yield [line for line in body[start : at + 1] if not line.startswith(".")]
            last = at


VECTOR = re.compile(r"\b(?:[xyz]mm|v\d+\.(?:16b|8h|4s|2d)|q\d+)")


def inner_loops(functions, kernel, level):
    """The loops over vectors in the functions of a kernel, for one instruction set."""
    names, _ = KERNELS[kernel]
    if (kernel, level) in INTRINSICS:
        names, level = [INTRINSICS[kernel, level]], ""
    parts = [f"{len(name)}{name}" for name in names]
    kernels = [name for name in functions if "7kernels" in name and level in name]
    bodies = [functions[name] for name in kernels if any(part in name for part in parts)]
    return [loop for body in bodies for loop in loops(body) if any(map(VECTOR.search, loop)) and loaded(loop)]


def loaded(loop):
    """The bytes that a loop loads in vectors."""
    total = 0
    for line in loop:
        name, _, operands = line.partition("\t")
        if re.search(r"\[(sp|x29|rsp|rbp)\b", operands):
            # Registers that were saved on the stack.
            continue
        if name in ("ldr", "ldp", "ldur", "ld1"):
            registers = operands.split("[")[0]
            total += 16 * len(re.findall(r"\bq\d+", registers)) + 8 * len(re.findall(r"\bd\d+", registers))
            total += 4 * len(re.findall(r"\bs\d+", registers))
        elif re.search(r"ptr \[", operands) and not operands.split(",")[0].strip().endswith("]"):
            size = re.search(r"(\w+) ptr", operands).group(1)
            width = {"zmmword": 64, "ymmword": 32, "xmmword": 16, "qword": 8, "dword": 4}.get(size, 0)
            total += width * bool(re.search(r"[xyz]mm\d", operands))
    return total


def addresses_apart(line):
    """A store that increments its address, as two instructions. As one, llvm-mca would let the next
    iteration's loads wait for this iteration's results; processors compute addresses apart."""
    found = re.fullmatch(r"(st[pr]\t.*\[(x\d+)\]), #(-?\d+)", line)
    return f"{found[1]}\nadd\t{found[2]}, {found[2]}, #{found[3]}" if found else line


def cycles(loop, machine):
    """The cycles of one iteration."""
    code = "\n".join(map(addresses_apart, loop))
    if machine.march != "aarch64":
        code = ".intel_syntax noprefix\n" + code
    command = ["llvm-mca-22", f"-march={machine.march}", f"-mcpu={machine.cpu}", "-iterations=1000", *machine.options]
    output = subprocess.run(command, input=code, text=True, capture_output=True, check=True).stdout
    return int(re.search(r"Total Cycles:\s+(\d+)", output).group(1)) / 1000


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    compiled = {}
    print("| kernel | " + " | ".join(machine.title for machine in MACHINES) + " |")
    print("|---" + "|---:" * len(MACHINES) + "|")
    for kernel, (_, size) in KERNELS.items():
        row = []
        for machine in MACHINES:
            if machine.target not in compiled:
                compiled[machine.target] = assembly(machine.target, machine.toolchain)
            found = inner_loops(compiled[machine.target], kernel, machine.level)
            # The others are for the last elements: they read less at a time, or take longer.
            most = max(map(loaded, found))
            least = min(cycles(loop, machine) for loop in found if loaded(loop) == most)
            row.append(f"{least * size / most:.3f}")
        print(f"| `{kernel}` | " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
