"""A ladder of eps, found by a short run on one rung after the other before a run on all of them.

It goes up from the target's eps until chains that began on different pieces agree: there the layers
around the pieces are one. From this top down, the next rung is the lowest of all eps that were
tried with which the last would exchange often enough. If there is none, another is tried between.

Where chains agree at no eps, unknowns may be of different sizes: those of the highest rung, where
the constraints do nothing any more, are the units of a second search, and of the run.
"""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from limpet.engine import of_rows
from limpet.errors import InputError
from limpet.kernels import Exchange, Lifted
from limpet.kernels.rungs import Pair, exchange, swap_log_ratio
from limpet.kernels.states import Outcome
from limpet.run.online import mixing
from limpet.run.quantities import POINT, WITH_STATS
from limpet.run.specification import RunSpecification
from limpet.run.tile_run import LEARN, TileRun
from limpet.target import Target

CHAINS = 64  # of the short runs, at most
STEPS = 256  # of each before its draws, and as many draws
MERGED = 1.05  # R-hat of so few draws at which chains travel between pieces: a choice
TRAVELLED = 1.2  # the same of the best rung, if none is so good: walls alone can make chains slow
FAR, NEAR = 10.0, 1.5  # factors between eps that are tried, on the way up; and at least
OFTEN = 0.25  # acceptance of exchanges of neighbours: half of what makes points climb fastest
MOST = 12  # eps that are tried on the way up
IDLE = 0.1  # size of q / eps at which a density exp(-|q / eps|^2 / 2) is flat, to half a percent
SAMPLES = 512  # exchanges by which an acceptance is judged: it is known to 0.02


class Rung(NamedTuple):
    """An eps that was tried, and what a short run there gave."""

    multiple: float  # of the lowest eps
    draws: np.ndarray  # (chain, draw, number)
    r_hat: float
    framed: Target  # the target in what chains move in


def find_ladder(
    specification: RunSpecification, kernel: Exchange, target: Target, starts: np.ndarray
) -> tuple[Exchange, Any]:
    """The kernel with a ladder, and the scale, for a run that is specified without."""
    starts, scale, lowest = starts[:CHAINS], specification.scale, np.asarray(target.eps)
    run = _on_one_rung(specification, target, len(starts))
    tried = _climb(run, target, starts)
    if tried[_best(tried)].r_hat > MERGED and scale == LEARN:
        scale = _units_at(run, target, tried[-1])
        run = dataclasses.replace(run, scale=scale)
        tried = _climb(run, target, starts)
    if len(tried) == 1 or tried[_best(tried)].r_hat > TRAVELLED:
        raise InputError(
            "ladder=None: chains do not agree at any eps up to"
            f" {_rounded(tried[-1].multiple * lowest)!r}. Give a ladder, or scale if unknowns are"
            " of different sizes."
        )
    chosen = _chosen(run, kernel, target, tried[: _best(tried) + 1])
    above = [_rounded(multiple * lowest) for multiple in chosen[:-1]]
    return dataclasses.replace(kernel, ladder=(*above, lowest.tolist())), scale


def _best(tried: list[Rung]) -> int:
    """On which of these rungs chains agree best; not the lowest, if there are others."""
    above = [rung.r_hat for rung in tried[1:]]
    return 1 + int(np.argmin(above)) if above else 0


def _climb(run: RunSpecification, target: Target, starts: np.ndarray) -> list[Rung]:
    """Go up from the target's eps until chains agree, or there is nothing to go up for."""
    tried = [_run(run, target, 1.0, starts)]
    if tried[0].r_hat <= MERGED:
        lowest = np.asarray(target.eps)
        raise InputError(
            f"ladder=None: chains agree at eps={lowest.tolist()!r} without a ladder, so that there"
            " is nothing to find one by. Give a start on each piece that you know, or a ladder such"
            f" as {[(f * lowest).tolist() for f in (100.0, 10.0, 1.0)]!r}, or use another kernel."
        )
    while tried[-1].r_hat > MERGED and len(tried) < MOST and not _is_idle(target, tried[-1]):
        tried.append(_run(run, target, tried[-1].multiple * FAR, tried[-1].draws[:, -1]))
    return tried


def _is_idle(target: Target, rung: Rung) -> bool:
    """Whether eps is so large that constraints do nothing: a larger one would do no more."""
    last = rung.draws[:, -1]
    values = np.asarray(of_rows(_values, target, last, apart=False)) / rung.multiple
    return bool(np.mean(values**2) < IDLE**2)


