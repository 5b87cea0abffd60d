"""Where a run's draws go: one interface, whatever is behind it."""

import abc
import contextlib
from collections.abc import Sequence

import xarray as xr

from limpet.run.quantities import Draws
from limpet.run.specification import RunSpecification
from limpet.run.tile_run import TileRun


class DrawSink(contextlib.AbstractContextManager):
    """Takes in draws as tiles make them, while it is entered, and gives them back as a tree.

    Each tile is told of by one thread at a time, and different tiles by several.
    """

    resumable: bool  # whether `limpet.resume` can go on with the run

    def __init__(self, specification: RunSpecification):
        self.specification = specification

    @abc.abstractmethod
    def put(self, tile: TileRun, new: dict[str, Draws]):
        """Take in what a tile has drawn since the last time, by group; maybe commit it."""

    @abc.abstractmethod
    def extend(self, draws: int):
        """Make room for another number of draws, while nothing is on its way."""

    @abc.abstractmethod
    def commit(self, tile: TileRun):
        """Begin to make safe what a tile has drawn, and what it needs to go on from there."""

    @abc.abstractmethod
    def finish(self):
        """Return when all that was committed is safe."""

    @abc.abstractmethod
    def tree(self, tiles: Sequence[TileRun]) -> xr.DataTree:
        """The draws that every chain has, once all is finished."""

    @abc.abstractmethod
    def remains(self, tiles: Sequence[TileRun]) -> xr.DataTree | None:
        """What can be read of a run that cannot go on, if anything can."""
