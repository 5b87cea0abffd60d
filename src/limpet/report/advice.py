"""What to tell a user about a run: what went wrong, the number behind it, and what to do."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr
from scipy.special import gammaincinv

from limpet.errors import LimpetWarning, MixingWarning, warn
from limpet.geometry.start import is_absurd
from limpet.kernels import SAS, Lifted, RandomWalk
from limpet.kernels.base import Kernel
from limpet.kernels.states import Move, Outcome, State
from limpet.layout import Layout
from limpet.report.bonds import has_labels, warn_of_bonds
from limpet.report.ladder import exchanges_of, sit_in_heaps, warn_of_ladder
from limpet.report.progress import DOING
from limpet.report.variables import every_name, measure_variables
from limpet.run.goal import Goal
from limpet.run.mixing import APART, Worst, worst
from limpet.run.online import FEWEST
from limpet.run.tile_run import TileRun
from limpet.run.warmup import MOST_CHANGES
from limpet.sparse.normals import SparseFactor

# What is worth a warning is a matter of judgement: where no source is named, a number is a choice.
FEWEST_PROPOSALS = 50  # from which shares of outcomes are known to a tenth or so
LOWEST_ACCEPTANCE = 0.05  # of a move
# of moves for which warm-up looks for 0.5 or more, and may find no size that is small enough
LOWEST_OF_BONDS: dict[Move, float] = {Move.FORM: 0.2, Move.BREAK: 0.2}
MOST_FAILING = 0.75  # share of failing projections; with step sizes as tuned, half of them may fail
ADVISED_FAILING = 0.25  # share of failing projections for which a step size is advised
SINGULAR_SHARE = 0.03  # of the usual smallest singular value: below, gradients are dependent
MOST_BROKEN = 0.01  # share of moves by symmetries that are none
MOST_NAMED = 8  # chains named in one message
HIGHEST_R_HAT = 1.01  # of chains that agree: Vehtari et al. (2021)
FEWEST_EFFECTIVE = 400  # draws, for R-hat and the ESS itself to be trusted: Vehtari et al. (2021)
MOST_VALUES_AGAIN = 2**23  # of a run, looked at again at its end, which takes half a second
CLIMBERS = (Lifted, SAS, RandomWalk)  # samplers of pi_eps, which limpet.Exchange samples as well

REMEDIES = {
    Outcome.FORWARD: "the projection did not reach the surface; make the step smaller",
    Outcome.REVERSE: "the way back led elsewhere; make the step smaller, or eps",
    Outcome.WALL: "the proposal was outside the walls; make the step smaller",
    Outcome.METROPOLIS: "the proposal was too unlikely; make the step smaller",
    Outcome.NOT_FINITE: "q or the log density was not finite; look where they are defined",
}


def warn_of(
    tree: xr.DataTree, kernel: Kernel, layout: Layout, dimension: int, watched: Worst
) -> None:
    """Warn of whatever a user should act on, after a run; `watched` is how it seemed to mix.

    Of all but very long runs, what is told of mixing is what `limpet.summary` shows.
    """
    counts = tree["moves"].to_dataset()["counts"].values.copy()
    _warn_of_symmetries(counts[:, Move.SYMMETRY].sum(axis=0))
    counts[:, Move.SYMMETRY] = 0  # what follows is about the sampler's own moves
    proposals, accepted = counts.sum(axis=(1, 2)), counts[:, :, Outcome.ACCEPTED].sum(axis=1)
    still = (accepted == 0) & (proposals >= FEWEST_PROPOSALS)
    lp = tree["sample_stats"].to_dataset()["lp"]
    level = lp[:, -1].values if lp.sizes["draw"] else np.zeros(len(counts))
    low = is_absurd(level, np.median(level), layout.size)
    if still.any() or low.any():  # nothing else is worth saying of moves and mixing
        _warn_of_starts(kernel, counts, level, still, low)
    else:
        _warn_of_failing_moves(tree, kernel, dimension, counts)
    exchanges = exchanges_of(tree)
    if exchanges is not None:
        warn_of_ladder(exchanges, tree.attrs["parameters"]["ladder"])
    if has_labels(posterior := tree["posterior"].to_dataset()):
        warn_of_bonds(posterior)
    few = 0 < lp.sizes["draw"] < FEWEST
    if few:
        draws = lp.sizes["draw"]
        made = "1 draw per chain is" if draws == 1 else f"{draws} draws per chain are"
        warn(
            f"{made} too few to tell whether the chains mix, so"
            " nothing is known of how far their means are from the truth: draw at least"
            f" {FEWEST} per chain.",
            MixingWarning,
        )
    elif lp.sizes["draw"] and not (still.any() or low.any()):
        may_climb = isinstance(kernel, CLIMBERS) and dimension < layout.size
        may_climb &= "eps" not in tree.attrs["parameters"]  # which is said of unknown noise
        ladder = tree.attrs["parameters"].get("ladder")
        _warn_of_mixing(tree["posterior"].to_dataset(), layout, watched, may_climb, ladder)


def warn_of_units(tiles: Sequence[TileRun], posterior: xr.Dataset) -> None:
    """Warn, once, of unknowns whose widths never settled in warm-up."""
    lost = [tile for tile in tiles if tile.warmup.unsettled.any()]
    if not lost:
        return
    unsettled = np.any([tile.warmup.unsettled for tile in lost], axis=0)
    names = first_few(np.array(every_name(posterior))[unsettled])
    first, *others = posterior.data_vars
    scale = f"{{{first!r}: width{', ...' if others else ''}}}"
    warn(
        f"No units were found in which draws are round: the widths of {names} had not settled"
        f" after {MOST_CHANGES} changes, in {len(lost)} of {len(tiles)} tiles of chains. These took"
        " the unknowns as they are, which is exact but may be slow. Either tails are heavy, or"
        " chains were still travelling, or the law is improper, with nothing to hold it in that"
        f" direction. If you know the widths, give scale={scale}; else give a longer warmup=, or"
        " write the target in other unknowns, such as logarithms.",
        LimpetWarning,
    )


def _warn_of_starts(
    kernel: Kernel, counts: np.ndarray, level: np.ndarray, still: np.ndarray, low: np.ndarray
) -> None:
    """Warn of chains that never moved, and of those that are still where no others are."""
    if low.any():
        far = "never" if still[low].all() else "hardly"
        warn(
            f"Chains {first_few(np.flatnonzero(low))} {far} left their start."
            f" {_comparison(level, low)} Until then leave these chains out of all means.",
            LimpetWarning,
        )
    still = still & ~low
    if still.any():
        names, why = first_few(np.flatnonzero(still)), causes(kernel, counts[still])
        warn(
            f"Chains {names} never left their start. {why} Leave these chains out of all means.",
            LimpetWarning,
        )


def _comparison(level: np.ndarray, low: np.ndarray) -> str:
    """How low the log density of some chains is, and what to do about it."""
    others = level[~low] if not low.all() else level
    return (
        f"Their log density is {level[low].max():.4g} or less, that of the others about"
        f" {np.median(others):.4g}: they are where the density is next to nothing. Start where it"
        " is higher, such as at draws of the others, or closer to the start with a smaller jitter."
    )


def warn_of_singular_surface(begin: State, end: State) -> None:
    """Warn if the gradients of q have become all but dependent, for chains that are on S.

    `begin` is where the chains started. How nearly dependent gradients are is told by their
    smallest singular value, with each gradient in units of what it was in the beginning.
    """
    if not end.on.any() or np.size(jax.tree.leaves(end.normals)[0]) == 0:
        return
    usual, now = np.median(_dependence(begin, begin)), _dependence(begin, end)[end.on]
    if now.min() < SINGULAR_SHARE * usual:
        where = np.array2string(end.x[end.on][np.argmin(now)], precision=3, threshold=8)
        warn(
            f"The surface is singular, or nearly: at x = {where} the smallest singular value of the"
            f" gradient of q is {now.min() / usual:.1e} of what it was at the starts. Where it is"
            " zero, moves on the surface fail, and there may be no law on it. Use"
            " kernel=limpet.Lifted(), which stays off it.",
            LimpetWarning,
        )


def _dependence(begin: State, now: State) -> np.ndarray:
    """How near each chain's gradients are to being dependent: zero if they are."""
    if isinstance(now.factor, SparseFactor):  # the smallest pivot says as much as a singular value
        inverses = np.nan_to_num(now.factor.entries, nan=np.inf)
        return 1 / inverses[:, now.factor.structure.whole.diagonal].max(axis=1)
    usual, normals = np.asarray(begin.normals), np.asarray(now.normals)
    scale = np.median(np.linalg.norm(usual, axis=1), axis=0)
    return np.linalg.svd(np.nan_to_num(normals / scale), compute_uv=False)[:, -1]


