"""Draws in memory."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from limpet.draws.sink import DrawSink
from limpet.draws.tree import tree
from limpet.engine.memory import spare_bytes
from limpet.errors import InputError
from limpet.run.quantities import POINT, POINT_TYPE, STATS, WITH_STATS, Draws, allocate
from limpet.run.specification import RunSpecification
from limpet.run.tile_run import TileRun


class MemorySink(DrawSink):
    """Arrays of as many draws as were asked for."""

    resumable = False

    def __init__(self, specification: RunSpecification):
        super().__init__(specification)
        self.groups = self._arrays(specification.draws)
        # draws of chains that are ahead of others, and that may be asked for later
        self.later: list[tuple[TileRun, dict[str, Draws]]] = []

    def _arrays(self, draws):
        chains, n = self.specification.chains, self.specification.layout.size
        groups = self.specification.groups
        numbers = float(chains) * draws * n * len(groups)
        try:
            if numbers * np.dtype(POINT_TYPE).itemsize > spare_bytes():  # NumPy would not mind
                raise MemoryError
            return {g: allocate(g, chains, draws, n) for g in groups}
        except (MemoryError, ValueError):  # NumPy says either
            raise InputError(
                f"draws={draws} of {chains} chains with {n} numbers each do not fit into memory:"
                " expected fewer, a larger thin, or a store."
            ) from None

    def __exit__(self, *_):
        """Nothing is held but memory."""

    def put(self, tile: TileRun, new: dict[str, Draws]):
        """Take in draws; a chain that is ahead of others makes more than were asked for."""
        later = {}
        for group, draws in new.items():
            asked = draws.draw < self.specification.draws
            if not asked.all():
                later[group] = draws.where(~asked)
                draws = draws.where(asked)
            mine = slice(tile.chains.start, tile.chains.stop)
            draws.put_into({name: array[mine] for name, array in self.groups[group].items()})
        if later and self.specification.goal is not None:
            self.later.append((tile, later))

    def extend(self, draws: int):
        """Make room for more draws."""
        larger, before = self._arrays(draws), self.specification.draws
        for group, arrays in self.groups.items():
            for name, array in arrays.items():
                larger[group][name][:, :before] = array
        self.specification = dataclasses.replace(self.specification, draws=draws)
        self.groups, kept, self.later = larger, self.later, []
        for tile, new in kept:
            self.put(tile, new)

    def commit(self, tile: TileRun):
        """Nothing is safe in memory."""

    def finish(self):
        """Nothing is on its way."""

    def tree(self, tiles: Sequence[TileRun]) -> xr.DataTree:
        """The draws that every chain has."""
        fewest = min(int(tile.collector.draws.min()) for tile in tiles)
        return self._tree(tiles, min(fewest, self.specification.draws))

    def remains(self, tiles: Sequence[TileRun]) -> xr.DataTree | None:
        """The chains that have all their draws."""
        full = np.concatenate([tile.collector.full for tile in tiles])
        return self._tree(tiles, self.specification.draws, full) if full.any() else None

    def _tree(self, tiles, draws, keep=None):
        """The first draws of every chain, or of those to keep."""
        layout = self.specification.layout
        arrays: dict[str, dict[str, Any]] = {
            group: dict(zip(layout.names, layout.pieces(numbers[POINT][:, :draws]), strict=True))
            for group, numbers in self.groups.items()
        }
        arrays["sample_stats"] = {n: self.groups[WITH_STATS][n][:, :draws] for n in STATS}
        return tree(arrays, self.specification, [tile.figures() for tile in tiles], keep)
