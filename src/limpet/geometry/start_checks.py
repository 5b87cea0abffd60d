"""What is refused of starts, and told of them: guesses, searches that failed, an eps too small."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from limpet.engine import of_rows
from limpet.errors import InputError
from limpet.geometry.linalg import by_constraint, lengths, singular_values, total, uses_lapack
from limpet.shapes import Values, Vector
from limpet.target import Target
from limpet.target_checks import check_noise

ROUNDING_ERRORS_IN_EPS = 1e3  # at least, of q: then they change densities by about a thousandth


class Local(NamedTuple):
    """What a target is at a point."""

    q: Values
    slopes: Values  # lengths of the gradients of q
    eps: Values
    inside: Bool[Array, ""]
    log_density: Float[Array, ""]


def _local(target: Target, x: Vector) -> Local:
    q, normals = target.plain().values_and_normals(x)
    eps = jnp.broadcast_to(target.eps_at(x), q.shape)
    return Local(q, lengths(normals), eps, target.contains(x), target.log_density_at(x))


def is_apart(target: Target, x: np.ndarray) -> bool:
    """Whether XLA must not do several searches at once: see limpet.engine.xla."""
    return uses_lapack(jax.eval_shape(target.values, x).size)


def check_guesses(target: Target, guesses: np.ndarray, name: str) -> None:
    """Refuse guesses where the target is not defined."""
    local = of_rows(_local, target, guesses, apart=is_apart(target, guesses[0]))
    for k, guess in enumerate(guesses):
        where = f"{name} {numbers(guess)}" + (f" (point {k})" if len(guesses) > 1 else "")
        if not np.isfinite(local.q[k]).all():
            raise InputError(
                f"q is not finite at the {where}: q = {numbers(local.q[k])}."
                " Start where it is defined."
            )
        if target.inside is not None and not local.inside[k]:
            walls = np.ravel(target.inside(jnp.asarray(guess), *target.more))
            raise InputError(
                f"The {where} is outside the walls: inside = {numbers(walls)}, expected all >= 0."
            )
        if not target.has_fixed_eps:
            check_noise(local.eps[k], where)
        if not np.isfinite(local.log_density[k]):
            raise InputError(
                f"log_density is {local.log_density[k]} at the {where}: expected a finite number."
                " Start where the density is positive."
            )


def check_resolution(target: Target, points: np.ndarray) -> None:
    """Refuse an eps that doubles cannot resolve where the surface is."""
    local = of_rows(_local, target, points, apart=is_apart(target, points[0]))
    size = local.slopes * np.linalg.norm(points, axis=1)[:, None]
    smallest = ROUNDING_ERRORS_IN_EPS * np.finfo(float).eps * size.max(axis=0)
    if (local.eps < smallest).any():
        eps = np.asarray(target.typical_eps()).tolist()
        raise InputError(
            f"eps={eps} is below what double precision resolves on this surface: expected at least"
            f" {smallest.max():.1e}. For the limit itself use"
            ' kernel=limpet.SurfaceSampler(measure="soft").'
        )


def explain_failure(
    target: Target, x: Any, reached: Any, has_rank: Any, failed: int, count: int
) -> str:
    """Why no search of some chains succeeded, told by the one that came closest, to x.

    Whether it `reached` the surface, and whether gradients have full rank there, tell the rest.
    """
    if not reached:
        import scipy.optimize  # slow to import, and wanted here only

        # the searches stop short where constraints contradict each other; this one goes all the way
        weights = target.smallest_eps()

        def square(x: Vector) -> Array:
            return jnp.sum((target.values(x) * weights) ** 2)

        squares = jax.jit(lambda x: (square(x), target.gradient(square, x)))
        end = scipy.optimize.minimize(squares, x, jac=True, method="BFGS")
        x = end.x if np.isfinite(end.fun) and np.isfinite(end.jac).all() else x
    local = _local(target, x)
    normals = target.plain().values_and_normals(jnp.asarray(x))[1]
    finite = bool(np.isfinite(total(normals)))
    singular = singular_values(normals) if finite else np.full(len(local.q), np.nan)
    if not finite:
        reason = (
            f"The gradient of q is not finite there, {numbers(by_constraint(normals))}: look for a"
            " square root or a norm of zero."
        )
    elif reached and not has_rank:
        reason = (
            "The gradient of q loses rank there: look for a constraint that is given twice,"
            " squared, or implied by the others."
        )
    elif not reached:
        reason = (
            "The surface may be empty: check the signs and constants in q, or start closer to"
            " where all constraints can hold."
        )
    elif not local.inside:
        reason = "That point is outside the walls: start nearer to a part of the surface inside."
    else:
        reason = f"The log density there is {local.log_density}: start where it is finite."
    return (
        f"No start: {failed} of {count} searches found no usable point on the surface. The closest"
        f" came within |q| = {np.linalg.norm(local.q):.3g} at x = {numbers(x)}, where the"
        f" singular values of the gradient of q are {numbers(singular)}. {reason}"
    )


def numbers(array: Any) -> str:
    """Numbers for a message: few digits, and few of them."""
    return np.array2string(np.asarray(array), precision=4, threshold=12, separator=", ")
