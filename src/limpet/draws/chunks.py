"""The chunks of a tile's draws that are being filled, on their way to a store."""

import numpy as np

from limpet.draws.writer import Store, Write
from limpet.run.quantities import Draws, Numbers
from limpet.run.tile_run import TileRun


class TileChunks:
    """Chunks by group and number, and which of them have what was not written yet."""

    def __init__(self, store: Store, tile_index: int):
        self.store, self.tile_index = store, tile_index
        self.length = store.specification.chunk
        self.open: dict[tuple[str, int], Numbers] = {}
        self.touched: set[tuple[str, int]] = set()

    def put(self, new: dict[str, Draws]):
        """Take in draws."""
        for group, draws in new.items():
            if len(draws.draw):
                self._put(group, draws)

    def _put(self, group, draws):
        first, last = draws.draw.min() // self.length, draws.draw.max() // self.length
        for k in range(first, last + 1):
            if (group, k) not in self.open:
                self.open[group, k] = self.store.chunk(group, self.tile_index, k)
            here = draws if first == last else draws.where(draws.draw // self.length == k)
            here.put_into(self.open[group, k], first_draw=k * self.length)
            self.touched.add((group, k))

    def complete_bytes(self, tile: TileRun) -> int:
        """Bytes that go to the disk at the next commit and are then let go of."""
        done = self.touched - self._growing(tile)
        return sum(array.nbytes for key in done for array in self.open[key].values())

    def writes(self, tile: TileRun) -> list[Write]:
        """What has to be written, apart from what goes on changing.

        Chunks that are complete, or that nothing was added to, are let go of: the first are never
        asked for again, the others are read again if they are.
        """
        growing, writes = self._growing(tile), []
        for group, k in sorted(self.touched):
            chunk = self.open[group, k]
            if (group, k) in growing:
                chunk = {name: np.array(array) for name, array in chunk.items()}
            writes += self.store.writes(group, k, chunk)
        self.open = {key: self.open[key] for key in growing}
        self.touched = set()
        return writes

    def _growing(self, tile):
        """The touched chunks that some chain will add to."""
        complete = {g: v.draws.min() // self.length for g, v in tile.collector.visits.items()}
        return {(group, k) for group, k in self.touched if k >= complete[group]}
