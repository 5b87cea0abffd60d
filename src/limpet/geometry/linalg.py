"""Algebra of the m x m matrices that every move is made of.

Up to `MOST_UNROLLED` rows the matrices are taken apart into scalars: over a batch of chains each
scalar is one vector operation, where a library call per tiny matrix would cost more than the
arithmetic.
Beyond that they are LAPACK's, or entries that `limpet.lanes` goes through, if most are zero.
"""

import math

import jax.numpy as jnp
import jax.scipy.linalg as lapack
from jaxtyping import Array, Float

from limpet.lanes import primitives
from limpet.shapes import Normals, Square, Values, Vector

# Rows: a trade-off that was not measured. The code of an elimination, and the time to compile it,
# grow as their cube; at 8 it has a few hundred operations.
MOST_UNROLLED = 8


def uses_lapack(m: int) -> bool:
    """Whether matrices with m rows are left to LAPACK, where XLA runs the program."""
    return m > MOST_UNROLLED


def inner(a: Normals, b: Normals) -> Square:
    """a^T b."""
    m = a.shape[1]
    if m > MOST_UNROLLED:
        return a.T @ b
    return _matrix([[jnp.sum(a[:, i] * b[:, j]) for j in range(m)] for i in range(m)])


def along(normals: Normals, a: Values) -> Vector:
    """The vector with coefficients `a` along the normals."""
    if len(a) > MOST_UNROLLED:
        return normals @ a
    return sum((normals[:, i] * a[i] for i in range(1, len(a))), start=normals[:, 0] * a[0])


def across(normals: Normals, v: Vector) -> Values:
    """G^T v: how fast each constraint changes along v."""
    m = normals.shape[1]
    if m > MOST_UNROLLED:
        return normals.T @ v
    return jnp.stack([jnp.sum(normals[:, i] * v) for i in range(m)])


def factor(normals: Normals) -> Square:
    """L, lower triangular, with L L^T = K = G^T G; NaN where the normals are dependent."""
    m = normals.shape[1]
    if m > MOST_UNROLLED:
        return primitives.factor(normals.T @ normals)
    L: list[list[Array]] = [[jnp.zeros(())] * m for _ in range(m)]
    for i in range(m):
        for j in range(i + 1):
            rest = jnp.sum(normals[:, i] * normals[:, j]) - sum(L[i][k] * L[j][k] for k in range(j))
            L[i][j] = jnp.sqrt(rest) if i == j else rest / L[j][j]
    return _matrix(L)


def solve_lower(L: Square, b: Values) -> Values:
    """L^-1 b."""
    m = len(b)
    if m > MOST_UNROLLED:
        return lapack.solve_triangular(L, b, lower=True)
    a: list[Array] = []
    for i in range(m):
        a.append((b[i] - sum(L[i, k] * a[k] for k in range(i))) / L[i, i])
    return jnp.stack(a)


def solve_upper(L: Square, b: Values) -> Values:
    """L^-T b."""
    m = len(b)
    if m > MOST_UNROLLED:
        return lapack.solve_triangular(L, b, lower=True, trans=1)
    a = [jnp.zeros(())] * m
    for i in reversed(range(m)):
        a[i] = (b[i] - sum(L[k, i] * a[k] for k in range(i + 1, m))) / L[i, i]
    return jnp.stack(a)


def tangent(normals: Normals, L: Square, v: Vector) -> Vector:
    """The part of v along the surface, v - G K^-1 G^T v."""
    return v - along(normals, solve_upper(L, solve_lower(L, across(normals, v))))


def dual(normals: Normals, L: Square) -> Normals:
    """G K^-1: the columns that pair with the normals as 1 with their own and 0 with the others."""
    m = len(L)
    if m > MOST_UNROLLED:
        return normals @ lapack.cho_solve((L, True), primitives.sparse(jnp.eye(m)))
    inverse = [solve_upper(L, solve_lower(L, row)) for row in primitives.sparse(jnp.eye(m))]
    return jnp.stack([along(normals, column) for column in inverse], axis=-1)


def half_log_det(L: Square) -> Float[Array, ""]:
    """Half the log determinant of K = L L^T."""
    m = len(L)
    if m > MOST_UNROLLED:
        return jnp.sum(jnp.log(jnp.diagonal(L)))
    return _log_of_product([L[i, i] for i in range(m)])


def solve(A: Square, b: Values) -> Values:
    """A^-1 b for any invertible A."""
    m = len(b)
    if m > MOST_UNROLLED:
        return primitives.solve(A, b)
    if m == 2:
        (p, q), (r, s) = A
        return jnp.stack([s * b[0] - q * b[1], p * b[1] - r * b[0]]) / (p * s - q * r)
    rows = _eliminate([[A[i, j] for j in range(m)] + [b[i]] for i in range(m)])
    a = [jnp.zeros(())] * m
    for i in reversed(range(m)):
        a[i] = (rows[i][m] - sum(rows[i][k] * a[k] for k in range(i + 1, m))) / rows[i][i]
    return jnp.stack(a)


def log_abs_det(A: Square) -> Float[Array, ""]:
    """The log of the absolute determinant."""
    m = len(A)
    if m > MOST_UNROLLED:
        return jnp.sum(jnp.log(jnp.abs(primitives.pivots(A))))
    rows = _eliminate([[A[i, j] for j in range(m)] for i in range(m)])
    return _log_of_product([jnp.abs(rows[i][i]) for i in range(m)])


def _eliminate(rows: list[list[Array]]) -> list[list[Array]]:
    """Gaussian elimination with partial pivoting, as straight-line code."""
    m = len(rows)
    for k in range(m):
        for i in range(k + 1, m):
            larger = jnp.abs(rows[i][k]) > jnp.abs(rows[k][k])
            pairs = list(zip(rows[k], rows[i], strict=True))
            rows[k] = [jnp.where(larger, below, above) for above, below in pairs]
            rows[i] = [jnp.where(larger, above, below) for above, below in pairs]
        for i in range(k + 1, m):
            share = rows[i][k] / rows[k][k]
            rows[i] = [below - share * above for above, below in zip(rows[k], rows[i], strict=True)]
    return rows


def _log_of_product(numbers: list[Array]) -> Array:
    # two at a time: half as many logarithms, and the product of two has room in a double
    pairs = [numbers[i : i + 2] for i in range(0, len(numbers), 2)]
    logs = [jnp.log(math.prod(pair)) for pair in pairs]
    return sum(logs[1:], start=logs[0])


def _matrix(rows: list[list[Array]]) -> Array:
    return jnp.stack([jnp.stack(row) for row in rows])
