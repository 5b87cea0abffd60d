"""Replica exchange in eps: every chain has a ladder of tolerances, for surfaces in pieces.

A chain has a point on each rung, whose law is pi_eps with the eps of that rung. The points are
independent, and those of the lowest rung, which has the target's eps, are the draws. In a step all
make a trajectory (`limpet.kernels.lifted`), then neighbours try to change places
(`limpet.kernels.rungs`), from the top down: all by swaps, then all by slides. On the highest rung
the layers around the pieces are one, so that points travel between them.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Shaped

from limpet import errors
from limpet.errors import InputError
from limpet.kernels.lifted import NO_FACTOR, travel
from limpet.kernels.moves import choose, judge, reach_of
from limpet.kernels.noise import Noise
from limpet.kernels.rungs import Pair, Rung, exchange, swap_log_ratio
from limpet.kernels.states import Above, Exchanges, Info, Move, Outcome, State
from limpet.kernels.trajectory import TrajectoryKernel
from limpet.shapes import Randoms, Vector
from limpet.target import Target

NO_NORMALS = np.zeros((0, 0))
UNIFORMS = 4  # normal numbers that two uniform ones are made of
SAME = 1e-9  # relative: one eps, written in two ways
SHORTEST, LONGEST = 0.1, 2.0  # slides above the lowest rung, by chance, in units of those there
BOTTOM, TOP = 1.0, 2.0  # stages of a point: it was at the bottom; then at the top

Points = Float[Array, "rungs n"]
Levels = Float[Array, "rungs m"]  # q there, in units of the target's eps


def read_ladder(name: str, value: Any) -> tuple[Any, ...]:
    """The eps of rungs, from the highest to the lowest: numbers, or one per constraint for each."""
    expected = (
        "expected the eps of two rungs or more, from the highest down to the target's own, such as"
        " [1.0, 0.1, 0.001]"
    )
    try:
        eps = np.asarray(value, float)
        if eps.ndim not in (1, 2):
            raise TypeError
    except (TypeError, ValueError):
        raise InputError(f"{name}={value!r}: {expected}.") from None
    if len(eps) < 2:
        raise InputError(f"{name}={value!r} has {len(eps)} rungs: {expected}.")
    if (wrong := eps[~(np.isfinite(eps) & (eps > 0))]).size:
        raise InputError(f"{name}={value!r} has {wrong[0]:g}: {expected}, finite and above zero.")
    falls = (np.diff(eps, axis=0) < 0).reshape(len(eps) - 1, -1).all(axis=1)
    if not falls.all():
        k = int(np.argmin(falls))
        raise InputError(f"{name}={value!r} does not fall after rung {k}: {expected}.")
    return tuple(map(tuple, eps.tolist())) if eps.ndim == 2 else tuple(eps.tolist())


class Exchange(TrajectoryKernel):
    """Sample pi_eps near a surface in pieces, on a ladder of eps whose rungs exchange points.

    Every chain has a point on each rung; draws are those of the lowest. A draw costs as many
    trajectories as there are rungs, and no more as eps falls.

    Parameters
    ----------
    ladder : sequence, optional
        The eps of the rungs, from one at which the layers around the pieces are one, down to the
        target's own: numbers, or for each rung one number per constraint. `limpet.summary` shows
        how often neighbours exchange; those that hardly do need a rung between them. By default
        `limpet.sample` finds one by short runs, from starts of which some are on every piece.
    steps : int, optional
        Slides of a trajectory on the lowest rung, and the most on others, whose number is random;
        None leaves it to warm-up.
    step_size : float
        Size of the slides, in x.
    spread : float
        How far points go sideways as they slide to another rung, in units of how far they go to
        its level.
    newton_cap, tolerance, reverse_tolerance
        As in `limpet.SAS`.

    Examples
    --------
    Two circles, of which one is four times as long as the other:

    >>> import jax.numpy as jnp
    >>> import limpet
    >>> def circles(x):
    ...     a, b = x - jnp.array([1.3, 0.0]), x + jnp.array([1.3, 0.0])
    ...     return jnp.minimum(jnp.sqrt(a @ a) - 1, jnp.sqrt(b @ b) - 0.25)[None]
    >>> target = limpet.Target(circles, eps=1e-4)
    >>> kernel = limpet.Exchange([0.8, 0.4, 0.2, 1e-4])
    >>> draws = limpet.sample(target, [0.3, 0.0], draws=500, kernel=kernel, progress=False)
    >>> left = draws.posterior["x"].values[..., 0] < 0
    >>> bool(abs(left.mean() - 0.2) < 0.05)
    True
    """

    ladder: Any = None
    steps: int | None = None
    step_size: float = 1.0
    spread: float = 0.6
    newton_cap: int = 8
    tolerance: float = 1e-12
    reverse_tolerance: float = 1e-8

    needs_surface = True
    checks: ClassVar = TrajectoryKernel.checks | {"ladder": read_ladder, "spread": errors.positive}

    @property
    def learns_frames(self) -> bool:
        """Not from draws of several pieces: how far these are apart says nothing of slides."""
        return False

    def check_room(self, target: Target, x: Vector) -> None:
        """Refuse a target without a surface, and one whose eps is not that of the lowest rung."""
        super().check_room(target, x)
        if not target.has_fixed_eps:
            raise InputError(
                f"target={target!r} has a function for eps, and limpet.Exchange a ladder of"
                " numbers: give the noise a value."
            )
        if self.ladder is None:  # limpet.sample finds one that fits
            return
        lowest, m = np.asarray(self.ladder[-1]), jax.eval_shape(target.values, x).size
        if lowest.ndim and len(lowest) != m:
            raise InputError(
                f"ladder={self.ladder!r} has {len(lowest)} numbers for each rung: expected one, or"
                f" m = {m}, one per constraint."
            )
        if isinstance(target.eps, Tracer):
            return
        if not np.allclose(lowest, target.eps, rtol=SAME, atol=0):
            raise InputError(
                f"ladder={self.ladder!r} ends with {self.ladder[-1]!r}: expected the target's own"
                f" eps there, {np.asarray(target.eps).tolist()!r}, since draws are those of the"
                " last rung."
            )

    def noise_size(self, state: State) -> int:
        """Of every rung a slide, of every pair two, and each two uniform numbers."""
        n, m, rungs = len(state.x), len(state.values), len(self.ladder)
        return rungs * (n + m + UNIFORMS) + (rungs - 1) * (2 * n + UNIFORMS)

    def is_draw(self, state: State) -> Bool[Array, ""]:
        """Every state is a draw."""
        return ~state.on

    def start(self, target: Target, x: Vector) -> State:
        """At x on every rung."""
        if self.ladder is None:
            raise InputError(
                "ladder=None: limpet.sample finds a ladder; without it, expected the eps of rungs."
            )
        rungs = len(self.ladder)
        above = Above(jnp.tile(x, (rungs - 1, 1)), jnp.zeros(rungs))
        return _state(target, x, reach_of(x, self.step_size), above)

    def move(
        self, target: Target, tuned: dict[str, Any], noise: Noise, state: State
    ) -> tuple[State, Info]:
        """A trajectory on every rung, then exchanges of neighbours; both from the top down."""
        above, rungs, pairs = state.above, len(self.ladder), len(self.ladder) - 1
        assert above is not None
        sizes, widths = self.sizes(target) | tuned, _widths(self.ladder)
        first = rungs * (len(state.x) + len(state.values) + UNIFORMS)
        of_rungs, of_pairs = noise.z[:first].reshape(rungs, -1), noise.z[first:].reshape(pairs, -1)

        def travel_on_rung(carry: tuple[Any, Points, Levels, Info]) -> Any:
            k, points, values, _ = carry
            rung = Rung(target, pick(widths, k))
            begin = _off(rung, pick(points, k), state.reach)
            noise = _noise(pick(of_rungs, k))
            # warm-up finds what is best on the lowest rung: above, ways may be narrower, or wider
            by_chance = SHORTEST * (LONGEST / SHORTEST) ** noise.choice
            length = jnp.where(k < pairs, by_chance, 1.0)
            some = sizes | {"step_size": length * sizes["step_size"]}
            end, info = travel(self, rung, some, noise, begin)
            return k + 1, put(points, k, end.x), put(values, k, rung.width * end.values), info

        def swap_pair(carry: tuple[Any, Climb, Levels]) -> tuple[Any, Climb, Levels]:
            k, climb, values = carry
            noise, there = _noise(pick(of_pairs, k)), _turned(_pair(climb.x, k))
            log_ratio = swap_log_ratio(_pair(widths, k), _pair(values, k))
            coin = noise._replace(coin=noise.choice)
            outcome, acceptance = judge(coin, log_ratio, jnp.asarray(Outcome.ACCEPTED))
            swapped = put_pair(values, k, _turned(_pair(values, k)))
            values = jnp.where(outcome == Outcome.ACCEPTED, swapped, values)
            return k + 1, climb.after(k, there, outcome, acceptance), values

        def slide_pair(carry: tuple[Any, Climb]) -> tuple[Any, Climb]:
            k, climb = carry
            noise, points = _noise(pick(of_pairs, k)), _pair(climb.x, k)
            there, log_ratio, met = exchange(
                self, target, _pair(widths, k), noise.z, points, state.reach
            )
            outcome, acceptance = judge(noise, log_ratio, met)
            return k + 1, climb.after(k, there, outcome, acceptance)

        points = jnp.concatenate([above.x, state.x[None]])
        values = jnp.zeros((rungs, len(state.values)))
        none = Info(jnp.asarray(Move.HARD), jnp.asarray(Outcome.ACCEPTED), jnp.zeros(()))
        _, points, values, info = _count(rungs, travel_on_rung, (0, points, values, none))
        travelled = jnp.sum((points[-1] - state.x) ** 2)
        refused = jnp.full(pairs, Outcome.METROPOLIS, info.outcome.dtype)
        climb = Climb(points, above.stage, refused, jnp.zeros(pairs))
        # swaps of all before slides: right after a swap, a slide of the same pair would undo it
        _, climb, _ = _count(pairs, swap_pair, (0, climb, values))
        _, climb = _count(pairs, slide_pair, (0, climb))
        stage, round_trip = _at_the_ends(climb.stage)
        new = _state(target, climb.x[-1], state.reach, Above(climb.x[:-1], stage))
        exchanges = Exchanges(climb.outcome, climb.acceptance, travelled, round_trip)
        return new, info._replace(exchanges=exchanges)


class Climb(NamedTuple):
    """How far the exchanges of a step are; a pair has exchanged if it did in one of its tries."""

    x: Points
    stage: Float[Array, " rungs"]
    outcome: Int[Array, " pairs"]
    acceptance: Float[Array, " pairs"]

    def after(
        self, k: Any, there: Pair, outcome: Int[Array, ""], acceptance: Float[Array, ""]
    ) -> "Climb":
        """The same after points k and k + 1 changed places, or did not."""
        done = outcome == Outcome.ACCEPTED
        moved = put_pair(self.x, k, there), put_pair(self.stage, k, _turned(_pair(self.stage, k)))
        x, stage = choose(done, moved, (self.x, self.stage))
        before = pick(self.outcome, k) == Outcome.ACCEPTED
        either = 1 - (1 - pick(self.acceptance, k)) * (1 - acceptance)
        outcome = jnp.where(before, jnp.full_like(outcome, Outcome.ACCEPTED), outcome)
        return Climb(x, stage, put(self.outcome, k, outcome), put(self.acceptance, k, either))


def _count(turns: int, body: Any, first: Any) -> Any:
    """A loop of so many turns, which count by themselves: it is compiled as a loop."""
    return jax.lax.while_loop(lambda carry: carry[0] < turns, body, first)


def pick(rows: Shaped[Array, "rows ..."], k: Any) -> Shaped[Array, "..."]:
    """Row k."""
    return jnp.sum(jnp.where(_is_row(rows, k), rows, jnp.zeros_like(rows)), axis=0)


def put(rows: Shaped[Array, "rows ..."], k: Any, row: Any) -> Shaped[Array, "rows ..."]:
    """The same with another row k."""
    return jnp.where(_is_row(rows, k), row, rows)


def put_pair(rows: Shaped[Array, "rows ..."], k: Any, pair: Pair) -> Shaped[Array, "rows ..."]:
    """The same with other rows k and k + 1."""
    return put(put(rows, k, pair.upper), k + 1, pair.lower)


def _is_row(rows: Shaped[Array, "rows ..."], k: Any) -> Bool[Array, "rows ..."]:
    return jnp.arange(len(rows)).reshape(-1, *[1] * (rows.ndim - 1)) == k


def _pair(rows: Float[Array, "rows ..."], k: Any) -> Pair:
    """Rows k and k + 1."""
    return Pair(pick(rows, k), pick(rows, k + 1))


def _turned(pair: Pair) -> Pair:
    """Each in the place of the other."""
    return Pair(pair.lower, pair.upper)


def _widths(ladder: Any) -> Float[Array, "rungs m_or_one"]:
    """Eps of every rung, in units of the target's."""
    eps = jnp.asarray(ladder, float).reshape(len(ladder), -1)
    return eps / eps[-1]


