"""Normals, Gram matrices and their factors, of which only entries are kept.

Each is an array of entries to JAX, and has a `Structure` as part of its type.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from limpet.lanes.plans import compute
from limpet.sparse.tables import Structure

Vector = Float[Array, " n"]
Values = Float[Array, " m"]
Number = Float[Array, ""]


class _Entries:
    """Entries, and what they are entries of."""

    def __init__(self, entries: Float[Array, " entries"], structure: Structure):
        self.entries, self.structure = entries, structure

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_node(
            cls,
            lambda each: ((each.entries,), each.structure),
            lambda structure, entries: cls(*entries, structure),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.entries!r})"


def _log_of_product(numbers: Values) -> Number:
    """The log of the product; that of four at a time has room in a double, and saves logarithms."""
    whole = len(numbers) // 4 * 4
    products = jnp.prod(numbers[:whole].reshape(4, -1), axis=0)
    return jnp.sum(jnp.log(products)) + jnp.sum(jnp.log(numbers[whole:]))


class SparseFactor(_Entries):
    """L with L L^T = K; the diagonal has the reciprocals."""

    def __len__(self) -> int:
        return self.structure.m

    def solve_lower(self, b: Values) -> Values:
        """L^-1 b."""
        return compute(self.structure.solve_lower, self.entries, b)

    def solve_upper(self, b: Values) -> Values:
        """L^-T b."""
        return compute(self.structure.solve_upper, self.entries, b)

    @property
    def diagonal(self) -> Values:
        """The diagonal, in the order of elimination."""
        return 1 / self.entries[self.structure.diagonal]

    def half_log_det(self) -> Number:
        """Half the log determinant of K."""
        return -_log_of_product(self.entries[self.structure.diagonal])

    def inverse(self) -> Float[Array, " both_sides"]:
        """The entries of K^-1 where L or its transpose has some."""
        columns = jnp.append(self.entries[self.structure.columns_of_factor], -1.0)
        return compute(self.structure.inverse, columns, self.entries)


class SparseMatrix(_Entries):
    """G^T H, of two kinds of normals."""

    def _eliminated(self) -> Float[Array, " twice_the_factor"]:
        return compute(self.structure.elimination_of_any, self.entries)

    def inverse(self) -> Callable[[Values], Values]:
        """The solution a of (G^T H) a = b as a function of b, for which it is eliminated once."""
        eliminated = self._eliminated()

        def solve(b: Values) -> Values:
            half = compute(self.structure.solve_unit_lower, eliminated, b)
            return compute(self.structure.solve_other_upper, eliminated, half)

        return solve

    def log_abs_det(self) -> Number:
        """The log of the absolute determinant."""
        upper = self._eliminated()[self.structure.factor_size :]
        return -_log_of_product(jnp.abs(upper[self.structure.diagonal]))


class SparseNormals(_Entries):
    """G: the gradients of constraints."""

    def along(self, a: Values) -> Vector:
        """G a."""
        return compute(self.structure.along, self.entries, a)

    def less_along(self, x: Vector, a: Values) -> Vector:
        """The point x - G a."""
        return compute(self.structure.less_along, self.entries, a, x)

    def across(self, v: Vector) -> Values:
        """G^T v."""
        return compute(self.structure.across, self.entries, v)

    def lengths(self) -> Values:
        """The length of each normal."""
        return jnp.sqrt(compute(self.structure.squares, self.entries))

    def inner(self, other: "SparseNormals") -> SparseMatrix:
        """G^T H."""
        entries = compute(self.structure.inner, self.entries, other.entries)
        return SparseMatrix(entries, self.structure)

    def factor(self, diagonal: Any = 1.0) -> SparseFactor:
        """That of K = G^T G, whose diagonal may be multiplied by a number."""
        gram = compute(self.structure.gram, self.entries)
        if not isinstance(diagonal, float):
            gram = gram.at[self.structure.diagonal].multiply(diagonal)
        return SparseFactor(compute(self.structure.factor, gram), self.structure)

    def dual(self, factor: SparseFactor) -> "SparseNormals":
        """G K^-1, where G has entries."""
        entries = compute(self.structure.dual, self.entries, factor.inverse())
        return SparseNormals(entries, self.structure)

    def scaled(self, by: Values) -> "SparseNormals":
        """Each normal times a number; what is not finite is zero."""
        entries = self.entries * by[self.structure.constraints]
        return SparseNormals(jnp.where(jnp.isfinite(entries), entries, 0.0), self.structure)

    def lifted(self, below: Float[Array, ""]) -> "SparseNormals":
        """Over these normals those of the lifted surface, with this number below each."""
        below = jnp.broadcast_to(below, (self.structure.m,))
        return SparseNormals(jnp.concatenate([self.entries, below]), self.structure.lifted)

    def lowered(self) -> "SparseNormals":
        """The same without what was below."""
        structure = self.structure.below
        return SparseNormals(self.entries[: structure.size], structure)
