"""When a run commits: often, in the background, and with little waiting to be written.

Each tile commits every second or two, whatever a write costs, and sooner if it is fast: what waits
for the disk is bounded in time and in bytes, so memory stays flat, a stop is prompt, and a kill
loses seconds. On a disk slower than the run, the run waits.
"""

import collections
import dataclasses
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from limpet.draws.chunks import TileChunks
from limpet.draws.writer import Store
from limpet.run.tile_run import TileRun

SOONEST = 1.0  # seconds between two commits of a tile, at least, if little waits
LATEST = 2.5  # seconds between two commits of a tile, at most: with the writing, never five
SHARE = 0.05  # of the time that writing may take while that needs no longer waits than these
# bytes that may wait to be written, and as many to be handed over: a disk that writes fifty
# megabytes a second is done with both in little more than a second
WAITING = 2**25


@dataclasses.dataclass
class _Tile:
    """What is known of a tile's commits."""

    since: float = -np.inf  # when it was last handed over
    looked: float = np.inf  # when it was last looked at
    moment: tuple[int, float] = (-1, 0.0)  # its step and its time, when it was last handed over
    writing: Future | None = None  # gives the seconds that it took


class Commits:
    """The commits of a run to a store; one thread writes."""

    def __init__(self, store: Store, tiles: int, rarely: bool = False):
        """Of so many tiles; `rarely` if others are asked for soon (of tasks, at their end)."""
        self.store, self.share, self.rarely = store, WAITING / tiles, rarely
        self.tiles: dict[int, _Tile] = collections.defaultdict(_Tile)
        self.writer = ThreadPoolExecutor(1, "limpet-store")
        self.waiting = 0  # bytes on their way
        self.written = threading.Condition()

    def close(self):
        """Write what is on its way, and take no more."""
        self.writer.shutdown()

    def know(self, tile: TileRun):
        """Take note that the store has a tile as it is."""
        self.tiles[tile.index] = _Tile(since=time.monotonic(), moment=_moment(tile))

    def look(self, tile: TileRun, chunks: TileChunks):
        """Commit what a tile has made if it is time; an error of the last time comes up here."""
        mine, now = self.tiles[tile.index], time.monotonic()
        until_next, mine.looked = max(0.0, now - mine.looked), now
        writing = mine.writing is not None and not mine.writing.done()
        took = mine.writing.result() if mine.writing is not None and not writing else 0.0
        soonest = LATEST if self.rarely else SOONEST
        wait = max(min(max(soonest, took / SHARE), LATEST), took)
        late = now + until_next > mine.since + (LATEST if writing else wait)
        if late or chunks.complete_bytes(tile) > self.share:
            self.commit(tile, chunks)

    def commit(self, tile: TileRun, chunks: TileChunks):
        """Write what a tile has, in the background; waits while too much is on its way."""
        mine = self.tiles[tile.index]
        if mine.writing is not None:
            mine.writing.result()
        if mine.moment == _moment(tile):
            return
        writes, snapshot = chunks.writes(tile), tile.snapshot()
        size = sum(write.part.nbytes for write in writes)
        size += sum(array.nbytes for array in snapshot.values())
        with self.written:
            self.written.wait_for(lambda: not self.waiting or self.waiting + size <= WAITING)
            self.waiting += size
        mine.since, mine.moment = time.monotonic(), _moment(tile)
        try:
            mine.writing = self.writer.submit(self._write, tile.index, writes, snapshot, size)
        except RuntimeError:  # the run has ended: others that wait must not wait for this
            self._done(size)
            raise

    def finish(self):
        """Wait until everything is written."""
        for tile in list(self.tiles.values()):
            if tile.writing is not None:
                tile.writing.result()

    def _write(self, tile_index, writes, snapshot, size):
        began = time.monotonic()
        try:
            self.store.commit(tile_index, writes, snapshot)
        finally:
            self._done(size)
        return time.monotonic() - began

    def _done(self, size):
        with self.written:
            self.waiting -= size
            self.written.notify_all()


def _moment(tile):
    """How far a tile is, in steps and in seconds: also a search that was interrupted took time."""
    return tile.step, sum(tile.times.values())
