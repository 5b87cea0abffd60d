"""Trajectories on the lifted surface where constraints are as many as unknowns, or more.

The points (x, length eta) with eta = r(x), r = q / eps, form a graph over x, so that x is all of a
point, and the n products of a vector with the graph's tangents [I; length G^T] are all of what it
is along the surface. A slide v is kept as these. Nothing here is m x m, and passes over the n x m
normals G are few:

    metric   M(x) = I + length^2 G(x) G(x)^T; the square of a slide's length is v^T M^-1 v
    draw     v = h L z, where L L^T = M and z has n standard normals
    push     v + h^2/2 times the gradient of l - |r|^2 / 2 - log det M / 2
    land     y - x + length^2 G(x) (r(y) - r(x)) = v, solved for y: along the normals at x
    back     the slide from y to x, x - y + length^2 G(y) (r(x) - r(y)); it must land on x

The law, the trajectory and its ratio are those of `limpet.kernels.trajectory`, on this surface.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from limpet.geometry.metric import (
    along,
    factor,
    half_log_det,
    inverse,
    outer,
    solve,
    solve_lower,
    solve_upper,
)
from limpet.kernels.moves import choose, judge, obstacle, reach_of, sooner
from limpet.kernels.noise import Noise
from limpet.kernels.states import Info, Move, Outcome, State
from limpet.kernels.trajectory import TrajectoryKernel, is_forced, vary
from limpet.shapes import Values, Vector
from limpet.target import Target

# What an update with the metric must bring the rest down to, or Newton goes on: a choice.
APPROACH_FACTOR = 0.25


class Place(NamedTuple):
    """A point of the graph, and what was computed there; its normals are large, and kept apart."""

    x: Vector
    values: Values
    metric: Float[Array, "n n"]
    factor: Float[Array, "n n"]  # of the metric
    log_density: Float[Array, ""]  # l - |r|^2 / 2
    gradient: Vector  # of the log density per unit of area; 0 if there is no force


class Landing(NamedTuple):
    """Where a slide ended."""

    x: Vector
    landed: Bool[Array, ""]
    finite: Bool[Array, ""]  # q and its gradient were, unless the point itself is not


class Start(NamedTuple):
    """Where a trajectory began: what its ratio asks for."""

    factor: Float[Array, "n n"]
    log_density: Float[Array, ""]
    slide: Vector


class Path(NamedTuple):
    """How far a trajectory has come."""

    made: Int[Array, ""]  # slides; -1 before the start itself is looked at
    place: Place  # the last that was looked at
    slide: Vector  # there
    obstacle: Int[Array, ""]  # what it met, if anything: an Outcome
    ahead: Landing  # of the next slide
    start: Start


def start_on_graph(target: Target, x: Vector, step_size: Any) -> State:
    """The first state of a chain, at x, which may be anywhere; it keeps no normals."""
    nothing = jnp.zeros((len(x), 0)), jnp.zeros((0, 0))
    reach, log_density = reach_of(x, step_size), target.log_density_at(x)
    return State(x, jnp.bool_(False), target.values(x), *nothing, log_density, reach)


def make_graph_trajectory(
    kernel: TrajectoryKernel,
    target: Target,
    sizes: dict[str, Any],
    length: Any,
    noise: Noise,
    state: State,
) -> tuple[State, Info]:
    """A Hard move: one trajectory, accepted or not."""
    forced = is_forced(kernel.steps)
    h = vary(sizes["step_size"], noise.choice, forced)
    graph = Graph(kernel, target, length, state.reach, forced)
    path = _follow(graph, state, noise.z, h, sizes["steps"])
    start, there = path.start, path.place
    log_ratio = graph.log_density(there) - graph.log_density(start)
    log_ratio += (graph.square(start, start.slide) - graph.square(there, path.slide)) / (2 * h**2)
    outcome, acceptance = judge(noise, log_ratio, path.obstacle)
    below = there.log_density + jnp.sum(there.values**2) / 2
    proposal = state._replace(x=there.x, values=there.values, log_density=below)
    new = choose(outcome == Outcome.ACCEPTED, proposal, state)
    return new, Info(jnp.asarray(Move.HARD), outcome, acceptance)


def _follow(graph: "Graph", state: State, z: Vector, h: Any, slides: Any) -> Path:
    """The slides of a trajectory, each with a push before it and one after.

    A turn looks at the place where the last slide landed, and lands the next one. So it needs the
    normals of one place, and none are carried from turn to turn.
    """

    def goes_on(path: Path) -> Bool[Array, ""]:
        return (path.made < slides) & (path.obstacle == Outcome.ACCEPTED)

    def look_and_land(path: Path) -> Path:
        there, normals = graph.place(path.ahead.x)
        moved = path.made >= 0
        back, met = _go_back(graph, path.place, path.ahead, there, normals, moved)
        drawn = h * jnp.sum(jnp.tril(there.factor) * z, axis=1)
        slide = jnp.where(moved, h**2 / 2 * there.gradient - back, drawn)
        met = sooner(jnp.where(moved, met, Outcome.ACCEPTED), _obstacle_in(there))
        start = choose(moved, path.start, Start(there.factor, there.log_density, slide))
        new = Path(path.made + 1, there, slide, met, path.ahead, start)
        pushed = slide + h**2 / 2 * there.gradient
        return new._replace(ahead=graph.land(there, normals, pushed, goes_on(new)))

    return jax.lax.while_loop(goes_on, look_and_land, _before(state))


def _before(state: State) -> Path:
    """A path whose first turn looks at the state itself."""
    x, none, matrix = state.x, jnp.zeros_like(state.x), jnp.zeros((len(state.x),) * 2)
    place = Place(x, state.values, matrix, matrix, state.log_density, none)
    ahead = Landing(x, jnp.bool_(True), jnp.bool_(True))
    start = Start(matrix, state.log_density, none)
    return Path(jnp.asarray(-1), place, none, jnp.asarray(Outcome.ACCEPTED), ahead, start)


def _obstacle_in(place: Place) -> Int[Array, ""]:
    """NOT_FINITE if the force was not finite."""
    finite = jnp.isfinite(jnp.sum(place.gradient))
    return jnp.where(finite, Outcome.ACCEPTED, Outcome.NOT_FINITE)


def _go_back(
    graph: "Graph",
    place: Place,
    first: Landing,
    there: Place,
    normals: Float[Array, "n m"],
    active: Bool[Array, ""],
) -> tuple[Vector, Int[Array, ""]]:
    """The slide back from where one landed, and what was in the way of the two."""
    finite = first.finite & _is_finite(there)
    change = place.values - there.values
    back = place.x - there.x + graph.length**2 * along(normals, change)
    second = graph.land(there, normals, back, active & first.landed & finite)
    met = obstacle(
        known=first.landed,
        inside=graph.target.contains(there.x),
        finite=finite & (second.finite | ~first.landed),
        landed=first.landed,
        returned=second.landed & graph.is_at(place, second.x),
    )
    return back, met


def _is_finite(place: Place) -> Bool[Array, ""]:
    finite = jnp.isfinite(jnp.sum(place.values) + jnp.sum(place.metric))
    return finite | ~jnp.all(jnp.isfinite(place.x))


class Graph:
    """The lifted surface of a target: a graph over x, with `length` to a unit of eta."""

    def __init__(
        self, kernel: TrajectoryKernel, target: Target, length: Any, reach: Any, forced: bool
    ):
        self.kernel, self.target, self.length = kernel, target, length
        self.reach, self.forced = reach, forced

    def place(self, x: Vector) -> tuple[Place, Float[Array, "n m"]]:
        """The point over x, and its normals."""
        values, normals, pull_back = self.target.values_normals_and_pull_back(x)
        metric = jnp.eye(len(x)) + self.length**2 * outer(normals, normals)
        L = factor(metric)
        level, slope = self.target.log_density_and_gradient(x, self.forced)
        level -= jnp.sum(values**2) / 2
        if self.forced:
            # the gradient of log det M / 2 is that of the sum of W * G(x), with W fixed
            W = self.length**2 * (inverse(L) @ normals)
            slope = slope - along(normals, values) - pull_back(W)
        return Place(x, values, metric, L, level, slope), normals

    def log_density(self, place: Place | Start) -> Float[Array, ""]:
        """That of the law, per unit of the surface's area."""
        return place.log_density - half_log_det(place.factor)

    def square(self, place: Place | Start, slide: Vector) -> Float[Array, ""]:
        """The square of a slide's length."""
        return jnp.sum(solve_lower(place.factor, slide) ** 2)

    def is_at(self, place: Place, x: Vector) -> Bool[Array, ""]:
        """The reverse check: whether this is the place, but for the reverse tolerance."""
        miss = x - place.x
        square = jnp.sum(miss * jnp.sum(place.metric * miss, axis=1))
        size = jnp.sqrt(jnp.sum(place.x**2) + self.length**2 * jnp.sum(place.values**2))
        return jnp.sqrt(square) <= self.kernel.reverse_tolerance * (size + self.reach)

    def land(
        self, place: Place, normals: Float[Array, "n m"], slide: Vector, active: Bool[Array, ""]
    ) -> Landing:
        """Where a slide from a place ends: a function of these alone, as reverse checks need it.

        The metric stands in for Newton's matrix as long as each update brings the rest down to a
        quarter: it is factored, so that an update costs q and O(nm). Then Newton goes on, whose
        updates cost the normals and O(n^2 m).
        """
        x, L, square = place.x, place.factor, self.length**2
        # as for few constraints: what rounding does to r goes with the lengths of its gradients
        stretch = jnp.sqrt(jnp.trace(place.metric))
        tolerance = self.kernel.tolerance * stretch * (jnp.linalg.norm(x) + self.reach)

        def look(y: Vector) -> tuple[Vector, Vector, Float[Array, ""]]:
            change = self.target.values(y) - place.values
            rest = y - x + square * along(normals, change) - slide
            half = solve_lower(L, rest)
            return rest, half, jnp.linalg.norm(half)

        def approach(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            y, rest, half, miss, _ = carry
            new = y - solve_upper(L, half)
            new_rest, new_half, new_miss = look(new)
            # the first update is not judged: nothing was looked at before
            nearer = (new_miss <= APPROACH_FACTOR * miss) | (miss == jnp.inf)
            kept = choose(nearer, (new, new_rest, new_half, new_miss), (y, rest, half, miss))
            return *kept, nearer & (new_miss > tolerance)

        def newton(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            updates, y, rest, _, _ = carry
            gradients = self.target.values_and_dense_normals(y)[1]
            matrix = jnp.eye(len(x)) + square * outer(normals, gradients)
            y = y - solve(matrix, rest)
            return updates + 1, y, *look(y)

        def misses(carry: tuple[Any, ...]) -> Bool[Array, ""]:
            updates, *_, miss = carry
            return active & (miss > tolerance) & (updates < self.kernel.newton_cap)

        first = (x, -slide, solve_lower(L, -slide), jnp.asarray(jnp.inf), active)
        *near, _ = jax.lax.while_loop(lambda carry: carry[-1], approach, first)
        updates, y, _, half, miss = jax.lax.while_loop(misses, newton, (0, *near))
        finite, landed = jnp.isfinite(miss) | ~jnp.all(jnp.isfinite(y)), miss <= tolerance
        # the approach was still gaining digits; Newton has none to gain
        y = jnp.where(landed & (updates == 0), y - solve_upper(L, half), y)
        return Landing(y, landed, finite)
