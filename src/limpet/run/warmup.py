"""Warm-up of one tile: rounds that learn, then steps with all found that forget where these led.

A round tries sizes (`limpet.run.tuning`) and looks at the shape of the draws (`limpet.run.shape`);
it has about as many steps of all chains together whatever their number. Trajectories are short at
first, and long ones are tried only when sizes and shape are known. Nothing changes afterwards: all
that is found is frozen before the first draw.

With a given number of steps, three quarters of them are for rounds. Without one, rounds end when
sizes and shape have been about the same in two of them, and warm-up when its frozen steps show that
chains agree, or at `LONGEST`; where constraints come and go, chains must agree at least on how many
of them hold.
"""

import numpy as np

from limpet.frame import Frame
from limpet.kernels.base import Kernel
from limpet.run.mixing import APART, QUIET
from limpet.run.shape import SETTLED, Shape
from limpet.run.tile import Trace
from limpet.run.tuning import Tuner

SHARE = 0.75  # of a warm-up of given length that is spent on rounds
LONGEST = 1_000  # steps of one that ends by itself
# the same, while chains disagree on how many constraints hold: their starts have labels of few
# kinds, which some clusters forget only after thousands of steps
LONGEST_OF_BONDS = 32_000
MOST_WORK = 2**16  # slides of a chain in rounds that end by themselves; twice that in all warm-up
# steps of all chains together in a round, about: with one kind of move, and for each of several, of
# which some are made seldom; with half as many there, sizes of SAS were lowered by chance
TRIALS, TRIALS_EACH = 1_024, 2_048
SHORTEST_ROUND, LONGEST_ROUND = 16, 64  # steps
LAST_ROUNDS = 3  # in which sizes settle: the frame does not change in them
LEAST_ACCEPTED = 0.25  # of proposals in a round whose draws tell a shape: a choice
MOST_CHANGES = 8  # of the frame: a width of a million needs four
LONG = 12  # slides of a trajectory from which on no diagonal is tried, for it may save some
POLISHED = 1.2  # ratio of widths up to which a frame is left alone when all is settled: a choice
BETTER = 1.25  # times as many effective draws per slide, by which it must be better: it costs more
BETTER_ALONG = 3.0  # the same with directions: on a plain sphere a slide takes 3 times as long


