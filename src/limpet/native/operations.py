"""JAX's operations in LLVM's language.

An array is a NumPy array of numbers (`code.Number`, or NumPy's scalars where they are known), so
operations that only move entries about are NumPy's own. To add an operation, add it to one of the
tables: `ELEMENTWISE` (numbers in, a number out), `ARRAYS`, or `CALLS`; functions that are compiled
under a name may be done in another way, see `NAMED`.
"""

import functools
import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from limpet.native import functions, matrices
from limpet.native.arithmetic import (
    add,
    compare,
    divide,
    divide_entry,
    is_equal,
    multiply,
    multiply_entries,
    negative,
    subtract,
)
from limpet.native.code import FLAG, LANES, MOST, Array, Code, Number, UnsupportedError, is_known

LONGEST = 64  # turns of a loop of fixed length, which is written out
MOST_TRIED = 10_000_000  # entries of the matrix of a linear operation


def zeros(program) -> list[np.ndarray]:
    """Which entries of a program's results are zero, whatever it is given."""
    code = Code(MOST // 30)  # a step is made of many such
    arrays = [Array(code, k, variable.aval) for k, variable in enumerate(program.jaxpr.invars)]
    given = [_each(v, a.constant) for v, a in zip(program.jaxpr.invars, arrays, strict=True)]
    return [_are_zero(result) for result in _run(code, program, given)]


def written(program, constants: int, carried: int, zero) -> str:
    """The text of a scan of a program, for all chains: lanes by lanes, all turns of each.

    The program's first arguments are constants, the next are carried from turn to turn, the rest
    are new at every turn; its first results are the new carry, the rest are outputs. `zero` tells
    of each array that is carried which of its entries are zero, and stay it: they are left alone.
    """
    code = Code()
    variables = program.jaxpr.invars
    arrays = [
        Array(code, k, variable.aval)
        for k, variable in enumerate((*variables, *program.jaxpr.outvars[carried:]))
    ]
    known, given = constants + carried, len(variables)
    carry, fed, made = arrays[constants:known], arrays[known:given], arrays[given:]
    fixed = [_each(v, a.constant) for v, a in zip(variables, arrays[:constants], strict=False)]
    last = code.line("sub i64 %chains, 1")
    kept = [_places(code, array.dtype, none) for array, none in zip(carry, zero, strict=True)]

    def lanes(first):
        # spare lanes do the last chain once more
        chains = [code.least(code.line(f"add i64 {first}, {k}"), last) for k in range(LANES)]
        for array, places in zip(carry, kept, strict=True):
            for entry, place in places.items():
                code.put(place, array.load(entry, chains))
        code.count("%turns", 1, functools.partial(turn, chains))
        for array, places in zip(carry, kept, strict=True):
            for entry, place in places.items():
                array.store(code.get(place, array.dtype), entry, chains)

    def turn(chains, t):
        state = [
            _gotten(code, v.aval, places)
            for v, places in zip(variables[constants:], kept, strict=False)
        ]
        new = [
            _each(v, functools.partial(array.load, chains=chains, turn=t))
            for v, array in zip(variables[known:], fed, strict=True)
        ]
        results = _run(code, program, [*fixed, *state, *new])
        for array, places, result in zip(carry, kept, results, strict=False):
            if not _put(code, array.dtype, places, result):
                raise UnsupportedError("a step after which a zero is none")
        for array, result in zip(made, results[carried:], strict=True):
            for entry, number in enumerate(result.flat):
                array.store(number, entry, chains, t)

    code.count("%chains", LANES, lanes)
    return code.text()


def _run(code, closed, arguments):
    """The results of one of JAX's programs, which may have constants of its own."""
    program, constants = getattr(closed, "jaxpr", closed), getattr(closed, "consts", ())
    values = {v: _known(c) for v, c in zip(program.constvars, constants, strict=True)}
    values.update(zip(program.invars, arguments, strict=True))

    def read(atom):
        return _known(atom.val) if isinstance(atom, Literal) else values[atom]

    for equation in program.eqns:
        results = _evaluated(code, equation, [read(atom) for atom in equation.invars])
        values.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in program.outvars]


