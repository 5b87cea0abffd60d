"""Cholesky's and Gauss's eliminations, and substitution, as loops."""

import numpy as np

from limpet.lanes.arithmetic import compare, divide, multiply, subtract
from limpet.lanes.code import FLAG
from limpet.lanes.loops.memory import Large, Stored, as_large, fill, new, over, plus, spread, times
from limpet.lanes.loops.moves import part, view
from limpet.lanes.loops.places import INDEX
from limpet.lanes.loops.program import LOOPS, one
from limpet.lanes.matrices import DOUBLE, check_matrices

ROWS = 4  # rows of a factor that are computed side by side: one alone waits for each addition


def _less_product(code, number, a, b):
    return subtract(code, DOUBLE, number, multiply(code, DOUBLE, a, b))


def _update(code, place, a, b):
    """Take a product from a variable."""
    code.put(place, _less_product(code, code.get(place, DOUBLE), a, b))


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


def _cholesky(code, equation, values):
    check_matrices(equation)
    sound = code.variable(FLAG)
    code.put(sound, np.True_)
    L = _factored(code, as_large(code, values[0]), sound)
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
                left = _less_product(code, x.at(code, (row, column)), at(row, i), number)
                x.put(code, (row, column), left)

            code.between(plus(code, i, 1) if lower else 0, m if lower else i, rest)

        over(code, (sides,), lambda index: side(*index))

    code.count(m, 1, unknown)


def _triangular_solve(code, equation, values, left_side, lower, transpose_a, unit_diagonal):
    check_matrices(equation)
    a, b = (as_large(code, value) for value in values)
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


def _eliminate(code, rows: Stored):
    """Gaussian elimination in place, with partial pivoting; each lane chooses its own row."""
    m, length = rows.shape
    best, chosen = code.variable(DOUBLE), code.variable(INDEX)

    def column(k):
        code.put(best, code.intrinsic("fabs", rows.at(code, (k, k))))
        code.put(chosen, spread(code, INDEX, k))

        def look(i):
            old, size = code.get(best, DOUBLE), code.intrinsic("fabs", rows.at(code, (i, k)))
            larger = compare("gt")(code, FLAG, size, old)
            code.put(best, code.select(larger, size, old))
            here = spread(code, INDEX, i)
            code.put(chosen, code.select(larger, here, code.get(chosen, INDEX)))

        code.between(plus(code, k, 1), m, look)
        first = multiply(code, INDEX, code.get(chosen, INDEX), np.int64(length))

        def exchange(j):
            place = code(INDEX, "add", first, spread(code, INDEX, j))
            below, above = rows.at_lanes(code, place), rows.at(code, (k, j))
            rows.put_lanes(code, place, above)
            rows.put(code, (k, j), below)

        code.between(k, length, exchange)
        pivot = rows.at(code, (k, k))

        def eliminate(i):
            share = divide(code, DOUBLE, rows.at(code, (i, k)), pivot)

            def entry(j):
                number = _less_product(code, rows.at(code, (i, j)), share, rows.at(code, (k, j)))
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


LOOPS |= {
    "cholesky": _cholesky,
    "triangular_solve": _triangular_solve,
    "limpet_factor": _factor,
    "limpet_solve": _solve,
    "limpet_pivots": _pivots,
}
