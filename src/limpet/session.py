"""One session of a run: tiles, workers, a sink and whoever watches, from compiling to the tree."""

import threading
import time
from collections.abc import Sequence

import numpy as np
import xarray as xr

from limpet.draws.lending import lender_of
from limpet.draws.sink import DrawSink
from limpet.errors import ExecutorError, InterruptedWarning, StoreError, StuckError
from limpet.kernels import Kernel
from limpet.report import advice
from limpet.report.bonds import warn_of_rooms
from limpet.report.progress import Show
from limpet.report.reporter import Reporter
from limpet.report.variables import measure_variables
from limpet.run.executors import Coordinator, Executor
from limpet.run.mixing import Worst, worst
from limpet.run.scheduler import Scheduler
from limpet.run.signals import Signals, tell_interruption
from limpet.run.tile_run import LOOK, TileRun


class Session:
    """The tiles of a run until every chain has its draws, or somebody says stop."""

    def __init__(
        self, kernel: Kernel, tiles: Sequence[TileRun], sink: DrawSink, show: Show, began: float
    ):
        """`began` is when the work on this session did."""
        self.kernel, self.tiles, self.sink, self.began = kernel, tiles, sink, began
        self.specification = sink.specification
        self.reporter = Reporter(tiles, self.specification, show, began)
        self.seen: Worst | None = None  # how the draws of the last stage mix, of a run with a goal
        self.further: int | None = None  # draws of a stage that nobody began

    def go(
        self, workers: int, executor: Executor | None = None, stop_at_once: bool = False
    ) -> xr.DataTree:
        """All draws, or those that there were time for; by threads, or by an executor's workers."""
        for tile in self.tiles:
            self.sink.commit(tile)  # the first state of each: draws are never without one
        self.sink.finish()
        with Signals() as signals, self.sink:
            if stop_at_once:
                signals.stop.set()
            with signals.nothing_to_lose():
                self._compile(signals.stop)
            error = None if signals.stop.is_set() else self._draw(signals.stop, workers, executor)
            error = error or self._commit()
        phase = self.reporter.phase
        if error is None:
            self.reporter.tell("done", signals.stop)
            error = self.reporter.failure
        if isinstance(error, StoreError | ExecutorError):
            error.draws = self.sink.remains(self.tiles)
        if error is not None:
            raise error
        return self._result(signals.came, phase)

    def _compile(self, stop: threading.Event):
        compiling_since = time.perf_counter()
        try:
            if not stop.is_set():
                self.reporter.tell("compile", stop)
            for tile in () if stop.is_set() else self.tiles:
                tile.compile()
        finally:
            now = time.perf_counter()
            for tile in self.tiles:
                tile.count_from(now, compiling_since - self.began, now - compiling_since)

    def _draw(self, stop, workers, executor) -> BaseException | None:
        """Make draws, and more of them while they are not enough; the first error."""
        while True:
            error = self._advance(stop, workers, executor) or self._look_at_goal()
            if error is not None or stop.is_set() or self.further is None:
                return error
            self.sink.extend(self.further)
            self.specification = self.reporter.specification = self.sink.specification
            for tile in self.tiles:
                tile.extend(self.specification)

    def _look_at_goal(self) -> BaseException | None:
        """See whether the draws of a stage are enough; what went wrong."""
        goal, self.further = self.specification.goal, None
        if goal is None or not all(tile.done for tile in self.tiles):
            return None
        if error := self._commit():
            return error
        try:
            _, found = measure_variables(self.sink.tree(self.tiles)["posterior"].to_dataset())
        except StoreError as error:
            return error
        self.seen = worst(found.r_hat, found.ess, np.arange(len(found.ess)))
        gaps = self.kernel.draw_share() < 1
        self.further = goal.further(self.specification.draws, self.seen, gaps)

    def _advance(self, stop, workers, executor) -> BaseException | None:
        """Let the tiles advance until the end, and tell how far they are; the first error."""
        if executor is None:
            scheduler = Scheduler(self.tiles, self.sink.put, stop, workers)
        else:
            how = executor, workers, lender_of(self.sink)
            scheduler = self.reporter.coordinator = Coordinator(self.tiles, self.sink, stop, *how)
        working = True
        while working:
            self.reporter.look(stop)
            working = scheduler.wait(LOOK)
        if isinstance(scheduler, Coordinator):
            scheduler.close()
        return scheduler.error

    def _commit(self) -> BaseException | None:
        """Make everything safe; what went wrong."""
        try:
            for tile in self.tiles:
                self.sink.commit(tile)
            self.sink.finish()
        except BaseException as error:
            return error

    def _result(self, signal_number, phase):
        for tile in self.tiles:
            advice.warn_of_singular_surface(*tile.first_and_last())
        stuck = [tile for tile in self.tiles if tile.stuck.any()]
        if stuck:
            remains = self.sink.remains(self.tiles)
            message = advice.stuck_message(self.kernel, stuck)
            if remains is not None and not self.sink.resumable:
                message += f" {advice.finished_chains(remains)}"
            raise StuckError(message, remains)
        draws, asked = self.reporter.common(), self.specification.draws
        tree = self.sink.tree(self.tiles)
        goal, unmet = self.specification.goal, draws < asked or self.further is not None
        if unmet or signal_number is not None:  # it may have come at the very end
            message = advice.interruption(draws, asked, phase, self.sink.resumable, goal)
            tell_interruption(InterruptedWarning(message, signal_number))
        elif goal is not None and self.seen is not None and not goal.reached(self.seen):
            advice.warn_of_goal(goal, self.seen, tree["posterior"].to_dataset())
        layout = self.specification.layout
        n, m = layout.size, self.specification.constraints
        dimension = n - m if m < n else n  # of what slides are along
        posterior = tree["posterior"].to_dataset()
        advice.warn_of_units(self.tiles, posterior)
        warn_of_rooms(self.tiles[0].target, posterior)
        advice.warn_of(tree, self.kernel, layout, dimension, self.reporter.mixing())
        return tree
