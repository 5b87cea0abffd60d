"""Which tile is advanced next, and by whom."""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from limpet.engine.interrupts import AbandonedError, leaving_if, not_done
from limpet.run.quantities import Draws
from limpet.run.tile_run import TileRun


class Scheduler:
    """Workers that advance tiles, always the one that is most behind."""

    def __init__(
        self,
        tiles: Sequence[TileRun],
        advanced: Callable[[TileRun, dict[str, Draws]], None],
        stop: threading.Event,
        workers: int,
    ):
        """Begin; `advanced` is told of each advance and of its draws, by the worker that made it.

        Workers end when all tiles are done or stuck, when `stop` is set, or at the first error.
        """
        self.tiles, self.advanced, self.stop = tiles, advanced, stop
        self.error: BaseException | None = None
        self._waiting: queue.PriorityQueue[tuple[int, int]] = queue.PriorityQueue()
        for k, tile in enumerate(tiles):
            if not tile.done:
                self._waiting.put((tile.step, k))
        count = min(workers, len(tiles))
        threads = ThreadPoolExecutor(count)
        self._work: list[Future[None]] = [threads.submit(self._advance) for _ in range(count)]
        threads.shutdown(wait=False)

    def wait(self, seconds: float) -> bool:
        """Whether anybody is still at work after so many seconds at most."""
        return bool(not_done(self._work, seconds))

    def _advance(self):
        while not self.stop.is_set() and self.error is None:
            try:
                _, k = self._waiting.get_nowait()
            except queue.Empty:
                return
            tile = self.tiles[k]
            try:
                with leaving_if(self.stop.is_set):
                    draws = tile.advance()
                self.advanced(tile, draws)
                if not tile.done and not tile.stuck.any():
                    self._waiting.put((tile.step, k))
            except AbandonedError:  # it was compiling, before its next step
                return
            except BaseException as error:
                self.error = self.error or error
