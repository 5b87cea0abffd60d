"""The search for step sizes, and for the length of trajectories.

Every step of every chain of a tile tries a size of its own, spread evenly in the logarithm over a
range that narrows as more is known. Hard moves are there to travel: what their size is worth is the
mean squared distance that proposals went, for it makes successive points least alike; of sizes
almost as good the smallest is taken, whose proposals fail less. Where a Hard move is a trajectory
of several slides, 85 in a hundred of these are to be accepted. There are to be as many slides as
give the most effective draws per slide in the slowest direction, of coordinates and of the widest
one; of numbers almost as good the largest is taken in small models. Long trajectories are tried
less often, and by neighbours together, for chains that are computed side by side wait for the
longest. Soft moves are to be accepted in two cases of five, as the paper has it. Off and On moves
change sides, for which any small size will do: theirs is lowered if half of them are refused, and
else left alone. Where a size is of several moves, each of them is to be accepted as often as that.
"""

import numpy as np

from limpet.kernels.base import Kernel
from limpet.kernels.states import Outcome
from limpet.run.tile import Trace

CELLS = 20  # of the histogram, per factor of ten
DECADES = 8.0  # how far a size may be turned, up or down
# half the range tried in the first round and in the last, in decades: at the end so narrow that
# most trials tell of numbers of slides, too
FIRST, LAST = 4.0, 0.15
LAST_SLIDES = 0.3  # the same of numbers of slides, whose first is 1
NARROWING = 2  # rounds in which the range of sizes narrows, and then that of numbers of slides
MOST_SLIDES = 2**10  # of a trajectory: only what has no end of its own meets it
# decades by which a number of slides grows in a round: one look may be wrong by a factor of ten,
# and one round of 101 slides was a fifth of a whole run of 20 quadratics in 60 unknowns
GROWTH = 0.3
NEIGHBOURS = 8  # chains that try the same number of slides: no fewer than go side by side
ALIKE = 0.1  # decades from the best step size at which a number of slides is judged
FADING = 0.8  # of what was known a round ago of numbers of slides: each is tried seldom in one
TINY = 1e-300
ENOUGH = 20  # proposals below which nothing is known
NEARLY = 0.95  # of the best is as good as the best
# Of numbers of slides that are as good the largest up to a few is taken with few unknowns, for a
# run has as many draws as were asked for, and each tells more then; slides of a small model take
# less time than compiling it, with 60 unknowns they took most of a run. Where symmetries follow the
# smallest is taken, for draws owe them the rest.
FEW, FEW_UNKNOWNS = 12, 16
BESIDE = 1.0  # slides that a draw costs beside its own: random numbers, the first force, collecting
MOVED = 0.1  # decades by which a size changes that is not settled
WATCHED = 32  # coordinates that are judged by: as many as R-hat is told of
MOST_FOR_WIDEST = 512  # coordinates up to which the widest direction is looked for
# multiples of these are spread evenly, also jointly
GOLDEN = (0.7548776662466927, 0.5698402909980532, 0.6180339887498949, 0.41421356237309515)