def _evaluated(code, equation, arrays):
    """The results of one operation."""
    name, parameters, out = equation.primitive.name, equation.params, equation.outvars[0].aval
    if (special := NAMED.get(parameters.get("name"))) is not None:
        return [special(code, parameters, out, *arrays)]
    if name in CALLS:
        return _run(code, parameters[CALLS[name]], arrays)
    if name in CONTROL:
        return CONTROL[name](code, equation, arrays)
    known = all(is_known(number) for array in arrays for number in array.flat)
    if name in ELEMENTWISE and not (known and out.dtype.kind != "f"):
        sparse = name in SPARSE and any(map(_is_sparse, arrays))
        table = SPARSE if sparse else ELEMENTWISE
        operation = functools.partial(table[name], code, out.dtype, **_used(parameters, name))
        columns = zip(*(np.broadcast_to(a, out.shape).flat for a in arrays), strict=True)
        return [_numbers(out.shape, [operation(*column) for column in columns])]
    if name in ARRAYS:
        results = ARRAYS[name](code, parameters, out, *arrays)
        return results if isinstance(results, list) else [results]
    if known:
        return _tried(equation, arrays)
    if name in LINEAR:
        return [_linear(code, equation, arrays)]
    raise UnsupportedError(name)


def _used(parameters, name):
    """The parameters of an operation on numbers that matter."""
    return {key: parameters[key] for key in PARAMETERS.get(name, ())}


# Arrays of numbers.


def _numbers(shape, numbers) -> np.ndarray:
    """An array of these; left alone, NumPy would make Python's numbers of some of its own."""
    numbers = list(numbers)
    flat = np.empty(len(numbers), object)
    for k, number in enumerate(numbers):
        flat[k] = number
    return flat.reshape(shape)


def _each(variable, make):
    """The array of a variable, entry by entry."""
    shape = variable.aval.shape
    return _numbers(shape, [make(entry) for entry in range(int(np.prod(shape)))])


def _are_zero(array) -> np.ndarray:
    """Which entries are known to be zero."""
    return np.array([is_equal(number, 0) for number in array.flat], bool).reshape(array.shape)


def _is_sparse(array) -> bool:
    """Whether some of the entries, but not all, are known to be zero."""
    return 0 < sum(is_equal(number, 0) for number in array.flat) < array.size


# Variables for the entries of an array, without those that are zero and stay it.


def _places(code, dtype, zero) -> dict[int, str]:
    """A variable for each other entry, by its number."""
    return {int(entry): code.variable(dtype) for entry in np.flatnonzero(~zero)}


def _gotten(code, aval, places):
    zero = aval.dtype.type(0)
    return _numbers(
        aval.shape,
        [
            code.get(places[entry], aval.dtype) if entry in places else zero
            for entry in range(aval.size)
        ],
    )


def _put(code, dtype, places, array) -> bool:
    """Set the variables; whether the other entries are zero."""
    for entry, number in enumerate(array.flat):
        if entry in places:
            code.put(places[entry], _convert(code, dtype, number))
        elif not is_equal(number, 0):
            return False
    return True


def _known(values):
    values = np.asarray(values)
    return _numbers(values.shape, values.ravel())


def _values(array, variable):
    """The known array as JAX has it."""
    flat = [number.item() for number in array.flat]
    return jnp.asarray(np.array(flat, variable.aval.dtype).reshape(array.shape))


def _tried(equation, arrays):
    """The results of an operation on known numbers."""
    with jax.ensure_compile_time_eval():
        given = [_values(a, v) for a, v in zip(arrays, equation.invars, strict=True)]
        results = equation.primitive.bind(*given, **equation.params)
    results = results if equation.primitive.multiple_results else [results]
    return [_known(result) for result in results]


def _linear(code, equation, arrays):
    """Operations that move entries and add them up: where each goes is found by trying."""
    name, out = equation.primitive.name, equation.outvars[0].aval
    free = [np.array([not is_known(n) for n in a.flat], bool).reshape(a.shape) for a in arrays]
    if any(v.aval.dtype.kind != "f" for v, f in zip(equation.invars, free, strict=True) if f.any()):
        raise UnsupportedError(f"{name} at an index that depends on the point")
    numbers = [n for array, f in zip(arrays, free, strict=True) for n in array[f]]
    if len(numbers) * out.size > MOST_TRIED:
        raise UnsupportedError(f"{name} of {len(numbers)} numbers to {out.size}")
    dtype, zero = out.dtype, out.dtype.type(0)
    known = [
        _values(_numbers(array.shape, [n if is_known(n) else zero for n in array.flat]), variable)
        for array, variable in zip(arrays, equation.invars, strict=True)
    ]

    def applied(entries):
        given, start = [], 0
        for array, f in zip(known, free, strict=True):
            count = np.count_nonzero(f)
            given.append(array.at[f].set(entries[start : start + count]) if count else array)
            start += count
        return equation.primitive.bind(*given, **equation.params).ravel()

    with jax.ensure_compile_time_eval():
        zero = np.asarray(applied(jnp.zeros(len(numbers), dtype)))
        columns = np.asarray(jax.vmap(applied)(jnp.eye(len(numbers), dtype=dtype)))
    results = []
    for start, row in zip(zero, columns.T, strict=True):
        total = start
        for k in np.flatnonzero(row != start):
            total = add(code, dtype, total, multiply(code, dtype, row[k] - start, numbers[k]))
        results.append(total)
    return _numbers(out.shape, results)


