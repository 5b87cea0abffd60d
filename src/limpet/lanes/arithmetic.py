"""Arithmetic of numbers in LLVM's language; what is known to change nothing costs nothing.

The results are those of `jax.jit`, infinities, NaN and the signs of zeros included. (Like XLA, the
sum of a number and a known zero is the number, so that -0. + 0. is -0.)
"""

import numpy as np

from limpet.lanes.code import (
    FLAG,
    STRUCTURAL_ZERO,
    is_known,
    is_structural,
    is_zero,
)


def add(code, dtype, a, b):
    """The sum."""
    if is_zero(a):
        return b
    if is_zero(b):
        return a
    if is_known(a) and is_known(b):
        return _known(np.add, dtype, a, b)
    return code(dtype, "fadd contract" if dtype.kind == "f" else "add", a, b)


def subtract(code, dtype, a, b):
    """The difference."""
    if is_zero(b):
        return a
    if is_structural(a):
        return negative(code, dtype, b)
    if is_known(a) and is_known(b):
        return _known(np.subtract, dtype, a, b)
    return code(dtype, "fsub contract" if dtype.kind == "f" else "sub", a, b)


def multiply(code, dtype, a, b):
    """The product."""
    if is_structural(a) or is_structural(b):
        return STRUCTURAL_ZERO
    if is_known(a) and a == 1:
        return b
    if is_known(b) and b == 1:
        return a
    if is_known(a) and is_known(b):
        return _known(np.multiply, dtype, a, b)
    return code(dtype, "fmul contract" if dtype.kind == "f" else "mul", a, b)


def divide(code, dtype, a, b):
    """The quotient."""
    if dtype.kind in "iu":
        return _divide_whole(code, dtype, a, b)[0]
    if is_structural(a) or (is_known(b) and b == 1):
        return a
    if is_known(a) and is_known(b):
        return _known(np.divide, dtype, a, b)
    return code(dtype, "fdiv arcp", a, b)


def _known(operation, dtype, a, b):
    """The result for two known numbers: it stays known, so that branches on it are chosen now."""
    with np.errstate(all="ignore"):
        return dtype.type(operation(a, b))


def remainder(code, dtype, a, b):
    """What is left of a whole number after division, with the sign of that number."""
    return _divide_whole(code, dtype, a, b)[1]


def _divide_whole(code, dtype, a, b):
    """Quotient and remainder; by zero, which processors refuse, as JAX has it: -1, the number."""
    zero, one, all_bits = dtype.type(0), dtype.type(1), np.invert(dtype.type(0))
    by_zero = code(FLAG, "icmp eq", b, zero)
    unsafe = by_zero
    if dtype.kind == "i":
        by_minus_one = code(FLAG, "icmp eq", b, all_bits)
        unsafe = code(FLAG, "or", by_zero, by_minus_one)
    sign, safe = "s" if dtype.kind == "i" else "u", code.select(unsafe, one, b)
    quotient, rest = (code(dtype, f"{sign}{word}", a, safe) for word in ("div", "rem"))
    if dtype.kind == "i":
        quotient = code.select(by_minus_one, code(dtype, "sub", zero, a), quotient)
        rest = code.select(by_minus_one, zero, rest)
    return code.select(by_zero, all_bits, quotient), code.select(by_zero, a, rest)


def negative(code, dtype, a):
    """The number with the other sign."""
    if is_zero(a):
        return a if is_structural(a) else -a
    return code(dtype, "fneg", a) if dtype.kind == "f" else code(dtype, "sub", dtype.type(0), a)


def compare(how):
    """One of eq, ne, lt, le, gt and ge."""

    def compared(code, dtype, a, b):
        if a.dtype.kind == "f":
            return code(FLAG, f"fcmp {'une' if how == 'ne' else 'o' + how}", a, b)
        sign = "" if how in ("eq", "ne") else "s" if a.dtype.kind == "i" else "u"
        return code(FLAG, f"icmp {sign}{how}", a, b)

    return compared
