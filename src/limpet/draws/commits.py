"""When a run commits: often, in the background, and with little waiting to be written.

Each tile commits every second or two, whatever a write costs, and sooner if it is fast: what waits
for the disk is bounded in time and in bytes, so memory stays flat, a stop is prompt, and a kill
loses seconds. On a disk slower than the run, the run waits.
"""

import dataclasses
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from limpet.draws import files
from limpet.draws.reader import damaged_tile, never_written
from limpet.draws.writer import Store
from limpet.errors import LimpetWarning, StoreError, warn
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


class NoCommits:
    """Those of a run in memory: there is nothing to do."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def restore(self, voyages: list[TileRun], fresh: Callable[[int], TileRun]):
        """Tiles are to go on from where they were."""

    def look(self, voyage: TileRun):
        """A tile has advanced."""

    def commit(self, voyage: TileRun):
        """A tile is to be written."""

    def finish(self):
        """Everything is to be written."""


class Commits(NoCommits):
    """The commits of a run to a store; one thread writes."""

    def __init__(self, store: Store, tiles: int):
        self.store = store
        self.tiles = [_Tile() for _ in range(tiles)]
        self.writer = ThreadPoolExecutor(1, "limpet-store")
        self.waiting = 0  # bytes on their way
        self.written = threading.Condition()

    def __exit__(self, *_):
        self.writer.shutdown()

    def look(self, voyage: TileRun):
        """Commit what a tile has made if it is time; an error of the last time comes up here."""
        mine, now = self.tiles[voyage.index], time.monotonic()
        until_next, mine.looked = max(0.0, now - mine.looked), now
        writing = mine.writing is not None and not mine.writing.done()
        took = mine.writing.result() if mine.writing is not None and not writing else 0.0
        wait = max(min(max(SOONEST, took / SHARE), LATEST), took)
        late = now + until_next > mine.since + (LATEST if writing else wait)
        if late or _handed_over(voyage) > WAITING / len(self.tiles):
            self.commit(voyage)

    def commit(self, voyage: TileRun):
        """Write what a tile has, in the background; waits while too much is on its way."""
        mine = self.tiles[voyage.index]
        if mine.writing is not None:
            mine.writing.result()
        if mine.moment == _moment(voyage):
            return
        writes = self.store.prepared(voyage.collector.kept)
        snapshot = voyage.snapshot()
        size = sum(write.part.nbytes for write in writes)
        size += sum(array.nbytes for array in snapshot.values())
        with self.written:
            self.written.wait_for(lambda: not self.waiting or self.waiting + size <= WAITING)
            self.waiting += size
        mine.since, mine.moment = time.monotonic(), _moment(voyage)
        try:
            mine.writing = self.writer.submit(self._write, voyage.index, writes, snapshot, size)
        except RuntimeError:  # the run has ended: others that wait must not wait for this
            self._done(size)
            raise

    def finish(self):
        """Wait until everything is written."""
        for tile in self.tiles:
            if tile.writing is not None:
                tile.writing.result()

    def _write(self, tile, writes, snapshot, size):
        began = time.monotonic()
        try:
            self.store.commit(tile, writes, snapshot)
        finally:
            self._done(size)
        return time.monotonic() - began

    def _done(self, size):
        with self.written:
            self.waiting -= size
            self.written.notify_all()

    def restore(self, voyages: list[TileRun], fresh: Callable[[int], TileRun]):
        """Let tiles go on from where the store is; one with nothing intact left begins again."""
        path, run = self.store.path, self.store.specification
        for k in range(len(voyages)):
            intact, wrong = self.store.states_of(k)
            if not intact and never_written(path, run, k):
                continue
            after = "begin again from their starts"
            for tried, state in enumerate(intact):
                try:
                    self._go_on(voyages[k], state)
                    made = voyages[k].collector.draws.min()
                    after = f"go on from draw {made:,}" if tried else ""
                    break
                except StoreError as error:
                    wrong.append(str(error))
                    voyages[k] = fresh(k)
            if after:
                same = "and will have the same draws, bit for bit"
                message = damaged_tile(path, run, k, wrong)
                warn(f"{message}: these chains {after}, {same}.", LimpetWarning)

    def _go_on(self, voyage, state):
        """Go on from a state; refused if it, or a draw that it tells of, is damaged."""
        _check_fits(state, voyage.snapshot())
        self.store.go_on(voyage.index, state)
        voyage.restore(state.arrays)
        draws = voyage.collector.kept["posterior"].draws
        for first, x in self.store.drawn(voyage.index, int(draws.max())):
            known = first + np.arange(x.shape[1]) < draws[:, None]
            if np.isnan(x[known]).any():
                raise files.DamagedError(f"draws after {first} are missing")
            chain, at = np.nonzero(known)
            voyage.watch.add(chain, first + at, x[known])
        self.tiles[voyage.index].moment = _moment(voyage)


def _moment(voyage):
    """How far a tile is, in steps and in seconds: also a search that was interrupted took time."""
    return voyage.step, sum(voyage.times.values())


def _handed_over(voyage):
    """Bytes of a tile's chunks that go to the disk at its next commit and are then let go of."""
    total = 0
    for kept in voyage.collector.kept.values():
        complete = kept.draws.min() // kept.room.length
        done = [k for k in kept.touched if k < complete]
        total += sum(part.nbytes for k in done for part in kept.chunks[k])
    return total


def _check_fits(state, expected):
    """Refuse a state of another kernel or other sizes than the run has."""
    kinds = {name: (array.dtype, array.shape) for name, array in state.arrays.items()}
    if kinds != {name: (array.dtype, array.shape) for name, array in expected.items()}:
        raise files.DamagedError("a state does not fit the run")