# Operations on numbers.


def _larger(word, how):
    def larger(code, dtype, a, b):
        if dtype.kind == "f":
            return code.intrinsic(word, a, b)
        return code.select(compare(how)(code, FLAG, a, b), a, b)

    return larger


_max, _min = _larger("maximum", "gt"), _larger("minimum", "lt")


def _abs(code, dtype, a):
    if dtype.kind == "f":
        return code.intrinsic("fabs", a)
    return a if dtype.kind == "u" else _max(code, dtype, a, negative(code, dtype, a))


def _sign(code, dtype, a):
    zero, one = dtype.type(0), dtype.type(1)
    if dtype.kind == "u":
        return code.select(compare("gt")(code, FLAG, a, zero), one, zero)
    below = code.select(compare("lt")(code, FLAG, a, zero), -one, a)  # NaN and -0 stay
    return code.select(compare("gt")(code, FLAG, a, zero), one, below)


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


def _convert(code, dtype, a):
    before = a.dtype
    if before == dtype:
        return a
    if is_known(a):
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
        return Number(a.name, dtype)
    shorter = before != FLAG and before.itemsize > dtype.itemsize
    return code.cast("trunc" if shorter else "sext" if signed else "zext", a, dtype)


def _bitcast(code, dtype, a):
    if dtype.itemsize != a.dtype.itemsize:
        raise UnsupportedError("the bits of a number as several numbers")
    return code.cast("bitcast", a, dtype)


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
        return _run(code, _traced(function), [_numbers((), [a])])[0].item()

    return evaluate


@functools.cache
def _traced(function):
    return jax.make_jaxpr(function)(jax.ShapeDtypeStruct((), np.float64))


LIBRARY = (
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("pow", "cbrt", "exp2", "expm1", "log1p", "erf", "erfc", "fmod"),
)
ELEMENTWISE: dict[str, Callable] = {
    "add": add,
    "add_any": add,
    "sub": subtract,
    "mul": multiply,
    "div": divide,
    "neg": negative,
    "max": _max,
    "min": _min,
    "abs": _abs,
    "sign": _sign,
    "square": lambda code, dtype, a: multiply(code, dtype, a, a),
    "integer_pow": _power,
    "sqrt": _intrinsic("sqrt"),
    "rsqrt": lambda code, dtype, a: code(dtype, "fdiv", dtype.type(1), code.intrinsic("sqrt", a)),
    "floor": _intrinsic("floor"),
    "ceil": _intrinsic("ceil"),
    "round": _round,
    "clamp": lambda code, dtype, low, a, high: _min(code, dtype, _max(code, dtype, low, a), high),
    "is_finite": _is_finite,
    "not": _not,
    "and": _instruction("and"),
    "or": _instruction("or"),
    "xor": _instruction("xor"),
    "shift_left": _instruction("shl"),
    "shift_right_arithmetic": _instruction("ashr"),
    "shift_right_logical": _instruction("lshr"),
    "bitcast_convert_type": _bitcast,
    "convert_element_type": _convert,
    "copy": lambda code, dtype, a: a,
    "copy_p": lambda code, dtype, a: a,
    "select_n": _select,
    "exp": _made_of(functions.exp),
    "log": _made_of(functions.log),
    "logistic": _made_of(functions.logistic),
    "rem": _library("fmod"),
    **{how: compare(how) for how in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: _library(name) for name in LIBRARY if name != "fmod"},
}
SPARSE = {"mul": multiply_entries, "div": divide_entry}  # if an array has zeros and other entries
PARAMETERS = {"integer_pow": ("y",), "round": ("rounding_method",)}


# Operations on arrays.


def _reduction(combine):
    def reduce(code, parameters, out, a):
        axes = parameters["axes"]
        kept = [k for k in range(a.ndim) if k not in axes]
        rows = a.transpose(*kept, *axes).reshape(out.size, -1)
        pair = functools.partial(combine, code, out.dtype)
        return _numbers(out.shape, [functools.reduce(pair, row) for row in rows])

    return reduce


