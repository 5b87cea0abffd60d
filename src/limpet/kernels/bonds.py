"""Moves that change which constraints hold: Form and Break, and flips where the chain is.

A constraint j that does not hold, with q_j(x) within reach, forms by a slide to another level: all
constraints that hold keep their level, and q_j goes to one that is drawn from its Gaussian, or to
zero. Breaking is the way back: to a level within reach, drawn uniformly. Both have two projections
and a reverse check, as a Hard move has, and eps is in neither's ratio. Of the two ends of such a
slide, here and there, one is bonded and one unbonded, and with B the constraints that hold there:

    log ratio = [log p + l - log det(K_B) / 2 - |v|^2 / 2 sigma^2] there - the same here
                +- (log kappa_j - log b_j)

p is the probability with which j is tried there, v the slide that leads away from there, along
{q_B = q_B(x)}; b_j is the length of the range of levels within reach, and the sign is + for Form, -
for Break. Slides are of the size sigma = spread |q_j| / |grad q_j|, with the unbonded q_j, and the
gradient where the chain began: were it that of each end, two sizes would be weighed, in as many
dimensions as slides have.
"""

from typing import Any, NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from limpet.geometry.linalg import factor, half_log_det, lengths, tangent
from limpet.kernels.moves import choose, judge
from limpet.kernels.nearby import Nearby
from limpet.kernels.noise import Noise
from limpet.kernels.states import Info, Move, Outcome, State
from limpet.kernels.stratum import Masked, RigidStratum, surface_of
from limpet.kernels.trajectory import slide_once
from limpet.shapes import Normals, Values, Vector
from limpet.sparse.normals import SparseNormals
from limpet.strata import Strata

# Tries among k constraints are so rare that weights seldom sum up to more than this power of k: how
# often one is tried depends little on what else is within reach then, so that few are refused for
# that. Of four spheres (k = 3) and six (k = 10), 2 and 3 are better than 1, and than 3 and 5.5.
RARE = 0.5
# Of many, few are within reach at one time: of 50 spheres in a chain, two. A choice.
RAREST = 4.0


class Place(NamedTuple):
    """A point, which constraints hold there, and all of them, whether they hold or not."""

    x: Vector
    holds: Values
    values: Values  # q / eps
    normals: Normals
    log_density: Float[Array, ""]  # l(x) alone


class Began(NamedTuple):
    """What is remembered of where the chain began: the scale of its x, and of all constraints."""

    distance: Float[Array, ""]  # from the origin
    slopes: Values  # the lengths of the gradients of q


class Trial(NamedTuple):
    """Which constraint to change, with what random numbers."""

    chosen: Values  # 1 for the constraint, 0 for the others; zero if none is tried
    z: Vector  # the slide along the level
    level: Float[Array, ""]  # a standard normal
    uniform: Float[Array, ""]  # on (0, 1]
    is_near: bool = False  # only what is near the constraint moves


def place_at(target: Strata, x: Vector, holds: Values) -> Place:
    """A point, and what is computed there."""
    return Place(x, holds, *target.values_and_normals(x), target.log_density_at(x))


def slopes_at(target: Strata, place: Place) -> Values:
    """The lengths of the gradients of q, or one where there is none."""
    slopes = lengths(place.normals) * target.widths
    return jnp.where(slopes > 0, slopes, 1.0)


def change_bond(
    kernel: Any,
    target: Strata,
    reach: Any,
    measure: float | None,
    noise: Noise,
    place: Place,
    began: Began,
    active: Bool[Array, ""],
    rooms: int | None,
    is_near: bool = False,
) -> tuple[Place, Info]:
    """Form or Break, of one constraint or none, accepted or not.

    `measure` is the power of det(K)^(-1/2) in the density of rigid constraints, None if they are
    soft. Only what is near the constraint moves if `is_near`.
    """
    chosen = pick(try_weights(target, reach, place), _fewest(target), noise.choice)
    trial = Trial(chosen, *_numbers(noise.z, place), is_near)
    below = surface_of_try(target, measure, trial, place, rooms)
    tried = active & (jnp.sum(chosen) > 0) & below.fits
    there, log_ratio, met = slide_to_level(
        kernel, below, reach, measure, trial, place, began, tried
    )
    outcome, acceptance = judge(noise, log_ratio, met)
    forms = jnp.sum(trial.chosen * place.holds) == 0
    new = choose(tried & (outcome == Outcome.ACCEPTED), there, place)
    move = jnp.where(tried, jnp.where(forms, Move.FORM, Move.BREAK), Move.FLIP)
    # where nothing is within reach, or not tried, there is nothing to accept but flips
    outcome = jnp.where(tried, outcome, Outcome.ACCEPTED)
    return new, Info(move, outcome, jnp.where(tried, acceptance, 1.0))


