"""Arithmetic of numbers in LLVM's language; what is known to be zero or one costs nothing."""

from limpet.native.code import FLAG, UnsupportedError, is_known


def is_equal(number, value) -> bool:
    """Whether the number is known, and this."""
    return is_known(number) and number == value


def _combination(neutral, word):
    """Sums or products: nothing is to be done for a number that changes nothing."""

    def combined(code, dtype, a, b):
        if is_equal(a, neutral):
            return b
        if is_equal(b, neutral):
            return a
        return code(dtype, f"f{word} contract" if dtype.kind == "f" else word, a, b)

    return combined


add, multiply = _combination(0, "add"), _combination(1, "mul")  # zero times infinity is NaN


def subtract(code, dtype, a, b):
    """The difference."""
    if is_equal(b, 0):
        return a
    if is_equal(a, 0):
        return negative(code, dtype, b)
    return code(dtype, "fsub contract" if dtype.kind == "f" else "sub", a, b)


def divide(code, dtype, a, b):
    """The quotient."""
    if dtype.kind != "f":
        raise UnsupportedError("division of whole numbers")
    return a if is_equal(b, 1) else code(dtype, "fdiv arcp", a, b)


def multiply_entries(code, dtype, a, b):
    """A product of entries of arrays: a zero that is known stays zero, whatever is beside it."""
    if is_equal(a, 0) or is_equal(b, 0):
        return dtype.type(0)
    return multiply(code, dtype, a, b)


def divide_entry(code, dtype, a, b):
    """An entry of an array, divided: a zero that is known stays zero."""
    return a if is_equal(a, 0) else divide(code, dtype, a, b)


def negative(code, dtype, a):
    """The number with the other sign."""
    if is_equal(a, 0):
        return a
    return code(dtype, "fneg", a) if dtype.kind == "f" else code(dtype, "sub", dtype.type(0), a)


def compare(how):
    """One of eq, ne, lt, le, gt and ge."""

    def compared(code, dtype, a, b):
        if a.dtype.kind == "f":
            return code(FLAG, f"fcmp {'une' if how == 'ne' else 'o' + how}", a, b)
        sign = "" if how in ("eq", "ne") else "s" if a.dtype.kind == "i" else "u"
        return code(FLAG, f"icmp {sign}{how}", a, b)

    return compared
