"""Algebra of the n x n matrices of unknowns, where constraints are as many as these, or more.

None is taken apart into scalars, be it small: passes over the constraints are what takes time, and
a program that is short compiles fast.
"""

import jax.numpy as jnp
import jax.scipy.linalg as lapack
from jaxtyping import Array, Float

from limpet.lanes import primitives
from limpet.shapes import Values, Vector

Matrix = Float[Array, "n n"]
Rows = Float[Array, "n m"]  # of normals


def outer(a: Rows, b: Rows) -> Matrix:
    """The matrix a b^T."""
    return a @ b.T


def along(normals: Rows, a: Values) -> Vector:
    """The vector with coefficients `a` along the normals."""
    return normals @ a


def factor(A: Matrix) -> Matrix:
    """L, lower triangular, with L L^T = A; NaN where A is not positive."""
    return primitives.factor(A)


def solve_lower(L: Matrix, b: Vector) -> Vector:
    """L^-1 b."""
    return lapack.solve_triangular(L, b, lower=True)


def solve_upper(L: Matrix, b: Vector) -> Vector:
    """L^-T b."""
    return lapack.solve_triangular(L, b, lower=True, trans=1)


def solve(A: Matrix, b: Vector) -> Vector:
    """A^-1 b."""
    return primitives.solve(A, b)


def inverse(L: Matrix) -> Matrix:
    """(L L^T)^-1."""
    return lapack.cho_solve((L, True), primitives.sparse(jnp.eye(len(L))))


def half_log_det(L: Matrix) -> Float[Array, ""]:
    """Half the log determinant of L L^T."""
    return jnp.sum(jnp.log(jnp.diagonal(L)))
