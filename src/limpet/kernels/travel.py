"""Moving on a surface: trajectories of one slide or several.

A trajectory is made of leaps, steps of RATTLE (the leapfrog method on a surface). In terms of
slides w = h p, with p the momentum and F the force along the surface, due to exp(l) det(K)^(-1/2):

    push     v = w + h^2 F(x) / 2
    land     y = x + v + G(x) a, where q(y) = q(x): a projection
    back     b = tangent part at y of x - y; from y + b, along G(y), one must land on x
    push     w = -b + h^2 F(y) / 2

A trajectory of one leap without force is the Hard move of the paper. One that fails on the way is
rejected as a whole.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from limpet import errors
from limpet.kernels.base import (
    Info,
    Kernel,
    Knob,
    Move,
    Outcome,
    State,
    came_back,
    check_fields,
    chosen,
    hard_log_ratio,
    judge,
    obstacle,
    project_from,
    sooner,
)
from limpet.linalg import Values, Vector, dual, factor, tangent

SOME = 8  # leaps of a trajectory, before warm-up knows better
LIKELY = 0.8  # acceptance of trajectories that warm-up aims at
JITTER = 0.3  # the steps of a trajectory are longer or shorter by up to this share


class Way(NamedTuple):
    """How far a trajectory has come."""

    state: State
    slide: Vector  # h p: what the next step would be without force
    push: Vector  # h^2 F / 2
    obstacle: Int[Array, ""]  # what it met, if anything: an Outcome


class Traveller(Kernel):
    """A sampler that makes trajectories and nothing else: every step is a draw."""

    moves = (Move.HARD,)

    def __post_init__(self):
        check_fields(self, errors.positive, "sigma_hrd", "tolerance", "reverse_tolerance")
        check_fields(self, errors.count, "newton_cap")
        check_trajectory(self)

    @property
    def knobs(self):
        """Those of its trajectories."""
        return knobs_of(self, Move.HARD)

    def share_kept(self):
        """Every step is a draw."""
        return 1.0

    def defaults(self, target):
        """How many slides."""
        return {"trajectory": leaps_of(self)}


def slid(kernel, target, noise, state: State, measure=1.0) -> tuple[State, Info]:
    """A Hard move: one trajectory, accepted or not."""
    h = jittered(kernel, kernel.sigma_hrd, noise.choice)
    slide, level = h * tangent(state.normals, state.factor, noise.z), jnp.zeros_like(state.values)
    way = travel(kernel, target, state, slide, h, level, leaps_of(kernel), measure=measure)
    log_ratio = hard_log_ratio(state, way.state, slide, way.slide, h, measure)
    outcome, acceptance = judge(noise, log_ratio, way.obstacle)
    new = chosen(outcome == Outcome.ACCEPTED, way.state, state)
    return new, Info(jnp.asarray(Move.HARD), outcome, acceptance)


def leaps_of(kernel):
    """How many leaps its trajectories have: as given, or as warm-up has it."""
    return SOME if kernel.trajectory is None else kernel.trajectory


def forced(kernel) -> bool:
    """Whether its trajectories follow the gradient; one leap alone does not, as in the paper."""
    return not (isinstance(kernel.trajectory, int) and kernel.trajectory == 1)


def knobs_of(kernel, *moves: Move) -> tuple[Knob, ...]:
    """What warm-up finds for trajectories: their step size, and their leaps if these are free."""
    size = Knob(("sigma_hrd",), moves, acceptance=LIKELY if forced(kernel) else None)
    return (size,) if kernel.trajectory else (size, Knob(("trajectory",), moves, whole=True))


def check_trajectory(kernel):
    """Refuse a number of leaps that is none."""
    if kernel.trajectory is not None:
        object.__setattr__(kernel, "trajectory", errors.count("trajectory", kernel.trajectory))


def jittered(kernel, sigma, uniform):
    """The step size of a trajectory; one length for all would go in circles somewhere."""
    return sigma * (1 + JITTER * (2 * uniform - 1)) if forced(kernel) else sigma


def travel(
    kernel,
    target,
    state: State,
    slide: Vector,
    h,
    level: Values,
    leaps,
    *,
    measure=1.0,
    active: Bool[Array, ""] | bool = True,
) -> Way:
    """The first leaps of a trajectory that begins with this slide, where q = level."""

    def going(carry):
        made, way = carry
        return active & (made < leaps) & (way.obstacle == Outcome.ACCEPTED)

    def leap(carry):
        made, way = carry
        state, back, met = _leap(kernel, target, way.state, way.slide + way.push, level)
        push = push_of(kernel, target, state, h, measure)
        return made + 1, Way(state, push - back, push, sooner(met, _unless_finite(push)))

    push = push_of(kernel, target, state, h, measure)
    way = Way(state, slide, push, jnp.where(active, _unless_finite(push), Outcome.ACCEPTED))
    if isinstance(leaps, int) and leaps == 0:
        return way
    return jax.lax.while_loop(going, leap, (0, way))[1]


def push_of(kernel, target, state: State, h, measure=1.0) -> Vector:
    """h^2 F / 2, where F is the tangent part of the gradient of l - measure/2 log det K.

    The gradient of log det K / 2 is that of the sum of W * G(x), with W = G K^-1 held fast. A
    trajectory of one leap, as in the paper, has no force.
    """
    if not forced(kernel):
        return jnp.zeros_like(state.x)
    W = measure * dual(state.normals, state.factor)

    def held(x):
        return target.log_density_at(x) - jnp.sum(W * target.values_and_normals(x)[1])

    return h**2 / 2 * tangent(state.normals, state.factor, jax.grad(held)(state.x))


def _unless_finite(push):
    return jnp.where(jnp.isfinite(jnp.sum(push)), Outcome.ACCEPTED, Outcome.NOT_FINITE)


def _leap(kernel, target, state: State, slide: Vector, level: Values):
    """One step, the slide that leads back, and what was in the way."""
    x, reach = state.x, state.reach
    land = functools.partial(project_from, kernel, target, level=level, reach=reach)
    first = land(x, state.normals, x + slide, active=True)
    L = factor(first.normals)
    back = tangent(first.normals, L, x - first.x)
    second = land(first.x, first.normals, first.x + back, active=first.landed)
    met = obstacle(
        known=first.landed,
        inside=target.contains(first.x),
        finite=first.finite & (second.finite | ~first.landed),
        landed=first.landed,
        returned=came_back(kernel, second, state),
    )
    log_density = target.log_density_at(first.x)
    return State(first.x, state.on, first.values, first.normals, L, log_density, reach), back, met
