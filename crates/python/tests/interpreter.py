"""Makes Triton's interpreter faster, which takes half of its time for work without effect."""

from dataclasses import replace

from triton.language import standard
from triton.runtime import interpreter


def hasten():
    """Leaves out what changes no result; must be called before kernels are run."""
    # In each call of a device function it searches the language for what it has replaced at the launch. Only Triton's own functions use
    # another module.
    interpreter._patch_lang(standard.zeros.fn)
    interpreter.InterpretedFunction.__call__ = _call
    # It computes whether integers overflow, and does not look at the answer.
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=False)


def _call(function, *arguments, **named):
    try:
        return function.rewrite()(*arguments, **named)
    except Exception as error:
        raise interpreter.InterpreterError(repr(error)) from error
