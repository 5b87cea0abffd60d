"""Matrices of numbers in LLVM's language, entry by entry.

Structural zeros cost nothing, nor do those that stay zero when a matrix is factored. A stiff chain
has bonds between neighbours only, so its Gram matrix has three diagonals, its Cholesky factor two,
and a step costs as much per bond, however many there are.
"""

import functools
from collections.abc import Callable

import numpy as np

from limpet.lanes.arithmetic import add, compare, divide, multiply, subtract
from limpet.lanes.code import FLAG, STRUCTURAL_ZERO, UnsupportedError, is_structural
from limpet.lanes.plans import NONE
from limpet.lanes.rules import RULES, Rule, sparse

DOUBLE = np.dtype(float)


def zeros(*shape) -> np.ndarray:
    """A sparse matrix of nothing."""
    made = np.empty(shape, object)
    for entry in np.ndindex(*shape):  # all at once, NumPy would make Python's numbers of them
        made[entry] = STRUCTURAL_ZERO
    return made


def present(row) -> list[int]:
    """Where a row has entries that may differ from zero."""
    return [k for k, number in enumerate(row) if not is_structural(number)]


def _in_batches(write: Callable) -> Callable:
    """A rule for batches, of one for matrices: `write(code, *matrices, **parameters)`."""

    @functools.wraps(write)
    def rule(code, equation, arrays, **parameters):
        for variable in equation.invars:
            if variable.aval.dtype != DOUBLE:
                raise UnsupportedError(f"{equation.primitive.name} of {variable.aval.dtype}")
        shape = equation.outvars[0].aval.shape
        if len(shape) == 2:
            return [write(code, *arrays, **parameters)]
        made = zeros(*shape)
        for index in np.ndindex(*shape[:-2]):
            made[index] = write(code, *(array[index] for array in arrays), **parameters)
        return [made]

    return rule


@_in_batches
def cholesky(code, a):
    """L, lower triangular, with L L^T = a; NaN if there is none."""
    L, squares = _factored(code, a)
    flags = (code(FLAG, "fcmp ugt", number, np.float64(0)) for number in squares)
    sound = functools.reduce(functools.partial(code, FLAG, "and"), flags, np.True_)
    for i, j in zip(*np.tril_indices(len(L)), strict=True):
        if not is_structural(L[i, j]):
            L[i, j] = code.select(sound, L[i, j], np.float64(np.nan))
    return L


def factor(code, equation, arrays):
    """The same, but NaN on the diagonal and in what depends on it, if there is none."""
    return [_factored(code, *arrays)[0]]


def _factored(code, a):
    """L, and the squares of its diagonal."""
    L, squares = zeros(*a.shape), []
    for i in range(len(a)):
        for j in range(i + 1):
            rest = _less(code, a[i, j], ((L[i, k], L[j, k]) for k in present(L[i, :j])))
            if i == j:
                squares.append(rest)
                L[i, j] = code.intrinsic("sqrt", rest)
            else:
                L[i, j] = divide(code, DOUBLE, rest, L[j, j])
    return L, squares


@_in_batches
def triangular_solve(code, a, b, left_side, lower, transpose_a, unit_diagonal):
    """The solution x of a x = b, or of x a = b, and so on: as LAPACK's."""
    if transpose_a == left_side:
        a, lower = a.T, not lower
    x = _substituted(code, a, b if left_side else b.T, lower, unit=unit_diagonal)
    return x if left_side else x.T


def _substituted(code, a, b, lower, *, unit=False):
    """The solution of a x = b, for a triangular matrix a."""
    x = zeros(*b.shape)
    for i in range(len(a)) if lower else reversed(range(len(a))):
        before = [k for k in present(a[i]) if (k < i if lower else k > i)]
        for column in range(b.shape[1]):
            rest = _less(code, b[i, column], ((a[i, k], x[k, column]) for k in before))
            x[i, column] = rest if unit else divide(code, DOUBLE, rest, a[i, i])
    return x


def solve(code, equation, arrays):
    """The solution of A x = b, for any invertible A."""
    rows = _eliminated(code, np.column_stack(arrays))
    return [_substituted(code, rows[:, :-1], rows[:, -1:], lower=False)[:, 0]]


def pivots(code, equation, arrays):
    """The diagonal after elimination: its product is the determinant, or minus that."""
    return [_eliminated(code, *arrays).diagonal()]


def _eliminated(code, rows):
    """Gaussian elimination with partial pivoting of rows, which may be longer than they are many.

    Lanes differ in which row they choose: each row below that may be chosen is exchanged, or not.
    """
    rows = sparse(rows)
    for k in range(len(rows)):
        below = [i for i in range(k + 1, len(rows)) if not is_structural(rows[i, k])]
        for i in below:
            sizes = (code.intrinsic("fabs", rows[row, k]) for row in (i, k))
            larger = compare("gt")(code, FLAG, *sizes)
            for j in range(k, rows.shape[1]):
                pair = rows[k, j], rows[i, j]
                rows[k, j], rows[i, j] = (code.select(larger, *two) for two in (pair[::-1], pair))
        for i in below:
            share = divide(code, DOUBLE, rows[i, k], rows[k, k])
            rows[i, k] = STRUCTURAL_ZERO
            for j in range(k + 1, rows.shape[1]):
                rows[i, j] = _less(code, rows[i, j], [(share, rows[k, j])])
    return rows


def compute_plan(code, equation, arrays, plan):
    """The entries of a plan, one after the other."""
    result = zeros(plan.size)
    arrays = [*arrays, result]  # RESULT is the last
    for place, number in written_out(code, plan, lambda which, k: arrays[which][k]):
        result[place] = number
    return [result]


def written_out(code, plan, at):
    """Each entry of a plan and its place in the result, given what is `at(array, entry)`."""
    for k, place in enumerate(plan.places):
        total = np.float64(0)
        for a, b, length in plan.runs[plan.ends[k] : plan.ends[k + 1]]:
            for t in range(length):
                pair = at(plan.left, a + t), at(plan.right, b + t)
                total = add(code, DOUBLE, total, multiply(code, DOUBLE, *pair))
        start = np.float64(0)
        if plan.starts is not None and plan.starts[k] != NONE:
            start = at(plan.start, plan.starts[k])
        number = (add if plan.sign > 0 else subtract)(code, DOUBLE, start, total)
        if plan.scales is not None and plan.scales[k] != NONE:
            number = multiply(code, DOUBLE, number, at(plan.scale, plan.scales[k]))
        if plan.inverses is not None and plan.inverses[k]:
            number = inverse(code, number, plan.root)
        yield place, number


def inverse(code, number, root: bool):
    """The reciprocal of a number, or of its root."""
    number = code.intrinsic("sqrt", number) if root else number
    return divide(code, DOUBLE, np.float64(1), number)


def _less(code, number, pairs):
    """The number less the products of the pairs."""
    for a, b in pairs:
        number = subtract(code, DOUBLE, number, multiply(code, DOUBLE, a, b))
    return number


RULES |= {
    "cholesky": Rule(cholesky),
    "triangular_solve": Rule(
        triangular_solve,
        honours=("left_side", "lower", "transpose_a", "unit_diagonal"),
        ignores=("conjugate_a",),  # the numbers are real
    ),
    "limpet_factor": Rule(factor),
    "limpet_solve": Rule(solve),
    "limpet_pivots": Rule(pivots),
    "limpet_plan": Rule(compute_plan, honours=("plan",)),
}
