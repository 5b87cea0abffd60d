"""Back to the surface: Newton's method along frozen normals, equation (2.4) of the paper."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from limpet.geometry.linalg import along, inner, less_along, solve, solve_lower, solve_upper, total
from limpet.shapes import Factor, Normals, Values, Vector
from limpet.sparse.normals import SparseMatrix

# Constraints up to which Newton's method is the whole projection; with more, `_approach` goes
# before it. It is part of what the samplers do, for draws depend on it: it is the same as
# `linalg.MOST_UNROLLED` was when the approach was added, and stays when that is tuned.
MOST_FOR_NEWTON_ALONE = 8
# Numbers in the gradients up to which the same holds: more are passes over memory, and carrying
# them from update to update takes as many as an update itself. A choice: they are in registers up
# to some 100, and the time of a slide matters little before 1,000.
MOST_CARRIED = 256
# Unknowns from which Newton's matrix of few constraints is computed in the pass over memory that
# makes an update, for the next one; the last of a projection is made in vain. From here on arrays
# of all lanes are larger than a processor's second cache (of 1 or 2 MB, as most have): a slide on
# the sphere in 10,000 dimensions takes 0.945 of the time. With fewer unknowns, gradients that are
# dear, as of equations in time, would cost more than passes.
FEWEST_IN_ONE_PASS = 4_000
# Updates with one matrix go on if so many more, each as good as the last, would end it: else a new
# matrix, with which Newton's converge quadratically, costs less in all. Measured with 3, 5 and 7 on
# chains of 100 and 1,000 beads, on 20 dense quadratics in 60 unknowns and a network of 300 bonds.
MOST_UPDATES_AHEAD = 5
# What the approach must bring |q| down to in all, or Newton begins where it began.
USEFUL_APPROACH = 0.25
# Shares of the tolerance at which updates with one of Newton's matrices end. With a new matrix for
# each, the last one gains so many digits more: who compares two landings counts on these.
BEYOND_TOLERANCE = 0.01


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

    def gradient(self, function: Callable[[Vector], Array], x: Vector, /) -> Vector:
        """The gradient of a function that is made of the others here."""
        ...

    def contains(self, x: Vector, /) -> Bool[Array, ""]:
        """Whether x is on the allowed side of every wall."""
        ...


# of Newton's method: updates made, the point, and the constraints and their gradients there
Iterate = tuple[Any, Vector, Values, Normals]
# the same without gradients, the miss there and before, and Newton's matrix if that is carried
Attempt = tuple[Any, Vector, Values, Any, Any, Any]
# where updates with one matrix lead: the point, the constraints and the miss
Descent = tuple[Vector, Values, Any]
Inverse = Callable[[Values], Values]


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


def are_many(values: Values, x: Vector) -> bool:
    """Whether gradients are so many numbers that what is not needed of them is not computed."""
    return len(values) > MOST_FOR_NEWTON_ALONE or len(values) * len(x) > MOST_CARRIED


def _landing(x: Vector, values: Values, normals: Normals, reached: Bool[Array, ""]) -> Landing:
    finite = _is_finite(values, normals)
    # a Newton update that ran off to infinity is no fault of q
    return Landing(x, values, normals, reached & finite, finite | ~jnp.all(jnp.isfinite(x)))


def _is_finite(values: Values, normals: Normals) -> Bool[Array, ""]:
    return jnp.isfinite(jnp.sum(values) + total(normals))  # a sum is if its terms are


def project(
    target: Surface,
    start: Vector,
    normals: Normals,
    L: Factor,
    level: Values,
    tolerance: Values,
    cap: int,
    active: Bool[Array, ""] | bool,
    needs_normals: bool = True,
) -> Landing:
    """The point `start + normals a` with |q - level| <= tolerance, in at most `cap` Newton updates.

    `L` is the factor of the normals' Gram matrix. Reverse checks rely on this being a function of
    its arguments alone. A chain that is not `active` makes no updates, so that it does not keep the
    others of its batch waiting. Gradients of many numbers are computed where it lands only if they
    are needed; else the landing has others.
    """
    if are_many(tolerance, start):
        return _project_many(
            target, start, normals, L, level, tolerance, cap, active, needs_normals
        )

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


def _project_many(
    target: Surface,
    start: Vector,
    normals: Normals,
    L: Factor,
    level: Values,
    tolerance: Values,
    cap: int,
    active: Bool[Array, ""] | bool,
    needs_normals: bool,
) -> Landing:
    """The same where gradients are large: they are not carried from update to update.

    An update of Newton's that does not halve |q| is the last: those that lead nowhere would take
    most of a sampler's time.
    """
    share = 1 / tolerance

    def miss(values: Values) -> Float[Array, ""]:
        return jnp.max(jnp.abs(values - level) * share)

    def goes_on(carry: Attempt) -> Bool[Array, ""]:
        updates, _, _, now, before, _ = carry
        return active & (now > 1) & (updates < cap) & (now < before / 2)

    def matrix(x: Vector) -> Any:
        return inner(target.values_and_normals(x)[1], normals)

    def update(carry: Attempt) -> Attempt:
        updates, x, values, now, _, given = carry
        A = given if carried else matrix(x)
        if isinstance(A, SparseMatrix):  # to eliminate it costs many times as much as to use it
            begins, end = jnp.bool_(True), BEYOND_TOLERANCE
            x, values, after = _descend(step, A.inverse(), x, values, now, begins, end)
        else:  # with a matrix that is full, gradients cost little more than q
            x, values, after = step(functools.partial(solve, A), x, values)
        return updates + 1, x, values, after, now, matrix(x) if carried else None

    def step(inverse: Inverse, x: Vector, values: Values) -> Descent:
        x = less_along(x, normals, inverse(values - level))
        values = target.values(x)
        return x, values, miss(values)

    first = target.values(start)
    near, values = _approach(step, L, start, first, miss(first), active)
    carried = len(tolerance) <= MOST_FOR_NEWTON_ALONE and start.size >= FEWEST_IN_ONE_PASS
    first = (0, near, values, miss(values), jnp.inf, matrix(near) if carried else None)
    _, x, values, now, _, _ = jax.lax.while_loop(goes_on, update, first)
    there = target.values_and_normals(x)[1] if needs_normals else normals
    return _landing(x, values, there, reached=now <= 1)


def _approach(
    step: Callable[[Inverse, Vector, Values], Descent],
    L: Factor,
    start: Vector,
    values: Values,
    first: Float[Array, ""],
    active: Bool[Array, ""] | bool,
) -> tuple[Vector, Values]:
    """As near to the level as updates with the Gram matrix K of the normals lead.

    K stands in for Newton's matrix, G(x)^T `normals`. It is factored already, so that an update
    costs q and O(nm), where Newton's costs the gradients and O(nm^2). Newton goes on from where
    |q| does not fall fast enough, or from the start if it hardly fell.
    """

    def inverse(b: Values) -> Values:
        return solve_upper(L, solve_lower(L, b))

    x, near, last = _descend(step, inverse, start, values, first, active & (first > 1))
    useful = last <= USEFUL_APPROACH * first
    return jnp.where(useful, x, start), jnp.where(useful, near, values)


def _descend(
    step: Callable[[Inverse, Vector, Values], Descent],
    inverse: Inverse,
    x: Vector,
    values: Values,
    first: Float[Array, ""],
    begins: Bool[Array, ""],
    end: float = 1.0,
) -> Descent:
    """Updates with one matrix, whose inverse is given, as long as the miss falls fast enough."""

    def update(carry: tuple[Vector, Values, Any, Any]) -> tuple[Vector, Values, Any, Any]:
        x, values, before, _ = carry
        x, values, after = step(inverse, x, values)
        fell = after / before
        return x, values, after, (after > end) & (after * fell**MOST_UPDATES_AHEAD <= end)

    return jax.lax.while_loop(lambda carry: carry[3], update, (x, values, first, begins))[:3]
