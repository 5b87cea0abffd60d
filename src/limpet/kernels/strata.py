"""The sampler of `limpet.Strata`: trajectories while labels stay, and moves that change these.

A chain makes a trajectory along the surface of the constraints that hold, then tries to form or
break one of them, once or several times; then it is at a draw.
"""

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from limpet import errors
from limpet.errors import InputError
from limpet.kernels.base import Tunable
from limpet.kernels.bonds import Began, Place, change_bond, flip, place_at, slopes_at
from limpet.kernels.lifted import NO_FACTOR, LiftedTarget, length_of
from limpet.kernels.moves import reach_of, where_any
from limpet.kernels.noise import Noise
from limpet.kernels.states import Info, Move, Outcome, State
from limpet.kernels.stratum import Bouncing, RigidStratum, has_rooms, sorts_of_rooms, surface_of
from limpet.kernels.surface import MEASURES
from limpet.kernels.trajectory import TrajectoryKernel, make_trajectory
from limpet.shapes import Vector
from limpet.sparse.normals import SparseNormals
from limpet.strata import Strata
from limpet.target import Target

# How many constraints that may break are few. A chain of few mostly waits for its trajectories, so
# that nothing is lost if Form and Break are seldom refused: each is accepted more often than 0.8.
FEW = 3


class Advice(NamedTuple):
    """What makes the most effective draws of how many constraints hold, in a second."""

    spread: float
    bond_acceptance: float  # of Form and of Break
    acceptance: float  # of trajectories, whose ends may be behind walls


# Of the sticky trimer and four spheres; trajectories that are accepted 0.7 make 0.6 and 0.8 times
# as many effective draws. With 0.83 for bonds, that of the trimer would reach less far at eps = 0.1
# than at smaller ones, which costs a third there.
OF_FEW = Advice(spread=0.5, bond_acceptance=0.815, acceptance=0.85)
# Of six spheres, where 10 may break: with the numbers above 0.5 times as many; and a chain of 20
# beads at a sticky wall, where trajectories accepted 0.85 make 0.75 times as many.
OF_MANY = Advice(spread=1.0, bond_acceptance=0.5, acceptance=0.7)
# Of six spheres, 5 tries make 1.7 times as many as one, and 8 no more; of 20 beads at a wall 8 make
# as many as 16.
MOST_TRIES = 8
NO_TRIES = np.zeros((1, 1))  # made yet
SLIDES = 4  # of a trajectory: of four spheres, the most effective draws of bonds in a second


class Turn(NamedTuple):
    """What a trajectory or a try begins with."""

    target: Strata
    sizes: dict[str, Any]
    noise: Noise
    state: State
    place: Place