def surface_of_try(
    target: Strata, measure: float | None, trial: Trial, here: Place, rooms: int | None
) -> Masked:
    """The surface on which a constraint is changed: it holds there, beside those that hold here."""
    rigid, together = measure is not None, jnp.maximum(here.holds, trial.chosen)
    if trial.is_near:
        structure = cast(SparseNormals, here.normals).structure
        return Nearby(target, here.x, together, rigid, structure, trial.chosen)
    return surface_of(target, together, rigid, len(here.x), rooms)


def slide_to_level(
    kernel: Any,
    below: Masked,
    reach: Any,
    measure: float | None,
    trial: Trial,
    here: Place,
    began: Began,
    active: Bool[Array, ""] | bool = True,
) -> tuple[Place, Float[Array, ""], Int[Array, ""]]:
    """A slide that changes the level of one constraint: where it ends, log ratio, and obstacle."""
    target, rigid, chosen = below.target, measure is not None, trial.chosen
    forms = jnp.sum(chosen * here.holds) == 0
    surface = RigidStratum(below, len(below.point(here.x)))
    begin, its_room = _raised(surface, here, began.distance), below.of_constraints(chosen)

    # the level at the bonded end, and at the unbonded one
    bonded = 0.0 if rigid else trial.level
    side = jnp.where(target.walled, trial.uniform, 2 * trial.uniform - 1)
    broken = jnp.sum(chosen * side * reach * target.ranges / target.widths)
    kept = jnp.where(its_room > 0, 0.0, begin.values) * (0.0 if rigid else 1.0)
    level = kept + its_room * jnp.where(forms, bonded, broken)
    back_level = kept + its_room * begin.values
    away = jnp.sum(its_room * jnp.where(forms, begin.values, level))
    unbonded = away * jnp.sum(chosen * target.widths)

    slope = jnp.sum(chosen * began.slopes) + (jnp.sum(chosen) == 0)
    size = kernel.spread * jnp.abs(unbonded) / slope
    z = jnp.concatenate([below.point(trial.z), jnp.zeros_like(begin.values)])
    slide = size * tangent(begin.normals, begin.factor, z)
    end, back, met = slide_once(
        kernel, surface, begin, slide, level, back_level=back_level, active=active
    )
    holds = jnp.abs(here.holds - chosen)
    there = place_at(target, target.relabelled(below.whole(end.x[: surface.n]), holds), holds)

    change = _log_try(target, reach, there, chosen) - _log_try(target, reach, here, chosen)
    change += there.log_density - here.log_density
    change += (jnp.sum(slide**2) - jnp.sum(back**2)) / (2 * size**2)
    steepness = half_log_det(end.factor) - half_log_det(begin.factor)
    change -= steepness if measure is None else measure * steepness
    gain = jnp.sum(chosen * (jnp.log(target.stickiness) - jnp.log(_lengths(target, reach))))
    if measure is not None and measure != 1:
        gain += (1 - measure) * _log_slope(surface, begin, end, here, there, its_room, forms)
        gain += (1 - measure) * jnp.sum(chosen * jnp.log(target.widths))
    return there, change + jnp.where(forms, gain, -gain), met