def _warn_of_failing_moves(
    tree: xr.DataTree, kernel: Kernel, dimension: int, counts: np.ndarray
) -> None:
    """Warn of moves that are hardly ever accepted, sides never changed, projections that fail."""
    proposals, accepted = counts.sum(axis=2), counts[:, :, Outcome.ACCEPTED]
    for move in kernel.moves:
        total = counts[:, move].sum(axis=0)
        if total.sum() < FEWEST_PROPOSALS:
            continue
        alone = np.zeros_like(counts)
        alone[:, move] = counts[:, move]
        share = total[Outcome.ACCEPTED] / total.sum()
        failed = (total[Outcome.FORWARD] + total[Outcome.REVERSE]) / total.sum()
        if move is Move.HARD and failed > MOST_FAILING:
            # slides longer than some length fail: that length from the share, a size from it
            name = kernel.tunables[0].names[0]
            size = tree.attrs["parameters"][name]
            better = (
                size
                * _chi(dimension, 1 - min(failed, 1 - 1e-6))
                / _chi(dimension, 1 - ADVISED_FAILING)
            )
            advised = (
                f"Lower {name}={size:.3g} to about {better:.2g}, or let warm-up find it, for which"
                " a given one needs 100 steps."
            )
            if size != getattr(kernel, name):  # which it did, and would again
                advised = (
                    f"Warm-up chose {name}={size:.3g}, for the few that succeed go far. To use a"
                    f" smaller one, such as {better:.2g}, give the kernel that and warmup=0."
                )
            warn(f"Most projections failed. {causes(kernel, alone)} {advised}", LimpetWarning)
        elif share < LOWEST_OF_BONDS.get(move, LOWEST_ACCEPTANCE):
            how = "never accepted" if share == 0 else f"accepted in {share:.1%} of tries only"
            warn(f"One kind of move was {how}. {causes(kernel, alone)}", LimpetWarning)
    sides = [move for move in (Move.OFF, Move.ON) if move in kernel.moves]
    held = ((accepted[:, sides] == 0) & (proposals[:, sides] >= FEWEST_PROPOSALS)).any(axis=1)
    if held.any() and not held.all():
        warn(
            f"Chains {first_few(np.flatnonzero(held))} did not change sides while others did:"
            f" they may be where the surface is more curved. {causes(kernel, counts[held])}",
            LimpetWarning,
        )


