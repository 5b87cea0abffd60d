"""How well a run's chains mix while it goes on, in memory that does not grow.

Kept are sums over batches of successive draws. They are what `limpet.run.mixing` computes from at
the end of a run as well, with more and shorter batches: what is told on the way is that estimate,
rougher where chains are few.
"""

from typing import NamedTuple

import numpy as np

from limpet.run.mixing import APART, HalfChains, Mixing, Worst, diagnose, worst

BATCHES = 8_192  # of a tile: 64 for each of 128 chains, by which tau is known to a tenth or so
FEWEST = 20  # draws of a chain that tell how it mixes: halves of ten have four pairs of lags
COORDINATES = 32  # watched at most: a look at 2,000 chains then takes a tenth of a second

UNKNOWN = Worst(np.nan, np.nan, 0, 0)
STORED = ("centre", "values", "squares", "cubes", "quartics")  # of the power sums, in a snapshot


class PowerSums(NamedTuple):
    """Sums over batches of draws less a centre; a coordinate a row."""

    centre: np.ndarray  # (coordinate,): near the draws, or digits would go; NaN before the first
    draws: np.ndarray  # (chain,): so far
    length: int  # draws of a batch
    values: np.ndarray  # (coordinate, chain, batch)
    squares: np.ndarray  # (coordinate, chain, batch)
    cubes: np.ndarray  # (coordinate, batch): of all chains
    quartics: np.ndarray  # (coordinate, batch)

    def join(self, times: int) -> "PowerSums":
        """The same with batches `times` as long, and as few."""
        powers = (p.reshape(*p.shape[:-1], -1, times).sum(axis=-1) for p in self[3:])
        return PowerSums(self.centre, self.draws, self.length * times, *powers)

    def half_chains(self, batches: int, length: int, centre: np.ndarray) -> HalfChains:
        """The halves of the first `batches` batches of this length, less this centre."""
        times = length // self.length
        first = PowerSums(*self[:3], *(p[..., : batches * times] for p in self[3:]))
        *_, values, squares, cubes, quartics = first.join(times)
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

    Batches have one draw at first. When there is no room left, pairs of them are joined. What is
    added up, and in which order, goes by blocks of steps, in time: the sums are bit for bit the
    same however many blocks are added at once.
    """

    def __init__(self, chains: int, n: int):
        self.coordinates = np.unique(np.linspace(0, n - 1, min(n, COORDINATES)).round().astype(int))
        watched, batches = len(self.coordinates), 1 << (BATCHES // chains).bit_length() - 1
        by_chain, pooled = np.zeros((2, watched, chains, batches)), np.zeros((2, watched, batches))
        centre, draws = np.full(watched, np.nan), np.zeros(chains, np.int64)
        self.sums = PowerSums(centre, draws, 1, *by_chain, *pooled)

    def add(self, block, chain, draw, x):
        """Take in draws, chain after chain.

        In which block of steps each was made, of which chain, which draw of it, and the points.
        """
        if not len(draw):
            return
        if np.isnan(self.sums.centre).any():
            first = x[block == block.min()][:, self.coordinates]
            self.sums.centre[...] = np.median(first[:: max(1, len(first) // 1_000)], axis=0)
        while draw.max() >= (room := self.sums.values.shape[2] * self.sums.length):
            early = block < block[draw >= room].min()
            self._sum(block[early], chain[early], draw[early], x[early])
            self._join()
            block, chain, draw, x = block[~early], chain[~early], draw[~early], x[~early]
        self._sum(block, chain, draw, x)

    def _join(self):
        """Make room: pairs of batches become one."""
        joined = self.sums.join(2)
        powers = (np.concatenate([p, np.zeros_like(p)], axis=-1) for p in joined[3:])
        self.sums = PowerSums(*joined[:3], *powers)  # at once, for others who look at it

    def _sum(self, block, chain, draw, x):
        """Add draws for which there is room."""
        if not len(draw):
            return
        sums, batch = self.sums, draw // self.sums.length
        other_chain = chain[1:] != chain[:-1]
        other = other_chain | (block[1:] != block[:-1]) | (batch[1:] != batch[:-1])
        first = np.flatnonzero(np.concatenate([[True], other]))  # of what is added up together
        order = np.argsort(block[first], kind="stable")
        batch = batch[first][order]
        cell = chain[first][order] * sums.values.shape[2] + batch
        for k, coordinate in enumerate(self.coordinates):
            column = x[:, coordinate] - sums.centre[k]
            square = column**2
            powers = column, square, square * column, square**2
            for power, array, at in zip(powers, sums[3:], (cell, cell, batch, batch), strict=True):
                np.add.at(array[k].reshape(-1), at, np.add.reduceat(power, first)[order])
        last = np.flatnonzero(np.concatenate([other_chain, [True]]))
        sums.draws[chain[last]] = draw[last] + 1

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that it knows, by name, but how many draws there were."""
        return {f"online_{name}": getattr(self.sums, name) for name in STORED}

    def restore(self, snapshot: dict[str, np.ndarray], draws: np.ndarray):
        """Go on from a snapshot, taken when there were so many draws of each chain."""
        stored = {name: snapshot[f"online_{name}"].copy() for name in STORED}
        length = 1
        while draws.max() > stored["values"].shape[2] * length:
            length *= 2
        self.sums = PowerSums(draws=draws.copy(), length=length, **stored)


def mixing(online: list[OnlineDiagnostics], draws: int) -> Worst:
    """How well the worst coordinates mix, in the first `draws` draws of each chain at most."""
    found, draws = _diagnosed(online, draws)
    if found is None:
        return UNKNOWN
    chains = sum(tile.sums.values.shape[1] for tile in online)
    seen = worst(found.r_hat, chains * draws / found.tau, online[0].coordinates)
    return seen if seen.r_hat <= APART else seen._replace(ess=np.nan)


def last_r_hat(online: OnlineDiagnostics, draws: int) -> float:
    """R-hat of the last coordinate alone; NaN if it is not known."""
    found, _ = _diagnosed([online], draws)
    return np.nan if found is None else float(found.r_hat[-1])


def _diagnosed(online: list[OnlineDiagnostics], draws: int) -> tuple[Mixing | None, int]:
    """How well coordinates mix, if there are draws enough to tell, and in how many of a chain."""
    tiles = [tile.sums for tile in online]
    draws = min(draws, *(int(sums.draws.min()) for sums in tiles))  # some are still being added
    length = max(sums.length for sums in tiles)
    batches = draws // length // 2 * 2  # two equal halves
    if draws < FEWEST or batches < FEWEST // 2:
        return None, draws
    with np.errstate(all="ignore"):  # a coordinate that never changes divides by zero
        return diagnose(sums.half_chains(batches, length, tiles[0].centre) for sums in tiles), draws