def _units_at(run: RunSpecification, target: Target, rung: Rung) -> list[float]:
    """How wide the law of a rung is in each unknown."""
    learns = dataclasses.replace(run, scale=LEARN, warmup=None)
    tile = TileRun(learns, Lifted(), _on_rung(target, rung.multiple), 0, rung.draws[:, -1])
    while not tile.drawing:
        tile.advance()
    widths = tile.warmup.shape.frame.widths
    return _rounded(widths if tile.bonds is None else np.ones_like(widths))


def _on_rung(target: Target, multiple: float) -> Target:
    """The target with another eps."""
    rung = target.with_eps(multiple * np.asarray(target.eps))
    rung.colouring = target.colouring
    return rung


def _on_one_rung(run: RunSpecification, target: Target, chains: int) -> RunSpecification:
    """What a short run of `Lifted` is, in the units given: those of one piece would be no use."""
    return dataclasses.replace(
        run,
        kernel=Lifted.__name__,
        parameters=Lifted().parameters(target),
        sizes=tuple(name for tunable in Lifted().tunables for name in tunable.names),
        chains=chains,
        width=chains,
        draws=STEPS,
        warmup=STEPS,
        thin=1,
        scale=None if run.scale == LEARN else run.scale,
    )


def _rounded(eps: np.ndarray) -> Any:
    """As a user would write it."""
    return np.vectorize(lambda each: float(f"{each:.3g}"))(eps).tolist()


def _run(run: RunSpecification, target: Target, multiple: float, starts: np.ndarray) -> Rung:
    """A short run on one rung."""
    tile = TileRun(run, Lifted(), _on_rung(target, multiple), 0, starts)
    points = []
    while not tile.done:
        points.append(tile.advance())
    draws = np.full((len(starts), run.draws, starts.shape[1]), np.nan)
    for new in points:
        if WITH_STATS in new:
            made = new[WITH_STATS].where(new[WITH_STATS].draw < run.draws)
            draws[made.chain, made.draw] = made.numbers[POINT]
    return Rung(multiple, draws, mixing([tile.online], run.draws).r_hat, tile.framed)


def _chosen(
    run: RunSpecification, kernel: Exchange, target: Target, tried: list[Rung]
) -> list[float]:
    """The rungs, as multiples of the lowest eps, from the highest down."""
    *tried, top = tried
    lower = _run(run, target, top.multiple / np.sqrt(FAR), top.draws[:, -1])
    tried.append(lower)
    if lower.r_hat > max(MERGED, top.r_hat):  # else it is the top, which needs fewer rungs
        tried.append(top)
    at = len(tried) - 1
    rungs = [tried[at].multiple]
    while at > 0:
        upper, next_one = tried[at], tried[at - 1]
        fine = (
            k
            for k, other in enumerate(tried[:at])
            if _acceptance(kernel, tried[0].framed, upper, other) >= OFTEN
        )
        nearest = at - 1 if upper.multiple < NEAR**2 * next_one.multiple else None
        if (below := next(fine, nearest)) is None:
            between = np.sqrt(upper.multiple * next_one.multiple)
            tried.insert(at, _run(run, target, between, upper.draws[:, -1]))
            at += 1
        else:
            at = below
            rungs.append(tried[at].multiple)
    return rungs


def _acceptance(kernel: Exchange, lowest: Target, upper: Rung, lower: Rung) -> float:
    """How often points of two rungs would exchange, in the coordinates that a run moves in."""
    rng = np.random.default_rng(0)
    n = upper.draws.shape[-1]
    widths = Pair(*(jnp.full(1, rung.multiple) for rung in (upper, lower)))
    some = (rng.permutation(rung.draws.reshape(-1, n))[:SAMPLES] for rung in (upper, lower))
    points = Pair(*(np.asarray(lowest.coordinates(x)) for x in some))
    z = rng.normal(size=(len(points.upper), 2 * n))
    ready = dataclasses.replace(kernel, ladder=(2.0, 1.0))  # it is not used here
    constants = ready, lowest, widths
    return float(np.mean(of_rows(_accept, constants, z, *points, apart=True)))


def _accept(constants: tuple[Exchange, Target, Pair], z, upper, lower):
    """How likely two points exchange, if they try to swap and to slide."""
    kernel, target, widths = constants
    points = Pair(upper, lower)
    _, log_ratio, met = exchange(kernel, target, widths, z, points, jnp.linalg.norm(lower))
    fine = (met == Outcome.ACCEPTED) & ~jnp.isnan(log_ratio)
    slides = jnp.where(fine, jnp.exp(jnp.minimum(0.0, log_ratio)), 0.0)
    swaps = jnp.exp(jnp.minimum(0.0, swap_log_ratio(widths, Pair(*map(target.values, points)))))
    return 1 - (1 - swaps) * (1 - slides)


def _values(target: Target, x):
    return target.values(x)
