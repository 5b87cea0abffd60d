"""Operations that make one number of one or more, entry by entry."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import numpy as np

from limpet.lanes import functions
from limpet.lanes.arithmetic import add, compare, divide, multiply, negative, remainder, subtract
from limpet.lanes.code import FLAG, Number, UnsupportedError, is_known
from limpet.lanes.rules import RULES, Rule, are_zero, dense, is_sparse, numbers, run, sparse


def elementwise(operation: Callable) -> Callable:
    """A rule that applies `operation(code, dtype, *numbers, **parameters)` to every entry."""

    def write(code, equation, arrays, **parameters):
        out = equation.outvars[0].aval
        if any(array.ndim not in (0, out.ndim) for array in arrays):
            raise UnsupportedError(f"{equation.primitive.name} to shape {out.shape}")
        columns = zip(*(np.broadcast_to(a, out.shape).flat for a in arrays), strict=True)
        entry = functools.partial(operation, code, out.dtype, **parameters)
        return [numbers(out.shape, [entry(*column) for column in columns])]

    return write


def _beside_sparse(write):
    """Beside a sparse matrix all zeros are its zeros, unless all of its entries are.

    So derivatives by one constraint after the other, which begin with a sparse matrix, are sparse
    also where the constraint has a table with zeros in it. Arrays of nothing but zeros are computed
    with: that there is less to round would change what else is rounded, and so all draws.
    """

    def written(code, equation, arrays, **parameters):
        some = any(is_sparse(array) and not np.all(are_zero(array)) for array in arrays)
        arrays = [(sparse if some else dense)(array) for array in arrays]
        return write(code, equation, arrays, **parameters)

    return written


def _extreme(word, how):
    def extreme(code, dtype, a, b):
        if dtype.kind == "f":
            return code.intrinsic(word, a, b)
        return code.select(compare(how)(code, FLAG, a, b), a, b)

    return extreme


largest, smallest = _extreme("maximum", "gt"), _extreme("minimum", "lt")


def _abs(code, dtype, a):
    if dtype.kind == "f":
        return code.intrinsic("fabs", a)
    return a if dtype.kind == "u" else largest(code, dtype, a, negative(code, dtype, a))


def _sign(code, dtype, a):
    zero, one = dtype.type(0), dtype.type(1)
    if dtype.kind == "u":
        return code.select(compare("gt")(code, FLAG, a, zero), one, zero)
    below = code.select(compare("lt")(code, FLAG, a, zero), -one, a)  # NaN and -0 stay
    return code.select(compare("gt")(code, FLAG, a, zero), one, below)


def _one_minus_square(code, dtype, a):
    below, above = (step(code, dtype, dtype.type(1), a) for step in (subtract, add))
    return multiply(code, dtype, below, above)


def _power(code, dtype, a, y):
    result, square, rest = dtype.type(1), a, abs(y)
    while rest:
        if rest & 1:
            result = multiply(code, dtype, result, square)
        rest >>= 1
        if rest:
            square = multiply(code, dtype, square, square)
    return result if y >= 0 else divide(code, dtype, dtype.type(1), result)


def _is_finite(code, dtype, a):
    return code(FLAG, "fcmp olt", code.intrinsic("fabs", a), a.dtype.type(np.inf))


def _not(code, dtype, a):
    return code(dtype, "xor", a, np.invert(dtype.type(0)))


def _shift(word):
    """A shift; one by as many bits as there are, or more, leaves nothing but the sign."""

    def shift(code, dtype, a, by):
        bits = 8 * dtype.itemsize
        if is_known(by) and 0 <= by < bits:
            return code(dtype, word, a, by)
        rest = code(dtype, word, a, dtype.type(bits - 1)) if word == "ashr" else dtype.type(0)
        within = code(FLAG, "icmp ult", by, dtype.type(bits))
        return code.select(within, code(dtype, word, a, by), rest)

    return shift


def _in_order(how):
    """Compare in the total order of floats: -NaN, -inf, ..., -0, 0, ..., inf, NaN."""

    def compare_keys(code, dtype, a, b):
        return compare(how)(code, FLAG, *(_key(code, number) for number in (a, b)))

    return compare_keys


def _key(code, number):
    """The number if it is whole, else one that is in the same order."""
    if number.dtype.kind != "f":
        return number
    whole = np.dtype(f"i{number.dtype.itemsize}")
    bits = code.cast("bitcast", number, whole)
    sign = code(whole, "ashr", bits, whole.type(8 * whole.itemsize - 1))
    return code(whole, "xor", bits, code(whole, "lshr", sign, whole.type(1)))


def _round(code, dtype, a, rounding_method):
    to_even = rounding_method == jax.lax.RoundingMethod.TO_NEAREST_EVEN
    return code.intrinsic("roundeven" if to_even else "round", a)


def _select(code, dtype, which, *cases):
    if which.dtype == FLAG:
        return code.select(which, cases[1], cases[0])
    result = cases[-1]
    for k, case in reversed(list(enumerate(cases[:-1]))):
        result = code.select(compare("eq")(code, FLAG, which, which.dtype.type(k)), case, result)
    return result


def convert(code, dtype, a):
    """The number as one of another type."""
    before = a.dtype
    if before == dtype:
        return a
    if is_known(a) and dtype.kind == "f":
        return a.astype(dtype)
    if dtype == FLAG:
        return compare("ne")(code, FLAG, a, before.type(0))
    signed = before.kind == "i"
    if dtype.kind == "f":
        if before.kind == "f":
            return code.cast("fpext" if dtype.itemsize > before.itemsize else "fptrunc", a, dtype)
        return code.cast("sitofp" if signed else "uitofp", a, dtype)
    if before.kind == "f":
        return code.intrinsic("fptoui.sat" if dtype.kind == "u" else "fptosi.sat", a, to=dtype)
    if before != FLAG and before.itemsize == dtype.itemsize:
        return code.cast("bitcast", a, dtype) if is_known(a) else Number(a.name, dtype)
    shorter = before != FLAG and before.itemsize > dtype.itemsize
    return code.cast("trunc" if shorter else "sext" if signed else "zext", a, dtype)


def _bitcast(code, dtype, a):
    if dtype.itemsize != a.dtype.itemsize or FLAG in (dtype, a.dtype):
        raise UnsupportedError("the bits of a number as several numbers")
    return code.cast("bitcast", a, dtype)


def _same(code, dtype, a):
    return a


def _remainder(code, dtype, a, b):
    return remainder(code, dtype, a, b) if dtype.kind in "iu" else code.library("fmod", a, b)


def _full_precision(code, dtype, a, exponent_bits, mantissa_bits):
    information = np.finfo(dtype)
    if exponent_bits < information.nexp or mantissa_bits < information.nmant:
        raise UnsupportedError("numbers rounded to fewer digits")
    return a


def _horner(code, dtype, x, *coefficients):
    value = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        value = add(code, dtype, multiply(code, dtype, value, x), coefficient)
    return value


def _instruction(word):
    return lambda code, dtype, *numbers: code(dtype, word, *numbers)


def _intrinsic(name):
    return lambda code, dtype, *numbers: code.intrinsic(name, *numbers)


def _library(name):
    return lambda code, dtype, *numbers: code.library(name, *numbers)


def _made_of(function):
    """An operation that is made of others."""

    def evaluate(code, dtype, a):
        if dtype != np.float64:
            raise UnsupportedError(f"{function.__name__} of {dtype}")
        return run(code, _traced(function), [numbers((), [a])])[0].item()

    return evaluate


@functools.cache
def _traced(function):
    return jax.make_jaxpr(function)(jax.ShapeDtypeStruct((), np.float64))


def _exp(code, dtype, a, accuracy=None):
    if accuracy is None:
        return _made_of(functions.exp)(code, dtype, a)
    if accuracy != jax.lax.AccuracyMode.HIGHEST:
        raise UnsupportedError("exp with accuracy")
    return code.library("exp", a)


LIBRARY = (
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("pow", "cbrt", "exp", "exp2", "expm1", "log1p", "erf", "erfc", "fmod"),
)
OPERATIONS: dict[str, Callable] = {
    "add": add,
    "add_any": add,
    "sub": subtract,
    "neg": negative,
    "max": largest,
    "min": smallest,
    "abs": _abs,
    "sign": _sign,
    "square": lambda code, dtype, a: multiply(code, dtype, a, a),
    "one_minus_square": _one_minus_square,
    "sqrt": _intrinsic("sqrt"),
    "rsqrt": lambda code, dtype, a: code(dtype, "fdiv", dtype.type(1), code.intrinsic("sqrt", a)),
    "floor": _intrinsic("floor"),
    "ceil": _intrinsic("ceil"),
    "clamp": lambda code, dtype, low, a, high: smallest(
        code, dtype, largest(code, dtype, low, a), high
    ),
    "is_finite": _is_finite,
    "not": _not,
    "and": _instruction("and"),
    "or": _instruction("or"),
    "xor": _instruction("xor"),
    "shift_left": _shift("shl"),
    "shift_right_arithmetic": _shift("ashr"),
    "shift_right_logical": _shift("lshr"),
    "copy": _same,
    "copy_p": _same,
    "stop_gradient": _same,
    "select_n": _select,
    "log": _made_of(functions.log),
    "logistic": _made_of(functions.logistic),
    "rem": _remainder,
    **{how: compare(how) for how in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"{how}_to": _in_order(how) for how in ("lt", "le")},
    **{name: _library(name) for name in LIBRARY if name not in ("fmod", "exp")},
}


def _rule(operation, honours=(), ignores=(), unset=(), folds=True):
    return Rule(elementwise(operation), honours, ignores, unset, folds, operation)


RULES |= {name: _rule(operation, unset=("accuracy",)) for name, operation in OPERATIONS.items()}
RULES |= {
    "mul": _rule(multiply, unset=("out_dtype",)),
    "div": _rule(divide),
    "exp": _rule(_exp, honours=("accuracy",)),
    "integer_pow": _rule(_power, honours=("y",)),
    "polynomial": _rule(_horner, ignores=("unroll",)),
    "round": _rule(_round, honours=("rounding_method",), folds=False),
    "reduce_precision": _rule(
        _full_precision, honours=("exponent_bits", "mantissa_bits"), folds=False
    ),
    # the types are those of the result
    "bitcast_convert_type": _rule(_bitcast, ignores=("new_dtype",)),
    "convert_element_type": _rule(convert, ignores=("new_dtype", "weak_type", "sharding")),
}
for _name in ("mul", "div"):
    RULES[_name] = dataclasses.replace(RULES[_name], write=_beside_sparse(RULES[_name].write))
