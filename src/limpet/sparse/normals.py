"""Normals, Gram matrices and their factors, of which only entries are kept.

Each is an array of entries to JAX, and has a `Structure` as part of its type.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from limpet.lanes.plans import compute
from limpet.sparse.balance import BalancedStructure
from limpet.sparse.tables import Structure

Vector = Float[Array, " n"]
Values = Float[Array, " m"]
Half = Float[Array, " half"]  # between two substitutions
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

    def _padded(self, b: Values) -> Float[Array, " whole"]:
        """A right side for all that is factored."""
        more = self.structure.whole.m - len(b)
        return jnp.concatenate([b, jnp.zeros(more)]) if more else b

    def _own(self, a: Float[Array, " whole"]) -> Values:
        """Of a solution, the part of the constraints."""
        return a[: self.structure.m] if len(a) > self.structure.m else a


def _log_of_product(numbers: Values) -> Number:
    """The log of the product; that of four at a time has room in a double, and saves logarithms."""
    whole = len(numbers) // 4 * 4
    products = jnp.prod(numbers[:whole].reshape(4, -1), axis=0)
    return jnp.sum(jnp.log(products)) + jnp.sum(jnp.log(numbers[whole:]))


class SparseFactor(_Entries):
    """L with L L^T = K; the diagonal has the reciprocals."""

    def __len__(self) -> int:
        return self.structure.m

    def solve_lower(self, b: Values) -> Half:
        """L^-1 b."""
        return compute(self.structure.whole.solve_lower, self.entries, self._padded(b))

    def solve_upper(self, b: Half) -> Values:
        """L^-T b."""
        return self._own(compute(self.structure.whole.solve_upper, self.entries, b))

    @property
    def diagonal(self) -> Values:
        """The diagonal, in the order of elimination."""
        return 1 / self.entries[self.structure.whole.diagonal]

    def half_log_det(self) -> Number:
        """Half the log determinant of K."""
        return -_log_of_product(self.entries[self.structure.whole.diagonal])

    def inverse(self) -> Float[Array, " both_sides"]:
        """The entries of K^-1 where L or its transpose has some."""
        whole = self.structure.whole
        columns = jnp.append(self.entries[whole.columns_of_factor], -1.0)
        return compute(whole.inverse, columns, self.entries)


class SparseMatrix(_Entries):
    """G^T H, of two kinds of normals."""

    def _eliminated(self) -> Float[Array, " twice_the_factor"]:
        return compute(self.structure.whole.elimination_of_any, self.entries)

    def inverse(self) -> Callable[[Values], Values]:
        """The solution a of (G^T H) a = b as a function of b, for which it is eliminated once."""
        eliminated, whole = self._eliminated(), self.structure.whole

        def solve(b: Values) -> Values:
            half = compute(whole.solve_unit_lower, eliminated, self._padded(b))
            return self._own(compute(whole.solve_other_upper, eliminated, half))

        return solve

    def log_abs_det(self) -> Number:
        """The log of the absolute determinant."""
        whole = self.structure.whole
        upper = self._eliminated()[whole.factor_size :]
        return -_log_of_product(jnp.abs(upper[whole.diagonal]))


class SparseNormals(_Entries):
    """G: the gradients of constraints, in differences of which chains move in (see `balance`)."""

    def _whole(self) -> Float[Array, " more"]:
        """The entries of all that is factored."""
        if not isinstance(self.structure, BalancedStructure):
            return self.entries
        return jnp.concatenate([self.entries, self.structure.beside])

    def _turn(self, v: Vector) -> Vector:
        """From differences to what chains move in, or back: the same unless they are balanced."""
        return self.structure.turn(v) if isinstance(self.structure, BalancedStructure) else v

    def along(self, a: Values) -> Vector:
        """G a."""
        return self._turn(compute(self.structure.along, self.entries, a))

    def less_along(self, x: Vector, a: Values) -> Vector:
        """The point x - G a."""
        if isinstance(self.structure, BalancedStructure):
            return x - self.along(a)
        return compute(self.structure.less_along, self.entries, a, x)

    def across(self, v: Vector) -> Values:
        """G^T v."""
        return compute(self.structure.across, self.entries, self._turn(v))

    def lengths(self) -> Values:
        """The length of each normal."""
        squares = compute(self.structure.squares, self.entries)
        if isinstance(self.structure, BalancedStructure):
            for column in self.structure.directions:
                squares -= compute(self.structure.across, self.entries, jnp.asarray(column)) ** 2
        return jnp.sqrt(squares)

    def inner(self, other: "SparseNormals") -> SparseMatrix:
        """G^T H."""
        entries = compute(self.structure.whole.inner, self._whole(), other._whole())
        return SparseMatrix(entries, self.structure)

    def factor(self, diagonal: Any = 1.0) -> SparseFactor:
        """That of K = G^T G, whose diagonal may be multiplied by a number."""
        whole = self.structure.whole
        gram = compute(whole.gram, self._whole())
        if not isinstance(diagonal, float):
            gram = gram.at[whole.diagonal].multiply(diagonal)
        return SparseFactor(compute(whole.factor, gram), self.structure)

    def dual(self, factor: SparseFactor) -> "SparseNormals":
        """G K^-1, where G has entries."""
        entries = compute(self.structure.whole.dual, self._whole(), factor.inverse())
        return SparseNormals(entries[: self.structure.size], self.structure)

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
