"""Moving on a surface: trajectories of one slide or several.

A slide is a step of RATTLE, the leapfrog method on a surface. In terms of w = h p, with p the
momentum and F the force along the surface, due to exp(l) det(K)^(-1/2):

    push     v = w + h^2 F(x) / 2
    land     y = x + v + G(x) a, where q(y) = q(x): a projection
    back     b = tangent part at y of x - y; from y + b, along G(y), one must land on x
    push     w = -b + h^2 F(y) / 2

A trajectory of one slide without force is the Hard move of the paper. One that fails on the way is
rejected as a whole.

Walls may be such that trajectories bounce from them: where a slide but the last ends behind one,
the next begins mirrored, as w' = w - 2 n (n.w) / n.n, where n is the tangent part of the wall's
gradient there. That is its own inverse, and keeps volume and |w|, so that the way back is as ever.
Whether one is mirrored may not depend on w, for the way back arrives with -w'.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from limpet import errors
from limpet.geometry.linalg import dual, pairing, tangent
from limpet.geometry.projection import Surface
from limpet.kernels.base import Kernel, Tunable
from limpet.kernels.moves import (
    came_back,
    choose,
    judge,
    obstacle,
    project_twice,
    slide_log_ratio,
    sooner,
)
from limpet.kernels.noise import Noise
from limpet.kernels.states import Info, Move, Outcome, State
from limpet.shapes import Values, Vector
from limpet.target import Target

FIRST_SLIDES = 8  # of a trajectory, until warm-up has found how many are best: a few, to be cheap
# of trajectories: 0.8 (as NUTS has it) made 3 to 18 % fewer effective draws of five small models,
# per slide as well, and as many of a chain of 10 beads; 0.9 an eighth fewer per slide of that one
ACCEPTANCE = 0.85
JITTER = 0.3  # slides are longer or shorter by up to this share: a choice, to break up any period


# of a point: whether it is inside of all walls to bounce from, and the gradient of one it is behind
Wall = Callable[[Vector], tuple[Bool[Array, ""], Vector]]


class Trajectory(NamedTuple):
    """How far a trajectory has come."""

    state: State
    slide: Vector  # h p: what the next slide would be without force
    push: Vector  # h^2 F / 2
    obstacle: Int[Array, ""]  # what it met, if anything: an Outcome


class TrajectoryKernel(Kernel):
    """A sampler that makes trajectories and nothing else: every step is a draw.

    Its fields are those in `checks`.
    """

    static = ("steps", "newton_cap")
    checks: ClassVar = {
        "step_size": errors.positive,
        "steps": errors.count_or_none,
        "newton_cap": errors.count,
        "tolerance": errors.positive,
        "reverse_tolerance": errors.positive,
    }
    renamed: ClassVar = {"sigma_hrd": "step_size", "trajectory": "steps"}
    elsewhere: ClassVar = {
        "slide_probability": "Slides off the surface are moves of limpet.SAS(...)."
    }

    @property
    def moves(self) -> tuple[Move, ...]:
        """Hard moves only."""
        return (Move.HARD,)

    @property
    def tunables(self) -> tuple[Tunable, ...]:
        """Those of its trajectories."""
        return tunables_of("step_size", "steps", self.steps, Move.HARD)

    @property
    def is_forced(self) -> bool:
        """Whether trajectories follow the gradient."""
        return is_forced(self.steps)

    def draw_share(self) -> float:
        """Every step is a draw."""
        return 1.0

    def slides(self, sizes: dict[str, Any]) -> Any:
        """Those of its trajectory."""
        return sizes["steps"]

    def sizes(self, target: Target) -> dict[str, Any]:
        """How long slides are, and how many."""
        return {"step_size": self.step_size, "steps": first_slides(self.steps)}


def make_trajectory(
    kernel: TrajectoryKernel,
    target: Surface,
    sizes: dict[str, Any],
    noise: Noise,
    state: State,
    measure: float = 1.0,
    wall: Wall | None = None,
) -> tuple[State, Info]:
    """A Hard move: one trajectory, accepted or not."""
    forced = is_forced(kernel.steps)
    h = vary(sizes["step_size"], noise.choice, forced)
    slide, level = h * tangent(state.normals, state.factor, noise.z), jnp.zeros_like(state.values)
    slides = sizes["steps"]
    path = follow(
        kernel, target, state, slide, h, level, slides, forced, measure=measure, wall=wall
    )
    log_ratio = slide_log_ratio(state, path.state, slide, path.slide, h, measure)
    outcome, acceptance = judge(noise, log_ratio, path.obstacle)
    new = choose(outcome == Outcome.ACCEPTED, path.state, state)
    return new, Info(jnp.asarray(Move.HARD), outcome, acceptance)


def first_slides(steps: int | None) -> int:
    """How many slides a trajectory has before warm-up, where the user asked for so many."""
    return FIRST_SLIDES if steps is None else steps


def is_forced(steps: int | None) -> bool:
    """Whether trajectories follow the gradient; one slide alone does not, as in the paper."""
    return steps != 1


def tunables_of(size: str, number: str, steps: int | None, *moves: Move) -> tuple[Tunable, ...]:
    """What warm-up finds for trajectories: the size of slides, and their number if it is free."""
    slides = Tunable((size,), moves, acceptance=ACCEPTANCE if is_forced(steps) else None)
    return (slides,) if steps else (slides, Tunable((number,), moves, whole=True))


def vary(size: Any, uniform: Any, forced: bool) -> Any:
    """The size of one trajectory's slides: if all had one length, some orbits would be periodic."""
    return size * (1 + JITTER * (2 * uniform - 1)) if forced else size