class StrataSampler(TrajectoryKernel):
    """Sample a `limpet.Strata`: what is near which surfaces, and which.

    Parameters
    ----------
    measure : {None, "soft", "hausdorff"}
        None: constraints that hold stray by eps. Else they hold exactly: "soft" is the limit of
        small eps, with density exp(l) det(K)^(-1/2) and kappa for each constraint that holds;
        "hausdorff" has exp(l) and these kappa per unit of the surface's own area.
    steps : int, optional
        Slides of a trajectory, a few, for labels change in between; None leaves it to warm-up.
    step_size : float
        Size of the slides, in x.
    reach : float
        From how far constraints form, and how far breaking them leads, in units of the target's own
        `reach`.
    spread : float, optional
        How far a chain goes sideways as a constraint forms or breaks, in units of how far it goes
        to it. Default: 0.5 where up to three constraints may break, else 1.
    tries : int, optional
        How many tries to form or break a constraint follow a trajectory. Default: one for every two
        constraints that may break, 8 at most. Of a target whose `at_once` is far below the number
        of its constraints, all but the first move only what is near the constraint.
    bond_acceptance : float, optional
        The share of these tries that is to be accepted, by which warm-up finds the reach: with
        less, they reach farther. Default: 0.815 where up to three constraints may break, else 0.5.
    acceptance : float, optional
        The share of trajectories that is to be accepted, by which warm-up finds the size of slides.
        Default: 0.85 where up to three constraints may break, else 0.7.
    newton_cap, tolerance, reverse_tolerance
        As in `limpet.SAS`.

    Examples
    --------
    >>> import limpet
    >>> limpet.StrataSampler(measure="soft").reach
    0.3
    """

    measure: str | None = None
    steps: int | None = SLIDES
    step_size: float = 1.0
    reach: float = 0.3
    spread: float | None = None
    tries: int | None = None
    bond_acceptance: float | None = None
    acceptance: float | None = None
    newton_cap: int = 8
    tolerance: float = 1e-12
    reverse_tolerance: float = 1e-8

    static = ("measure", "steps", "tries", "newton_cap")
    checks: ClassVar = TrajectoryKernel.checks | {
        "reach": errors.positive,
        "spread": errors.positive,
        "tries": errors.count,
        "bond_acceptance": errors.probability,
        "acceptance": errors.probability,
    }

    def check(self) -> None:
        """Refuse a measure that there is not."""
        if self.measure not in (None, *MEASURES):
            raise InputError(
                f"measure={self.measure!r}: expected None, for constraints that stray by eps, or"
                f" one of {', '.join(map(repr, MEASURES))}."
            )

    def fitted(self, target: Target) -> "StrataSampler":
        """With the numbers that were left open, by how many constraints may break."""
        count = len(_strata(target).breakable)
        advice = (OF_FEW if count <= FEW else OF_MANY)._asdict()
        advice["tries"] = min((count + 1) // 2, MOST_TRIES)
        open_ones = {name: best for name, best in advice.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **open_ones)

    @property
    def takes_frames(self) -> bool:
        """Not yet: labels are among its numbers."""
        return False

    @property
    def moves(self) -> tuple[Move, ...]:
        """Trajectories, Form and Break; flips alone where nothing is within reach."""
        return (Move.HARD, Move.FORM, Move.BREAK, Move.FLIP)

    @property
    def tunables(self) -> tuple[Tunable, ...]:
        """Those of trajectories, and how far bonds reach."""
        bonds = Tunable(("reach",), (Move.FORM, Move.BREAK), acceptance=self.bond_acceptance)
        slides, *others = super().tunables
        if self.is_forced:
            slides = slides._replace(acceptance=self.acceptance, bounces=True)
        return slides, *others, bonds

    @property
    def step_sizes(self) -> dict[Move, tuple[str, ...]]:
        """Which numbers make each move longer or shorter."""
        return super().step_sizes | {Move.FLIP: ("eps",)}

    def sizes(self, target: Target) -> dict[str, Any]:
        """Those of trajectories, and how far bonds reach."""
        return super().sizes(target) | {"reach": self.reach}

    def draw_share(self) -> float:
        """Trajectories and tries are steps, and a draw follows the last try."""
        return 1 / (1 + (self.tries or 1))

    def is_draw(self, state: State) -> Bool[Array, ""]:
        """After the last try to change labels."""
        return ~state.on

    def noise_size(self, state: State) -> int:
        """A slide's; two for each flip, where constraints are soft, and two for a level."""
        flips = 2 * len(state.values) if self.measure is None else 0
        return len(state.x) + flips + 2

    def start(self, target: Target, x: Vector) -> State:
        """At x, whose labels are right."""
        target = _strata(target)
        holds = target.holds(target.labels(x))
        place = place_at(target, x, holds)
        reach = reach_of(x * target.free(len(x)), self.step_size)
        return self._state(target, place, Began(reach, slopes_at(target, place)))

    def _state(self, target: Strata, place: Place, began: Began) -> State:
        """What is kept of a place that no move of labels follows.

        In the place of normals, which are computed anew, is what is remembered of the first ones;
        in that of their factor, how many tries were made, where there are several.
        """
        level = place.log_density + target.log_weight(place.holds, self.measure is not None)
        values, slopes = place.holds * place.values, began.slopes[None]
        off, made = jnp.bool_(False), jnp.asarray(NO_FACTOR if self.tries == 1 else NO_TRIES)
        return State(place.x, off, values, slopes, made, level, began.distance)

    def move(
        self, target: Target, tuned: dict[str, Any], noise: Noise, state: State
    ) -> tuple[State, Info]:
        """A trajectory, or a change of labels, in their turn."""
        target = _strata(target)
        sizes = self.sizes(target) | tuned
        place = place_at(target, state.x, target.holds(target.labels(state.x)))
        turn = Turn(target, sizes, noise, state, place)
        held, result = jnp.sum(place.holds), (state, _idle())
        is_near = self._tries_near(target, place)
        # what moves everything is tried once: a rigid cluster may have no other way to break
        changes = state.on & (cast(Array, state.factor)[0, 0] == 0) if is_near else state.on
        for rooms, fits in sorts_of_rooms(target, held):
            make = functools.partial(self._travel, turn, rooms)
            result = where_any(~state.on & fits, make, result)
        for rooms, fits in sorts_of_rooms(target, jnp.minimum(held + 1, target.rooms)):
            make = functools.partial(self._change, turn, changes & fits, rooms)
            result = where_any(changes & fits, make, result)
        if is_near:
            rest = state.on & ~changes
            make = functools.partial(self._change, turn, rest, None, is_near)
            result = where_any(rest, make, result)
        return result

    def _tries_near(self, target: Strata, place: Place) -> bool:
        """Whether tries but the first move only what is near the constraint."""
        several, sparse = cast(int, self.tries) > 1, isinstance(place.normals, SparseNormals)
        return several and sparse and has_rooms(target) and self.measure != "hausdorff"

    def _change(
        self, turn: Turn, active: Bool[Array, ""], rooms: int | None, is_near: bool = False
    ) -> tuple[State, Info]:
        """Labels are changed, or left."""
        target, sizes, noise, state, place = turn
        measure = None if self.measure is None else MEASURES[self.measure]
        free = noise._replace(z=noise.z * _room(target, len(state.x), len(noise.z)))
        began = Began(state.reach, cast(Array, state.normals)[0])
        changed, info = change_bond(
            self, target, sizes["reach"], measure, free, place, began, active, rooms, is_near
        )
        if measure is None:
            m, n = len(place.values), len(place.x)
            changed = flip(target, noise.z[n : n + 2 * m], changed, active)
        new = self._state(target, changed, began)
        tries = cast(int, self.tries)
        if tries > 1:
            made = cast(Array, state.factor) + 1
            new = new._replace(factor=made, on=made[0, 0] < tries)
        return new, info

    def _travel(self, turn: Turn, rooms: int | None) -> tuple[State, Info]:
        """A trajectory while labels stay."""
        target, sizes, noise, state, place = turn
        rigid, size = self.measure is not None, len(place.x)
        surface = surface_of(target, place.holds, rigid, size, rooms)
        bouncing, begin = Bouncing(surface), surface.point(state.x)
        n, m = len(begin), len(surface.holds)
        if rigid:
            lifted: LiftedTarget = RigidStratum(surface, n, bouncing)
        else:
            lifted = LiftedTarget(bouncing, n, length_of(sizes))
        begin = lifted.raise_state(
            state._replace(
                x=begin,
                values=surface.of_constraints(state.values),
                normals=surface.of_normals(place.normals),
                on=jnp.bool_(True),
            )
        )
        along_levels = np.zeros(m) if rigid else noise.z[size : size + m]
        z = jnp.concatenate([surface.point(noise.z[:size] * target.free(size)), along_levels])
        measure = MEASURES[self.measure or "soft"]
        new, info = make_trajectory(
            self, lifted, sizes, noise._replace(z=z), begin, measure=measure, wall=bouncing.wall
        )
        new = lifted.lower_state(new)
        new = new._replace(
            x=target.relabelled(surface.whole(new.x), place.holds),
            values=surface.of_all(new.values),
            on=jnp.bool_(True),
            normals=state.normals,
            factor=jnp.zeros_like(cast(Array, state.factor)),
            reach=state.reach,
        )
        return new, info


def _idle() -> Info:
    """Of a step in which nothing is tried yet."""
    return Info(jnp.asarray(Move.HARD), jnp.asarray(Outcome.ACCEPTED), jnp.asarray(1.0))


def _room(target: Strata, n: int, size: int) -> np.ndarray:
    """Which random numbers a slide may use: not those in the places of labels."""
    return np.concatenate([target.free(n), np.ones(size - n)])


def _strata(target: Target) -> Strata:
    """The target, which has labels."""
    if not isinstance(target, Strata):
        raise InputError(f"target={target!r}: limpet.StrataSampler samples a limpet.Strata.")
    return target
