"""Algebra of the m x m matrices that every move is made of.

Up to `MOST_UNROLLED` rows the matrices are taken apart into scalars: over a batch of chains each
scalar is one vector operation, where a library call per tiny matrix would cost more than the
arithmetic.
Beyond that they are LAPACK's, or entries that `limpet.lanes` goes through, if most are zero.
"""

import math
from typing import Any, cast

import jax.numpy as jnp
import jax.scipy.linalg as lapack
from jaxtyping import Array, Float

from limpet.lanes import primitives
from limpet.shapes import Factor, Half, Normals, Square, Values, Vector
from limpet.sparse.normals import SparseFactor, SparseMatrix, SparseNormals

# Rows: a trade-off that was not measured. The code of an elimination, and the time to compile it,
# grow as their cube; at 8 it has a few hundred operations.
MOST_UNROLLED = 8


def uses_lapack(m: int) -> bool:
    """Whether matrices with m rows are left to LAPACK, where XLA runs the program."""
    return m > MOST_UNROLLED


def inner(a: Normals, b: Normals) -> Square:
    """a^T b."""
    if isinstance(a, SparseNormals):
        return a.inner(cast(SparseNormals, b))
    b = cast(Array, b)
    m = a.shape[1]
    if m > MOST_UNROLLED:
        return a.T @ b
    return _matrix([[jnp.sum(a[:, i] * b[:, j]) for j in range(m)] for i in range(m)])


def along(normals: Normals, a: Values) -> Vector:
    """The vector with coefficients `a` along the normals."""
    if isinstance(normals, SparseNormals):
        return normals.along(a)
    if len(a) > MOST_UNROLLED:
        return normals @ a
    return sum((normals[:, i] * a[i] for i in range(1, len(a))), start=normals[:, 0] * a[0])


def less_along(x: Vector, normals: Normals, a: Values) -> Vector:
    """The point less the vector with coefficients `a` along the normals."""
    if isinstance(normals, SparseNormals):
        return normals.less_along(x, a)
    return x - along(normals, a)


def across(normals: Normals, v: Vector) -> Values:
    """G^T v: how fast each constraint changes along v."""
    if isinstance(normals, SparseNormals):
        return normals.across(v)
    m = normals.shape[1]
    if m > MOST_UNROLLED:
        return normals.T @ v
    return jnp.stack([jnp.sum(normals[:, i] * v) for i in range(m)])


def lengths(normals: Normals) -> Values:
    """The length of each normal."""
    if isinstance(normals, SparseNormals):
        return normals.lengths()
    return jnp.linalg.norm(normals, axis=0)


def total(normals: Normals) -> Float[Array, ""]:
    """The sum of all entries: it is finite if they are."""
    return jnp.sum(_entries(normals))


def _entries(normals: Normals) -> Array:
    return normals.entries if isinstance(normals, SparseNormals) else normals


def pairing(a: Normals, b: Normals) -> Float[Array, ""]:
    """The sum of the products of their entries."""
    return jnp.sum(_entries(a) * _entries(b))


def factor(normals: Normals) -> Factor:
    """L, lower triangular, with L L^T = K = G^T G; NaN where the normals are dependent."""
    if isinstance(normals, SparseNormals):
        return normals.factor()
    m = normals.shape[1]
    if m > MOST_UNROLLED:
        return primitives.factor(normals.T @ normals)
    L: list[list[Array]] = [[jnp.zeros(())] * m for _ in range(m)]
    for i in range(m):
        for j in range(i + 1):
            rest = jnp.sum(normals[:, i] * normals[:, j]) - sum(L[i][k] * L[j][k] for k in range(j))
            L[i][j] = jnp.sqrt(rest) if i == j else rest / L[j][j]
    return _matrix(L)


