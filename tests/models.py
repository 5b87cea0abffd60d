"""Targets that several tests use; each curved, with nothing symmetric that could hide a mistake."""

from typing import NamedTuple

import jax.numpy as jnp

import limpet
from limpet.paper import ellipsoid_sphere


def torus(x):
    """A torus with radii 1 and 1/2."""
    return jnp.array([(jnp.hypot(x[0], x[1]) - 1) ** 2 + x[2] ** 2 - 0.25])


def tilted(x):
    """Two constraints of different scales on five unknowns."""
    return jnp.array(
        [x @ x + 0.3 * x[0] * x[1] - 2, 4 * (x[3] + 0.5 * jnp.sin(x[1] + x[4])) + x[0] ** 2]
    )


def beads(x):
    """Nine stiff bonds in the plane; the first bead is at the origin."""
    position = jnp.concatenate([jnp.zeros((1, 2)), x.reshape(9, 2)])
    return jnp.sum(jnp.diff(position, axis=0) ** 2, axis=1) - 1


def leaning(x):
    """A log density that is not symmetric in anything."""
    return 0.4 * x[0] - 0.3 * x[1] ** 2 + 0.2 * jnp.sin(x[-1]) - 0.1 * (x @ x)


def half(x):
    """A wall that cuts the surface."""
    return jnp.array([x[0] + 0.5, 2.0 - x[1]])


class Case(NamedTuple):
    """A target, a start, and the size of slides that stay clear of folds of the surface."""

    target: limpet.Target
    start: list
    sigma_hrd: float


CASES = {
    "ellipsoid-sphere": Case(
        limpet.Target(ellipsoid_sphere, 0.15, log_density=leaning, inside=half),
        [1.0, 0.3, 0.1],
        0.3,
    ),
    "torus": Case(
        limpet.Target(torus, 0.05, log_density=leaning, inside=half), [1.4, 0.1, 0.1], 0.15
    ),
    "tilted": Case(
        limpet.Target(tilted, [0.15, 0.3], log_density=leaning, inside=half),
        [1.0, 0.2, 0.3, 0.4, 0.5],
        0.3,
    ),
    # more constraints than are unrolled: LAPACK, or limpet.lanes' own matrices
    "beads": Case(
        limpet.Target(beads, 0.1),
        [c for k in range(9) for c in (0.8 * k + 0.8, 0.3 * (k % 2))],
        0.02,
    ),
}
