"""Whether constraints hold differences, as bonds do: what the program and a few points tell."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limpet.engine import of_rows
from limpet.sparse.colours import Colouring, cheaper_colouring
from limpet.sparse.dependence import dependence
from limpet.sparse.forest import FEWEST, ForestColouring, find_forest
from limpet.sparse.tables import Structure
from limpet.target import Target

POINTS = 2  # at which gradients are looked at: what cancels at both, always does
DENSEST = 0.5  # share of entries of normals, above which nobody would call them bonds


@dataclasses.dataclass(frozen=True)
class Question:
    """Constraints, and points at which to look at them; two are one if they compute the same."""

    q: Any
    widths: tuple[int, ...]  # numbers that blocks of unknowns may have
    target: Target = dataclasses.field(compare=False)
    points: np.ndarray = dataclasses.field(compare=False)


def bonds_of(target: Target, points: np.ndarray, widths: Sequence[int]) -> ForestColouring | None:
    """How chains move in differences of blocks, if the constraints are on such."""
    if target.data is not None or not target.has_fixed_eps or target.derivatives is not None:
        return None
    rng = np.random.default_rng(0)
    near = np.asarray(points)[:POINTS]
    size = 0.1 * np.linalg.norm(near, axis=1, keepdims=True) / np.sqrt(near.shape[1])
    near = near + size * rng.normal(size=near.shape)  # a start may be where much is zero
    return _answer(Question(target.q, tuple(widths), target, near))


@functools.lru_cache(maxsize=16)
def _answer(question: Question) -> ForestColouring | None:
    target, n = question.target, question.points.shape[1]
    below = target.colouring or _colouring(target, n)
    if below is None or isinstance(below, ForestColouring):
        return None
    coloured = target.coloured(below)
    entries = of_rows(_entries, coloured, question.points, apart=False)
    return find_forest(below, np.asarray(entries), question.widths)


def _colouring(target: Target, n: int) -> Colouring | None:
    """That of few constraints, which would not need one otherwise."""
    x = jax.ShapeDtypeStruct((n,), jnp.float64)
    m = jax.eval_shape(target.q, x).shape[0]
    if not FEWEST <= m < n:
        return None
    involves = dependence(target.q, x).tocoo()
    if involves.nnz > DENSEST * m * n:
        return None
    structure = Structure(involves.col.astype(int), involves.row.astype(int), n, m)
    return cheaper_colouring(structure)


def _entries(target: Any, x: Any) -> Any:
    return target.values_and_normals(x)[1].entries
