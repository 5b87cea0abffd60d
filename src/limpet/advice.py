"""What to tell a user about a run: what went wrong, the number behind it, and what to do."""

import numpy as np
import xarray as xr
from scipy.special import gammaincinv

from limpet.errors import LimpetWarning, MixingWarning, warn
from limpet.kernels.base import Kernel, Move, Outcome, State
from limpet.layout import Layout
from limpet.watch import Mixing

TELLING = 50  # proposals that tell something
RARELY = 0.05  # acceptance of a move that is too low
MOSTLY = 0.75  # share of failing projections that is too high; tuned steps may fail in half
SINGULAR = 0.03  # share of the usual singular value below which gradients are dependent
GENTLE = 0.25  # share of failing projections that a step size is advised for
NAMED = 8  # most chains named in one message
R_HAT = 1.01
ESS = 400

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
    Move.SLIDE: "sigma_hrd",
}


def warn_of(tree: xr.DataTree, kernel: Kernel, layout: Layout, dimension: int, mixing: Mixing):
    """Warn of whatever a user should act on, after a run."""
    counts = tree["moves"].to_dataset()["counts"].values
    proposals, accepted = counts.sum(axis=(1, 2)), counts[:, :, Outcome.ACCEPTED].sum(axis=1)
    still = np.flatnonzero((accepted == 0) & (proposals >= TELLING))
    if len(still):  # nothing else is worth saying
        message = f"Chains {listed(still)} never left their start. {causes(counts[still])}"
        warn(message, LimpetWarning)
    else:
        _warn_of_failing_moves(tree, kernel, dimension, counts)
        _warn_of_mixing(mixing, layout, tree["posterior"].sizes)


def warn_of_singular_surface(begin: State, end: State):
    """Warn if the gradients of q have become all but dependent, for chains that are on S.

    `begin` is where the chains started. How nearly dependent gradients are is told by their
    smallest singular value, with each gradient in units of what it was in the beginning.
    """
    if not end.on.any() or np.shape(end.normals)[-1] == 0:
        return
    scale = np.median(np.linalg.norm(begin.normals, axis=1), axis=0)

    def smallest(normals):
        return np.linalg.svd(np.nan_to_num(normals / scale), compute_uv=False)[:, -1]

    usual, now = np.median(smallest(begin.normals)), smallest(end.normals[end.on])
    if now.min() < SINGULAR * usual:
        where = np.array2string(end.x[end.on][np.argmin(now)], precision=3, threshold=8)
        warn(
            f"The surface is singular, or nearly: at x = {where} the smallest singular value of the"
            f" gradient of q is {now.min() / usual:.1e} of what it was at the starts. Where it is"
            " zero, moves on the surface fail, and there may be no law on it. Use"
            " kernel=limpet.Lifted(), which stays off it.",
            LimpetWarning,
        )


def _warn_of_failing_moves(tree, kernel, dimension, counts):
    """Warn of moves that are hardly ever accepted, sides never changed, projections that fail."""
    proposals, accepted = counts.sum(axis=2), counts[:, :, Outcome.ACCEPTED]
    for move in kernel.moves:
        total = counts[:, move].sum(axis=0)
        if total.sum() < TELLING:
            continue
        alone = np.zeros_like(counts)
        alone[:, move] = counts[:, move]
        share = total[Outcome.ACCEPTED] / total.sum()
        failed = (total[Outcome.FORWARD] + total[Outcome.REVERSE]) / total.sum()
        if move is Move.HARD and failed > MOSTLY:
            # slides longer than some length fail: that length from the share, a size from it
            size = tree.attrs["parameters"]["sigma_hrd"]
            better = size * _chi(dimension, 1 - min(failed, 1 - 1e-6)) / _chi(dimension, 1 - GENTLE)
            advised = f"Lower sigma_hrd={size:.3g} to about {better:.2g}, or let warm-up find it."
            warn(f"Most projections failed. {causes(alone)} {advised}", LimpetWarning)
        elif share < RARELY:
            how = "never accepted" if share == 0 else f"accepted in {share:.1%} of tries only"
            warn(f"One kind of move was {how}. {causes(alone)}", LimpetWarning)
    sides = [move for move in (Move.OFF, Move.ON) if move in kernel.moves]
    held = ((accepted[:, sides] == 0) & (proposals[:, sides] >= TELLING)).any(axis=1)
    if held.any() and not held.all():
        warn(
            f"Chains {listed(np.flatnonzero(held))} did not change sides while others did: they may"
            f" be where the surface is more curved. {causes(counts[held])}",
            LimpetWarning,
        )


def _chi(dimension, share):
    """The length that this share of Gaussian vectors is shorter than."""
    return np.sqrt(2 * gammaincinv(dimension / 2, share))  # scipy.stats takes a second to import


def _warn_of_mixing(mixing, layout, sizes):
    """Warn of chains that disagree, and of too few effective draws."""
    name, chains, draws = layout.labels[mixing.coordinate], sizes["chain"], sizes["draw"]
    if mixing.r_hat > R_HAT:
        warn(
            f"R-hat is {mixing.r_hat:.3f}, above {R_HAT}: the chains do not agree yet. Draw more"
            f" than {draws:,} per chain, or warm up for longer; if it stays, the surface may have"
            " parts that no chain travels between.",
            MixingWarning,
        )
    if mixing.ess < ESS:
        needed = draws * ESS / mixing.ess
        warn(
            f"The effective sample size of {name} is {mixing.ess:.0f}, of {chains * draws:,} draws:"
            f" for {ESS}, draw about {needed:,.0f} per chain, or use more chains.",
            MixingWarning,
        )


def stuck_message(kernel: Kernel, voyages) -> str:
    """Which chains are stuck, where, and why."""
    chains, counts, where = [], [], "on"
    for voyage in voyages:
        waiting = np.flatnonzero(voyage.stuck)
        chains.extend(voyage.first_chain + waiting)
        counts.extend(voyage.collector.counts[0, waiting])
        if not voyage.collector.kept["posterior"].full[waiting].all():
            where = "off"
    message = (
        f"Chains {listed(chains)} made fewer draws than asked for, and no visit {where} the"
        f" surface in the last {voyages[0].patience:,.0f} steps. {causes(np.array(counts))}"
    )
    tried = np.sum(counts, axis=(0, 2))
    for move, name in ((Move.OFF, "off_probability"), (Move.ON, "on_probability")):
        if move in kernel.moves and not tried[move]:
            message += f" {move.name.capitalize()} moves were not tried: raise {name}."
    return message


def causes(counts):
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


def listed(chains):
    """The first few chains by number."""
    names = ", ".join(map(str, chains[:NAMED]))
    return names if len(chains) <= NAMED else f"{names} and {len(chains) - NAMED} more"
