"""A ladder of eps, found by a short run on one rung after the other before a run on all of them.

It goes up from the target's eps until chains that began on different pieces agree: there the layers
around the pieces are one. Steps are long as long as points would still exchange with the lowest
rung, for nothing between is needed then, and short from there on. Of all eps that were tried, from
the top down, the next rung is the lowest with which the last would exchange often enough.
"""

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
import numpy as np

from limpet.engine import of_rows
from limpet.errors import InputError
from limpet.kernels import Exchange, Lifted
from limpet.kernels.rungs import Pair, exchange
from limpet.kernels.states import Outcome
from limpet.run.online import mixing
from limpet.run.quantities import POINT, WITH_STATS
from limpet.run.specification import RunSpecification
from limpet.run.tile_run import LEARN, TileRun
from limpet.target import Target

CHAINS = 64  # of the short runs, at most
STEPS = 256  # of each before its draws, and as many draws
# R-hat of so few draws at which chains travel between pieces. On the equation in time of
# `bench.nuts`, ladders found with 1.2 are too low: a draw counts a third of what it does with this
MERGED = 1.05
FAR, NEAR = 10.0, 1.5  # factors between eps that are tried
STRAIGHT = 0.5  # acceptance of exchanges with the lowest rung, while layers count as thin
OFTEN = 0.25  # acceptance of exchanges of neighbours: half of what makes points climb fastest
MOST = 48  # eps that are tried
SAMPLES = 512  # exchanges by which an acceptance is judged: it is known to 0.02


def find_ladder(
    specification: RunSpecification, kernel: Exchange, target: Target, starts: np.ndarray
) -> Exchange:
    """The kernel with a ladder, for a run that is specified without."""
    starts = starts[:CHAINS]
    run = functools.partial(_run, _on_one_rung(specification, target, len(starts)))
    lowest, factor = np.asarray(target.eps), FAR
    draws, agree, framed = run(target, starts)
    if agree:
        raise InputError(
            f"ladder=None: chains agree at eps={lowest.tolist()!r} without a ladder, so that there"
            " is nothing to find one by. Give a start on each piece that you know, or a ladder such"
            f" as {[(f * lowest).tolist() for f in (100.0, 10.0, 1.0)]!r}, or use another kernel."
        )
    tried = [(1.0, draws)]  # multiples of the lowest eps
    while not agree:
        if len(tried) == MOST:
            last = _rounded(tried[-1][0] * lowest)
            raise InputError(
                f"ladder=None: chains do not agree at any eps up to {last!r}."
                " Give a ladder, or scale if unknowns are of different sizes."
            )
        multiple = tried[-1][0] * factor
        rung = target.with_eps(multiple * lowest)
        rung.colouring = target.colouring
        draws, agree, _ = run(rung, tried[-1][1][:, -1])
        if factor == FAR and _acceptance(kernel, framed, (multiple, draws), tried[0]) < STRAIGHT:
            factor, agree = NEAR, False
            continue
        tried.append((multiple, draws))
    above = [_rounded(multiple * lowest) for multiple in _chosen(kernel, framed, tried)[:-1]]
    return dataclasses.replace(kernel, ladder=(*above, lowest.tolist()))


def _on_one_rung(run: RunSpecification, target: Target, chains: int) -> RunSpecification:
    """What a short run of `Lifted` is; a ladder learns no units, so it does not, either."""
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


def _run(
    specification: RunSpecification, target: Target, starts: np.ndarray
) -> tuple[np.ndarray, bool, Target]:
    """Draws of a short run (chain, draw, number), whether chains agree, and what they move in."""
    tile = TileRun(specification, Lifted(), target, 0, starts)
    points = []
    while not tile.done:
        points.append(tile.advance())
    draws = np.full((len(starts), specification.draws, starts.shape[1]), np.nan)
    for new in points:
        if WITH_STATS in new:
            made = new[WITH_STATS].where(new[WITH_STATS].draw < specification.draws)
            draws[made.chain, made.draw] = made.numbers[POINT]
    agree = mixing([tile.online], specification.draws).r_hat <= MERGED
    return draws, bool(agree), tile.framed


def _chosen(kernel: Exchange, target: Target, tried: list[tuple[float, np.ndarray]]) -> list[float]:
    """The rungs, of all multiples of eps that were tried, from the highest down."""
    rungs, at = [tried[-1][0]], len(tried) - 1
    while at > 0:
        below = at - 1
        for other in range(at - 1):
            if _acceptance(kernel, target, tried[at], tried[other]) >= OFTEN:
                below = other
                break
        at = below
        rungs.append(tried[at][0])
    return rungs


def _acceptance(kernel: Exchange, target: Target, upper: Any, lower: Any) -> float:
    """How often points of two rungs would exchange, in the coordinates that a run moves in."""
    rng = np.random.default_rng(0)
    n = upper[1].shape[-1]
    widths = Pair(*(jnp.full(1, multiple) for multiple, _ in (upper, lower)))
    some = (rng.permutation(draws.reshape(-1, n))[:SAMPLES] for _, draws in (upper, lower))
    points = Pair(*(np.asarray(target.coordinates(x)) for x in some))
    z, uniform = rng.normal(size=(len(points.upper), 2 * n)), rng.random(len(points.upper))
    ready = dataclasses.replace(kernel, ladder=(2.0, 1.0))  # it is not used here
    constants = ready, target, widths
    return float(np.mean(of_rows(_accept, constants, z, uniform, *points, apart=True)))


def _accept(constants: tuple[Exchange, Target, Pair], z, uniform, upper, lower):
    """How likely two points exchange."""
    kernel, target, widths = constants
    reach = jnp.linalg.norm(lower)
    _, log_ratio, met = exchange(kernel, target, widths, z, uniform, Pair(upper, lower), reach)
    fine = (met == Outcome.ACCEPTED) & ~jnp.isnan(log_ratio)
    return jnp.where(fine, jnp.exp(jnp.minimum(0.0, log_ratio)), 0.0)
