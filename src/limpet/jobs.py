"""One tile of a stored run, advanced by a process of its own: what the jobs of an array do.

Any number of such processes may work on a store, each on another tile, on any machine that sees it.
"""

import functools
import time
from typing import NamedTuple

from limpet import errors
from limpet.draws.store_sink import StoreSink
from limpet.draws.where import StoreLike, as_home
from limpet.draws.writer import Store
from limpet.errors import StuckError
from limpet.report import advice
from limpet.run.signals import Signals
from limpet.run.tile_run import TileRun
from limpet.stored import begin_tile, stored_run
from limpet.target import Target, check_target


class Advance(NamedTuple):
    """How far a tile has come."""

    chains: range
    draws: int  # that all of its chains have
    asked: int
    signal: int | None  # that stopped it, if one did

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do."""
        return self.draws >= self.asked


def advance_stored_tile(
    store: StoreLike, target: Target, index: int, seconds: float | None = None
) -> Advance:
    """Advance one tile of a store until it is done, or so many seconds have passed.

    Parameters
    ----------
    store : str, path or zarr store
        What `limpet plan -o` or `limpet.sample(store=...)` was given.
    target : Target
        The target of that run.
    index : int
        Which tile: the one of chains 128 index to 128 index + 127.
    seconds : float, optional
        When to stop, counted from the call. What was begun is finished first, which takes about
        five seconds.

    Returns
    -------
    Advance
        How far it came.

    Examples
    --------
    >>> import tempfile
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> from limpet.jobs import advance_stored_tile
    >>> circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.01)
    >>> store = tempfile.mkdtemp() + "/circle.zarr"
    >>> draws = limpet.sample(circle, [1.0, 0.0], draws=200, chains=4, seed=1, store=store)
    >>> advance_stored_tile(store, circle, index=0).done
    True
    """
    began = time.perf_counter()
    check_target(target)
    until = began + (float("inf") if seconds is None else errors.positive("seconds", seconds))
    with Store(as_home(store), tile=index) as held:
        kernel, flat, starts = stored_run(held, target)
        with StoreSink(held) as sink:
            begin = functools.partial(begin_tile, held.specification, kernel, flat, starts)
            tile = sink.restore_tile(begin, index)
            with Signals() as signals:
                with signals.nothing_to_lose():
                    _compile(tile, began)
                while not (signals.stop.is_set() or tile.done or tile.stuck.any()):
                    if time.perf_counter() >= until:
                        break
                    sink.put(tile, tile.advance())
            sink.commit(tile)
            sink.finish()
    if tile.stuck.any():
        raise StuckError(advice.stuck_message(kernel, [tile]))
    asked = held.specification.draws
    made = min(int(tile.collector.draws.min()), asked)
    return Advance(tile.chains, made, asked, signals.came)


def _compile(tile: TileRun, began: float):
    since = time.perf_counter()
    if not tile.done:
        tile.compile()
    now = time.perf_counter()
    tile.count_from(now, since - began, now - since)