def _at_the_ends(stage: Float[Array, " rungs"]) -> tuple[Float[Array, " rungs"], Bool[Array, ""]]:
    """The stages of points now that some are at the ends, and whether one has come all round."""
    top = jnp.where(stage[:1] == BOTTOM, TOP, stage[:1])
    return jnp.concatenate([top, stage[1:-1], jnp.full(1, BOTTOM)]), stage[-1] == TOP


def _off(rung: Rung, x: Vector, reach: Float[Array, ""]) -> State:
    """The state of a point off S."""
    values, normals = rung.values_and_normals(x)
    off, nothing = jnp.bool_(False), jnp.asarray(NO_FACTOR)
    return State(x, off, values, normals, nothing, rung.log_density_at(x), reach)


def _state(target: Target, x: Vector, reach: Float[Array, ""], above: Above) -> State:
    """What is kept of a chain whose lowest point is x."""
    nothing = jnp.asarray(NO_NORMALS), jnp.asarray(NO_FACTOR)
    level = target.log_density_at(x)
    return State(x, jnp.bool_(False), target.values(x), *nothing, level, reach, above)


def _noise(z: Randoms) -> Noise:
    """The random numbers of a part of a step; the last four make two uniform ones."""
    even = jnp.exp(-jnp.sum(z[-UNIFORMS:].reshape(2, -1) ** 2, axis=1) / 2)
    return Noise(z[:-UNIFORMS], even[0], even[1])