def _running(combine):
    def accumulate(code, parameters, out, a):
        rows = np.moveaxis(a, parameters["axis"], 0)
        rows = rows[::-1] if parameters["reverse"] else rows
        pair = functools.partial(combine, code, out.dtype)
        made = list(
            itertools.accumulate(rows.reshape(len(rows), -1), lambda *two: [*map(pair, *two)])
        )
        made = _numbers(rows.shape, itertools.chain(*made))
        return np.moveaxis(made[::-1] if parameters["reverse"] else made, 0, parameters["axis"])

    return accumulate


def _product(code, parameters, out, a, b):
    (over_a, over_b), (batch_a, batch_b) = parameters["dimension_numbers"]

    def rows_of(array, over, batch):
        """Of each matrix of the batch: its rows, without their zeros."""
        free = [k for k in range(array.ndim) if k not in (*over, *batch)]
        shape = [int(np.prod([array.shape[k] for k in part])) for part in (batch, free, over)]
        return [
            [{k: row[k] for k in matrices.present(row)} for row in matrix]
            for matrix in array.transpose(*batch, *free, *over).reshape(shape)
        ]

    def dot(row, column):
        total = out.dtype.type(0)
        for k, number in row.items():
            if k in column:
                term = multiply_entries(code, out.dtype, number, column[k])
                total = add(code, out.dtype, total, term)
        return total

    pairs = zip(rows_of(a, over_a, batch_a), rows_of(b, over_b, batch_b), strict=True)
    products = [dot(row, column) for rows, columns in pairs for row in rows for column in columns]
    return _numbers(out.shape, products)


def _place_of(how):
    def place(code, parameters, out, a):
        better = functools.partial(compare(how), code, FLAG)
        places = []
        for best, *others in np.moveaxis(a, parameters["axes"][0], -1).reshape(out.size, -1):
            at = out.dtype.type(0)
            for k, other in enumerate(others, 1):
                flag = better(other, best)
                best, at = code.select(flag, other, best), code.select(flag, out.dtype.type(k), at)
            places.append(at)
        return _numbers(out.shape, places)

    return place


def _broadcast(code, parameters, out, a):
    shape = [1] * out.ndim
    for k, size in zip(parameters["broadcast_dimensions"], a.shape, strict=True):
        shape[k] = size
    return np.broadcast_to(a.reshape(shape), out.shape)


def _slice(code, parameters, out, a):
    strides = parameters["strides"] or (1,) * a.ndim
    bounds = zip(parameters["start_indices"], parameters["limit_indices"], strides, strict=True)
    return a[tuple(slice(*bound) for bound in bounds)]


def _pad(code, parameters, out, a, value):
    padded = _numbers(out.shape, [value.item()] * out.size)
    places, kept = [], []
    for (low, _, gap), length, size in zip(
        parameters["padding_config"], a.shape, out.shape, strict=True
    ):
        place = low + (gap + 1) * np.arange(length)
        inside = (place >= 0) & (place < size)  # padding may be negative, and cut off
        places.append(place[inside])
        kept.append(np.flatnonzero(inside))
    padded[np.ix_(*places)] = a[np.ix_(*kept)]
    return padded


def _iota(code, parameters, out):
    shape = [1] * out.ndim
    shape[parameters["dimension"]] = -1
    indices = np.arange(out.shape[parameters["dimension"]], dtype=out.dtype).reshape(shape)
    return _known(np.broadcast_to(indices, out.shape))


def _row(array, axis, k):
    """One row of an array, which is an array also if it is one number."""
    return np.moveaxis(array, axis, 0)[k : k + 1].reshape(np.delete(array.shape, axis))


def _reshape(code, parameters, out, a):
    return a.reshape(out.shape)


ARRAYS: dict[str, Callable] = {
    "cholesky": matrices.cholesky,
    "triangular_solve": matrices.triangular_solve,
    "reduce_sum": _reduction(add),
    "reduce_prod": _reduction(multiply),
    "reduce_max": _reduction(_max),
    "reduce_min": _reduction(_min),
    "reduce_and": _reduction(_instruction("and")),
    "reduce_or": _reduction(_instruction("or")),
    "cumsum": _running(add),
    "cumprod": _running(multiply),
    "argmax": _place_of("gt"),
    "argmin": _place_of("lt"),
    "dot_general": _product,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "transpose": lambda code, parameters, out, a: a.transpose(parameters["permutation"]),
    "rev": lambda code, parameters, out, a: np.flip(a, parameters["dimensions"]),
    "slice": _slice,
    "pad": _pad,
    "iota": _iota,
    "concatenate": lambda code, parameters, out, *parts: np.concatenate(
        parts, parameters["dimension"]
    ),
    "tile": lambda code, parameters, out, a: np.tile(a, parameters["reps"]),
    "stack": lambda code, parameters, out, *parts: np.stack(parts, parameters["axis"]),
    "unstack": lambda code, parameters, out, a: [
        _row(a, parameters["axis"], k) for k in range(a.shape[parameters["axis"]])
    ],
    "split": lambda code, parameters, out, a: np.split(
        a, np.cumsum(parameters["sizes"])[:-1], parameters["axis"]
    ),
}
LINEAR = {"gather", "scatter", "scatter-add", "dynamic_slice", "dynamic_update_slice"}
NAMED = {"limpet_solve": matrices.solve, "limpet_pivots": matrices.pivots}  # of `limpet.linalg`
CALLS = {  # and where the program is that they call
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}


