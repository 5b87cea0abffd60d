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
ALIKE = 2.0  # ratio of lengths of bonds that are made alike: a choice
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
    near = np.resize(points, (POINTS, np.shape(points)[1]))
    size = 0.1 * np.linalg.norm(near, axis=1, keepdims=True) / np.sqrt(near.shape[1])
    near = near + size * rng.normal(size=near.shape)  # a start may be where much is zero
    found = _answer(Question(target.q, tuple(widths), target, near))
    if found is None or not found.rings:
        return found
    radii = _radii(found, _entries_at(target, found.below, near), near)
    usual = np.nanmedian(np.delete(radii, [constraint for constraint, _ in found.rings]))
    alike = (radii < ALIKE * usual) & (usual < ALIKE * radii)
    return _balanced(found, tuple(ring for ring in found.rings if alike[ring[0]]))


@functools.lru_cache(maxsize=16)
def _answer(question: Question) -> ForestColouring | None:
    target, n = question.target, question.points.shape[1]
    below = target.colouring or _colouring(target, n)
    if below is None or isinstance(below, ForestColouring):
        return None
    return find_forest(below, _entries_at(target, below, question.points), question.widths)


@functools.lru_cache(maxsize=16)
def _balanced(found: ForestColouring, rings: tuple[Any, ...]) -> ForestColouring:
    return found.balanced(rings)


def _radii(found: ForestColouring, entries: np.ndarray, points: np.ndarray) -> np.ndarray:
    """How long each bond is: the radius of curvature of what it holds, by gradients at two points.

    NaN of what is no bond between two blocks, or of one to a place.
    """
    structure, radii = found.below.structure, np.full(found.below.structure.m, np.nan)
    block = np.empty(structure.n, int)
    for k, unknowns in enumerate(found.forest.blocks):
        block[list(unknowns)] = k
    order = np.argsort(structure.constraints, kind="stable")
    ends = np.searchsorted(structure.constraints[order], np.arange(1, structure.m))
    for constraint, mine in enumerate(np.split(order, ends)):
        blocks = np.unique(block[structure.unknowns[mine]])
        sides = [mine[block[structure.unknowns[mine]] == each] for each in blocks]
        if len(sides) > 2 or len({len(side) for side in sides}) > 1:
            continue
        at = [points[:, np.sort(structure.unknowns[side])] for side in sides]
        bond = at[0] - at[1] if len(at) == 2 else at[0]
        gradient = entries[:, sides[0]]
        turned = np.linalg.norm(gradient[1] - gradient[0])
        if turned > 0:
            length = np.linalg.norm(gradient, axis=1).mean()
            radii[constraint] = length * np.linalg.norm(bond[1] - bond[0]) / turned
    return radii


def _entries_at(target: Target, below: Colouring, points: np.ndarray) -> np.ndarray:
    """Those of normals at some points."""
    return np.asarray(of_rows(_entries, target.coloured(below), points, apart=False))


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
