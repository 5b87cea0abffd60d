"""Back to the surface: Newton's method along frozen normals, equation (2.4) of the paper."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from limpet.geometry.linalg import along, factor, inner, solve, solve_lower, solve_upper
from limpet.shapes import Normals, Values, Vector

# Constraints up to which Newton's method is the whole projection; with more, `_approach` goes
# before it. It is part of what the samplers do, for draws depend on it: it is the same as
# `linalg.MOST_UNROLLED` was when the approach was added, and stays when that is tuned.
MOST_FOR_NEWTON_ALONE = 8
# What an update of the approach has to bring |q| down to: a trade-off, for if |q| falls more slowly
# than this, Newton's updates, which converge quadratically, cost less in all.
APPROACH_FACTOR = 0.25


@runtime_checkable
class Surface(Protocol):
    """What moves ask of a target: of the user's, or of the surface lifted over it."""

    def values(self, x: Vector, /) -> Values:
        """The constraints, divided by eps."""
        ...

    def values_and_normals(self, x: Vector, /) -> tuple[Values, Normals]:
        """The same and their gradients, one a column."""
        ...

    def log_density_at(self, x: Vector, /) -> Float[Array, ""]:
        """The log density that multiplies that of the constraints."""
        ...

    def contains(self, x: Vector, /) -> Bool[Array, ""]:
        """Whether x is on the allowed side of every wall."""
        ...


# of Newton's method: updates made, the point, and the constraints and their gradients there
Iterate = tuple[Any, Vector, Values, Normals]


class Landing(NamedTuple):
    """A point, and the constraints there."""

    x: Vector
    values: Values
    normals: Normals
    landed: Bool[Array, ""]  # it is on the surface
    finite: Bool[Array, ""]  # q and its gradient are finite, unless the point itself is not


def landing(target: Surface, x: Vector) -> Landing:
    """A point that nothing was projected to."""
    return _landing(x, *target.values_and_normals(x), reached=jnp.bool_(False))


def _landing(x: Vector, values: Values, normals: Normals, reached: Bool[Array, ""]) -> Landing:
    finite = _is_finite(values, normals)
    # a Newton update that ran off to infinity is no fault of q
    return Landing(x, values, normals, reached & finite, finite | ~jnp.all(jnp.isfinite(x)))


def _is_finite(values: Values, normals: Normals) -> Bool[Array, ""]:
    return jnp.isfinite(jnp.sum(values) + jnp.sum(normals))  # a sum is if its terms are


def project(
    target: Surface,
    start: Vector,
    normals: Normals,
    level: Values,
    tolerance: Values,
    cap: int,
    active: Bool[Array, ""] | bool,
) -> Landing:
    """The point `start + normals a` with |q - level| <= tolerance, in at most `cap` Newton updates.

    Reverse checks rely on this being a function of its arguments alone. A chain that is not
    `active` makes no updates, so that it does not keep the others of its batch waiting.
    """
    if len(tolerance) > MOST_FOR_NEWTON_ALONE:
        start = _approach(target, start, normals, level, tolerance, active)

    def goes_on(carry: Iterate) -> Bool[Array, ""]:
        updates, _, values, gradients = carry
        misses = jnp.any(jnp.abs(values - level) > tolerance)
        return active & misses & (updates < cap) & _is_finite(values, gradients)

    def update(carry: Iterate) -> Iterate:
        updates, x, values, gradients = carry
        x = x - along(normals, solve(inner(gradients, normals), values - level))
        return updates + 1, x, *target.values_and_normals(x)

    first = (0, start, *target.values_and_normals(start))
    _, x, values, gradients = jax.lax.while_loop(goes_on, update, first)
    return _landing(x, values, gradients, reached=jnp.all(jnp.abs(values - level) <= tolerance))


def _approach(
    target: Surface,
    x: Vector,
    normals: Normals,
    level: Values,
    tolerance: Values,
    active: Bool[Array, ""] | bool,
) -> Vector:
    """As near to the level as updates with the Gram matrix K of the normals lead.

    K stands in for Newton's matrix, G(x)^T `normals`. It is factored once, so that an update costs
    q and O(nm), where Newton's costs the gradients and O(nm^2). Each has to bring |q| down enough:
    the first that does not is not made, and Newton goes on from there.
    """
    L = factor(normals)

    def miss(values: Values) -> Float[Array, ""]:
        return jnp.max(jnp.abs(values - level) / tolerance)

    def update(
        carry: tuple[Vector, Values, Bool[Array, ""]],
    ) -> tuple[Vector, Values, Bool[Array, ""]]:
        x, values, _ = carry
        new = x - along(normals, solve_upper(L, solve_lower(L, values - level)))
        new_values = target.values(new)
        nearer = miss(new_values) <= APPROACH_FACTOR * miss(values)
        x, values = jnp.where(nearer, new, x), jnp.where(nearer, new_values, values)
        return x, values, nearer & (miss(values) > 1)

    values = target.values(x)
    first = (x, values, active & (miss(values) > 1))
    return jax.lax.while_loop(lambda carry: carry[2], update, first)[0]
