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


def leaning_alone(x):
    """The same of one unknown."""
    return 0.4 * x[0] - 0.3 * x[0] ** 4


def curves(x):
    """Seven data, bent functions of three unknowns."""
    t = jnp.arange(7.0)
    return x[0] * jnp.exp(-0.3 * t * (1 + x[1] ** 2)) + jnp.sin(x[2] * t / 3) - 0.9 + 0.1 * t


def growing(x):
    """A noise that depends on the point."""
    return 0.2 * jnp.exp(0.5 * jnp.sin(x[0]) + 0.2 * x[-1])


def uneven(x):
    """One for each of seven data."""
    return growing(x) * (1 + 0.1 * jnp.arange(7.0)) + 0.02 * x[1] ** 2


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

# as many constraints as unknowns, or more: there is no surface, and points are anywhere
CROWDED = {
    "one of one": Case(
        limpet.Target(lambda x: jnp.sinh(x) - 0.3, 0.4, log_density=leaning_alone), [0.3], 0.5
    ),
    "curves": Case(
        limpet.Target(curves, 0.3, log_density=leaning, inside=half), [1.0, 0.3, 0.4], 0.3
    ),
    # slides end at other roots than they should, if they are long
    "waves": Case(
        limpet.Target(lambda x: jnp.concatenate([jnp.sin(4 * x), jnp.cos(3 * x)]), 2.0),
        [0.3, -0.2],
        0.1,
    ),
    "as many": Case(
        limpet.Target(lambda x: curves(x)[:3], [0.2, 0.3, 0.4], log_density=leaning),
        [1.0, 0.3, 0.4],
        0.3,
    ),
    "unknown noise": Case(
        limpet.Target(curves, growing, log_density=leaning, inside=half), [1.0, 0.3, 0.4], 0.2
    ),
    "uneven noise": Case(limpet.Target(curves, uneven, log_density=leaning), [1.0, 0.3, 0.4], 0.2),
    "forward": Case(
        limpet.Target(curves, uneven, log_density=leaning, derivatives="forward"),
        [1.0, 0.3, 0.4],
        0.2,
    ),
}
# fewer constraints than unknowns
NOISY = {
    "torus": Case(
        limpet.Target(torus, growing, log_density=leaning, inside=half), [1.4, 0.1, 0.1], 0.15
    ),
    "tilted": Case(
        limpet.Target(
            tilted,
            lambda x: growing(x) * jnp.array([1.0, 2.0]),
            log_density=leaning,
            derivatives="forward",
        ),
        [1.0, 0.2, 0.3, 0.4, 0.5],
        0.3,
    ),
}
