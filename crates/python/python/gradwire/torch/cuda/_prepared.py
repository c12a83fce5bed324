"""Launches of kernels that Triton has compiled, with less work for the host.

The compiled code depends on the types of the arguments, the alignment of addresses, and whether an
integer is 1 or a multiple of 16. At each launch Triton finds this out and searches for the code,
which takes longer than the launch itself. ``Prepared`` writes a function for the arguments of a
launch by Triton. The function checks whether later arguments suit the same code, and if so, calls
Triton's launcher as Triton does, with addresses in place of tensors.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

import torch
import triton

# Whether launchers take the arguments that this module gives them. They did in the first and the
# last of these versions. AMD's code also depends on the sizes of tensors.
KNOWN = torch.version.hip is None and (3, 6) <= tuple(int(part) for part in triton.__version__.split(".")[:2]) <= (3, 9)

# The most functions of a kernel. Arguments that differ in more ways are left to Triton.
_MOST = 16

_FUNCTION = """
def launch(grid, {parameters}):
    try:
        {unpacked}
        suits = {conditions}
    except (AttributeError, TypeError, ValueError):
        return False
    if suits:
        run(*grid, stream_of(device), function, metadata, None, None, None, {passed})
    return suits
"""


class Prepared:
    """The launches of a kernel with the same constants and options."""

    def __init__(self) -> None:
        self._functions: List[Callable[..., bool]] = []

    def launch(self, grid: Tuple[int, ...], arguments: Sequence[Any]) -> bool:
        """Launches the kernel in the current stream. Returns false, and does nothing, if no earlier
        launch had such arguments."""
        for function in self._functions:
            if function(grid, *arguments):
                return True
        return False

    def learn(self, kernel: Any, compiled: Any, arguments: Sequence[Any], constants: Mapping[str, Any]) -> None:
        """Prepares further launches after one by Triton, which returned ``compiled``."""
        if len(self._functions) == _MOST or not isinstance(compiled, triton.compiler.CompiledKernel) or kernel.pre_run_hooks:
            return
        writer = _Writer(kernel, arguments)
        if writer.knows_all:
            # The launcher skips constants, but counts them.
            rest = [writer.constant(constants[name]) for name in kernel.arg_names[len(arguments) :]]
            self._functions.append(writer.function(compiled, rest))


class _Writer:
    """Writes the function that launches a kernel with arguments like the given ones."""

    def __init__(self, kernel: Any, arguments: Sequence[Any]) -> None:
        self.knows_all = True
        self._names: Dict[str, Any] = {}
        self._unpacked: List[str] = []
        driver = triton.runtime.driver.active
        self._names.update(device_of=driver.get_current_device, stream_of=driver.get_current_stream, runtime=triton.knobs.runtime)
        # A profiler may have set hooks.
        self._conditions = [f"(device := device_of()) == {driver.get_current_device()}"]
        self._conditions += [f"not runtime.launch_{which}_hook.calls" for which in ("enter", "exit")]
        self._parameters = [f"a{place}" for place in range(len(arguments))]
        free = [parameter.do_not_specialize for parameter in kernel.params]
        self._passed = [self._argument(*one) for one in zip(self._parameters, arguments, free)]

    def constant(self, value: Any) -> str:
        """The name of a value in the function."""
        name = f"k{len(self._names)}"
        self._names[name] = value
        return name

    def function(self, compiled: Any, rest: Sequence[str]) -> Callable[..., bool]:
        """The function; ``rest`` are names of the arguments that follow."""
        # Without a reference to it, the code would be unloaded.
        self._names.update(compiled=compiled, run=compiled.run, function=compiled.function, metadata=compiled.packed_metadata)
        source = _FUNCTION.format(
            parameters=", ".join(self._parameters),
            unpacked="\n        ".join(self._unpacked) or "pass",
            conditions=" and ".join(self._conditions),
            passed=", ".join([*self._passed, *rest]),
        )
        exec(source, self._names)
        found: Callable[..., bool] = self._names["launch"]
        return found

    def _argument(self, name: str, value: Any, free: bool) -> str:
        """Adds the conditions under which an argument suits the code. Returns the expression of
        what the launcher gets for it. The code depends on the value of an integer unless it is
        ``free``."""
        if value is None:
            self._conditions.append(f"{name} is None")
        elif isinstance(value, torch.Tensor):
            return self._tensor(name, value)
        elif type(value) is float:
            self._conditions.append(f"type({name}) is float")
        elif type(value) is int and -(1 << 31) <= value < 1 << 31:
            self._conditions += [f"type({name}) is int", f"-0x80000000 <= {name} < 0x80000000"]
            if not free:
                is_multiple = "==" if value % 16 == 0 else "!="
                self._conditions.append(f"{name} == 1" if value == 1 else f"{name} != 1 and {name} % 16 {is_multiple} 0")
        elif isinstance(value, tuple) and value:
            return self._tuple(name, value)
        else:
            self.knows_all = False
        return name

    def _tensor(self, name: str, value: torch.Tensor) -> str:
        is_aligned = "==" if value.data_ptr() % 16 == 0 else "!="
        self._conditions += [f"{name}.dtype is {self.constant(value.dtype)}", f"({name}_at := {name}.data_ptr()) % 16 {is_aligned} 0"]
        return f"{name}_at"

    def _tuple(self, name: str, value: Tuple[Any, ...]) -> str:
        parts = [f"{name}_{place}" for place in range(len(value))]
        self._unpacked.append(f"{', '.join(parts)}, = {name}")
        self._conditions.append(f"type({name}) is {self.constant(type(value))}")
        return f"({', '.join(self._argument(part, one, free=False) for part, one in zip(parts, value))},)"
