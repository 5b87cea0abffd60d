"""Warm-up: step sizes from whatever they were given as.

Every step of every chain of a tile tries a size of its own, spread evenly in the logarithm over a
range that narrows as more is known. Hard moves are there to travel: what their size is worth is the
mean squared distance that proposals went, for it makes successive points least alike; of sizes
almost as good the smallest is taken, whose proposals fail less. Where a Hard move is a trajectory
of several slides, these are to be accepted in four cases of five, and there are to be as many as
give the most effective draws per slide; of numbers almost as good the largest is taken, for what is
slower than the rest. Long trajectories are tried less often, and by neighbours together, for chains
that are computed side by side wait for the longest. Soft moves are to be accepted in two cases of
five, as the paper has it. Off and On moves change sides, for which any small size will do: theirs
is lowered if half of them are refused, and else left alone.

Sizes are frozen after the last round, well before the first draw.
"""

import numpy as np

from limpet.kernels.base import Kernel
from limpet.kernels.states import Outcome
from limpet.run.tile import LONGEST_BLOCK, Trace

ROUND = LONGEST_BLOCK  # steps between two narrowings
SHARE = 0.75  # of warm-up spent on tuning; the rest forgets where it led
CELLS = 20  # of the histogram, per factor of ten
DECADES = 8.0  # how far a size may be turned, up or down
FIRST, LAST = 4.0, 0.3  # half the range tried in the first round and in the last, in decades
MOST_SLIDES = 128  # of a trajectory, lest a draw take too long
NEIGHBOURS = 8  # chains that try the same number of slides: no fewer than go side by side
ALIKE = 0.1  # decades from the best step size at which a number of slides is judged
FADING = 0.5  # of what was known a round ago
TINY = 1e-300
ENOUGH = 20  # proposals below which nothing is known
NEARLY = 0.95  # of the best is as good as the best
# multiples of these are spread evenly, also jointly
GOLDEN = (0.7548776662466927, 0.5698402909980532, 0.6180339887498949, 0.41421356237309515)