def solve_lower(L: Factor, b: Values) -> Half:
    """L^-1 b."""
    if isinstance(L, SparseFactor):
        return L.solve_lower(b)
    m = len(b)
    if m > MOST_UNROLLED:
        return lapack.solve_triangular(L, b, lower=True)
    a: list[Array] = []
    for i in range(m):
        a.append((b[i] - sum(L[i, k] * a[k] for k in range(i))) / L[i, i])
    return jnp.stack(a)


def solve_upper(L: Factor, b: Half) -> Values:
    """L^-T b."""
    if isinstance(L, SparseFactor):
        return L.solve_upper(b)
    m = len(b)
    if m > MOST_UNROLLED:
        return lapack.solve_triangular(L, b, lower=True, trans=1)
    a = [jnp.zeros(())] * m
    for i in reversed(range(m)):
        a[i] = (b[i] - sum(L[k, i] * a[k] for k in range(i + 1, m))) / L[i, i]
    return jnp.stack(a)


def tangent(normals: Normals, L: Factor, v: Vector) -> Vector:
    """The part of v along the surface, v - G K^-1 G^T v."""
    return less_along(v, normals, solve_upper(L, solve_lower(L, across(normals, v))))


def dual(normals: Normals, L: Factor) -> Normals:
    """G K^-1: the columns that pair with the normals as 1 with their own and 0 with the others.

    Of sparse normals, the entries where these have some.
    """
    if isinstance(normals, SparseNormals):
        return normals.dual(cast(SparseFactor, L))
    m = len(L)
    if m > MOST_UNROLLED:
        identity = primitives.sparse(jnp.eye(m))
        return normals @ lapack.cho_solve((cast(Array, L), True), identity)
    inverse = [solve_upper(L, solve_lower(L, row)) for row in primitives.sparse(jnp.eye(m))]
    return jnp.stack([along(normals, column) for column in inverse], axis=-1)


def half_log_det(L: Factor) -> Float[Array, ""]:
    """Half the log determinant of K = L L^T."""
    if isinstance(L, SparseFactor):
        return L.half_log_det()
    m = len(L)
    if m > MOST_UNROLLED:
        return jnp.sum(jnp.log(jnp.diagonal(L)))
    return _log_of_product([L[i, i] for i in range(m)])


def solve(A: Square, b: Values) -> Values:
    """A^-1 b for any invertible A."""
    if isinstance(A, SparseMatrix):
        return A.inverse()(b)
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


def damped_step(normals: Normals, values: Values, damping: Any) -> Vector:
    """Levenberg and Marquardt's step towards smaller values, the same in all units of theirs."""
    if isinstance(normals, SparseNormals):
        L = normals.factor(1 + damping)
        return normals.along(L.solve_upper(L.solve_lower(values)))
    K = normals.T @ normals
    return normals @ solve(K + damping * jnp.diag(jnp.diagonal(K)), values)


def scaled(normals: Normals, by: Any) -> Normals:
    """Each normal times its number."""
    if isinstance(normals, SparseNormals):
        return normals.scaled(by)
    return normals * by


def rescale(normals: Normals, scale: Values) -> Normals:
    """Each normal divided by its scale; entries that are not finite become zero."""
    if isinstance(normals, SparseNormals):
        return normals.scaled(1 / scale)
    scaled = normals / scale
    return jnp.where(jnp.isfinite(scaled), scaled, 0.0)


def singular_values(normals: Normals) -> Float[Array, " some"]:
    """All of them; of sparse normals the pivots of their Gram matrix, which bound the smallest."""
    if isinstance(normals, SparseNormals):
        return normals.factor().diagonal
    return jnp.linalg.svd(normals, compute_uv=False)


def by_constraint(normals: Normals) -> Float[Array, "..."]:
    """The normals as rows, to be shown; of sparse ones the entries."""
    return normals.entries if isinstance(normals, SparseNormals) else normals.T


def log_abs_det(A: Square) -> Float[Array, ""]:
    """The log of the absolute determinant."""
    if isinstance(A, SparseMatrix):
        return A.log_abs_det()
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
