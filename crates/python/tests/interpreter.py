"""Makes Triton's interpreter faster, which spends most of its time on work without effect."""

import inspect
import math
from dataclasses import replace

from triton.language import core, standard
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter


def hasten():
    """Leaves out what changes no result; must be called before kernels are run."""
    interpreter.InterpretedFunction.__call__ = _call
    interpreter._patch_builtin = _patch_builtin
    # A launch replaces the builtins of `triton.language` by interpreted ones, and each call of a
    # device function searches for them again. Triton's own device functions use
    # `triton.language.core`, which no launch of ours replaces: that is done here, once.
    interpreter._patch_lang(standard.zeros.fn)
    # It computes whether integers overflow, and does not look at the answer.
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=False)
    # It looks at each argument of a builtin for what few arguments are.
    core._unwrap_if_constexpr = _unwrapped(core._unwrap_if_constexpr)
    core.dtype.__eq__ = _same(core.dtype.__eq__)
    TritonSemantic.binary_op_type_checking_impl = _of_one_type(TritonSemantic.binary_op_type_checking_impl)
    TritonSemantic.computation_type_impl = _by_names(TritonSemantic.computation_type_impl)
    # It checks that its own results fit their types.
    interpreter.TensorHandle.__post_init__ = lambda handle: None
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
        members = inspect.getmembers(package, core.is_builtin)
        _builtins[package] = [(name, _interpreted(member)) for name, member in members]
    for name, member in _builtins[package]:
        scope.set_attr(package, name, member)


def _interpreted(builtin):
    """A builtin that is called outside of compiled code, without the check that it is not."""
    function = getattr(builtin, "__wrapped__", builtin)

    def call(*arguments, **named):
        named["_semantic"] = interpreter.interpreter_semantic
        return function(*arguments, **named)

    return call


# What a value is that holds no constant.
_NO_CONSTANTS = {core.tensor, core.dtype, str, int, bool, float, type(None)}


def _unwrapped(unwrap):
    return lambda value: value if type(value) in _NO_CONSTANTS else unwrap(value)


def _same(equal):
    return lambda one, other: one is other or equal(one, other)


# Types of which two values are computed in this type.
_COMPUTED_IN = {"int32", "uint32", "int64", "uint64", "fp32", "fp64"}


def _of_one_type(convert):
    """The conversion of two operands, which leaves those of the same type."""

    def convert_or_leave(semantic, one, other, *others, **named):
        if type(one) is type(other) is core.tensor and one.dtype.name == other.dtype.name in _COMPUTED_IN:
            return semantic.broadcast_impl_value(one, other)
        return convert(semantic, one, other, *others, **named)

    return convert_or_leave


def _by_names(compute):
    """The type in which two operands are computed, found once for each pair of types."""
    known = {}

    def remembered(semantic, one, one_is_scalar, other, other_is_scalar, divides):
        key = one.name, one_is_scalar, other.name, other_is_scalar, divides
        if key not in known:
            known[key] = compute(semantic, one, one_is_scalar, other, other_is_scalar, divides)
        return known[key]

    return remembered


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
