"""Launches that are the same at every step apart from a few arguments.

At each launch, Triton finds out what its compiled code depends on: the types of the arguments, the
alignment of addresses, and which integers are 1 or multiples of 16. That takes the host longer than
the launch itself. ``Repeated`` does it once for all launches of some work. It writes a function
that looks only at what changes, and gives the driver what Triton gives it, with addresses in place
of tensors.
"""

from __future__ import annotations

import os
from copy import copy
from functools import partial
from threading import local
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple
from weakref import WeakValueDictionary

import torch
import triton

# Whether Triton's interpreter runs the kernels, which has no compiled code.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# Whether launchers take the arguments that this module gives them. They do in the first and the
# last of these versions. AMD's code also depends on the sizes of tensors.
_VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])
KNOWN = not INTERPRETED and torch.version.hip is None and (3, 6) <= _VERSION <= (3, 9)

# The most functions for the same work.
_MOST = 8

_FUNCTION = """
def repeat({inputs}):
    try:
        suits = {conditions}
    except AttributeError:
        return False
    if suits:
        stream = stream_of(device)
        {launches}
    return suits
"""


class Launch(NamedTuple):
    """A launch by Triton."""

    kernel: Any
    # What Triton returned.
    compiled: Any
    grid: Tuple[int, ...]
    arguments: Sequence[Any]
    constants: Mapping[str, Any]


class _Recording(local):
    """The launches of this thread, while they are recorded."""

    launches: Optional[List[Launch]] = None


_recording = _Recording()
_permanent: WeakValueDictionary[int, torch.Tensor] = WeakValueDictionary()


def permanent(tensor: torch.Tensor) -> torch.Tensor:
    """Marks a tensor as one that exists, and has the same memory, as long as launches that use it
    are repeated. Returns it."""
    _permanent[id(tensor)] = tensor
    return tensor


def _is_permanent(tensor: torch.Tensor) -> bool:
    return _permanent.get(id(tensor)) is tensor


def record(launch: Launch) -> None:
    """Notes a launch, if this thread records."""
    if _recording.launches is not None:
        _recording.launches.append(launch)


class Repeated:
    """Work whose only effect are launches of kernels. It is called with its inputs: tensors or
    ``None``, and then an integer for each name in ``integers``.

    As long as these integers are below 2³¹, the work must make the same launches each time. Their
    arguments may differ only in the inputs; an integer is the parameter of that name of any kernel.
    If the work uses other tensors that are not permanent, such as results of PyTorch's operations,
    it is done each time.
    """

    def __init__(self, work: Callable[..., None], integers: Sequence[str] = ()) -> None:
        self._work, self._integers = work, integers
        self._functions: List[Callable[..., bool]] = []
        self._learns = KNOWN

    def __call__(self, *inputs: Any) -> None:
        for function in self._functions:
            if function(*inputs):
                return
        if not self._learns:
            self._work(*inputs)
            return
        launches: List[Launch] = []
        _recording.launches = launches
        try:
            self._work(*inputs)
        finally:
            _recording.launches = None
        self._learn(inputs, launches)

    def _learn(self, inputs: Sequence[Any], launches: Sequence[Launch]) -> None:
        """Writes a function for inputs like these."""
        tensors = len(inputs) - len(self._integers)
        names = [*(f"i{place}" for place in range(tensors)), *self._integers]
        try:
            self._functions.append(_Writer(dict(zip(names, inputs))).function(launches))
        except _Unknown:
            self._learns = False
        self._learns &= len(self._functions) < _MOST


class RepeatedBy:
    """As ``Repeated``, for work whose first argument changes its launches and has few values."""

    def __init__(self, work: Callable[..., None], integers: Sequence[str] = ()) -> None:
        self._work, self._integers = work, integers
        self._by_value: Dict[Any, Repeated] = {}

    def __call__(self, value: Any, *inputs: Any) -> None:
        repeated = self._by_value.get(value)
        if repeated is None:
            repeated = self._by_value[value] = Repeated(partial(self._work, value), self._integers)
        repeated(*inputs)


class _Unknown(Exception):
    """Launches cannot be repeated."""


class _Expression(str):
    """An expression of the function, in place of its value."""


