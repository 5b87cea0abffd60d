"""From a guess to the surface: Levenberg-Marquardt, with perturbed restarts.

A point found far from the guess may be where the density is absurdly low: then the search is made
again, nearer to the guess. Runs of few chains search as widely as runs of many, so that they
overlook no piece of the surface that those would find.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from limpet import errors
from limpet.engine import of_rows
from limpet.errors import LimpetWarning, StartError, warn
from limpet.geometry.fit import ABSURD_DEPTH, find_peaks, normal_numbers, usual_sizes
from limpet.geometry.linalg import (
    damped_step,
    factor,
    lengths,
    rescale,
    solve_lower,
    solve_upper,
)
from limpet.geometry.pieces import pieces, spread_over
from limpet.geometry.start_checks import check_guesses, explain_failure, is_apart
from limpet.layout import read_points
from limpet.shapes import Normals, Values, Vector
from limpet.target import Target, check_target

JITTER = 1.0  # by how much guesses are perturbed, in units of their own size
ATTEMPTS = 6  # restarts of a chain's search, each perturbed half as much as the last
MOST_ITERATIONS = 200  # of one search: a choice; those that fail are made again from elsewhere
ON_SURFACE = 1e-12  # |q_i| <= ON_SURFACE |grad q_i| |x| is on the surface: as for the samplers
NEARBY_DISTANCE = 1e-4  # of a point right beside another, in units of that from the origin
SMALLEST_RANK = 1e-5  # smallest singular value of the gradients, in units of those nearby
# Inverse iterations for that value: after so many it is at most m ** (1 / 16) times as large.
INVERSE_ITERATIONS = 8
HALVINGS = 12  # of the perturbation, in search of a density that is not absurd: down to 1/4096
SEARCHES = 128  # at least, from one guess, whatever the number of chains; as many as a tile has
WIDER_JITTERS = (1.0, 2.0, 4.0)  # perturbations of searches for other pieces, by turns
MOST_DIMENSIONS = 16  # of a surface on which so many points can tell its pieces apart


class Search(NamedTuple):
    """The end of one search."""

    x: Vector
    values: Values  # q / eps there
    log_density: Float[Array, ""]
    reached: Bool[Array, ""]
    rank: Float[Array, ""]  # smallest singular value of the gradients, in units of those nearby
    usable: Bool[Array, ""]


def find_start(
    target: Target, guess: Any, count: int = 1, seed: int = 0, *, jitter: float = JITTER
) -> Any:
    """Points on the surface, spread around a guess; or near peaks of the density, if m >= n.

    Parameters
    ----------
    target : Target
        Whose surface, within whose walls.
    guess : vector, batch of vectors, pytree or list of pytrees
        Where to search from. The first points come from the guesses as given, further ones from
        the guesses perturbed by about their own size, or less where the density would be absurdly
        low. If further searches find other pieces of the surface, some points are from there.
    count : int
        How many points.
    seed : int
        For the perturbations.
    jitter : float
        Size of the perturbations, in units of the guesses' own size. With 0 every point comes from
        a guess as it is.

    Returns
    -------
    array (count, n), or a list of `count` pytrees if the guess was one
        A batch of points, fit for `limpet.sample(start=...)`.

    Raises
    ------
    StartError
        If no search reached the surface: how close it came, where, and what to check.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.01)
    >>> limpet.find_start(circle, [3.0, 4.0])
    array([[0.6, 0.8]])
    >>> limpet.find_start(circle, [3.0, 4.0], count=2, jitter=0)
    array([[0.6, 0.8],
           [0.6, 0.8]])
    """
    check_target(target)
    jitter = errors.zero_or_more("jitter", jitter)
    count, seed = errors.whole("count", count, 1), errors.whole("seed", seed, 0)
    layout, guesses = read_points("guess", guess)
    flat = target.on_vectors(layout).freeze(jnp.asarray(guesses[0]))
    starts = find_vectors(flat, guesses, count, seed, "guess", jitter=jitter)
    return starts if layout.is_vector else [layout.point(x) for x in starts]


def find_vectors(
    target: Target,
    guesses: np.ndarray,
    count: int,
    seed: int,
    name: str,
    spare: int = 0,
    jitter: float = JITTER,
    forced: bool = True,
) -> np.ndarray:
    """`count` vectors on the surface and `spare` more, which may be copies of others.

    `name` is what a user calls the guesses. Where there is no surface, they are where the density
    has peaks (`limpet.geometry.fit`), found without the gradient of l unless `forced`.
    """
    check_guesses(target, guesses, name)
    if target.is_crowded(jnp.asarray(guesses[0])):
        return find_peaks(target, guesses, count + spare, seed, jitter, forced)
    searches = _Searches(target, guesses, seed, jitter)
    found = searches.reach(count, spare)
    if jitter == 0 or len(guesses) >= len(found.x):  # all are as the user wants them
        return found.x
    found = searches.rise(found)
    if len(guesses) == 1 < count < SEARCHES:
        found = searches.spread(found)
    return found.x


class Points(NamedTuple):
    """Points on the surface."""

    x: np.ndarray
    log_density: np.ndarray


class _Searches:
    """Searches from guesses, perturbed by a seed; each kind has random numbers of its own."""

    def __init__(self, target: Target, guesses: np.ndarray, seed: int, jitter: float) -> None:
        self.target, self.guesses, self.jitter = target, guesses, jitter
        self.seed = seed

    def _search(self, kind: int, chains: np.ndarray, sizes: Any) -> Any:
        """Searches for these chains, of guesses perturbed by so much: a Search of arrays."""
        origin = self.guesses[chains % len(self.guesses)]
        noise = normal_numbers(self.seed, kind, chains, origin.shape[1])
        sizes = np.broadcast_to(self.jitter * sizes, chains.shape)[:, None]
        begin = origin + sizes * usual_sizes(origin)[:, None] * noise
        apart = is_apart(self.target, origin[0])
        return of_rows(_search, self.target, origin, begin, noise, apart=apart)

    def reach(self, needed: int, spare: int) -> Points:
        """The surface from every guess, again and again with smaller perturbations."""
        count = needed + spare
        closest: Any = None
        found, level = np.empty((count, self.guesses.shape[1])), np.empty(count)
        usable = np.zeros(count, bool)
        for attempt in range(ATTEMPTS + 1 if self.jitter else 1):
            todo = np.flatnonzero(~usable)
            size = 0.0 if attempt == ATTEMPTS else 0.5**attempt
            as_given = (attempt == 0) & (todo < len(self.guesses))
            search = self._search(attempt, todo, np.where(as_given, 0.0, size))
            found[todo], level[todo], usable[todo] = search.x, search.log_density, search.usable
            if usable.all():
                return Points(found, level)
            distance = np.where(search.usable, np.inf, np.linalg.norm(search.values, axis=1))
            distance = np.where(np.isfinite(distance), distance, np.inf)
            k = int(np.argmin(distance))
            if closest is None or distance[k] < np.linalg.norm(closest.values):
                closest = Search(*(part[k] for part in search))
        rows = self._borrow(usable)
        failed = int((~usable[:needed]).sum())
        if rows is None:
            has_rank = closest.rank >= SMALLEST_RANK
            told = closest.x, closest.reached, has_rank, failed, needed
            raise StartError(explain_failure(self.target, *told))
        if failed:
            warn(
                f"{failed} of {needed} searches found no usable point on the surface: they ended"
                " outside the walls, or where q or the log density is not finite. Their chains"
                " begin where others do. A start nearer to the middle of what is allowed would"
                " spread them more.",
                LimpetWarning,
            )
        return Points(found[rows], level[rows])

    def _borrow(self, usable: np.ndarray) -> np.ndarray | None:
        """Whose point each chain has: its own, or one from the same guess; None if it has none."""
        rows = np.arange(len(usable))
        for guess in range(len(self.guesses)):
            mine = rows % len(self.guesses) == guess
            lenders = np.flatnonzero(mine & usable)
            borrowers = np.flatnonzero(mine & ~usable)
            if len(borrowers) and not len(lenders):
                return None
            if len(borrowers):
                rows[borrowers] = np.resize(lenders, len(borrowers))
        return rows

    def rise(self, found: Points) -> Points:
        """The same points, those of absurd density replaced by some from nearer to the guess."""
        x, level = found
        given = len(self.guesses) if len(self.guesses) > 1 else 0  # several are as the user wants
        for halving in range(1, HALVINGS + 1):
            todo = given + np.flatnonzero(is_absurd(level[given:], level.max(), x.shape[1]))
            if not len(todo):
                break
            search = self._search(ATTEMPTS + halving, todo, 0.5**halving)
            better = search.usable & (search.log_density > level[todo])
            x[todo[better]], level[todo[better]] = search.x[better], search.log_density[better]
        return Points(x, level)

    def spread(self, found: Points) -> Points:
        """As many points, taken from all pieces of the surface that further searches find."""
        count, n = found.x.shape
        dimension = n - jax.eval_shape(self.target.values, found.x[0]).size
        if dimension > MOST_DIMENSIONS:
            return found
        chains = np.arange(count, SEARCHES)
        search = self._search(
            ATTEMPTS + HALVINGS + 1, chains, np.resize(WIDER_JITTERS, len(chains))
        )
        kept = search.usable & ~is_absurd(search.log_density, found.log_density.max(), n)
        x = np.concatenate([found.x, search.x[kept]])
        level = np.concatenate([found.log_density, search.log_density[kept]])
        rows = spread_over(pieces(x, dimension), count)
        return Points(x[rows], level[rows])


def is_absurd(level: np.ndarray, usual: float, n: int) -> np.ndarray:
    """Which log densities are so far below that no chain with n numbers should be there."""
    return level < usual - ABSURD_DEPTH * n


def _search(target: Target, guess: Vector, start: Vector, noise: Vector) -> Search:
    """Levenberg-Marquardt from a perturbed guess, with steps across the surface only."""

    def is_on_surface(x: Vector, values: Values, normals: Normals) -> Bool[Array, ""]:
        slope = lengths(normals)
        reach = jnp.linalg.norm(x) + jnp.linalg.norm(guess)
        return jnp.all((jnp.abs(values) <= ON_SURFACE * slope * reach) & jnp.isfinite(slope))

    def goes_on(carry: tuple[Any, ...]) -> Bool[Array, ""]:
        i, x, values, normals, _ = carry
        return (i < MOST_ITERATIONS) & ~is_on_surface(x, values, normals)

    def update(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        i, x, values, normals, damping = carry
        y = x - damped_step(normals, values, damping)
        new_values, new_normals = target.values_and_normals(y)
        better = jnp.sum(new_values**2) < jnp.sum(values**2)
        x = jnp.where(better, y, x)
        values = jnp.where(better, new_values, values)
        normals = jax.tree.map(lambda a, b: jnp.where(better, a, b), new_normals, normals)
        return i + 1, x, values, normals, jnp.where(better, damping / 10, 10 * damping + 1e-15)

    first = (0, start, *target.values_and_normals(start), 1e-3)
    _, x, values, normals, _ = jax.lax.while_loop(goes_on, update, first)
    # from afar the tolerance was loose: a few undamped steps take the rest of the way
    last = jax.lax.fori_loop(0, 3, lambda _, carry: update(carry), (0, x, values, normals, 0.0))
    _, x, values, normals, _ = last
    # a gradient that vanishes on the surface is far smaller there than right beside it
    size, guess_size = jnp.linalg.norm(x), jnp.linalg.norm(guess)
    beside = x + NEARBY_DISTANCE * jnp.where(size > 1e-10 * guess_size, size, guess_size) * noise
    scale = lengths(target.values_and_normals(beside)[1])
    scale = jnp.where(jnp.isfinite(scale) & (scale > 0), scale, 1.0)
    rank = _smallest_singular_value(rescale(normals, scale))
    reached = is_on_surface(x, values, normals)
    log_density = target.log_density_at(x)
    allowed = target.contains(x) & jnp.isfinite(log_density)
    return Search(x, values, log_density, reached, rank, reached & (rank > SMALLEST_RANK) & allowed)


def _smallest_singular_value(normals: Normals) -> Float[Array, ""]:
    """About, and at least, that; 0 if it is so small that the normals have no factor."""
    L = factor(normals)
    m = len(L)
    # of no use would be a vector that someone's constraints are orthogonal to
    first = np.random.default_rng(0).normal(size=m)

    def iterate(_: Any, carry: tuple[Values, Array]) -> tuple[Values, Array]:
        v, _ = carry
        v = solve_upper(L, solve_lower(L, v))
        size = jnp.linalg.norm(v)
        return v / size, size

    start = jnp.asarray(first / np.linalg.norm(first)), jnp.ones(())
    _, size = jax.lax.fori_loop(0, INVERSE_ITERATIONS, iterate, start)
    return jnp.where(size > 0, 1 / jnp.sqrt(size), 0.0)
