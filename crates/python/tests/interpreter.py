"""Makes Triton's interpreter faster, which spends most of its time on work without effect."""

import inspect
import math
from dataclasses import replace

from triton.language import core, standard
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter


def hasten():
    """Leaves out what changes no result; must be called before kernels are run."""
    # A launch replaces the builtins of `triton.language` by interpreted ones, and each call of a
    # device function searches for them again. Triton's own device functions use
    # `triton.language.core`, which no launch of ours replaces: that is done here, once.
    interpreter._patch_lang(standard.zeros.fn)
    interpreter.InterpretedFunction.__call__ = _call
    interpreter._patch_builtin = _patch_builtin
    # It computes whether integers overflow, and does not look at the answer.
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=False)
    # For each value it makes a table of all types, to look up one.
    interpreter._get_np_dtype = _by_name(interpreter._get_np_dtype)
    # For each value it makes its type, and the type of its shape.
    core.block_type.__init__ = _known_block_type(core.block_type.__init__)
    core.tensor.__init__ = _tensor
    core.tuple.__init__ = _tuple
    core.tuple.type = property(_type_of_tuple, _set_type_of_tuple)
    TritonSemantic.broadcast_impl_value = _unless_alike(TritonSemantic.broadcast_impl_value)


def _call(function, *arguments, **named):
    try:
        return function.rewrite()(*arguments, **named)
    except Exception as error:
        raise interpreter.InterpreterError(repr(error)) from error


_builtins = {}


def _patch_builtin(package, builder, scope):
    """As Triton's, but searches a package for builtins only once."""
    if package not in _builtins:
        _builtins[package] = [(name, member) for name, member in inspect.getmembers(package) if core.is_builtin(member)]
    for name, member in _builtins[package]:
        interpreter._patch_attr(package, name, member, builder, scope)


def _by_name(function):
    """A function of a Triton type, computed once for each name of a type."""
    known = {}

    def remembered(dtype):
        if dtype.name not in known:
            known[dtype.name] = function(dtype)
        return known[dtype.name]

    return remembered


def _known_block_type(create):
    """The constructor of a block's type, which makes a type of scalars and a shape only once."""
    known = {}

    def create_or_copy(block, element_ty, shape):
        key = (element_ty.name, *(one if type(one) is int else one.value for one in shape))
        if type(element_ty) is not core.dtype:
            return create(block, element_ty, shape)
        if key not in known:
            create(block, element_ty, shape)
            known[key] = block.__dict__
        block.__dict__ = known[key]

    return create_or_copy


_NO_SHAPE = core.tuple([]), core.constexpr(1)


def _tensor(tensor, handle, type):
    """The constructor of a tensor. Tensors of a type share their shape."""
    tensor.handle, tensor.type, tensor.dtype = handle, type, type.scalar
    if not type.is_block():
        tensor.shape, tensor.numel = _NO_SHAPE
        return
    shared = type.__dict__.get("of_tensors")
    if shared is None:
        shape = core.tuple([core.constexpr(one) for one in type.shape])
        shared = type.of_tensors = shape, core.constexpr(math.prod(type.shape))
    tensor.shape, tensor.numel = shared


def _tuple(values, given, type=None):
    """The constructor of a tuple, which computes its type only when it is asked for."""
    values.values = [*given]
    if type is not None:
        values.type = type if isinstance(type, core.tuple_type) else core.tuple_type(type)


def _type_of_tuple(values):
    if "known_type" not in values.__dict__:
        values.known_type = core._type_for_tuple_values(values.values)
    return values.known_type


def _set_type_of_tuple(values, type):
    values.known_type = type


def _unless_alike(broadcast):
    """The broadcast of two values, which leaves those of the same shape."""

    def broadcast_or_leave(semantic, one, other):
        if one.type.is_block() and other.type.is_block() and one.type.shape.values == other.type.shape.values:
            return one, other
        return broadcast(semantic, one, other)

    return broadcast_or_leave
