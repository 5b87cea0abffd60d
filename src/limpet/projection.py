"""Back to the surface: Newton's method along frozen normals, equation (2.4) of the paper."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from limpet.linalg import Normals, Values, Vector, along, inner, solve
from limpet.target import Target


class Landing(NamedTuple):
    """A point, and the constraints there."""

    x: Vector
    values: Values
    normals: Normals
    landed: Bool[Array, ""]  # it is on the surface
    finite: Bool[Array, ""]  # q and its gradient are finite, unless the point itself is not


def landing(target: Target, x: Vector) -> Landing:
    """A point that nothing was projected to."""
    return _landing(x, *target.values_and_normals(x), on=jnp.bool_(False))


def _landing(x, values, normals, on):
    sound = _sound(values, normals)
    # a Newton update that ran off to infinity is no fault of q
    return Landing(x, values, normals, on & sound, sound | ~jnp.all(jnp.isfinite(x)))


def _sound(values, normals):
    return jnp.all(jnp.isfinite(values)) & jnp.all(jnp.isfinite(normals))


def project(
    target: Target,
    start: Vector,
    normals: Normals,
    tolerance: Values,
    cap: int,
    active: Bool[Array, ""],
) -> Landing:
    """The point `start + normals a` with |q| <= tolerance, found in at most `cap` Newton updates.

    Reverse checks rely on this being a function of its arguments alone. A chain that is not
    `active` makes no updates, so that it does not keep the others of its batch waiting.
    """

    def going(carry):
        updates, _, values, gradients = carry
        off = jnp.any(jnp.abs(values) > tolerance)
        return active & off & (updates < cap) & _sound(values, gradients)

    def update(carry):
        updates, x, values, gradients = carry
        x = x - along(normals, solve(inner(gradients, normals), values))
        return updates + 1, x, *target.values_and_normals(x)

    first = (0, start, *target.values_and_normals(start))
    _, x, values, gradients = jax.lax.while_loop(going, update, first)
    return _landing(x, values, gradients, on=jnp.all(jnp.abs(values) <= tolerance))