def follow(
    kernel: Any,
    target: Surface,
    state: State,
    slide: Vector,
    h: Any,
    level: Values,
    slides: Any,
    forced: bool,
    *,
    measure: float = 1.0,
    active: Bool[Array, ""] | bool = True,
    wall: Wall | None = None,
) -> Trajectory:
    """The first `slides` slides of a trajectory that begins with this one, where q = level."""

    def goes_on(carry: tuple[Any, Trajectory]) -> Bool[Array, ""]:
        made, path = carry
        return active & (made < slides) & (path.obstacle == Outcome.ACCEPTED)

    def add_slide(carry: tuple[Any, Trajectory]) -> tuple[Any, Trajectory]:
        made, path = carry
        state, back, met = slide_once(kernel, target, path.state, path.slide + path.push, level)
        push, made = push_of(target, state, h, forced, measure), made + 1
        slide = push - back
        if wall is not None:
            inside, gradient = wall(state.x)
            slide = jnp.where(inside, slide, _mirrored(slide, state, gradient))
            # behind a wall a density need not be anything
            behind = ~inside & ((made >= slides) | (_obstacle_in(push) != Outcome.ACCEPTED))
            met = sooner(met, jnp.where(behind, Outcome.WALL, Outcome.ACCEPTED))
        return made, Trajectory(state, slide, push, sooner(met, _obstacle_in(push)))

    push = push_of(target, state, h, forced, measure)
    met = jnp.where(active, _obstacle_in(push), Outcome.ACCEPTED)
    return jax.lax.while_loop(goes_on, add_slide, (0, Trajectory(state, slide, push, met)))[1]


def _mirrored(slide: Vector, state: State, gradient: Vector) -> Vector:
    """A slide that bounces from a wall with this gradient, if that has a part along the surface."""
    away = tangent(state.normals, state.factor, gradient)
    square = jnp.sum(away**2)
    return slide - 2 * jnp.sum(slide * away) / jnp.where(square > 0, square, 1.0) * away


def push_of(target: Surface, state: State, h: Any, forced: bool, measure: float = 1.0) -> Vector:
    """h^2 F / 2, where F is the tangent part of the gradient of l - measure/2 log det K.

    The gradient of log det K / 2 is that of the sum of W * G(x), with a fixed W = G K^-1. A
    trajectory of one slide, as in the paper, has no force.
    """
    if not forced:
        return jnp.zeros_like(state.x)
    W = dual(state.normals, state.factor)

    def log_density(x: Vector) -> Float[Array, ""]:
        normals = target.values_and_normals(x)[1]
        return target.log_density_at(x) - measure * pairing(W, normals)

    return h**2 / 2 * tangent(state.normals, state.factor, target.gradient(log_density, state.x))


def _obstacle_in(push: Vector) -> Int[Array, ""]:
    """NOT_FINITE if the force was not finite."""
    return jnp.where(jnp.isfinite(jnp.sum(push)), Outcome.ACCEPTED, Outcome.NOT_FINITE)


def slide_once(
    kernel: Any,
    target: Surface,
    state: State,
    slide: Vector,
    level: Values,
    *,
    back_level: Values | None = None,
    active: Bool[Array, ""] | bool = True,
) -> tuple[State, Vector, Int[Array, ""]]:
    """One slide to where q = level, the one that leads back, and what was in the way.

    `back_level` is where the chain is, if that is another level.
    """
    x, reach = state.x, state.reach
    first, L, back, second = project_twice(
        kernel,
        target,
        state.normals,
        state.factor,
        x,
        x + slide,
        lambda y: x - y,
        level=level,
        reach=reach,
        active=active,
        back_level=back_level,
    )
    met = obstacle(
        known=first.landed,
        inside=target.contains(first.x),
        finite=first.finite & (second.finite | ~first.landed),
        landed=first.landed,
        returned=came_back(kernel, second, state),
    )
    log_density = target.log_density_at(first.x)
    return State(first.x, state.on, first.values, first.normals, L, log_density, reach), back, met