def _warn_of_symmetries(outcomes: np.ndarray) -> None:
    """Warn of symmetries that are none somewhere, or that never lead anywhere."""
    total = max(int(outcomes.sum()), 1)
    broken = outcomes[[Outcome.FORWARD, Outcome.REVERSE, Outcome.NOT_FINITE]]
    if broken.sum() > MOST_BROKEN * total:
        off, no_way, undefined = broken / total
        warn(
            f"Moves by symmetries were none: of {total:,}, {off:.1%} did not stay on the surface,"
            f" {no_way:.1%} had no way back, and {undefined:.1%} led to where q or log_density is"
            " not finite. They were refused, so the draws are right; but look at the functions.",
            LimpetWarning,
        )
    elif total >= FEWEST_PROPOSALS and not outcomes[Outcome.ACCEPTED]:
        cause = Outcome(int(np.argmax(outcomes))).name.lower()
        warn(
            f"Moves by symmetries were never accepted, of {total:,} (mostly {cause}): they are no"
            " use here. Make them smaller, as limpet.pivot(angle=0.3) is, or leave them out.",
            LimpetWarning,
        )


def _chi(dimension: int, share: float) -> float:
    """The length that this share of Gaussian vectors is shorter than."""
    return np.sqrt(2 * gammaincinv(dimension / 2, share))  # scipy.stats takes a second to import


def _warn_of_mixing(
    posterior: xr.Dataset, layout: Layout, watched: Worst, may_climb: bool, ladder: Any
) -> None:
    """Warn of chains that disagree, and of too few effective draws.

    `may_climb`: whether a ladder may help, if there is none.
    """
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    if chains * draws * layout.size <= MOST_VALUES_AGAIN:
        _, measures = measure_variables(posterior)
        watched = worst(measures.r_hat, measures.ess, np.arange(layout.size))
    names = every_name(posterior)
    r_hat = f"R-hat of {names[watched.r_hat_of]} is {watched.r_hat:.3f}, above {HIGHEST_R_HAT}"
    if watched.r_hat > APART:
        remedy = (
            " Warm up and draw several times longer; if R-hat stays, the surface may have parts"
            " that no chain travels between."
        )
        if ladder:
            remedy = (
                " Draw several times longer; if R-hat stays, rungs exchange too rarely"
                " (limpet.summary shows how often), so that some are needed between, or the highest"
                f" one, eps={ladder[0]!r}, is too low to join the pieces, and needs one above it."
            )
        elif may_climb and sit_in_heaps(posterior, watched.r_hat_of):
            remedy = (
                f" They sit in heaps, with nothing between in {names[watched.r_hat_of]}: the"
                " surface seems to consist of pieces, whose weights these draws do not know. With"
                " kernel=limpet.Exchange(), and starts as they are, chains travel between them."
            )
        warn(
            f"{r_hat}: the chains disagree. They have been to different places, so that mean, mcse"
            f" and ess say little of the truth, and nothing of how many draws would do.{remedy}",
            MixingWarning,
        )
        return
    if watched.r_hat > HIGHEST_R_HAT:
        # of chains that do mix, R-hat^2 - 1 falls as one over the draws
        needed = draws * (watched.r_hat**2 - 1) / (HIGHEST_R_HAT**2 - 1)
        warn(
            f"{r_hat}: the chains do not agree yet. Draw about {needed:,.0f} per chain, or warm up"
            " for longer; if it stays, the surface may have parts that no chain travels between.",
            MixingWarning,
        )
    if watched.ess < FEWEST_EFFECTIVE:
        needed = draws * FEWEST_EFFECTIVE / watched.ess
        warn(
            f"The effective sample size of {names[watched.ess_of]} is {watched.ess:.0f}, of"
            f" {chains * draws:,} draws: for {FEWEST_EFFECTIVE}, draw about {needed:,.0f} per"
            " chain, or use more chains.",
            MixingWarning,
        )