# Loops and branches.


class _ChangedError(Exception):
    """An entry of an array was taken for zero, and is not after a turn of the loop."""


def _while(code, equation, arrays):
    parameters = equation.params
    tests, bodies = parameters["cond_nconsts"], parameters["body_nconsts"]
    for_test, for_body = arrays[:tests], arrays[tests : tests + bodies]
    avals, first = parameters["body_jaxpr"].out_avals, arrays[tests + bodies :]
    flag_place, outer = code.variable(FLAG), code.active

    def put(state):
        stay = [_put(code, a.dtype, *each) for a, *each in zip(avals, places, state, strict=True)]
        if not all(stay):
            raise _ChangedError

    def get():
        return [_gotten(code, *each) for each in zip(avals, places, strict=True)]

    def going(state):
        flag = _run(code, parameters["cond_jaxpr"], [*for_test, *state])[0].item()
        code.put(flag_place, code.both(code.active, flag))

    def body():
        state, flag = get(), code.get(flag_place, FLAG)
        code.active = flag
        results = _run(code, parameters["body_jaxpr"], [*for_body, *state])
        put(
            _numbers(aval.shape, map(functools.partial(code.select, flag), new.flat, old.flat))
            for new, old, aval in zip(results, state, avals, strict=True)
        )
        going(get())
        code.active = outer
        return code.get(flag_place, FLAG)

    # zeros of a matrix, such as a gradient's, mostly stay; if some do not, all entries are carried
    mark, places = code.mark(), []
    for assumed in (True, False):
        zero = [assumed & (array.ndim > 1) & _are_zero(array) for array in first]
        places = [_places(code, a.dtype, none) for a, none in zip(avals, zero, strict=True)]
        try:
            put(first)
            going(get())
            code.repeat(body)
            break
        except _ChangedError:
            code.back_to(mark)
            code.active = outer
    return get()


def _cond(code, equation, arrays):
    which, *operands = arrays
    which, branches, outer = which.item(), equation.params["branches"], code.active
    if is_known(which):
        return _run(code, branches[np.clip(which, 0, len(branches) - 1)], operands)
    chosen = None
    for k, branch in enumerate(branches):
        how = "le" if k == 0 else "eq" if k < len(branches) - 1 else "ge"
        mine = compare(how)(code, FLAG, which, which.dtype.type(k))
        code.active = code.both(outer, mine)
        results = _run(code, branch, operands)
        code.active = outer
        if chosen is not None:
            pick = functools.partial(code.select, mine)
            pairs = zip(results, chosen, strict=True)
            results = [_numbers(new.shape, map(pick, new.flat, old.flat)) for new, old in pairs]
        chosen = results
    return chosen


def _scan(code, equation, arrays):
    parameters, turns = equation.params, equation.params["length"]
    program = getattr(parameters["jaxpr"], "jaxpr", parameters["jaxpr"])
    # what is carried, or given to all turns, has the same axes outside the loop and inside
    given, carried = (
        sum(a.aval.ndim == b.aval.ndim for a, b in zip(outside, inside, strict=True))
        for outside, inside in (
            (equation.invars, program.invars),
            (equation.outvars, program.outvars),
        )
    )
    consts = given - carried
    if turns > LONGEST:
        raise UnsupportedError(f"a loop of {turns} turns")
    fixed, state = arrays[:consts], arrays[consts : consts + carried]
    outputs = {}
    for t in range(turns)[:: -1 if parameters["reverse"] else 1]:
        fed = [_row(array, 0, t) for array in arrays[consts + carried :]]
        results = _run(code, parameters["jaxpr"], [*fixed, *state, *fed])
        state, outputs[t] = results[:carried], results[carried:]
    columns = zip(*(outputs[t] for t in range(turns)), strict=True)
    return [*state, *(np.stack(column) for column in columns)]


CONTROL = {"while": _while, "cond": _cond, "scan": _scan}
