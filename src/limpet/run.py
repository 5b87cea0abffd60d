"""`limpet.sample`: from a target and a start to draws."""

import time
from importlib.metadata import version
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from limpet import errors, results, tile
from limpet.collect import Collector
from limpet.errors import InputError, LimpetWarning, StuckError, warn
from limpet.kernels import SAS, Kernel, Move, Outcome
from limpet.layout import read_points
from limpet.start import check_resolution, find_vectors
from limpet.target import Target, check_target

PATIENCE = 10_000  # draws that a chain should have made, but made none, before it counts as stuck
LONGEST = 200_000  # steps without a draw after which a chain counts as stuck in any case
TELLING = 50  # proposals without success that tell something
NAMED = 8  # most chains named in one message


class Plan(NamedTuple):
    """What was asked for."""

    draws: int
    warmup: int
    thin: int
    keep_surface: bool
    seed: int


class Times(NamedTuple):
    """Seconds that compiling and sampling took."""

    compile: float
    sample: float


def sample(
    target: Target,
    start,
    *,
    draws: int = 1_000,
    chains: int | None = None,
    warmup: int = 1_000,
    kernel: Kernel | None = None,
    seed: int = 0,
    thin: int = 1,
    keep_surface: bool = False,
) -> xr.DataTree:
    """Draw from a target near its surface.

    Parameters
    ----------
    target : Target
        What to sample.
    start : vector, batch of vectors, pytree or list of pytrees
        One point, or several, from which a solver can reach the surface. The names of a dict of
        arrays name the variables of the result; those of a plain vector are called `x`.
    draws : int
        Draws from pi_eps per chain. Steps on the surface are not counted: each chain's first
        `draws` visits off it are kept.
    chains : int, optional
        Default: as many as there are starts, or 128 if there is one.
    warmup : int
        Steps per chain made before the first draw, and forgotten.
    kernel : SAS, SurfaceSampler or RandomWalk, optional
        Default `SAS()`, the paper's sampler with the paper's settings.
    seed : int
        The same seed gives the same draws, bit for bit, on the same machine.
    thin : int
        Keep every `thin`-th visit.
    keep_surface : bool
        Also keep the first `draws` visits *on* the surface, of law pi_s, in the group `surface`.

    Returns
    -------
    xarray.DataTree
        Groups `posterior`, `sample_stats` and `moves`, in ArviZ's schema; `attrs` has kernel,
        parameters, steps, seconds, acceptance and counts.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.01)
    >>> draws = limpet.sample(circle, [1.0, 0.0], draws=200, chains=4, seed=1)
    >>> dict(draws.posterior["x"].sizes)
    {'chain': 4, 'draw': 200, 'x_dim': 2}
    """
    kernel = SAS() if kernel is None else kernel
    _check(target, kernel, keep_surface)
    layout, guesses = read_points("start", start)
    several = len(guesses) if len(guesses) > 1 else tile.WIDTH
    chains = several if chains is None else errors.whole("chains", chains, 1)
    plan = Plan(
        draws=errors.whole("draws", draws, 1),
        warmup=errors.whole("warmup", warmup, 0),
        thin=errors.whole("thin", thin, 1),
        keep_surface=keep_surface,
        seed=errors.whole("seed", seed, 0),
    )
    flat = target.on_vectors(layout).checked(jnp.asarray(guesses[0]))
    starts = find_vectors(flat, guesses, chains, plan.seed, "start")
    if Move.SOFT in kernel.moves:
        check_resolution(flat, starts)

    width = tile.width_for(chains)
    parts, times = [], []
    for first in range(0, chains, width):
        collector, took = _run_tile(kernel, flat, starts[first : first + width], first, width, plan)
        parts.append(results.datasets(collector, layout, first))
        times.append(took)
        if not collector.full.all():
            raise _stuck(kernel, collector, first, _tree(parts, times, kernel, flat, plan))
    tree = _tree(parts, times, kernel, flat, plan)
    _warn_of_failing_moves(tree, kernel)
    return tree


def _check(target, kernel, keep_surface):
    check_target(target)
    if isinstance(kernel, type):
        raise InputError(f"kernel={kernel.__name__} is a class: expected {kernel.__name__}(...).")
    if not isinstance(kernel, Kernel):
        raise InputError(
            f"kernel={kernel!r}: expected limpet.SAS(...), limpet.SurfaceSampler(...) or"
            " limpet.RandomWalk(...)."
        )
    if not isinstance(keep_surface, bool | np.bool_):
        raise InputError(f"keep_surface={keep_surface!r}: expected True or False.")
    if keep_surface and Move.OFF not in kernel.moves:
        raise InputError(
            f"keep_surface=True does not fit kernel={kernel!r}, which does not move on and off the"
            " surface: expected limpet.SAS(...), or keep_surface=False."
        )