class Tuner:
    """The search for one tile's step sizes; `record` is all that it knows."""

    def __init__(self, kernel: Kernel, given: dict, width: int, warmup: int, crowded: bool = False):
        self.tunables = kernel.crowded_tunables if crowded else kernel.tunables
        self.given = given  # the sizes that the search started from
        self.width = width
        self.rounds = int(SHARE * warmup) // ROUND
        cells = int(2 * DECADES * CELLS) + 1
        # of each tunable and cell: proposals, and what they were worth in all
        self.record = np.zeros((len(self.tunables), 2, cells))
        self.centres = np.zeros(len(self.tunables))  # decades from the sizes given
        self.spread = 0.0  # variance of the chains' points, summed over coordinates

    def learning(self, step: int) -> bool:
        """Whether sizes are still being tried at this step."""
        return step < self.rounds * ROUND

    def scales(self, first_step: int, steps: int) -> dict:
        """The sizes of the tile's next steps, by name: arrays (width, steps)."""
        if not self.learning(first_step):
            shape = self.width, steps
            return {name: np.broadcast_to(size, shape) for name, size in self.found().items()}
        offsets = self._offsets(first_step, steps)
        return self._sizes(offsets)

    def _sizes(self, offsets) -> dict:
        """The sizes that are so many decades from those given, by name."""
        return {
            name: _turn(tunable, self.given[name], offset)
            for tunable, offset in zip(self.tunables, offsets, strict=True)
            for name in tunable.names
        }

    def _offsets(self, first_step: int, steps: int) -> np.ndarray:
        """The decades by which each tunable is turned, for each chain and step."""
        step = first_step + np.arange(steps)
        chain = np.arange(self.width)[:, None]
        trial, together = step * self.width + chain, step * self.width + chain // NEIGHBOURS
        turned = np.empty((len(self.tunables), self.width, steps))
        for k, tunable in enumerate(self.tunables):
            half = self._half_range(step // ROUND, tunable)
            if tunable.whole:
                turned[k] = self.centres[k] + _mostly_small(half, _even(k, together))
            else:
                spread = 2 * _even(k, trial) - (1 if tunable.may_grow else 2)
                turned[k] = self.centres[k] + half * spread
        return np.clip(turned, -DECADES, DECADES)

    def found(self) -> dict:
        """The sizes as they were found."""
        return {name: size.item() for name, size in self._sizes(self.centres).items()}

    def _half_range(self, now, tunable):
        narrowed = 2 * np.minimum(now / max(1, self.rounds - 1), 1.0)
        if (
            tunable.whole
        ):  # only once the size of slides is known, for many of them take long to try
            return np.where(narrowed < 1, 0.0, LAST ** np.clip(narrowed - 1, 0, 1))
        return FIRST * (LAST / FIRST) ** np.minimum(narrowed, 1.0)

    def learn(self, trace: Trace, before: np.ndarray, first_step: int):
        """Take in what a block of steps, the first from `before`, was worth; maybe narrow."""
        if not self.learning(first_step):
            return
        steps = trace.code.shape[1]
        x = np.concatenate([before[:, None], trace.x], axis=1)
        distance = np.sum(np.diff(x, axis=1) ** 2, axis=-1)
        if trace.tally is not None:  # symmetries took it farther, whatever the sizes
            distance = trace.tally.travelled
        move = trace.code // len(Outcome)
        offsets = self._offsets(first_step, steps)
        for k, tunable in enumerate(self.tunables):
            mine = np.isin(move, tunable.moves)
            if tunable.whole:  # what the number is worth is seen with steps of the right size only
                mine &= np.abs(offsets[0] - self.centres[0]) < ALIKE
            cell = np.rint((offsets[k][mine] + DECADES) * CELLS).astype(int)
            worth = (distance if tunable.acceptance is None else trace.acceptance)[mine]
            self.record[k, 0] += np.bincount(cell, minlength=self.record.shape[2])
            self.record[k, 1] += np.bincount(cell, worth, minlength=self.record.shape[2])
        self.spread = max(FADING * self.spread, np.var(trace.x, axis=(0, 1)).sum())
        if (first_step + steps) % ROUND == 0:
            self._narrow((first_step + steps) // ROUND - 1)

    def _narrow(self, now):
        decades = np.arange(self.record.shape[2]) / CELLS - DECADES
        for k, tunable in enumerate(self.tunables):
            reach = self._half_range(now, tunable) / (4 if tunable.acceptance is None else 8)
            reach = max(reach, 1 / CELLS)
            blur = np.exp(-0.5 * ((decades[:, None] - decades) / reach) ** 2)
            tried, worth = self.record[k] @ blur
            known = (tried >= (ENOUGH if tunable.whole else 1)) & (
                tunable.may_grow | (decades <= 0)
            )
            if self.record[k, 0].sum() < ENOUGH or not known.any():
                continue
            if tunable.whole and not self._half_range(now, tunable):
                continue
            value = np.where(known, worth / np.maximum(tried, 1), 0.0)
            if tunable.whole:
                slides = _turn(tunable, self.given[tunable.names[0]], decades)
                slides = (self.record[k, 0] * slides) @ blur / np.maximum(tried, 1)
                value = np.where(known, self._effective(value) / np.maximum(slides, 1), 0.0)
                self.record[k] *= FADING  # of other step sizes
            best = NEARLY * value.max()
            if not best:  # no proposal succeeded: the steps are too large
                self.centres[k] = decades[known].min()
            elif tunable.acceptance is not None:
                self.centres[k] = decades[value >= min(tunable.acceptance, best)].max()
            elif tunable.whole:
                self.centres[k] = decades[value >= best].max()
            else:
                self.centres[k] = decades[value >= best].min()

    def _effective(self, distance):
        """Effective draws in a draw, from the mean squared distance between successive ones."""
        # a correlation of rho between them means a distance of 2 (1 - rho) variances
        rho = np.maximum(1 - distance / max(2 * self.spread, TINY), 0.0)
        return (1 - rho) / (1 + rho)


def _even(k, trial):
    """Numbers between 0 and 1 for these trials of a tunable."""
    return (0.5 + GOLDEN[k] * trial) % 1


def _mostly_small(half, even):
    """Decades from -half to half, the inverse square roots of whose powers are spread evenly.

    So powers are 1 in the mean: trajectories of a range of lengths take no more time than as many
    of the length in its middle.
    """
    root = 10.0 ** (half / 2)
    return -2 * np.log10(root * (1 - even) + even / root)


def _turn(tunable, given, decades):
    """A size as it is used, so many decades from the one given."""
    size = np.asarray(given * 10.0**decades)
    return np.clip(np.rint(size), 1, MOST_SLIDES) if tunable.whole else size
