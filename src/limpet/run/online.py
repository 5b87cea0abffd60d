"""How well a run's chains mix while it goes on, in memory that does not grow.

Kept are sums over batches of successive draws. They are what `limpet.run.mixing` computes from at
the end of a run as well, with more and shorter batches: what is told on the way is that estimate,
rougher where chains are few.
"""

from typing import NamedTuple

import numpy as np

from limpet.run.mixing import APART, HalfChains, Worst, diagnose, worst

BATCHES = 8_192  # of a tile: 64 for each of 128 chains, by which tau is known to a tenth or so
FEWEST = 20  # draws of a chain that tell how it mixes: halves of ten have four pairs of lags
COORDINATES = 32  # watched at most: a look at 2,000 chains then takes a tenth of a second

UNKNOWN = Worst(np.nan, np.nan, 0, 0)


class PowerSums(NamedTuple):
    """Sums over batches of draws less a centre; a coordinate a row."""

    centre: np.ndarray  # (coordinate,): near the draws, or digits would go; NaN before the first
    draws: np.ndarray  # (chain,): so far
    length: np.ndarray  # (): draws of a batch
    values: np.ndarray  # (coordinate, chain, batch)
    squares: np.ndarray  # (coordinate, chain, batch)
    cubes: np.ndarray  # (coordinate, batch): of all chains
    quartics: np.ndarray  # (coordinate, batch)

    def joined(self, times: int) -> "PowerSums":
        """The same with batches `times` as long, and as few."""
        powers = (p.reshape(*p.shape[:-1], -1, times).sum(axis=-1) for p in self[3:])
        return PowerSums(self.centre, self.draws, self.length * times, *powers)

    def half_chains(self, batches: int, length: int, centre: np.ndarray) -> HalfChains:
        """The halves of the first `batches` batches of this length, less this centre."""
        times = length // int(self.length)
        first = PowerSums(*self[:3], *(p[..., : batches * times] for p in self[3:]))
        *_, values, squares, cubes, quartics = first.joined(times)
        coordinates, chains, _ = values.shape
        halves = (coordinates, 2 * chains, batches // 2)
        shift = self.centre - centre
        s1, s2, count = values.sum(axis=(1, 2)), squares.sum(axis=(1, 2)), chains * batches * length
        cubes, quartics = cubes.sum(axis=1), quartics.sum(axis=1)
        by = shift[:, None, None]
        return HalfChains(
            (values + by * length).reshape(halves),
            (squares + by * (2 * values + by * length)).reshape(halves).sum(axis=2),
            cubes + shift * (3 * s2 + shift * (3 * s1 + shift * count)),
            quartics + shift * (4 * cubes + shift * (6 * s2 + shift * (4 * s1 + shift * count))),
            length,
        )


class OnlineDiagnostics:
    """Power sums over batches of the draws of one tile.

    Batches have one draw at first. When there is no room left, pairs of them are joined.
    """

    def __init__(self, chains: int, n: int):
        self.coordinates = np.unique(np.linspace(0, n - 1, min(n, COORDINATES)).round().astype(int))
        watched, batches = len(self.coordinates), 1 << (BATCHES // chains).bit_length() - 1
        by_chain, pooled = np.zeros((2, watched, chains, batches)), np.zeros((2, watched, batches))
        centre, draws, length = np.full(watched, np.nan), np.zeros(chains, np.int64), np.array(1)
        self.sums = PowerSums(centre, draws, length, *by_chain, *pooled)

    def add(self, chain, draw, x):
        """Take in draws, chain after chain: of which chain, which draw of it, and the points."""
        if not len(draw):
            return
        x = x[:, self.coordinates]
        if np.isnan(self.sums.centre).any():
            self.sums.centre[...] = np.median(x[:: max(1, len(x) // 1_000)], axis=0)
        _, chains, batches = self.sums.values.shape
        while draw.max() >= batches * self.sums.length:
            joined = self.sums.joined(2)
            powers = (np.concatenate([p, np.zeros_like(p)], axis=-1) for p in joined[3:])
            self.sums = PowerSums(*joined[:3], *powers)  # at once, for others who look at it
        batch = draw // self.sums.length
        cell = chain * batches + batch
        for k, column in enumerate((x - self.sums.centre).T):
            square = column**2
            self.sums.values[k] += _summed(cell, column, (chains, batches))
            self.sums.squares[k] += _summed(cell, square, (chains, batches))
            self.sums.cubes[k] += _summed(batch, square * column, (batches,))
            self.sums.quartics[k] += _summed(batch, square**2, (batches,))
        last = np.flatnonzero(np.diff(chain, append=-1))
        self.sums.draws[chain[last]] = draw[last] + 1


def _summed(cell, values, shape):
    return np.bincount(cell, values, int(np.prod(shape))).reshape(shape)


def mixing(watches: list[OnlineDiagnostics], draws: int) -> Worst:
    """How well the worst coordinates mix, in the first `draws` draws of each chain at most."""
    tiles = [watch.sums for watch in watches]
    draws = min(draws, *(int(sums.draws.min()) for sums in tiles))  # some are still being added
    length = max(int(sums.length) for sums in tiles)
    batches = draws // length // 2 * 2  # two equal halves
    if draws < FEWEST or batches < FEWEST // 2:
        return UNKNOWN
    with np.errstate(all="ignore"):  # a coordinate that never changes divides by zero
        found = diagnose(sums.half_chains(batches, length, tiles[0].centre) for sums in tiles)
    chains = sum(sums.values.shape[1] for sums in tiles)
    seen = worst(found.r_hat, chains * draws / found.tau, watches[0].coordinates)
    return seen if seen.r_hat <= APART else seen._replace(ess=np.nan)
