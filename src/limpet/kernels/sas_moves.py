"""The moves of the Surface Augmented Sampler, each in one place: its rule.

A rule says when a move is made, where it leads and what its acceptance ratio is (the paper's
sections 2.1 and 2.2, and one move more). `SAS.move` makes all of them at once, by their rules. To
add a move, add its rule to `RULES`, and its name to `Move`.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from limpet.geometry.linalg import (
    across,
    along,
    half_log_det,
    inner,
    log_abs_det,
    solve_lower,
    solve_upper,
    tangent,
)
from limpet.kernels.moves import TwoProjections, choose, slide_log_ratio, soft_log_ratio
from limpet.kernels.states import Move, State
from limpet.shapes import Values, Vector


class Random(NamedTuple):
    """The normal numbers of a step: one z serves every move, for its two parts are independent."""

    z: Vector
    tangent: Vector  # the part of z along the surface
    normal: Values  # coefficients of the rest, standard normal themselves


class Step(NamedTuple):
    """A move that has been made: all that its acceptance depends on."""

    state: State
    proposal: State
    sizes: dict[str, Any]
    slide: Vector  # the first of a trajectory
    back: Vector  # the first of the same trajectory backwards
    h: Float[Array, ""]  # the size of its slides
    landings: TwoProjections
    leaves: Bool[Array, ""]  # whether it is from the surface to off it, as Off is


class Rule(NamedTuple):
    """What one move does differently from the others."""

    begins_on: bool  # whether it begins on S, else off it
    ends_on: bool  # whether it ends on S
    probability: Callable[[Any], Any]  # of the sampler: that a chain there makes this move
    ends: Literal["first", "second", "away"]  # where a projection landed, or where it jumped
    log_ratio: Callable[[Step], Float[Array, ""]]
    sizes: tuple[str, ...]
    jump: Callable[[State, dict[str, Any], Random], Vector] | None = None
    projects: bool = True
    inverse: bool = False  # the log ratio is minus that of the move backwards


def _kick(state: State, sizes: dict[str, Any], random: Random) -> Vector:
    """Off the surface, by a Gaussian with a part along it and one across (2.6)."""
    across_it = solve_upper(
        state.factor, solve_lower(state.factor, sizes["sigma_prp"] * random.normal)
    )
    # N_x r = G K^-1 r changes q by r, to first order
    return sizes["sigma_tan"] * random.tangent + along(state.normals, across_it)


def _soft_jump(state: State, sizes: dict[str, Any], random: Random) -> Vector:
    """By an isotropic Gaussian (2.16)."""
    return sizes["sigma_sft"] * random.z


def _slide_ratio(step: Step) -> Float[Array, ""]:
    return slide_log_ratio(step.state, step.proposal, step.slide, step.back, step.h)


def _crossing_ratio(step: Step) -> Float[Array, ""]:
    """E(a, f, s): log of the Off ratio from s on S to a off S; minus it is that of On.

    (2.2) with (2.13), (2.15) and the constants (3.11): Gram determinants and lambda cancel. At the
    foot f begins the slide that leads to s.
    """
    sizes, (foot, foot_factor, slide, _) = step.sizes, step.landings
    s, a = choose(step.leaves, (step.state, step.proposal), (step.proposal, step.state))
    m, n = len(s.values), len(s.x)
    kick = a.x - s.x
    across_s = across(s.normals, kick) / sizes["sigma_prp"]
    along_s = tangent(s.normals, s.factor, kick)
    density = a.log_density - s.log_density - jnp.sum(a.values**2) / 2
    leaving = -(jnp.sum(across_s**2) + jnp.sum(along_s**2) / sizes["sigma_tan"] ** 2) / 2
    landing_there = -jnp.sum(slide**2) / sizes["sigma_on"] ** 2 / 2
    jacobian = (
        log_abs_det(inner(foot.normals, s.normals))
        - half_log_det(foot_factor)
        - half_log_det(s.factor)
    )
    constants = jnp.sum(jnp.log(jnp.broadcast_to(sizes["sigma_prp"], (m,))))
    constants += (n - m) * jnp.log(sizes["sigma_tan"] / sizes["sigma_on"])
    return density + landing_there + jacobian - leaving + constants


def _soft_ratio(step: Step) -> Float[Array, ""]:
    return soft_log_ratio(step.state, step.proposal)


# in the order in which the moves of each side divide the interval [0, 1) of the choice
RULES = {
    Move.OFF: Rule(
        begins_on=True,
        ends_on=False,
        probability=lambda kernel: kernel.off_probability,
        jump=_kick,
        ends="away",
        log_ratio=_crossing_ratio,
        sizes=("sigma_tan", "sigma_prp"),
    ),
    Move.HARD: Rule(
        begins_on=True,
        ends_on=True,
        probability=lambda kernel: 1 - kernel.off_probability,
        ends="first",
        log_ratio=_slide_ratio,
        sizes=("sigma_hrd",),
    ),
    Move.ON: Rule(
        begins_on=False,
        ends_on=True,
        probability=lambda kernel: kernel.on_probability,
        ends="second",
        log_ratio=_crossing_ratio,
        inverse=True,
        sizes=("sigma_on",),
    ),
    Move.SLIDE: Rule(
        begins_on=False,
        ends_on=False,
        probability=lambda kernel: kernel.slide_probability,
        ends="first",
        log_ratio=_slide_ratio,
        sizes=("sigma_hrd",),
    ),
    Move.SOFT: Rule(
        begins_on=False,
        ends_on=False,
        probability=lambda kernel: 1 - kernel.on_probability - kernel.slide_probability,
        jump=_soft_jump,
        ends="away",
        projects=False,
        log_ratio=_soft_ratio,
        sizes=("sigma_sft",),
    ),
}