class Tuner:
    """The search for one tile's step sizes; what `snapshot` has is all that it knows."""

    def __init__(
        self, kernel: Kernel, given: dict, shape: tuple[int, int], rounds: int | None, crowded: bool
    ):
        """For so many chains with so many numbers each; `rounds` is how many there are at most."""
        self.tunables = kernel.crowded_tunables if crowded else kernel.tunables
        self.given = given  # the sizes that the search started from
        self.width, n = shape
        self.coordinates = np.unique(np.linspace(0, n - 1, min(n, WATCHED)).round().astype(int))
        cells = int(2 * DECADES * CELLS) + 1
        # of each tunable, each of its moves and cell: proposals, what they were worth in all, and
        # how far they went, squared
        most = max((len(tunable.moves) for tunable in self.tunables), default=1)
        self.record = np.zeros((len(self.tunables), most, 3, cells))
        self.centres = np.zeros(len(self.tunables))  # decades from the sizes given
        # of each direction: squared distances in all, by cell of the number of slides; variance
        self.jumps = np.zeros((len(self.coordinates) + 1, cells))
        self.variances = np.zeros(len(self.coordinates) + 1)
        self.widest = np.full(n, n**-0.5)  # a unit vector
        self.narrowed = 0.0  # 1 once sizes are known, 2 once numbers of slides are
        steps = 2 * NARROWING if rounds is None else min(2 * NARROWING, max(1, rounds - 1))
        self.pace = 2 / steps  # by which `narrowed` grows in a round
        self.worth = 0.0  # effective draws per slide, as found last

    SNAPSHOT = ("record", "centres", "jumps", "variances", "widest", "narrowed", "worth")

    def scales(self, first_step: int, steps: int) -> dict:
        """The sizes to try in the tile's next steps, by name: arrays (width, steps)."""
        return self._sizes(self._offsets(first_step, steps))

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
            half = self._half_range(tunable)
            if tunable.whole:
                turned[k] = self.centres[k] + _mostly_small(half, _even(k, together))
            else:
                spread = 2 * _even(k, trial) - (1 if tunable.may_grow else 2)
                turned[k] = self.centres[k] + half * spread
        return np.clip(turned, -DECADES, DECADES)

    def found(self) -> dict:
        """The sizes as they were found."""
        return {name: size.item() for name, size in self._sizes(self.centres).items()}

    @property
    def slides(self) -> float:
        """Slides of a trajectory, as found; 1 where that is not the tuner's to find."""
        return max((self._size(k) for k, t in enumerate(self.tunables) if t.whole), default=1.0)

    @property
    def knows_slides(self) -> bool:
        """Whether that number has been tried in more than one round, so that it is no accident."""
        return self.worth > 0 and self.narrowed >= 1.5

    def _size(self, k: int) -> float:
        tunable = self.tunables[k]
        return float(_turn(tunable, self.given[tunable.names[0]], self.centres[k]))

    def _half_range(self, tunable):
        if tunable.whole:  # only once the size of slides is known: many of them take long to try
            return 0.0 if self.narrowed < 1 else LAST_SLIDES ** np.clip(self.narrowed - 1, 0, 1)
        return FIRST * (LAST / FIRST) ** min(self.narrowed, 1.0)

    def learn(self, trace: Trace, z: np.ndarray, first_step: int) -> bool:
        """Take in a round of steps, and narrow; whether sizes are about what they were.

        `z` has the points (chain, step, number), also those before the first step.
        """
        move = trace.code // len(Outcome)
        offsets = self._offsets(first_step, move.shape[1])
        total = np.sum(np.diff(z, axis=1) ** 2, axis=-1)
        seen = self._directions(z)
        variances = np.var(seen[:, :, 1:], axis=(1, 2))
        squares = np.diff(seen, axis=2) ** 2
        farther = trace.tally if trace.exchanges is None else trace.exchanges
        if farther is not None:  # symmetries or exchanges took it there, whatever the sizes
            total = farther.travelled
            squares = variances[:, None, None] * total / max(np.var(z, axis=(0, 1)).sum(), TINY)
        self.variances = variances if not self.variances.any() else (variances + self.variances) / 2
        for k, tunable in enumerate(self.tunables):
            cells = np.rint((offsets[k] + DECADES) * CELLS).astype(int)
            worth = total if tunable.acceptance is None else trace.acceptance
            for record, one in zip(self.record[k], tunable.moves, strict=False):
                mine = move == one
                if tunable.whole:  # what it is worth is seen with steps of the right size only
                    mine &= np.abs(offsets[0] - self.centres[0]) < ALIKE
                tried = np.bincount(cells[mine], minlength=record.shape[1])
                gains = (
                    np.bincount(cells[mine], each[mine], minlength=len(tried))
                    for each in (worth, total)
                )
                record += tried, *gains
                for jumps, square in zip(self.jumps, squares, strict=True):
                    if tunable.whole:
                        jumps += np.bincount(cells[mine], square[mine], minlength=len(jumps))
        moved = self._narrow(helped=trace.tally is not None)
        if len(self.widest) <= MOST_FOR_WIDEST:
            rows = z[:, 1:].reshape(-1, z.shape[2])
            self.widest = np.linalg.eigh(np.atleast_2d(np.cov(rows, rowvar=False)))[1][:, -1]
        # thirds do not add up to 1 or 2 in floats
        settled = self.narrowed > 1 + any(t.whole for t in self.tunables) - self.pace / 2
        self.narrowed = min(self.narrowed + self.pace, 2.0)
        return settled and not moved

    def _directions(self, z: np.ndarray) -> np.ndarray:
        """What is watched of points (chain, step, number), a row (chain, step) for each."""
        return np.stack([*np.moveaxis(z[:, :, self.coordinates], 2, 0), z @ self.widest])

    def _narrow(self, helped: bool) -> bool:
        """Find the best sizes, `helped` by symmetries or not; whether some are quite others."""
        before, as_good = self.centres.copy(), np.zeros(len(self.centres), bool)
        decades = np.arange(self.record.shape[-1]) / CELLS - DECADES
        for k, tunable in enumerate(self.tunables):
            half = self._half_range(tunable)
            # the best number of slides is ill-defined, and each is tried seldom: look at many
            reach = max(half / (2 if tunable.whole else 4), 1 / CELLS)
            blur = np.exp(-0.5 * ((decades[:, None] - decades) / reach) ** 2)
            record = self.record[k].sum(axis=0)
            tried, worth, went = record @ blur
            known = (tried >= (ENOUGH if tunable.whole else 1)) & (
                tunable.may_grow | (decades <= 0)
            )
            if record[0].sum() < ENOUGH or not known.any() or not half:
                continue
            # as if some more had gone nowhere, so that a few far ones choose no size
            value = np.where(known, worth / (tried + ENOUGH), 0.0)
            if tunable.whole:
                slides = _turn(tunable, self.given[tunable.names[0]], decades)
                slides = (record[0] * slides) @ blur / np.maximum(tried, 1)
                effective = self._effective(self.jumps @ blur / np.maximum(tried, 1))
                value = np.where(known, effective / (np.maximum(slides, 1) + BESIDE), 0.0)
                self.worth = float(value.max())
                self.record[k] *= FADING  # of other step sizes
                self.jumps *= FADING
            elif tunable.acceptance is not None:
                # of several moves the one that is accepted least
                moves = [each for each in self.record[k] if each[0].sum() >= ENOUGH]
                if tunable.bounces:
                    far = np.where(known, went / (tried + ENOUGH), 0.0)
                    known &= decades <= decades[far >= NEARLY * far.max()].min()
                    moves = [each * known for each in moves]
                value = np.min([_falling(*each[:2]) for each in moves or [record]], axis=0) * known
            best = NEARLY * value.max()
            if not best:  # no proposal succeeded: the steps are too large
                self.centres[k] = decades[known].min()
            elif tunable.acceptance is not None:
                self.centres[k] = decades[value >= min(tunable.acceptance, best)].max()
            elif tunable.whole:
                # the number is ill-defined: what it was may be as good
                as_good[k] = np.interp(before[k], decades, value) >= best
                good, most = value >= best, FEW if len(self.widest) <= FEW_UNKNOWNS else 0
                few = (slides <= most) | (decades <= decades[value.argmax()])
                wanted = decades[good].min() if helped else decades[good & few].max()
                self.centres[k] = min(wanted, before[k] + GROWTH)
            else:
                self.centres[k] = decades[value >= best].min()
        return bool(((np.abs(self.centres - before) > MOVED) & ~as_good).any())

    def _effective(self, distances):
        """Effective draws in a draw of the slowest direction, from mean squared distances."""
        # a correlation of rho between draws means a distance of 2 (1 - rho) variances
        variances = np.maximum(2 * self.variances, TINY)[:, None]
        rho = np.maximum(1 - distances / variances, 0.0)
        moves = self.variances > 0
        return ((1 - rho) / (1 + rho))[moves].min(axis=0, initial=1.0)

    def begin_again(self, stretch: np.ndarray, centres: np.ndarray | None = None):
        """Forget sizes, now that the axes of z are so many times as long; or take those given.

        Trajectories are short again until sizes are known.
        """
        self.record[...], self.jumps[...], self.variances[...], self.worth = 0, 0, 0, 0.0
        shift = -np.log10(np.median(stretch))  # so that most directions are as they were
        for k, tunable in enumerate(self.tunables):
            if tunable.whole:
                self.centres[k] = 0.0
            elif tunable.may_grow:
                self.centres[k] = np.clip(self.centres[k] + shift, -DECADES, DECADES)
            else:  # it would only ever fall
                self.centres[k] = 0.0
        if centres is not None:
            self.centres = centres.copy()
        self.narrowed = min(self.narrowed, max(0.0, 1 - self.pace))

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that it knows, by name."""
        return {name: np.array(getattr(self, name), float) for name in self.SNAPSHOT}

    def restore(self, snapshot: dict[str, np.ndarray]):
        """Go on from a snapshot."""
        for name in self.SNAPSHOT:
            array = snapshot[name]
            setattr(self, name, array.copy() if array.ndim else float(array))


def _even(k, trial):
    """Numbers between 0 and 1 for these trials of a tunable."""
    return (0.5 + GOLDEN[k] * trial) % 1


def _falling(tried, worth):
    """The mean worth by cell, fitted so that it never rises from one to the next.

    The fit is that of least squares. So no size looks better than smaller ones by luck. Cells not
    tried are as those beside them; beyond the last one that was, nothing is worth anything.
    """
    seen = np.flatnonzero(tried)
    count, total = (np.cumsum([0.0, *each[seen]]) for each in (tried, worth))
    cells = np.triu(np.ones((len(seen), len(seen)), bool))  # from j to k
    means = (total[1:] - total[:-1, None]) / np.where(cells, count[1:] - count[:-1, None], 1)
    highest = np.maximum.accumulate(np.where(cells, means, 0.0)[:, ::-1], axis=1)[:, ::-1]
    fit = np.diagonal(np.minimum.accumulate(highest, axis=0))
    return np.interp(np.arange(len(tried)), seen, fit, right=0.0)


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
