"""What moves are made of: two projections, what was in their way, ratios and the verdict."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from limpet.geometry.linalg import factor, half_log_det, lengths, tangent
from limpet.geometry.projection import Landing, Surface, project
from limpet.kernels.noise import Noise
from limpet.kernels.states import Outcome, State
from limpet.shapes import Factor, Normals, Values, Vector

AT_ORIGIN = 1e-8  # of a step size: a start nearer to the origin is at it, but for rounding


class TwoProjections(NamedTuple):
    """Where a move landed, and where a slide from there landed."""

    first: Landing
    factor: Factor  # at the first
    slide: Vector  # from the first, along the surface
    second: Landing


def project_twice(
    kernel: Any,
    target: Surface,
    normals: Normals,
    L: Factor,
    base: Vector,
    start: Vector,
    aim: Callable[[Vector], Vector],
    *,
    level: Values,
    reach: Float[Array, ""],
    active: Bool[Array, ""] | bool = True,
    back_level: Values | None = None,
) -> TwoProjections:
    """Land where q = level from `start`, slide on by the tangent part of `aim(y)`, land again.

    The first projection goes along the normals at `base`, with factor `L`, the second along those
    where the first landed, y. With `aim(y)` = x - y, the second is the reverse check of a move from
    x, which is on the same level, or on `back_level`. Of many constraints, the second landing has
    not its own gradients, which few moves need.
    """
    first = _land(kernel, target, base, normals, L, start, level, reach, active, True)
    there = factor(first.normals)
    slide = tangent(first.normals, there, aim(first.x))
    start, again = first.x + slide, first.landed & active
    level = level if back_level is None else back_level
    second = _land(kernel, target, first.x, first.normals, there, start, level, reach, again)
    return TwoProjections(first, there, slide, second)


def _land(
    kernel: Any,
    target: Surface,
    x: Vector,
    normals: Normals,
    L: Factor,
    start: Vector,
    level: Values,
    reach: Float[Array, ""],
    active: Bool[Array, ""] | bool,
    needs_normals: bool = False,
) -> Landing:
    """Project along the normals at x, to the tolerance that x sets.

    The tolerance is relative: it means the same when q or x is counted in other units.
    """
    tolerance = kernel.tolerance * lengths(normals) * length_of(x, reach)
    cap = kernel.newton_cap
    return project(target, start, normals, L, level, tolerance, cap, active, needs_normals)


def came_back(kernel: Any, landing: Landing, state: State) -> Bool[Array, ""]:
    """The reverse check: whether a projection landed where the chain is."""
    miss = jnp.linalg.norm(landing.x - state.x)
    return landing.landed & (miss <= kernel.reverse_tolerance * length_of(state.x, state.reach))


def length_of(x: Vector, reach: Float[Array, ""]) -> Float[Array, ""]:
    """What tolerances are relative to: they must not vanish where the surface passes the origin."""
    return jnp.linalg.norm(x) + reach


def obstacle(
    *,
    known: Bool[Array, ""],
    inside: Bool[Array, ""],
    finite: Bool[Array, ""],
    landed: Bool[Array, ""],
    returned: Bool[Array, ""],
) -> Int[Array, ""]:
    """What is in the way of a proposal, as an Outcome: ACCEPTED if nothing is.

    `known`: whether there is a point to hold against the walls. The other flags say whether it is
    inside them, whether q was finite all the way, and whether the projections succeeded.
    """
    return jnp.select(
        [known & ~inside, ~finite, ~landed, ~returned],
        [Outcome.WALL, Outcome.NOT_FINITE, Outcome.FORWARD, Outcome.REVERSE],
        Outcome.ACCEPTED,
    )


def sooner(first: Int[Array, ""], then: Int[Array, ""]) -> Int[Array, ""]:
    """The obstacle that was met first."""
    return jnp.where(first == Outcome.ACCEPTED, then, first)


def judge(
    noise: Noise, log_ratio: Float[Array, ""], met: Int[Array, ""]
) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """The outcome of a proposal that met this obstacle, or none, and its acceptance probability."""
    unknown = jnp.isnan(log_ratio) | (log_ratio == jnp.inf)
    met = sooner(met, jnp.where(unknown, Outcome.NOT_FINITE, Outcome.ACCEPTED))
    likely = jnp.exp(jnp.minimum(0.0, log_ratio))
    acceptance = jnp.where(met == Outcome.ACCEPTED, likely, 0.0)
    refused = jnp.where(noise.coin < acceptance, Outcome.ACCEPTED, Outcome.METROPOLIS)
    return sooner(met, refused), acceptance


def choose(flag: Bool[Array, ""], yes: Any, no: Any) -> Any:
    """`yes` where flag holds, else `no`, for whole states."""
    return jax.tree.map(lambda a, b: jnp.where(flag, a, b), yes, no)


def where_any(flag: Bool[Array, ""], made: Callable[[], Any], otherwise: Any) -> Any:
    """What is made where the flag holds, else the other; no work if it holds in no lane.

    It is a loop of one turn at most, since a loop ends as soon as no lane goes on.
    """
    types = jax.tree.map(jnp.result_type, otherwise)

    def once(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        return jnp.bool_(False), jax.tree.map(lambda a, t: jnp.asarray(a, t), made(), types)

    return jax.lax.while_loop(lambda carry: carry[0], once, (flag, otherwise))[1]


def start_on_surface(target: Surface, x: Vector, step_size: Any) -> State:
    """The first state of a chain that makes steps of this size, at a point of the surface."""
    values, normals = target.values_and_normals(x)
    on, reach = jnp.bool_(True), reach_of(x, step_size)
    return State(x, on, values, normals, factor(normals), target.log_density_at(x), reach)


def reach_of(x: Vector, step_size: Any) -> Float[Array, ""]:
    """How far from the origin a chain begins; at the origin itself, its step size will do."""
    distance = jnp.linalg.norm(x)
    return jnp.where(distance > AT_ORIGIN * step_size, distance, step_size)


def slide_log_ratio(
    state: State,
    proposal: State,
    slide: Vector,
    back: Vector,
    size: Any,
    gradient_factor: Any = 1.0,
) -> Float[Array, ""]:
    """Log of the Hard move's acceptance ratio: (2.2) with (2.5), whose Jacobians cancel.

    The density on the surface is exp(l) det(K)^(-1/2), or exp(l) where gradient_factor is 0.
    """
    change = proposal.log_density - state.log_density
    change -= gradient_factor * (half_log_det(proposal.factor) - half_log_det(state.factor))
    return change + (jnp.sum(slide**2) - jnp.sum(back**2)) / (2 * size**2)


def log_normal(v: Vector, size: Float[Array, ""], d: Any) -> Float[Array, ""]:
    """Log density of a Gaussian of this size in d dimensions, but for a constant."""
    return -jnp.sum(v**2) / (2 * size**2) - d * jnp.log(size)


def soft_log_ratio(state: State, proposal: State) -> Float[Array, ""]:
    """Log of the Soft move's acceptance ratio: (2.2) with a symmetric proposal, (2.16)."""
    change = proposal.log_density - state.log_density
    return change - (jnp.sum(proposal.values**2) - jnp.sum(state.values**2)) / 2