def _run_tile(kernel, target, starts, first, width, plan):
    """Run the tile of chains `first`, ... until each has its draws, or one of them is stuck."""
    chains, n = starts.shape
    padded = np.pad(starts, [(0, width - chains), (0, 0)], "edge")
    key = jax.random.fold_in(jax.random.key(plan.seed), first // width)
    try:
        collector = Collector(chains, n, plan.draws, plan.thin, plan.keep_surface)
    except (MemoryError, ValueError):  # NumPy says either
        raise InputError(
            f"draws={plan.draws} of {chains} chains with {n} numbers each do not fit into memory:"
            " expected fewer, or a larger thin."
        ) from None

    began = time.perf_counter()
    states = tile.first_states(kernel, target, padded)
    program = tile.compiled(kernel, target, states, key)
    blocks = tile.blocks_at_once(width)
    compiled = time.perf_counter()
    done, sampling = 0, compiled
    while not collector.full.all():
        states, trace = tile.advance(program, kernel, target, states, key, done, blocks)
        steps = len(trace.code)
        if done + steps > plan.warmup:
            collector.add(trace, done - plan.warmup, max(0, plan.warmup - done))
        done += steps
        if done <= plan.warmup:
            sampling = time.perf_counter()
        if (collector.waited(done - plan.warmup) > _patience(kernel)).any():
            break
    return collector, Times(compiled - began, time.perf_counter() - sampling)


def _tree(parts: list[dict[str, xr.Dataset]], times, kernel, target, plan):
    """The tiles' draws as one DataTree."""
    groups = {name: xr.concat([part[name] for part in parts], "chain") for name in parts[0]}
    totals = results.totals(groups["moves"], kernel.moves)
    compiling, sampling = (float(sum(took)) for took in zip(*times, strict=True))
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = {
        "kernel": type(kernel).__name__,
        "parameters": kernel.parameters(target),
        "seed": plan.seed,
        "limpet_version": version("limpet"),
        "seconds": sampling,
        "compile_seconds": compiling,
        **totals,
    }
    return tree


def _patience(kernel):
    """Steps without a wanted visit after which a chain counts as stuck."""
    return min(PATIENCE / kernel.share_kept(), LONGEST)


def _stuck(kernel, collector, first, tree):
    stuck = np.flatnonzero(~collector.full)
    finished = tree["moves"].sizes["chain"]
    where = "off" if (~collector.posterior.full[stuck]).any() else "on"
    message = (
        f"Chains {_listed(first + stuck)} made fewer draws than asked for, and no visit {where} the"
        f" surface in the last {_patience(kernel):,.0f} steps. {_causes(collector.counts[stuck])}"
    )
    tried = collector.counts[stuck].sum(axis=(0, 2))
    for move, name in ((Move.OFF, "off_probability"), (Move.ON, "on_probability")):
        if move in kernel.moves and not tried[move]:
            message += f" {move.name.capitalize()} moves were not tried: raise {name}."
    if finished:
        message += f" The {finished} chains that were finished are in the exception's `draws`."
    return StuckError(message, tree if finished else None)


def _warn_of_failing_moves(tree, kernel):
    counts = tree["moves"]["counts"].values
    moved = counts[:, :, Outcome.ACCEPTED].sum(axis=1)
    still = np.flatnonzero((moved == 0) & (counts.sum(axis=(1, 2)) >= TELLING))
    if len(still):
        warn(
            f"Chains {_listed(still)} never left their start. {_causes(counts[still])}",
            LimpetWarning,
        )
        return
    for move in kernel.moves:
        total = counts[:, move].sum(axis=0)
        if total.sum() >= TELLING and total[Outcome.ACCEPTED] == 0:
            alone = np.zeros_like(counts)
            alone[:, move] = counts[:, move]
            warn(f"One kind of move was never accepted. {_causes(alone)}", LimpetWarning)


REMEDIES = {
    Outcome.FORWARD: "the projection did not reach the surface; make the step smaller",
    Outcome.REVERSE: "the way back led elsewhere; make the step smaller, or eps",
    Outcome.WALL: "the proposal was outside the walls; make the step smaller",
    Outcome.METROPOLIS: "the proposal was too unlikely; make the step smaller",
    Outcome.NOT_FINITE: "q or the log density was not finite; look where they are defined",
}
STEP_SIZES = {
    Move.HARD: "sigma_hrd",
    Move.OFF: "sigma_tan, sigma_prp",
    Move.ON: "sigma_on",
    Move.SOFT: "sigma_sft, or sigma of RandomWalk",
}


def _causes(counts):
    """Which moves failed, mostly why, and which number to change."""
    sentences = []
    for move, row in zip(Move, counts.sum(axis=0), strict=True):
        failed = row.copy()
        failed[Outcome.ACCEPTED] = 0
        if failed.sum():
            cause = Outcome(int(np.argmax(failed)))
            share = failed.sum() / row.sum()
            sentences.append(
                f"{move.name.capitalize()} moves ({STEP_SIZES[move]}): {share:.0%} of {row.sum():,}"
                f" failed, mostly because {REMEDIES[cause]}."
            )
    return " ".join(sentences)


def _listed(chains):
    names = ", ".join(map(str, chains[:NAMED]))
    return names if len(chains) <= NAMED else f"{names} and {len(chains) - NAMED} more"
