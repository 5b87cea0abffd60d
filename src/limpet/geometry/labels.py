"""Where chains of a `Strata` begin: at the points given, with the labels that these have.

A constraint holds at the start if it always does, or if q is as good as zero there; the point is
then moved to where those that hold are zero. Chains are not spread around a start, as those of
other targets are: beside a cluster of particles there is little but overlaps.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limpet.errors import InputError
from limpet.geometry.linalg import lengths
from limpet.geometry.start import find_vectors
from limpet.geometry.start_checks import numbers
from limpet.layout import read_points
from limpet.shapes import Vector
from limpet.strata import LABELS, POINT, Strata, with_labels, without_labels
from limpet.target import Target

TOUCHING = 1e-3  # of the size of coordinates: nearer than this, a constraint holds at the start
EPS_TOUCHING = 3.0  # and nearer than so many eps
REACHED = 1e-9  # of the size of coordinates: what is so near to the surface is on it


@dataclasses.dataclass(frozen=True)
class Chosen:
    """Some of the constraints of a function q."""

    q: Callable[..., Any]
    indices: tuple[int, ...]

    def __call__(self, x: Vector, *data: Any) -> Any:
        """What they are there."""
        return self.q(x, *data)[np.array(self.indices)]


def label_starts(target: Strata, given: Any, rigid: bool) -> list[dict[str, Any]]:
    """Points with labels, from points without, or from points that have them."""
    layout, guesses = read_points("start", given)
    labelled = LABELS in layout.names
    if isinstance(given, dict) and layout.names == (POINT,):
        raise InputError(
            f"start is a dict whose only variable is {POINT!r}: expected that array itself, or"
            " another name, for a vector without a name is called so."
        )
    points = [layout.point(guess) for guess in guesses]
    if labelled and not isinstance(points[0], dict):
        raise InputError(f"start has {layout}: expected a vector, or a dict of arrays.")
    bare = [without_labels(point) if labelled else point for point in points]
    held = [point[LABELS] for point in points] if labelled else [None] * len(points)
    return [_labelled(target, *each, rigid) for each in zip(bare, held, strict=True)]


def _labelled(target: Strata, point: Any, held: Any, rigid: bool) -> dict[str, Any]:
    """One point on the surface of the constraints that hold there, with its labels."""
    layout, (x,) = read_points("start", point)
    plain = Target(
        target.q,
        target.eps,
        log_density=target.log_density,
        inside=target.inside,
        data=target.data,
        derivatives=target.derivatives,
    ).on_vectors(layout)
    m = target.with_functions(plain.functions).count_constraints(jnp.asarray(x))
    plain = plain.freeze(jnp.asarray(x))
    may_break = np.setdiff1d(np.arange(m), target.always)
    q, slopes, size = _look(plain, x)
    if held is None:
        near = TOUCHING * slopes * size
        near = near if rigid else np.maximum(near, EPS_TOUCHING * np.broadcast_to(target.eps, m))
        holds = np.abs(q) <= near
    else:
        holds = _read_labels(held, m, may_break)
    holds[list(target.always)] = True
    _check_allowed(target, holds, may_break)
    _check_apart(target, q, holds, may_break)
    if (np.abs(q) > REACHED * slopes * size)[holds].any():
        x = _moved(plain, x, holds)
        q, slopes, size = _look(plain, x)
        _check_apart(target, q, holds, may_break)
        if rigid:
            _check_zero(q, TOUCHING * slopes * size, holds)
    else:
        _check_inside(plain, x)
    return with_labels(layout.point(x), holds[may_break].astype(float))


def _look(plain: Target, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """q, the lengths of its gradients, and the size of coordinates."""
    q, normals = jax.jit(plain.plain().values_and_normals)(jnp.asarray(x))
    q, slopes = np.asarray(q), np.asarray(lengths(normals))
    if not np.isfinite(q).all() or not np.isfinite(slopes).all():
        raise InputError(
            f"q or its gradient is not finite at the start {x[:6]}: q = {q[:6]}. Start where it is"
            " defined."
        )
    return q, slopes, float(np.sqrt(np.mean(x**2))) or 1.0


def _read_labels(given: Any, m: int, may_break: np.ndarray) -> np.ndarray:
    labels = np.asarray(given, float)
    if labels.shape != may_break.shape or not np.isin(labels, (0.0, 1.0)).all():
        raise InputError(
            f"start has {LABELS}={labels.tolist()}: expected {len(may_break)} numbers, 1 for each"
            " constraint that may break and holds, 0 for each that does not."
        )
    holds = np.zeros(m, bool)
    holds[may_break] = labels == 1
    return holds


def _check_allowed(target: Strata, holds: np.ndarray, may_break: np.ndarray) -> None:
    """Refuse labels that are not allowed, and sets that no chain can get to from them."""
    if target.at_once is not None and holds.sum() > target.at_once:
        raise InputError(
            f"At the start {holds.sum()} constraints hold, and at_once={target.at_once} allows"
            " fewer: expected at_once to be larger, or a start where fewer hold."
        )
    if target.allowed is None:
        return
    here = frozenset(int(j) for j in may_break if holds[j])
    sets = {frozenset(each) for each in target.allowed}
    if here not in sets:
        raise InputError(
            f"At the start the constraints {sorted(here)} hold, which is none of the sets in"
            " allowed: start where one of them does."
        )
    reached, edge = {here}, [here]
    while edge:
        edge = [each for each in sets - reached if any(len(each ^ other) == 1 for other in edge)]
        reached.update(edge)
    if missed := sorted(sorted(each) for each in sets - reached):
        raise InputError(
            f"allowed has {missed[0]}, which cannot be reached from the start, where {sorted(here)}"
            " hold, by changes of one constraint at a time: allow sets between them, or leave it"
            " out."
        )


def _check_apart(target: Strata, q: np.ndarray, holds: np.ndarray, may_break: np.ndarray) -> None:
    """Refuse a start at which a constraint that does not hold is violated."""
    walled = ~np.broadcast_to(np.array(target.two_sided), may_break.shape)
    wrong = may_break[walled & ~holds[may_break] & (q[may_break] <= 0)]
    if len(wrong):
        raise InputError(
            f"The start overlaps: constraint {wrong[0]} has q = {q[wrong[0]]:.4g}, and"
            f" {len(wrong)} do not hold there with q <= 0. Expected q > 0, or q = 0 for one that"
            " holds; move apart what overlaps."
        )


def _check_inside(plain: Target, x: np.ndarray) -> None:
    """Refuse a start outside the walls, or where there is no density."""
    point = jnp.asarray(x)
    walls = [] if plain.inside is None else np.ravel(plain.inside(point, *plain.more))
    if not np.all(np.asarray(walls) >= 0):
        raise InputError(
            f"The start {numbers(x)} is outside the walls: inside = {numbers(np.asarray(walls))},"
            " expected all >= 0."
        )
    if not np.isfinite(level := float(plain.log_density_at(point))):
        raise InputError(f"log_density is {level} at the start {numbers(x)}: expected a number.")


def _check_zero(q: np.ndarray, near: np.ndarray, holds: np.ndarray) -> None:
    """Refuse rigid constraints that cannot hold together; soft ones would be a compromise."""
    wrong = np.flatnonzero(holds & (np.abs(q) > near))
    if len(wrong):
        raise InputError(
            f"The constraints {np.flatnonzero(holds).tolist()} do not hold together anywhere near"
            f" the start: constraint {wrong[0]} has q = {q[wrong[0]]:.4g} at best. Expected a start"
            " from which all of them reach zero; do some in always contradict each other?"
        )


def _moved(plain: Target, x: np.ndarray, holds: np.ndarray) -> np.ndarray:
    """The nearest point at which all that holds is zero, about."""
    indices = tuple(np.flatnonzero(holds).tolist())
    eps = np.broadcast_to(plain.eps, holds.shape)[holds]
    some = Target(
        Chosen(plain.q, indices),
        eps,
        log_density=plain.log_density,
        inside=plain.inside,
        data=plain.data,
        derivatives=plain.derivatives,
    ).freeze(jnp.asarray(x))
    return find_vectors(some, x[None], 1, 0, "start", jitter=0.0)[0]