def flip(
    target: Strata, z: Float[Array, " twice_m"], place: Place, active: Bool[Array, ""]
) -> Place:
    """Which constraints hold, drawn anew from the law of that given x."""
    log_uniform = -jnp.sum(z.reshape(2, -1) ** 2, axis=0) / 2
    log_probability = -jnp.log1p(jnp.exp(-target.log_odds(place.values)))
    drawn = jnp.where(target.may_break, (log_uniform < log_probability) * 1.0, place.holds)
    # of all sets, drawn ones that are not allowed are refused, which leaves the law of the others
    drawn = jnp.where(active & target.is_allowed(drawn), drawn, place.holds)
    return place._replace(x=target.relabelled(place.x, drawn), holds=drawn)


def try_weights(target: Strata, reach: Any, place: Place) -> Values:
    """How often each constraint is tried: one that can form as kappa : b of one that can break."""
    kappa, b = target.stickiness, _lengths(target, reach)
    away = place.values * target.widths
    near = (jnp.abs(away) < reach * target.ranges) & ((away > 0) | ~target.walled)
    weight = jnp.where(place.holds > 0, b, jnp.where(near, kappa, 0.0)) / jnp.maximum(kappa, b)
    may = target.may_break & _may_change(target, place.holds)
    return jnp.where(may, weight, 0.0)


def _may_change(target: Strata, holds: Values) -> Bool[Array, " m"]:
    """Of every constraint, whether the labels are allowed if it changes."""
    room = (holds > 0) | target.has_room(jnp.sum(holds) + 1)
    if target.allowed is None:
        return room
    changed = [jnp.abs(holds - each) for each in np.eye(len(holds))]
    return room & jnp.stack([target.is_allowed(each) for each in changed])


def pick(weights: Values, fewest: float, uniform: Float[Array, ""]) -> Values:
    """One of them in proportion to its weight, or none if they sum up to less than `fewest`."""
    place = uniform * jnp.maximum(jnp.sum(weights), fewest)
    below = place < jnp.cumsum(weights)
    first = below & ~jnp.concatenate([jnp.zeros(1, bool), below[:-1]])
    return jnp.where(first & (weights > 0), 1.0, 0.0)


def _fewest(target: Strata) -> float:
    """What weights must sum up to for something to be tried for sure."""
    return min(len(target.breakable) ** RARE, RAREST)


def _log_try(target: Strata, reach: Any, place: Place, chosen: Values) -> Float[Array, ""]:
    """Log of the probability that this constraint is tried."""
    weights = try_weights(target, reach, place)
    every = jnp.maximum(jnp.sum(weights), _fewest(target))
    return jnp.log(jnp.sum(chosen * weights)) - jnp.log(every)


def _lengths(target: Strata, reach: Any) -> Values:
    """B of every constraint: how long the range of levels is that are within reach."""
    return jnp.where(target.walled, 1.0, 2.0) * reach * target.ranges


def _raised(surface: RigidStratum, here: Place, scale: Float[Array, ""]) -> State:
    """The state on the surface; its point has no labels, which are none of its coordinates."""
    below = surface.below
    bare = below.target.relabelled(here.x, jnp.zeros_like(here.holds))
    state = State(
        below.point(bare),
        jnp.bool_(True),
        below.of_constraints(here.values),
        below.of_normals(here.normals),
        jnp.zeros((0, 0)),
        here.log_density,
        scale,
    )
    return surface.raise_state(state)


def _log_slope(
    surface: RigidStratum,
    begin: State,
    end: State,
    here: Place,
    there: Place,
    its_room: Values,
    forms: Bool[Array, ""],
) -> Float[Array, ""]:
    """Log of how steep q_j / eps_j is along the surface of the others, at the unbonded end."""
    steep = [
        half_log_det(with_it.factor)
        - half_log_det(factor(surface.without(its_room, place.normals)))
        for with_it, place in ((begin, here), (end, there))
    ]
    return jnp.where(forms, *steep)


def _numbers(
    z: Float[Array, " numbers"], place: Place
) -> tuple[Vector, Float[Array, ""], Float[Array, ""]]:
    """The slide, the normal and the uniform number that a trial takes."""
    uniform = jnp.exp(-jnp.sum(z[-2:] ** 2) / 2)  # Box and Muller's, the other way round
    return z[: len(place.x)], z[-1], uniform
