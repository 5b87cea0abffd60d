"""Cholesky's and Gauss's eliminations, and substitution, as loops.

JAX's own operations take batches of matrices, too: one after the other.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from limpet.lanes.arithmetic import compare, divide, multiply, subtract
from limpet.lanes.code import FLAG, UnsupportedError
from limpet.lanes.elementwise import convert
from limpet.lanes.loops.memory import (
    Computed,
    Index,
    Known,
    Large,
    Stored,
    as_large,
    fill,
    new,
    over,
    plus,
    spread,
    store,
    times,
)
from limpet.lanes.loops.moves import part, view
from limpet.lanes.loops.places import INDEX
from limpet.lanes.loops.program import LOOPS, one
from limpet.lanes.matrices import DOUBLE
from limpet.lanes.rules import RULES, in_memory

ROWS = 4  # rows of a factor that are computed side by side: one alone waits for each addition


def in_batches(write: Callable) -> Callable:
    """A rule for batches, of one for matrices: `write(code, *matrices, **parameters)`.

    The first result has two axes for each matrix; what an argument or another result has before
    its last axes are those of the batch.
    """

    def rule(code, equation, values, **parameters):
        for variable in equation.invars:
            if variable.aval.dtype != DOUBLE:
                raise UnsupportedError(f"{equation.primitive.name} of {variable.aval.dtype}")
        results = [variable.aval for variable in equation.outvars]
        batch = results[0].shape[:-2]
        if not any(aval.size for aval in results):
            return [Known(np.zeros(aval.shape, aval.dtype)) for aval in results]
        if not batch:
            return write(code, *(as_large(code, value) for value in values), **parameters)
        stored = [store(code, as_large(code, value)) for value in values]
        made = [new(code, aval.shape, aval.dtype) for aval in results]

        def matrix(index):
            parts = (one_of_batch(code, value, index) for value in stored)
            for room, result in zip(made, write(code, *parts, **parameters), strict=True):
                fill(code, one_of_batch(code, room, index), result)

        over(code, batch, matrix)
        return made

    return rule


def one_of_batch(code, a: Stored, index: Sequence[Index]) -> Stored:
    """What an array has at an index of its first axes."""
    offset, axes = a.offset, len(index)
    for k, stride in zip(index, a.strides, strict=False):
        offset = plus(code, offset, times(code, k, stride))
    shape, strides = a.shape[axes:], a.strides[axes:]
    return dataclasses.replace(a, shape=shape, strides=strides, offset=offset, zero=None)


def less_product(code, number, a, b):
    """The number less the product of two."""
    return subtract(code, DOUBLE, number, multiply(code, DOUBLE, a, b))


def _update(code, place, a, b):
    """Take a product from a variable."""
    code.put(place, less_product(code, code.get(place, DOUBLE), a, b))


def _factored(code, a: Large, sound=None) -> Stored:
    """L, lower triangular, with L L^T = a; `sound` is a variable for whether there is one."""
    m = a.shape[0]
    # a few rows more than there are, so that the last are computed side by side as well
    made = new(code, (m + ROWS - 1, m), DOUBLE)
    over(code, made.shape, lambda index: made.put(code, index, np.float64(0)))
    sums = [code.variable(DOUBLE) for _ in range(ROWS)]

    def column(j):
        code.put(sums[0], a.at(code, (j, j)))

        def square(k):
            number = made.at(code, (j, k))
            _update(code, sums[0], number, number)

        code.between(0, j, square)
        rest = code.get(sums[0], DOUBLE)
        if sound is not None:
            positive = compare("gt")(code, FLAG, rest, np.float64(0))
            code.put(sound, code(FLAG, "and", code.get(sound, FLAG), positive))
        diagonal = code.intrinsic("sqrt", rest)
        made.put(code, (j, j), diagonal)

        def rows(i):
            below = [plus(code, i, t) for t in range(ROWS)]
            for place, row in zip(sums, below, strict=True):
                code.put(place, a.at(code, (code.least(row, m - 1), j)))

            def product(k):
                number = made.at(code, (j, k))
                for place, row in zip(sums, below, strict=True):
                    _update(code, place, made.at(code, (row, k)), number)

            code.between(0, j, product)
            for place, row in zip(sums, below, strict=True):
                made.put(code, (row, j), divide(code, DOUBLE, code.get(place, DOUBLE), diagonal))

        code.between(plus(code, j, 1), m, rows, ROWS)

    code.count(m, 1, column)
    return part(code, made, (slice(0, m),))


@one
def _factor(code, out, a):
    return _factored(code, as_large(code, a))


@in_batches
def _cholesky(code, a):
    sound = code.variable(FLAG)
    code.put(sound, np.True_)
    L = _factored(code, a, sound)
    flag = code.get(sound, FLAG)

    def row(i):
        def entry(j):
            number = code.select(flag, L.at(code, (i, j)), np.float64(np.nan))
            L.put(code, (i, j), number)

        code.between(0, plus(code, i, 1), entry)

    code.count(L.shape[0], 1, row)
    return [L]


def _substitute(code, at, x: Stored, lower: bool, unit: bool):
    """Solve in place, for a triangular matrix with entries `at(i, j)` and several right sides."""
    m, sides = x.shape

    def unknown(k):
        i = k if lower else plus(code, m - 1, times(code, k, -1))

        def side(column):
            number = x.at(code, (i, column))
            if not unit:
                number = divide(code, DOUBLE, number, at(i, i))
                x.put(code, (i, column), number)

            def rest(row):
                left = less_product(code, x.at(code, (row, column)), at(row, i), number)
                x.put(code, (row, column), left)

            code.between(plus(code, i, 1) if lower else 0, m if lower else i, rest)

        over(code, (sides,), lambda index: side(*index))

    code.count(m, 1, unknown)


@in_batches
def _triangular_solve(code, a, b, left_side, lower, transpose_a, unit_diagonal):
    if transpose_a == left_side:
        lower = not lower

        def at(i, j):
            return a.at(code, (j, i))
    else:

        def at(i, j):
            return a.at(code, (i, j))

    made = new(code, b.shape, DOUBLE)
    fill(code, made, b)
    x = made if left_side else view(code, made, np.transpose)
    _substitute(code, at, x, lower, unit_diagonal)
    return [made]


def _chooser(code, rows: Stored) -> Callable:
    """Which row at or below k has the largest entry in column k, as a function of k."""
    best, chosen = code.variable(DOUBLE), code.variable(INDEX)

    def choose(k):
        code.put(best, code.intrinsic("fabs", rows.at(code, (k, k))))
        code.put(chosen, spread(code, INDEX, k))

        def look(i):
            old, size = code.get(best, DOUBLE), code.intrinsic("fabs", rows.at(code, (i, k)))
            larger = compare("gt")(code, FLAG, size, old)
            code.put(best, code.select(larger, size, old))
            here = spread(code, INDEX, i)
            code.put(chosen, code.select(larger, here, code.get(chosen, INDEX)))

        code.between(plus(code, k, 1), rows.shape[0], look)
        return code.get(chosen, INDEX)

    return choose


def _exchange(code, rows: Stored, k, chosen, begin):
    """Exchange row k with the one that each lane chose, from a column on."""
    length = rows.shape[1]
    first = multiply(code, INDEX, chosen, np.int64(length))

    def entry(j):
        place = code(INDEX, "add", first, spread(code, INDEX, j))
        below, above = rows.at_lanes(code, place), rows.at(code, (k, j))
        rows.put_lanes(code, place, above)
        rows.put(code, (k, j), below)

    code.between(begin, length, entry)


def _eliminate(code, rows: Stored):
    """Gaussian elimination in place, with partial pivoting; each lane chooses its own row."""
    m, length = rows.shape
    choose = _chooser(code, rows)

    def column(k):
        _exchange(code, rows, k, choose(k), k)
        pivot = rows.at(code, (k, k))

        def eliminate(i):
            share = divide(code, DOUBLE, rows.at(code, (i, k)), pivot)

            def entry(j):
                number = less_product(code, rows.at(code, (i, j)), share, rows.at(code, (k, j)))
                rows.put(code, (i, j), number)

            code.between(plus(code, k, 1), length, entry)

        code.between(plus(code, k, 1), m, eliminate)

    code.count(m, 1, column)


@one
def _solve(code, out, a, b):
    m = a.shape[0]
    rows = new(code, (m, m + 1), DOUBLE)
    fill(code, part(code, rows, (slice(None), slice(0, m))), a)
    fill(code, part(code, rows, (slice(None), m)), b)
    _eliminate(code, rows)
    x = part(code, rows, (slice(None), slice(m, m + 1)))
    _substitute(code, lambda i, j: rows.at(code, (i, j)), x, lower=False, unit=False)
    return view(code, x, lambda array: array[:, 0])


@one
def _pivots(code, out, a):
    rows = new(code, a.shape, DOUBLE)
    fill(code, rows, a)
    _eliminate(code, rows)
    return view(code, rows, np.diagonal)


@in_batches
def _lu(code, a):
    """L below the diagonal and U, the rows that were exchanged, and the order of the rows then."""
    (m, length), steps = a.shape, min(a.shape)
    rows, order, pivots = (
        new(code, shape, dtype)
        for shape, dtype in ((a.shape, DOUBLE), ((m, 1), INDEX), ((steps,), INDEX))
    )
    fill(code, rows, a)
    code.count(m, 1, lambda i: order.put(code, (i, 0), spread(code, INDEX, i)))
    choose = _chooser(code, rows)

    def column(k):
        chosen = choose(k)
        pivots.put(code, (k,), chosen)
        _exchange(code, rows, k, chosen, 0)
        _exchange(code, order, k, chosen, 0)
        pivot = rows.at(code, (k, k))
        none = compare("eq")(code, FLAG, pivot, np.float64(0))

        def eliminate(i):
            number = rows.at(code, (i, k))
            # as LAPACK does it: what is singular stays finite
            share = code.select(none, number, divide(code, DOUBLE, number, pivot))
            rows.put(code, (i, k), share)

            def entry(j):
                less = less_product(code, rows.at(code, (i, j)), share, rows.at(code, (k, j)))
                rows.put(code, (i, j), less)

            code.between(plus(code, k, 1), length, entry)

        code.between(plus(code, k, 1), m, eliminate)

    if steps:
        code.count(steps, 1, column)
    column_of_order = view(code, order, lambda array: array[:, 0])
    return [rows, _as_int32(code, pivots), _as_int32(code, column_of_order)]


def _as_int32(code, a: Stored) -> Computed:
    def entry(index):
        return convert(code, np.dtype(np.int32), a.at(code, index))

    return Computed(a.shape, np.dtype(np.int32), entry, a.buffers)


RULES["lu"] = in_memory()
LOOPS |= {
    "cholesky": _cholesky,
    "lu": _lu,
    "triangular_solve": _triangular_solve,
    "limpet_factor": _factor,
    "limpet_solve": _solve,
    "limpet_pivots": _pivots,
}
