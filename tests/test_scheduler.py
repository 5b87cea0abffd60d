"""Which tile is advanced next, and when workers stop."""

import threading

import numpy as np
import pytest

from limpet.run.scheduler import Scheduler


class Tile:
    """Something that is done, or stuck, after so many steps."""

    def __init__(self, until, stride=1, stuck_at=np.inf):
        self.step, self.until, self.stride, self.stuck_at = 0, until, stride, stuck_at

    @property
    def done(self):
        """Whether nothing is left to do."""
        return self.step >= self.until

    @property
    def stuck(self):
        """Which of its chains wait in vain."""
        return np.array([False, self.step >= self.stuck_at])

    def advance(self):
        """A step."""
        self.step += self.stride
        return self.step


def run(tiles, advanced, workers=1, stop=None):
    """A scheduler that has ended."""
    scheduler = Scheduler(tiles, advanced, stop or threading.Event(), workers)
    while scheduler.wait(10):
        pass
    return scheduler


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_every_tile_is_advanced_to_its_end(workers):
    tiles, told = [Tile(until) for until in (0, 1, 5, 3)], []
    scheduler = run(tiles, lambda tile, made: told.append((tiles.index(tile), made)), workers)
    assert scheduler.error is None
    assert sorted(told) == [
        (k, step + 1) for k, tile in enumerate(tiles) for step in range(tile.step)
    ]
    assert [tile.step for tile in tiles] == [0, 1, 5, 3]


def test_the_tile_that_is_most_behind_comes_first():
    tiles, told = [Tile(6, stride=3), Tile(4, stride=2), Tile(3)], []
    run(tiles, lambda tile, made: told.append(tiles.index(tile)))
    assert told == [0, 1, 2, 2, 1, 2, 0]


def test_a_stuck_tile_is_left_alone():
    tiles = [Tile(10**9, stuck_at=4), Tile(6)]
    run(tiles, lambda *_: None, workers=2)
    assert [tile.step for tile in tiles] == [4, 6]


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_end_when_told_to(workers):
    stop, tiles = threading.Event(), [Tile(np.inf) for _ in range(3)]
    run(tiles, lambda tile, made: made == 5 and stop.set(), workers, stop)
    assert max(tile.step for tile in tiles) >= 5


@pytest.mark.parametrize("workers", [1, 3])
def test_the_first_error_ends_all_work(workers):
    def fail(tile, made):
        if made == 5:
            raise KeyboardInterrupt("five")

    tiles = [Tile(np.inf) for _ in range(3)]
    assert str(run(tiles, fail, workers).error) == "five"
