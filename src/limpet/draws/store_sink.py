"""Draws in a store, and runs that go on from there."""

from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr

from limpet.draws import arrays, states
from limpet.draws.chunks import TileChunks
from limpet.draws.commits import Commits
from limpet.draws.home import DamagedError
from limpet.draws.reader import damaged_tile, never_written, open_home
from limpet.draws.sink import DrawSink
from limpet.draws.states import State
from limpet.draws.writer import Store
from limpet.errors import LimpetWarning, StoreError, warn
from limpet.run.quantities import Draws
from limpet.run.tile_run import TileRun


class StoreSink(DrawSink):
    """Chunks that are being filled, and commits of them to a store."""

    resumable = True

    def __init__(self, store: Store):
        super().__init__(store.specification)
        self.store = store
        self.chunks = {k: TileChunks(store, k) for k in self._tiles}
        self.commits = Commits(store, len(self._tiles), store.is_lent)

    @property
    def _tiles(self):
        """All, or the one that is held alone."""
        one = self.store.tile
        return range(self.specification.tiles) if one is None else [one]

    def __exit__(self, *_):
        self.commits.close()

    def put(self, tile: TileRun, new: dict[str, Draws]):
        """Take in draws, and commit them if it is time."""
        self.chunks[tile.index].put(new)
        self.commits.look(tile, self.chunks[tile.index])

    def extend(self, draws: int):
        """Make room for another number of draws."""
        self.store.extend(draws, self.specification.goal)
        self.specification = self.store.specification

    def commit(self, tile: TileRun):
        """Write what a tile has, in the background."""
        self.commits.commit(tile, self.chunks[tile.index])

    def finish(self):
        """Wait until everything is written."""
        self.commits.finish()

    def tree(self, tiles: Sequence[TileRun]) -> xr.DataTree:
        """The draws that every chain has, read as they are used."""
        return open_home(self.store.home)

    def remains(self, tiles: Sequence[TileRun]) -> xr.DataTree | None:
        """What is in the store, where it can be read."""
        try:
            return open_home(self.store.home)
        except (OSError, StoreError):
            return None

    def restore(self, begin: Callable[[int], TileRun]) -> list[TileRun]:
        """The tiles where the store has them; one with nothing intact left begins again.

        `begin` makes the tile of an index, at its start.
        """
        return [self.restore_tile(begin, k) for k in self._tiles]

    def restore_tile(self, begin: Callable[[int], TileRun], k: int) -> TileRun:
        """One of them."""
        home, run, tile = self.store.home, self.specification, begin(k)
        intact, wrong = self.store.states_of(k)
        if not intact and never_written(home, run, k):
            return tile
        after = "begin again from their starts"
        for tried, state in enumerate(intact):
            try:
                _check_fits(state, tile.snapshot())
                self._check_draws(k, state)
                tile.restore(state.arrays)
                self.store.go_on(k, state)
                self.commits.know(tile)
                after = f"go on from draw {tile.collector.draws.min():,}" if tried else ""
                break
            except StoreError as error:
                wrong.append(str(error))
        if after:
            same = "and will have the same draws, bit for bit"
            message = damaged_tile(home, run, k, wrong)
            warn(f"{message}: these chains {after}, {same}.", LimpetWarning)
        return tile

    def take_back(self, tile: TileRun):
        """Bring a tile to where others have brought it; their draws are not looked at again."""
        home, run, k = self.store.home, self.specification, tile.index
        try:
            state = states.read_last(home, run, k)
        except DamagedError as error:
            message = damaged_tile(home, run, k, [str(error)])
            raise StoreError(
                f"{message}: limpet.resume(store, target) makes their draws again, bit for bit."
            ) from None
        tile.restore(state.arrays)
        self.know(tile, state.counter)

    def know(self, tile: TileRun, counter: int):
        """Take note that the store has a tile as it is, in its state of this number."""
        k, store = tile.index, self.store
        store.counters[k] = counter
        store.go_on(k, State(counter, tile.figures()))
        self.chunks[k] = TileChunks(store, k)
        self.commits.know(tile)

    def _check_draws(self, k, state):
        """Refuse a state if a draw that it tells of is damaged."""
        run = self.specification
        for group in run.groups:
            draws = state.draws(run, group)
            for first in range(0, int(draws.max()), run.chunk):
                chunk = self.store.read(group, k, first // run.chunk)
                made = first + np.arange(run.chunk) < draws[:, None]
                for name, array in chunk.items():
                    if arrays.missing(array[made]).any():
                        raise DamagedError(f"{name} of draws after {first} is missing")


def _check_fits(state: State, expected):
    """Refuse a state of another kernel or other sizes than the run has."""
    kinds = {name: (array.dtype, array.shape) for name, array in state.arrays.items()}
    if kinds != {name: (array.dtype, array.shape) for name, array in expected.items()}:
        raise DamagedError("a state does not fit the run")
