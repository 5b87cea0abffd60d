"""Matrices of numbers in LLVM's language, entry by entry.

Entries that are known to be zero cost nothing, nor do those that stay zero when a matrix is
factored. A stiff chain has bonds between neighbours only, so its Gram matrix has three diagonals,
its Cholesky factor two, and a step costs as much per bond, however many there are.
"""

import numpy as np

from limpet.native.arithmetic import compare, divide_entry, is_equal, multiply_entries, subtract
from limpet.native.code import FLAG, UnsupportedError

DOUBLE = np.dtype(float)


def zeros(*shape) -> np.ndarray:
    """An array of known zeros."""
    made = np.empty(shape, object)
    for entry in np.ndindex(*shape):  # all at once, NumPy would make Python's numbers of them
        made[entry] = np.float64(0)
    return made


def present(row) -> list[int]:
    """Where a row has entries that may differ from zero."""
    return [k for k, number in enumerate(row) if not is_equal(number, 0)]


def cholesky(code, parameters, out, a):
    """L, lower triangular, with L L^T = a."""
    _check(out)
    L = zeros(*a.shape)
    for i in range(len(a)):
        for j in range(i + 1):
            rest = _less(code, a[i, j], ((L[i, k], L[j, k]) for k in present(L[i, :j])))
            L[i, j] = code.intrinsic("sqrt", rest) if i == j else _share(code, rest, L[j, j])
    return L


def triangular_solve(code, parameters, out, a, b):
    """The solution x of a x = b, or of x a = b, and so on: as LAPACK's."""
    _check(out)
    left, lower = parameters["left_side"], parameters["lower"]
    if parameters["transpose_a"] == left:
        a, lower = a.T, not lower
    x = _substituted(code, a, b if left else b.T, lower, unit=parameters["unit_diagonal"])
    return x if left else x.T


def _substituted(code, a, b, lower, *, unit=False):
    """The solution of a x = b, for a triangular matrix a."""
    x = zeros(*b.shape)
    for i in range(len(a)) if lower else reversed(range(len(a))):
        before = [k for k in present(a[i]) if (k < i if lower else k > i)]
        for column in range(b.shape[1]):
            rest = _less(code, b[i, column], ((a[i, k], x[k, column]) for k in before))
            x[i, column] = rest if unit else _share(code, rest, a[i, i])
    return x


def solve(code, parameters, out, A, b):
    """The solution of A x = b, for any invertible A."""
    rows = _eliminated(code, np.column_stack([A, b]))
    return _substituted(code, rows[:, :-1], rows[:, -1:], lower=False)[:, 0]


def pivots(code, parameters, out, A):
    """The diagonal after elimination: its product is the determinant, or minus that."""
    return _eliminated(code, A).diagonal()


def _eliminated(code, rows):
    """Gaussian elimination with partial pivoting of rows, which may be longer than they are many.

    Lanes differ in which row they choose: each row below that may be chosen is exchanged, or not.
    """
    rows = rows.copy()
    for k in range(len(rows)):
        below = [i for i in range(k + 1, len(rows)) if not is_equal(rows[i, k], 0)]
        for i in below:
            sizes = (code.intrinsic("fabs", rows[row, k]) for row in (i, k))
            larger = compare("gt")(code, FLAG, *sizes)
            for j in range(k, rows.shape[1]):
                pair = rows[k, j], rows[i, j]
                rows[k, j], rows[i, j] = (code.select(larger, *two) for two in (pair[::-1], pair))
        for i in below:
            share = _share(code, rows[i, k], rows[k, k])
            rows[i, k] = np.float64(0)
            for j in range(k + 1, rows.shape[1]):
                rows[i, j] = _less(code, rows[i, j], [(share, rows[k, j])])
    return rows


def _less(code, number, pairs):
    """The number less the products of the pairs."""
    for a, b in pairs:
        number = subtract(code, DOUBLE, number, multiply_entries(code, DOUBLE, a, b))
    return number


def _share(code, a, b):
    return divide_entry(code, DOUBLE, a, b)


def _check(out):
    if out.ndim > 2 or out.dtype != DOUBLE:
        raise UnsupportedError(f"matrices of shape {out.shape}, of {out.dtype}")
