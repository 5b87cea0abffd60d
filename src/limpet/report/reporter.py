"""What a run tells of itself while it goes on, and when it is told to stop."""

import threading
import time
from collections.abc import Sequence

import numpy as np

from limpet.kernels.states import Move
from limpet.report.progress import Progress, Show
from limpet.run.executors import Coordinator
from limpet.run.mixing import Worst
from limpet.run.online import UNKNOWN, mixing
from limpet.run.specification import RunSpecification
from limpet.run.standing import Standing
from limpet.run.tile_run import TileRun

# times the cost of an estimate of mixing until the next: of many chains it takes long; and the same
# where workers are elsewhere, whom one process has to serve
IDLE, IDLE_FOR_OTHERS = 20.0, 300.0


def says_stop(answer: object) -> bool:
    """Whether a function that was shown the progress asks the run to stop."""
    return isinstance(answer, bool | np.bool_) and not answer  # not None, nor a count of zero


class Reporter:
    """The figures of a run, taken from its tiles, for a function that shows them."""

    def __init__(
        self,
        tiles: Sequence[TileRun],
        specification: RunSpecification,
        show: Show,
        began: float,
    ):
        self.tiles, self.specification = tiles, specification
        self.show, self.began = show, began
        self.phase = "start"  # that was told last
        self.since: tuple[float, int] | None = None  # when this phase began, with what was done
        self.failure: Warning | None = None
        self.mixed, self.next_mixing = UNKNOWN, -np.inf  # the last estimate, and when to renew it
        self.coordinator: Coordinator | None = None  # of workers elsewhere

    def look(self, stop: threading.Event):
        """Tell how far the run is while tiles advance."""
        standings = self._standings()
        drawing = self.specification.warmup == 0 or all(now.drawing for now in standings)
        self.tell("draws" if drawing else "warmup", stop, standings)

    def tell(self, phase: str, stop: threading.Event, standings: list[Standing] | None = None):
        """Tell how far the run is, in one of the phases of `Progress`; `stop` if that is asked."""
        if phase != self.phase and (self.phase, phase) != ("draws", "done"):
            self.since = None
        self.phase = phase
        try:
            if says_stop(self.show(self._progress(standings or self._standings()))):
                stop.set()
        except Warning as warning:  # made an error by the user: not before the draws are safe
            self.failure = self.failure or warning
            stop.set()

    def common(self) -> int:
        """Draws that every chain has."""
        fewest = min(int(tile.collector.draws.min()) for tile in self.tiles)
        return min(fewest, self.specification.draws)

    def mixing(self) -> Worst:
        """How well the chains mix."""
        if self.coordinator is not None:
            self.coordinator.catch_up()
        return mixing([tile.online for tile in self.tiles], self.common())

    def _standings(self) -> list[Standing]:
        if self.coordinator is not None:
            return self.coordinator.standings
        return [tile.standing() for tile in self.tiles]

    def _progress(self, standings):
        drawn = self._drawn(standings)
        asked = self.specification.chains * self.specification.draws
        now, rate, left, goal = time.perf_counter(), None, None, self.specification.goal
        done = sum(tile.step for tile in standings) if self.phase == "warmup" else drawn
        settled = self._settled(standings)
        if settled is not None:  # trajectories become longer and shorter: there is no pace
            self.since = None
        since, before = self.since = self.since or (now, done)
        if done > before and self.phase != "compile":
            pace = (done - before) / (now - since)
            if self.phase == "warmup":
                left = sum(tile.steps_left for tile in standings) / pace
            else:
                rate, left = pace, (asked - drawn) / pace
                if goal is not None:
                    needed = drawn * goal.ess / self.mixed.ess  # NaN while nothing is known
                    left = None if np.isnan(needed) else max(0.0, needed - drawn) / pace
        least = min(standings, key=lambda tile: tile.step)
        longest = least.step + least.warmup_left if self.phase == "warmup" else least.warmup
        mixed = UNKNOWN if self.phase in ("compile", "warmup") else self._estimate(now)
        return Progress(
            phase=self.phase,
            draws=drawn,
            asked=asked,
            chains=self.specification.chains,
            draws_per_second=rate,
            seconds_left=left,
            acceptance=self._acceptance(standings),
            r_hat=None if np.isnan(mixed.r_hat) else mixed.r_hat,
            ess=None if np.isnan(mixed.ess) else mixed.ess,
            elapsed=now - self.began,
            steps=min(least.step, longest),
            warmup=longest,
            workers=None if self.coordinator is None else self.coordinator.workers,
            ends_by_itself=self.specification.warmup is None,
            settled=settled,
            ess_asked=None if goal is None else goal.ess,
        )

    def _settled(self, standings):
        """Rounds without a change, of the tile that has the fewest; None if no tile learns."""
        if self.phase != "warmup" or self.specification.warmup is not None:
            return None
        return min((tile.quiet for tile in standings if tile.quiet is not None), default=None)

    def _estimate(self, now):
        """How well the chains mix, or did a short while ago."""
        if now >= self.next_mixing or self.phase == "done":
            self.mixed = self.mixing()
            took = time.perf_counter() - now
            idle = IDLE if self.coordinator is None else IDLE_FOR_OTHERS
            self.next_mixing = now + took + idle * took
        return self.mixed

    def _drawn(self, standings):
        made = np.concatenate([tile.draws for tile in standings])
        return int(np.minimum(made, self.specification.draws).sum())

    def _acceptance(self, standings):
        counts = np.sum([tile.counts for tile in standings], axis=0)
        likely = np.sum([tile.acceptance for tile in standings], axis=0)
        return {
            name: float(likely[move] / counts[move]) if counts[move] else None
            for name, move in ((name, Move[name.upper()]) for name in self.specification.moves)
        }
