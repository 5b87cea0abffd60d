"""Starts where constraints are as many as unknowns, or more: the density's own peaks.

There is no surface to be found then. From each guess, perturbed, damped Gauss-Newton steps climb
log pi = l - |q/eps|^2 / 2; chains begin around where they end, as far as the curvature there says.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from limpet.engine import of_rows
from limpet.errors import LimpetWarning, StartError, warn
from limpet.geometry.metric import along, factor, half_log_det, outer, solve_lower, solve_upper
from limpet.shapes import Vector
from limpet.target import Target

MOST_ITERATIONS = 200  # of one search: a choice
# What a step must promise to be worth it, in log pi: chains begin about sqrt(n) deviations away.
SMALLEST_GAIN = 1e-3
FIRST_DAMPING, LARGEST_DAMPING = 1e-3, 1e12
ATTEMPTS = 6  # searches from each guess, each perturbed half as much as the last
# A log density this far below the best start's is absurd, per number of a point: what is 8 standard
# deviations out in every direction of a Gaussian. A ring of 12 beads that repel each other does not
# recover from some hundreds per number.
ABSURD_DEPTH = 32.0
# A peak of so much less log mass than the best, by Laplace's approximation, holds no draw. Hares
# and lynxes (n = 8) have peaks 40 and 51 lower, where a chain would stay for ever; Laplace's error
# is about one per unknown.
NEGLIGIBLE_DEPTH, DEPTH_PER_UNKNOWN = 16.0, 1.0
SMALLEST_CHANCE = 1e-6  # of a fit as bad as the best one: below, eps or q must be wrong


class Peak(NamedTuple):
    """The end of one search."""

    x: Vector
    start: Vector  # near it, as far as the curvature says: where a chain begins
    square: Float[Array, ""]  # |q/eps|^2 at x
    level: Float[Array, ""]  # log pi at the start
    mass: Float[Array, ""]  # log of about what the density integrates to around x
    usable: Bool[Array, ""]


def find_peaks(
    target: Target, guesses: np.ndarray, count: int, seed: int, jitter: float, forced: bool
) -> np.ndarray:
    """`count` starts, from the guesses, perturbed where there are fewer of them."""
    as_given = jitter == 0 or len(guesses) >= count
    chains = np.arange(count)
    best: Any = None
    for attempt in range(1 if as_given else ATTEMPTS):
        size = jitter * 0.5**attempt
        sizes = np.where(chains < len(guesses), 0.0, size)
        noise = normal_numbers(seed, attempt, chains, 2 * guesses.shape[1])
        found = _climb(target, guesses, noise, sizes, 0.0 if as_given else jitter, forced)
        if best is None:
            best = found
        else:
            better = found.usable & (~best.usable | (found.mass > best.mass))
            todo = ~_is_good(best)
            best = Peak(
                *(
                    np.where((better & todo).reshape(-1, *[1] * (new.ndim - 1)), new, old)
                    for new, old in zip(found, best, strict=True)
                )
            )
        if as_given or _is_good(best).all():
            break
    good = best.usable if as_given else _is_good(best)
    if not good.any() or (as_given and not good.all()):
        bad = int(np.argmin(best.usable))
        raise StartError(
            f"No start: {int((~good).sum())} of {count} searches found no point where q and the log"
            f" density are finite and the walls hold. One ended at x ="
            f" {np.array2string(best.x[bad], precision=4, threshold=12)}. Start nearer to where the"
            " data can be fitted."
        )
    _warn_of_bad_fit(target, best, forced)
    rows = np.where(good, chains, np.flatnonzero(good)[chains % good.sum()])
    return best.start[rows]


def _is_good(peak: Any) -> np.ndarray:
    """Which are neither absurdly far below the best, nor around a peak that holds nothing."""
    n = peak.x.shape[1]
    level, mass = (np.where(peak.usable, each, -np.inf) for each in (peak.level, peak.mass))
    has_mass = mass >= mass.max() - NEGLIGIBLE_DEPTH - DEPTH_PER_UNKNOWN * n
    return peak.usable & has_mass & (level >= level.max() - ABSURD_DEPTH * n)


def normal_numbers(seed: int, kind: int, chains: np.ndarray, count: int) -> np.ndarray:
    """So many for each chain, which depend on the seed, the kind of search and the chain alone."""
    each = [np.random.default_rng((seed, kind, chain)) for chain in chains]
    return np.stack([rng.standard_normal(count) for rng in each])


def usual_sizes(points: np.ndarray) -> np.ndarray:
    """Of the numbers of each point: their root mean square, or 1 if all are zero."""
    rms = np.sqrt(np.mean(points**2, axis=1))
    return np.where(rms > 0, rms, 1.0)


def _climb(
    target: Target,
    guesses: np.ndarray,
    noise: np.ndarray,
    sizes: np.ndarray,
    spread: float,
    forced: bool,
    weight: float = 1.0,
) -> Any:
    """A search for each row of noise, from a guess perturbed by so much: a Peak of arrays."""
    origin = guesses[np.arange(len(noise)) % len(guesses)]
    scale = usual_sizes(origin)
    noise, more = np.hsplit(noise, 2)
    begin = origin + (sizes * scale)[:, None] * noise
    constants = target, np.float64(spread), np.float64(weight)
    function = _search if forced else _search_without_gradient
    # one at a time by XLA: see limpet.engine.xla
    return of_rows(function, constants, begin, scale, more, apart=True)


def _search(constants: Any, begin: Vector, scale: Any, noise: Vector) -> Peak:
    return _climb_once(True, constants, begin, scale, noise)


def _search_without_gradient(constants: Any, begin: Vector, scale: Any, noise: Vector) -> Peak:
    return _climb_once(False, constants, begin, scale, noise)


def _climb_once(forced: bool, constants: Any, begin: Vector, scale: Any, noise: Vector) -> Peak:
    """Damped Gauss-Newton on |q/eps|^2 / 2 - weight l; without the gradient of l, if need be."""
    target, spread, weight = constants

    def height(x: Vector, values: Any, log_density: Any) -> Any:
        level = weight * log_density - jnp.sum(values**2) / 2
        return jnp.where(target.contains(x) & jnp.isfinite(level), level, -jnp.inf)

    def look(x: Vector) -> tuple[Any, ...]:
        values, normals = target.values_and_dense_normals(x)
        log_density, slope = target.log_density_and_gradient(x, forced)
        slope = weight * slope - along(normals, values)
        return x, height(x, values, log_density), slope, outer(normals, normals)

    def factored(curvature: Any, damping: Any) -> Any:
        diagonal = damping * (jnp.diagonal(curvature) + scale**-2)
        return factor(curvature + jnp.diag(diagonal))

    def goes_on(carry: tuple[Any, ...]) -> Bool[Array, ""]:
        i, _, damping, gain = carry
        return (i < MOST_ITERATIONS) & (gain > SMALLEST_GAIN) & (damping < LARGEST_DAMPING)

    def update(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        i, here, damping, _ = carry
        x, level, slope, curvature = here
        half = solve_lower(L := factored(curvature, damping), slope)
        there = look(x + solve_upper(L, half))
        finite = jnp.isfinite(jnp.sum(there[2]) + jnp.sum(there[3]))
        better = (there[1] > level) & finite
        here = jax.tree.map(lambda a, b: jnp.where(better, a, b), there, here)
        damping = jnp.where(better, damping / 10, 10 * damping + 1e-15)
        # a step that is refused promises nothing, but a shorter one may
        gain = jnp.where(better, jnp.sum(half**2), jnp.inf)
        return i + 1, here, damping, gain

    first = look(begin)
    _, here, _, _ = jax.lax.while_loop(goes_on, update, (0, first, FIRST_DAMPING, jnp.inf))
    x, level, _, curvature = here
    square = jnp.sum(target.values(x) ** 2)
    away = x + spread * solve_upper(L := factored(curvature, 1.0), noise)
    mass = level - half_log_det(L)
    there = height(away, target.values(away), target.log_density_at(away))
    is_near = there >= level - ABSURD_DEPTH * len(x)
    start = jnp.where(is_near, away, x)
    usable = jnp.isfinite(level) & jnp.isfinite(mass)
    return Peak(x, start, square, jnp.where(is_near, there, level), mass, usable)


def _warn_of_bad_fit(target: Target, peaks: Any, forced: bool) -> None:
    """Warn if no x fits the data as well as eps says, by the chi-square of the best fit."""
    n = peaks.x.shape[1]
    m = jax.eval_shape(target.values, peaks.x[0]).size
    if m <= n or not target.has_fixed_eps:
        return
    best = peaks.x[np.argmin(np.where(peaks.usable, peaks.square, np.inf))][None]
    fit = _climb(target, best, np.zeros((1, 2 * n)), np.zeros(1), 0.0, forced, weight=0.0)
    square = float(min(fit.square[0], peaks.square[peaks.usable].min()))
    from scipy.special import gammaincc  # scipy.stats takes a second to import

    chance = gammaincc((m - n) / 2, square / 2)
    if chance < SMALLEST_CHANCE:
        warn(
            f"No x fits the data as eps says: at the best fit |q/eps|^2 is {square:.4g}, where"
            f" {m - n} is expected (m - n of them), and so much has a probability of {chance:.1e}."
            f" Is eps too small (by {np.sqrt(square / (m - n)):.3g}, if only it is wrong), or q not"
            " what made the data? Draws follow the density as it was given.",
            LimpetWarning,
        )
