"""Moves by the symmetries of a target: no projection, and as long as the density allows at any eps.

A symmetry is a function y = move(x, z) of a point and standard normals that keeps |q / eps| and
volume, with move(y, -z) = x. So (x, z) -> (y, -z) is its own inverse, keeps the volume of both
together and the law of z, and what is left of the ratio (2.2) is that of the densities at y and x:

    off S  exp(l - |q/eps|^2 / 2), with respect to volume
    on S   exp(l) for pi_s, and exp(l) det(K)^(1/2) for the surface's own area, with respect to
           delta(q/eps) dx: the limit of laws with the density exp(-|q/eps|^2 / 2t^2) as t falls,
           all of which the symmetry keeps

Little of it is taken on trust. Off S the ratio has q as it is at y; on S, y must be there; and the
way back is gone each time. That volume is kept is checked before a run alone.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from limpet.geometry.linalg import lengths
from limpet.kernels.moves import judge, length_of, obstacle
from limpet.kernels.noise import Generator, draw
from limpet.kernels.states import Outcome, State
from limpet.shapes import Randoms, Values, Vector
from limpet.target import Target

RETURN = 1e-8  # of |x| + |x_0|: as near as a way back must come, as in all other moves by default
# of |grad q| (|x| + |x_0|): how far moves on S may go from it, by rounding; a hundred times what
# projections leave by default, for the next one takes it away
DRIFT = 1e-10


class Tally(NamedTuple):
    """What the moves by symmetries of a step did."""

    outcomes: Int[Array, " outcomes"]  # how many ended so
    acceptance: Float[Array, ""]  # their probabilities, added up
    travelled: Float[Array, ""]  # the square of how far the sampler's own move went before them


class Walk(NamedTuple):
    """How far a chain has come by symmetries."""

    generator: Generator
    x: Vector
    level: Float[Array, ""]  # the log density there
    outcomes: Int[Array, " outcomes"]
    acceptance: Float[Array, ""]


def follow_symmetries(
    kernel: Any, target: Target, generator: Generator, state: State, count: Any
) -> tuple[Generator, State, Walk]:
    """So many moves, each by one of the symmetries, chosen at random."""

    def make_another(carry: tuple[Any, Walk]) -> tuple[Any, Walk]:
        made, walk = carry
        return made + 1, _move(kernel, target, state, walk)

    level = _level(kernel, target, state, state.x, state.values, state.log_density)
    none = jnp.zeros(len(Outcome), jnp.int32)
    first = Walk(generator, state.x, level, none, jnp.zeros(()))
    walk = jax.lax.while_loop(lambda carry: carry[0] < count, make_another, (0, first))[1]
    new = kernel.start(target, walk.x)._replace(on=state.on, reach=state.reach)
    new = new._replace(above=state.above)  # symmetries are for the lowest rung of a ladder
    return walk.generator, new, walk


def _level(
    kernel: Any,
    target: Target,
    state: State,
    x: Vector,
    values: Values,
    log_density: Float[Array, ""],
) -> Float[Array, ""]:
    """The log density at x of the law on the side of S that the state is on."""
    off = log_density - jnp.sum(values**2) / 2
    return jnp.where(state.on, log_density + kernel.log_area_weight(target, x), off)


def _move(kernel: Any, target: Target, state: State, walk: Walk) -> Walk:
    """One move, by one of the symmetries."""
    symmetries = target.symmetries
    most = max(symmetry.normals for symmetry in symmetries)
    generator, noise = draw(walk.generator, most)
    which = jnp.floor(noise.choice * len(symmetries))

    def go(x: Vector, z: Randoms) -> Vector:
        ends = [s.move(x, z[: s.normals], *target.more) for s in symmetries]
        y = ends[0]
        for k, end in enumerate(ends[1:], 1):
            y = jnp.where(which == k, end, y)
        return y

    x, y = walk.x, go(walk.x, noise.z)
    scale = length_of(x, state.reach)
    values = target.values(y)
    met = obstacle(
        known=jnp.bool_(True),
        inside=target.contains(y),
        finite=jnp.all(jnp.isfinite(values)),
        landed=_stays(kernel, state, values, scale),
        returned=jnp.linalg.norm(go(y, -noise.z) - x) <= RETURN * scale,
    )
    level = _level(kernel, target, state, y, values, target.log_density_at(y))
    outcome, acceptance = judge(noise, level - walk.level, met)
    accepted = outcome == Outcome.ACCEPTED
    return Walk(
        generator,
        jnp.where(accepted, y, x),
        jnp.where(accepted, level, walk.level),
        walk.outcomes + (jnp.arange(len(Outcome)) == outcome).astype(jnp.int32),
        walk.acceptance + acceptance,
    )


def _stays(kernel: Any, state: State, values: Values, scale: Float[Array, ""]) -> Bool[Array, ""]:
    """Whether a chain that is on S would still be there."""
    if not kernel.needs_surface:  # it is never on S, and may keep no normals
        return jnp.bool_(True)
    drift = jnp.linalg.norm(values) - jnp.linalg.norm(state.values)
    return ~state.on | (drift <= DRIFT * jnp.linalg.norm(lengths(state.normals)) * scale)