class Warmup:
    """How far a tile's warm-up is, and what it has found."""

    def __init__(
        self,
        kernel: Kernel,
        given: dict,
        starts: np.ndarray,
        steps: int | None,
        crowded: bool,
        shape: Shape,
    ):
        """Of so many steps, or as many as it takes; `given` are the sizes that it begins with."""
        width, _ = starts.shape
        self.round = round_steps(width, len(kernel.moves))
        self.most = (int(SHARE * steps) if steps is not None else LONGEST) // self.round
        self.adaptive = steps is None
        self.shape = shape
        self.tuner = Tuner(
            kernel, given, starts.shape, None if self.adaptive else self.most, crowded
        )
        self.rounds, self.quiet, self.spent = 0, 0, 0  # spent: slides of a chain, about
        self.learned_at = 0 if self.most == 0 else -1  # steps after which rounds ended
        self.steps = -1 if steps is None else steps  # of all warm-up; -1 while it is not known
        self.before = np.zeros(len(self.tuner.centres) + 1)  # sizes and worth of a diagonal frame
        self.diagonal = np.zeros((2, starts.shape[1]))  # its centre and scale
        self.changes = 0  # of the frame
        # coordinates whose widths never settled, so that no frame was found
        self.unsettled = np.zeros(starts.shape[1], bool)
        self.polished = 0  # whether the frame was looked at once more, when all was settled
        self.trial = 0  # of a frame that is no diagonal: 0 not yet, 1 under way, 2 over

    @property
    def learning(self) -> bool:
        """Whether sizes are still being tried."""
        return self.learned_at < 0

    def is_over(self, step: int) -> bool:
        """Whether a chain that has made so many steps is past it."""
        return 0 <= self.steps < step

    def left(self, step: int) -> int:
        """About how many steps are left after so many: at most, where it ends by itself."""
        longest = LONGEST if step < LONGEST else LONGEST_OF_BONDS
        return max(0, (longest if self.steps < 0 else self.steps) - step)

    def scales(self, first_step: int, steps: int) -> dict:
        """The sizes of the tile's next steps, by name: arrays (width, steps)."""
        if self.learning:
            return self.tuner.scales(first_step, steps)
        shape = self.tuner.width, steps
        return {name: np.broadcast_to(size, shape) for name, size in self.tuner.found().items()}

    def learn(self, trace: Trace, z: np.ndarray, first_step: int) -> Frame | None:
        """Take in a round: the frame from here on, if it is another one.

        `z` has the points of all chains (chain, step, number), also those before the first step.
        """
        same = self.tuner.learn(trace, z, first_step)
        self.rounds += 1
        self.spent += self.round * self.tuner.slides
        frame, centres = None, None
        # the first round is too wild to look at, and chains that are stuck tell nothing
        looks = self.rounds > 1 and np.mean(trace.acceptance) >= LEAST_ACCEPTED
        # sizes in a new frame want rounds of their own
        looks &= self.rounds <= self.most - LAST_ROUNDS and self.spent < MOST_WORK / 2
        if looks:
            frame = self._learn_frame(z[:, 1:], same)
        self.quiet = self.quiet + 1 if same and frame is None else 0
        ends = self.rounds >= self.most or self.spent >= MOST_WORK
        if (ends or self.quiet >= QUIET) and self._was_better():
            frame, centres = Frame(self.diagonal[0], self.diagonal[1]), self.before[:-1]
        if frame is not None:
            self.tuner.begin_again(_stretch(self.shape.frame, frame), centres)
            self.shape.move_to(frame)
            self.quiet = 0
        if ends or (self.adaptive and self.quiet >= QUIET):
            self.learned_at = first_step + trace.code.shape[1]
        return frame

    def _learn_frame(self, z: np.ndarray, same: bool) -> Frame | None:
        """The frame that the last draws ask for, if it is another one."""
        if self.changes > MOST_CHANGES:
            return None
        worth = min(1.0, self.tuner.worth * self.tuner.slides)
        frame = self.shape.learn(z, worth)
        frame = self._full_frame(z, worth) if frame is None else frame
        if frame is None and same and self.quiet + 1 >= QUIET and not self.polished:
            self.polished = 1  # what was found on the way may be improved now that chains mix
            # widths alone: a triangular frame would take as many rounds again for little
            if not (self.shape.frame.is_plain or self.shape.is_full):
                frame = self.shape.learn(z, worth, POLISHED)
        if frame is None:
            return None
        self.changes += 1
        if self.changes > MOST_CHANGES:  # there is no telling: take the unknowns as they are
            self.trial = 2
            self.unsettled = _unsettled(self.shape.frame, frame)
            return Frame.plain(z.shape[2])
        return frame

    def _full_frame(self, z: np.ndarray, worth: float) -> Frame | None:
        """A frame that is no diagonal, if trajectories are so long that it may shorten them."""
        tuner, shape = self.tuner, self.shape
        if self.trial or not tuner.knows_slides or tuner.slides < LONG:
            return None
        frame = shape.full(z, worth)
        if frame is not None:
            self.trial = 1
            self.before = np.array([*tuner.centres, tuner.worth])
            self.diagonal = np.stack([shape.frame.centre, shape.frame.scale])
        return frame

    def _was_better(self) -> bool:
        """Whether the diagonal frame was the better one, now that the other one has been tried."""
        if self.trial != 1:
            return False
        self.trial = 2
        least = BETTER_ALONG if self.shape.is_directed else BETTER
        return self.tuner.worth < least * self.before[-1]

    def settle(self, step: int, r_hat: float, r_hat_of_bonds: float = np.nan):
        """End warm-up after so many steps, if chains agree that well, also on how many bonds."""
        self.spent += self.round * self.tuner.slides
        longest = LONGEST_OF_BONDS if r_hat_of_bonds > APART else LONGEST
        if r_hat <= APART or step >= longest or self.spent >= 2 * MOST_WORK:
            self.steps = step

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that it knows, by name."""
        whole = [self.rounds, self.quiet, self.learned_at, self.trial, self.spent]
        whole += [self.polished, self.changes]
        known = {"warmup": np.array(whole, int), "diagonal_sizes": self.before}
        known |= {"diagonal_frame": self.diagonal, "warmup_steps": np.int64(self.steps)}
        known |= {"unsettled": self.unsettled}
        return known | self.tuner.snapshot() | self.shape.snapshot()

    def restore(self, snapshot: dict[str, np.ndarray]):
        """Go on from a snapshot."""
        *whole, self.polished, self.changes = snapshot["warmup"].tolist()
        self.rounds, self.quiet, self.learned_at, self.trial, self.spent = whole
        self.steps = int(snapshot["warmup_steps"])
        self.before = snapshot["diagonal_sizes"].copy()
        self.diagonal = snapshot["diagonal_frame"].copy()
        self.unsettled = snapshot["unsettled"].copy()
        self.tuner.restore(snapshot)
        self.shape.restore(snapshot)


def _stretch(then: Frame, now: Frame) -> np.ndarray:
    """How many times as long the axes of z are as before."""
    if then.scale.ndim == now.scale.ndim == 1:
        return now.scale / then.scale  # but for a few directions
    was, new = (np.diag(f.scale) if f.scale.ndim == 1 else f.scale for f in (then, now))
    return np.linalg.svd(np.linalg.solve(was, new), compute_uv=False)


def _unsettled(then: Frame, now: Frame) -> np.ndarray:
    """Coordinates that have become wider or narrower than most did: one at least."""
    change = np.log(now.widths / then.widths)
    moved = np.abs(change - np.median(change))
    return moved >= min(np.log(SETTLED), moved.max())


def round_steps(width: int, moves: int) -> int:
    """Steps of a round of so many chains that choose among so many moves."""
    trials = TRIALS if moves == 1 else TRIALS_EACH * moves
    steps = 1 << max(0, (trials - 1) // width).bit_length()
    return int(np.clip(steps, SHORTEST_ROUND, LONGEST_ROUND))