class _Writer:
    """Writes the function that repeats launches with inputs like the given ones."""

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        driver = triton.runtime.driver.active
        self._inputs = inputs
        self._globals: Dict[str, Any] = {
            "device_of": driver.get_current_device,
            "stream_of": driver.get_current_stream,
            "runtime": triton.knobs.runtime,
        }
        # A profiler may have set hooks.
        self._conditions = [f"(device := device_of()) == {driver.get_current_device()}"]
        self._conditions += [f"not runtime.launch_{which}_hook.calls" for which in ("enter", "exit")]
        # The names of addresses by the identity of tensors.
        self._addresses: Dict[int, str] = {}
        for name, value in inputs.items():
            self._input(name, value)

    def function(self, launches: Sequence[Launch]) -> Callable[..., bool]:
        """The function."""
        lines = [self._launch(launch) for launch in launches]
        source = _FUNCTION.format(
            inputs=", ".join(self._inputs), conditions=" and ".join(self._conditions), launches="\n        ".join(lines or ["pass"])
        )
        exec(source, self._globals)
        found: Callable[..., bool] = self._globals["repeat"]
        return found

    def _input(self, name: str, value: Any) -> None:
        """Adds the conditions under which an input suits the compiled code."""
        if value is None:
            self._conditions.append(f"{name} is None")
        elif isinstance(value, torch.Tensor):
            if id(value) in self._addresses:
                raise _Unknown
            self._addresses[id(value)] = f"{name}_at"
            is_aligned = "==" if value.data_ptr() % 16 == 0 else "!="
            self._conditions.append(f"{name}.dtype is {self._global(value.dtype)}")
            self._conditions.append(f"({name}_at := {name}.data_ptr()) % 16 {is_aligned} 0")
        elif type(value) is int and 0 <= value < 1 << 31:
            # Greater integers have another type in the code.
            self._conditions.append(f"type({name}) is int and 0 <= {name} < 0x80000000")
        else:
            raise _Unknown

    def _launch(self, launch: Launch) -> str:
        kernel, compiled, arguments = launch.kernel, launch.compiled, launch.arguments
        if not isinstance(compiled, triton.compiler.CompiledKernel) or kernel.pre_run_hooks:
            raise _Unknown
        passed = [self._argument(value, parameter) for value, parameter in zip(arguments, kernel.params)]
        # The launcher skips constants, but counts them.
        passed += [self._global(launch.constants[name]) for name in kernel.arg_names[len(arguments) :]]
        grid = map(str, (*launch.grid, 1, 1)[:3])
        # The code is unloaded when nothing refers to ``compiled``.
        self._global(compiled)
        loaded = map(self._global, (compiled.function, compiled.packed_metadata))
        return self._call(compiled.run, [*grid, "stream", *loaded, "None", "None", "None", *passed])

    def _call(self, launcher: Any, passed: Sequence[str]) -> str:
        """A call of Triton's launcher; or of the driver as by the launcher, if the launcher only
        adds constants, because the kernel needs no memory of its own."""
        sizes = [getattr(launcher, f"{which}_scratch_size", None) for which in ("global", "profile")]
        if sizes != [0, 0] or getattr(launcher, "gsan_enabled", False) or not hasattr(launcher, "launch"):
            return f"{self._global(launcher)}({', '.join(passed)})"
        calls: List[Tuple[Any, ...]] = []
        recording = copy(launcher)
        recording.launch = lambda *given: calls.append(given)
        recording(*map(_Expression, passed))
        return f"{self._global(launcher.launch)}({', '.join(map(self._argument, *calls))})"

    def _argument(self, value: Any, parameter: Any = None) -> str:
        """The expression of what the launcher gets for an argument, or for a part of one."""
        if isinstance(value, _Expression):
            return value
        if isinstance(value, tuple):
            return f"({''.join(self._argument(part) + ', ' for part in value)})"
        if isinstance(value, torch.Tensor):
            if id(value) in self._addresses:
                return self._addresses[id(value)]
            if not _is_permanent(value):
                raise _Unknown
            return self._global(value.data_ptr())
        if parameter is not None and parameter.name in self._inputs:
            if value != self._inputs[parameter.name] or not parameter.do_not_specialize:
                raise _Unknown
            return str(parameter.name)
        return self._global(value)

    def _global(self, value: Any) -> str:
        """The name of a value in the function."""
        name = f"k{len(self._globals)}"
        self._globals[name] = value
        return name