def interruption(
    draws: int, asked: int, phase: str, resumable: bool, goal: Goal | None = None
) -> str:
    """What to say of a run that was told to stop in one of its phases."""
    message = f"Interrupted: {draws:,} of {asked:,} draws per chain were made"
    if goal is not None:
        message = f"Interrupted: {draws:,} draws per chain were made, before ess={goal.ess:,}"
        message += " was reached"
    if not draws and phase in DOING:
        message += f", for the run was still {DOING[phase]}"
    if (draws < asked or goal is not None) and resumable:
        message += "; limpet.resume(store, target) goes on"
    return f"{message}."


def warn_of_goal(goal: Goal, seen: Worst, posterior: xr.Dataset) -> None:
    """Warn that a run came to its last draw before it reached what it was to reach."""
    names, draws = every_name(posterior), posterior.sizes["draw"]
    why, needed = "the chains do not agree", "several times as many"
    if seen.r_hat <= APART:
        why = f"the effective sample size of {names[seen.ess_of]} is {seen.ess:,.0f}"
        needed = f"about {draws * goal.ess / seen.ess:,.0f}"
    warn(
        f"ess={goal.ess:,} was not reached with draws={goal.most:,} per chain: {why}. Let a chain"
        f" have {needed}, by draws=..., or use more chains.",
        MixingWarning,
    )


def finished_chains(draws: xr.DataTree) -> str:
    """What to say of the chains that an exception brings along."""
    finished = draws["posterior"].sizes["chain"]
    return f"The {finished} chains that were finished are in the exception's `draws`."


def stuck_message(kernel: Kernel, tiles: Sequence[TileRun]) -> str:
    """Which chains are stuck, where, and why."""
    chains, counts, levels, stuck, where = [], [], [], [], "on"
    for tile in tiles:
        waiting = np.flatnonzero(tile.stuck)
        chains.extend(tile.chains[0] + waiting)
        counts.extend(tile.collector.counts[0, waiting])
        levels.extend(np.asarray(tile.states.log_density)[: len(tile.chains)])
        stuck.extend(tile.stuck)
        if not tile.collector.visits["posterior"].full[waiting].all():
            where = "off"
    message = (
        f"Chains {first_few(chains)} made fewer draws than asked for, and no visit {where} the"
        f" surface in the last {tiles[0].patience:,.0f} steps. {causes(kernel, np.array(counts))}"
    )
    level = np.array(levels)
    low = np.array(stuck) & is_absurd(level, np.median(level), tiles[0].starts.shape[1])
    if low.any():
        message += f" {_comparison(level, low)}"
    # a chain that is never off the surface tries no On moves, and that is not its trouble
    move, name = getattr(Move, where.upper()), f"{where}_probability"
    if move in kernel.moves and not np.sum(counts, axis=(0, 2))[move]:
        message += f" {where.capitalize()} moves were not tried: raise {name}."
    return message


def causes(kernel: Kernel, counts: np.ndarray) -> str:
    """Which moves failed, mostly why, and which number to change."""
    sentences = []
    for move, row in zip(Move, counts.sum(axis=0), strict=True):
        failed = row.copy()
        failed[Outcome.ACCEPTED] = 0
        if failed.sum() and move in kernel.step_sizes:
            cause = Outcome(int(np.argmax(failed)))
            share = failed.sum() / row.sum()
            sizes = ", ".join(kernel.step_sizes[move])
            sentences.append(
                f"{move.name.capitalize()} moves ({sizes}): {share:.0%} of {row.sum():,} failed,"
                f" mostly because {REMEDIES[cause]}."
            )
    return " ".join(sentences)


def first_few(chains: Sequence[int] | np.ndarray) -> str:
    """The first few chains by number, or names."""
    names = ", ".join(map(str, chains[:MOST_NAMED]))
    return names if len(chains) <= MOST_NAMED else f"{names} and {len(chains) - MOST_NAMED} more"
