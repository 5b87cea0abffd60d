"""Where a chain is, and what a step did."""

import enum
from typing import Any, NamedTuple

from jaxtyping import Array, Bool, Float, Int

from limpet.shapes import Factor, Normals, Values


class Move(enum.IntEnum):
    """What a chain can do in a step; the first four are the paper's (section 2.1)."""

    HARD = 0
    OFF = 1
    ON = 2
    SOFT = 3
    SLIDE = 4  # along a level set of q, off the surface: not in the paper
    SYMMETRY = 5  # by one of the target's own, after any other: not in the paper
    FORM = 6  # of limpet.Strata: onto another level of one constraint, which holds from then on
    BREAK = 7  # and back
    FLIP = 8  # of which constraints hold, where the chain is


class Outcome(enum.IntEnum):
    """What became of a proposal; every proposal ends as exactly one of these."""

    ACCEPTED = 0
    FORWARD = 1  # the projection did not reach the surface
    REVERSE = 2  # the way back does not lead to where it came from
    WALL = 3  # outside the walls
    METROPOLIS = 4  # refused with one minus its acceptance probability
    NOT_FINITE = 5  # q, its gradient or the log density was NaN or infinite


class Above(NamedTuple):
    """Where a chain on a ladder is above its lowest rung: see `limpet.kernels.exchange`."""

    x: Float[Array, "above n"]  # its points there, the highest rung first
    stage: Float[Array, " rungs"]  # of each point: 1 after it was at the bottom, then 2 at the top


class State(NamedTuple):
    """Where a chain is, and what was computed there.

    A sampler that never projects has no columns of normals.
    """

    x: Any
    on: Bool[Array, ""]  # whether it is on the surface
    values: Values
    normals: Normals
    factor: Factor
    log_density: Float[Array, ""]
    reach: Float[Array, ""]  # how far from the origin the chain began: the scale of its x
    above: Above | None = None  # of a chain on a ladder


class Exchanges(NamedTuple):
    """What became of the exchanges of a step, by pair of rungs, the highest first."""

    outcome: Int[Array, " pairs"]
    acceptance: Float[Array, " pairs"]
    travelled: Float[Array, ""]  # the square of how far the draw's own trajectory went before them
    round_trip: Bool[
        Array, ""
    ]  # a point is at the bottom that was there before, and at the top since


class Info(NamedTuple):
    """What one step did."""

    move: Int[Array, ""]
    outcome: Int[Array, ""]
    acceptance: Float[Array, ""]
    exchanges: Exchanges | None = None  # of a chain on a ladder
