"""R-hat and effective sample size of a run while it goes on, in memory that does not grow.

Kept are sums over batches of draws. Means of long batches vary by sigma^2 tau / length, which tells
tau; means of half chains tell whether the chains agree (split R-hat).
"""

from typing import NamedTuple

import numpy as np

BATCHES = 64  # of a chain
MEANS = 64  # batch means, of all chains together, that tell tau well enough
COORDINATES = 100  # watched at most


class Mixing(NamedTuple):
    """How well the worst coordinate mixes; NaN while there are too few draws to tell."""

    r_hat: float
    ess: float
    coordinate: int  # the one with the least effective sample size


UNKNOWN = Mixing(np.nan, np.nan, 0)


class Watch:
    """Sums over batches of the draws of one tile; `centre` must be the same for all tiles."""

    def __init__(self, chains: int, centre: np.ndarray, draws: int):
        n = len(centre)
        self.coordinates = np.unique(np.linspace(0, n - 1, min(n, COORDINATES)).round().astype(int))
        self.centre = centre[self.coordinates]  # subtracted, so that squares keep their digits
        self.length = -(-draws // BATCHES)
        self.draws = draws
        self.sums = np.zeros((len(self.coordinates), chains, BATCHES))
        self.squares = np.zeros((len(self.coordinates), BATCHES))

    def add(self, chain, draw, x):
        """Take in draws: of which chain, which draw of it, and the points."""
        kept = draw < self.draws
        batch = draw[kept] // self.length
        cell = chain[kept] * BATCHES + batch
        _, chains, _ = self.sums.shape
        for k, column in enumerate((x[kept][:, self.coordinates] - self.centre).T):
            self.sums[k] += np.bincount(cell, column, chains * BATCHES).reshape(chains, BATCHES)
            self.squares[k] += np.bincount(batch, column**2, BATCHES)


def mixing(watches: list[Watch], draws: int) -> Mixing:
    """How well chains mix that have `draws` draws each, or more."""
    length = watches[0].length
    batches = draws // length // 2 * 2  # two equal halves
    if batches < 4:
        return UNKNOWN
    sums = np.concatenate([watch.sums for watch in watches], axis=1)[:, :, :batches]
    squares = np.sum([watch.squares[:, :batches] for watch in watches], axis=0).sum(axis=1)
    n, chains, _ = sums.shape
    total = chains * batches * length
    mean = sums.sum(axis=(1, 2)) / total
    variance = squares / total - mean**2

    halves = sums.reshape(n, 2 * chains, batches // 2).sum(axis=2) / (batches // 2 * length)
    between = halves.var(axis=1, ddof=1)
    within = squares / total - np.mean(halves**2, axis=1)

    # as few and long batches as there are chains for
    fits = [j for j in range(1, batches // 2 + 1) if not batches % j]
    joined = max([j for j in fits if chains * batches / j >= MEANS], default=1)
    means = sums.reshape(n, -1, joined).sum(axis=2) / (joined * length)
    spread = np.mean((means - mean[:, None]) ** 2, axis=1)
    with np.errstate(all="ignore"):  # a coordinate that never changes has neither
        r_hat = np.sqrt(1 - 2 / (batches * length) + between / within)
        ess = chains * batches / joined * variance / spread
    if not np.isfinite(ess).any():
        return UNKNOWN
    worst = int(np.nanargmin(ess))
    return Mixing(float(np.nanmax(r_hat)), float(ess[worst]), int(watches[0].coordinates[worst]))
