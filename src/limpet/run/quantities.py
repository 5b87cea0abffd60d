"""What is kept of a draw: its point, and a few numbers beside it.

A further number is a line of `STATS`: memory, stores and the tree of draws all go by this table.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from limpet.run.tile import Trace

POINT, POINT_TYPE = "x", "<f8"
FILLS = {"<f8": np.nan, "<i8": -1}  # what no draw ever is
WITH_STATS = "posterior"  # the group of draws whose numbers are kept

Numbers = dict[str, np.ndarray]  # of several draws, by name; points are called "x"


class Stat(NamedTuple):
    """A number that is kept of each draw, in the group `sample_stats`."""

    dtype: str
    # its values, from a trace: at which of its entries, and in which steps these were made
    take: Callable[[Trace, np.ndarray, np.ndarray], np.ndarray]


STATS = {
    "lp": Stat("<f8", lambda trace, at, step: np.reshape(trace.lp, -1)[at]),
    "step": Stat("<i8", lambda trace, at, step: step),
}


def draw_bytes(n: int) -> int:
    """Bytes of a draw whose point has n numbers."""
    return 8 * n + sum(np.dtype(stat.dtype).itemsize for stat in STATS.values())


def stats_of(group: str) -> dict[str, Stat]:
    """What is kept beside the points of a group of draws."""
    return STATS if group == WITH_STATS else {}


def blank(group: str, chains: int, draws: int, n: int) -> Numbers:
    """Arrays for all that is kept of so many draws, none of which was made yet."""
    arrays = allocate(group, chains, draws, n)
    for array in arrays.values():
        array[...] = FILLS[array.dtype.str]
    return arrays


def allocate(group: str, chains: int, draws: int, n: int) -> Numbers:
    """Arrays for all that is kept of so many draws, not filled."""
    stats = {name: np.empty((chains, draws), stat.dtype) for name, stat in stats_of(group).items()}
    return {POINT: np.empty((chains, draws, n), POINT_TYPE)} | stats


class Draws(NamedTuple):
    """Draws of a tile's chains, each chain's in order; of one advance, chain after chain."""

    chain: np.ndarray  # (count,): which of the tile
    draw: np.ndarray  # (count,): which of its chain
    numbers: Numbers  # arrays (count, ...)

    def where(self, mask: np.ndarray) -> "Draws":
        """Some of them."""
        numbers = {name: array[mask] for name, array in self.numbers.items()}
        return Draws(self.chain[mask], self.draw[mask], numbers)

    @staticmethod
    def joined(parts: "Sequence[Draws]") -> "Draws":
        """Several as one, one after the other."""
        if len(parts) == 1:
            return parts[0]
        chain, draw, numbers = zip(*parts, strict=True)
        return Draws(
            np.concatenate(chain),
            np.concatenate(draw),
            {name: np.concatenate([part[name] for part in numbers]) for name in numbers[0]},
        )

    def put_into(self, arrays: Numbers, first_draw: int = 0):
        """Write them to arrays (chain, draw, ...) of the tile, from this draw on."""
        row = self.chain * arrays[POINT].shape[1] + self.draw - first_draw
        for name, added in self.numbers.items():
            array = arrays[name]
            if name == POINT:  # the numbers of a point are copied as one, which is faster
                point = np.dtype((np.void, array.itemsize * array.shape[2]))
                array, added = array.view(point), added.view(point)[:, 0]
            array.reshape(-1)[row] = added
