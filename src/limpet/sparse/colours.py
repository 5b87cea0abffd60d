"""Normals from a few derivatives: constraints without a common unknown share one, or the reverse.

Constraints of one colour have no unknown in common, so the derivative of their sum has the entries
of all of them; unknowns of one colour are in no common constraint, so one derivative along all of
them has theirs. Whichever needs fewer colours is used.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array, Float

from limpet.sparse.dependence import TooManyError, dependence
from limpet.sparse.tables import Structure

# A derivative of all constraints costs about twice one along a direction: it goes there and back.
REVERSE_COST = 4
# Constraints that are worth it: SAS on a chain of 40 beads takes as long by loops over tables as
# with every number in a register, and compiles in 3 s, not 17; with 25 it takes twice as long.
FEWEST = 32
# Share of the entries of normals that is worth it, also where their Gram matrix is full: steps of
# 40 and 100 constraints on three times as many unknowns, each on 5 % of these, take 0.2 and 0.1 of
# the time that they take without tables; on half of them, the same.
DENSEST = 0.5


@dataclasses.dataclass(frozen=True)
class Colouring:
    """How the entries of normals of one structure are computed."""

    structure: Structure
    reverse: bool  # colours are of constraints, else of unknowns

    @functools.cached_property
    def _graph(self) -> sp.csr_matrix:
        """Of constraints, those that have unknowns in common; of unknowns the reverse."""
        s = self.structure
        pairs = np.ones(s.size, np.int32), (s.constraints, s.unknowns)
        involves = sp.csr_matrix(pairs, shape=(s.m, s.n))
        return sp.csr_matrix(involves @ involves.T if self.reverse else involves.T @ involves)

    @functools.cached_property
    def colours(self) -> np.ndarray:
        """A colour of each constraint, or unknown: greedily, those with most neighbours first."""
        graph = self._graph
        colours = np.full(len(graph.indptr) - 1, -1)
        for k in np.argsort(-np.diff(graph.indptr), kind="stable"):
            taken = set(colours[graph.indices[graph.indptr[k] : graph.indptr[k + 1]]].tolist())
            colours[k] = next(c for c in range(len(taken) + 1) if c not in taken)
        return colours

    @property
    def cost(self) -> int:
        """About how much its derivatives cost."""
        return (REVERSE_COST if self.reverse else 1) * (int(self.colours.max()) + 1)

    @functools.cached_property
    def _seeds(self) -> np.ndarray:
        """The derivatives to take, one a row."""
        return (self.colours == np.arange(self.colours.max() + 1)[:, None]).astype(float)

    @functools.cached_property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each entry is among the derivatives."""
        s = self.structure
        if self.reverse:
            return self.colours[s.constraints], s.unknowns
        return self.colours[s.unknowns], s.constraints

    def values_and_entries(
        self, given: Callable, x: Float[Array, " n"], *data: Any
    ) -> tuple[Float[Array, " m"], Float[Array, " entries"]]:
        """The function of a point and data at x, and the entries of its derivatives."""

        def function(x: Float[Array, " n"]) -> Float[Array, " m"]:
            return given(x, *data)

        if self.reverse:
            values, pull_back = jax.vjp(function, x)
            derivatives = jax.vmap(pull_back)(jnp.asarray(self._seeds))[0]
        else:
            values, derivatives = jax.vmap(
                lambda t: jax.jvp(function, (x,), (t,)), out_axes=(None, 0)
            )(jnp.asarray(self._seeds))
        return values, derivatives[self._places]


@functools.lru_cache(maxsize=16)
def find_colouring(function: Callable, n: int, fewest: int | None = None) -> Colouring | None:
    """How normals of a function of n numbers are computed, or None if it does not pay to think.

    It pays where few constraints have unknowns in common, and there are many: `fewest` or more, or
    `FEWEST` if that is None.
    """
    x = jax.ShapeDtypeStruct((n,), jnp.float64)
    m = jax.eval_shape(function, x).shape[0]
    if m < (FEWEST if fewest is None else fewest):
        return None
    try:
        involves = dependence(function, x)
    except TooManyError:
        return None
    if involves.nnz > DENSEST * m * n:
        return None
    return cheaper_colouring(structure_of(involves))


def structure_of(involves: sp.csr_matrix) -> Structure:
    """That of normals, of which constraint, a row, involves which unknown."""
    pairs: Any = involves.tocoo()
    m, n = pairs.shape
    return Structure(pairs.col.astype(int), pairs.row.astype(int), n, m)


def cheaper_colouring(structure: Structure) -> Colouring:
    """By constraints or by unknowns."""
    return min((Colouring(structure, reverse) for reverse in (True, False)), key=lambda c: c.cost)
