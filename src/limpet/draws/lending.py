"""Tiles that are lent to workers of an executor, who write their draws themselves.

The process that holds a store, the coordinator, lends all of its tiles under one session
(`limpet.draws.sessions`). A worker reads its tile from the store, advances it, and commits; back
come a few numbers. It locks the tile's own file while it commits, and looks at the session and at
the count of the tile's states: whatever else is done with the tile, by a task that was thought dead
or one that was sent twice, a commit is made on top of the last one or not at all.

A worker that does not find the session, or cannot write, says so. Then tiles are sent by message.
"""

import time
from typing import NamedTuple

import numpy as np

from limpet.draws import states
from limpet.draws.home import GoneOnError
from limpet.draws.sink import DrawSink
from limpet.draws.store_sink import StoreSink
from limpet.draws.where import as_home
from limpet.draws.writer import Store
from limpet.errors import InputError, StoreError
from limpet.run import task
from limpet.run.task import Answer, Kept
from limpet.run.tile_run import TileRun

QUARREL = 60.0  # seconds in which two workers may take a tile from each other: one's task ends soon


class InStore(NamedTuple):
    """A tile that its worker finds in a store."""

    address: str
    session: str
    starts: np.ndarray
    waited: float  # seconds in which nobody worked on it, not yet counted

    def advance(self, worker: str, packed: bytes, index: int, seconds: float) -> Answer:
        """Advance it there; if somebody else does so too, go on from where they are."""
        until = time.monotonic() + seconds + QUARREL
        waited = self.waited
        while True:
            try:
                home = as_home(self.address)
                with Store(home, tile=index, session=self.session) as store:
                    return self._advance(store, worker, packed, seconds, waited)
            except GoneOnError as error:
                waited = 0.0
                if time.monotonic() > until:
                    return Answer(worker, away=str(error))
            except (InputError, StoreError) as error:
                return Answer(worker, away=str(error))

    def _advance(self, store, worker, packed, seconds, waited):
        index = store.tile
        run, counter = task.take(packed, index, self.starts)
        with StoreSink(store) as sink:
            if counter is not None and counter == states.newest(store.home, index):
                sink.know(run, counter)
            else:
                sink.take_back(run)
            run.wait(waited)

            def put(new):
                sink.put(run, new)
                return not store.to_stop

            task.advance(run, seconds, put)
            sink.commit(run)
            sink.finish()
        task.keep(packed, Kept(run, store.counters[index]))
        return Answer(worker, run.standing())


class Lender:
    """The coordinator's side: which tiles are lent, and how they come back."""

    def __init__(self, sink: StoreSink, address: str):
        self.sink, self.store, self.address = sink, sink.store, address
        self.lent: set[int] = set()

    def lend(self, tile: TileRun, waited: float) -> InStore:
        """A tile for a task; nobody here writes to it before it is taken back."""
        self.lent.add(tile.index)
        return InStore(self.address, self.store.lend(), tile.starts, waited)

    def snapshot(self, index: int) -> dict[str, np.ndarray]:
        """A lent tile as it last was in the store."""
        return states.read_last(self.store.home, self.store.specification, index).arrays

    def take_back(self, tile: TileRun):
        """Bring a tile up to date that nobody writes to any more."""
        self.sink.take_back(tile)
        self.lent.discard(tile.index)

    def ask_to_stop(self):
        """Let tasks end at their next commit."""
        self.store.ask_to_stop()

    def recall(self):
        """Let no worker write any more; refused if the store is another coordinator's by now."""
        self.store.check_session()
        self.sink.finish()
        self.store.recall()


def lender_of(sink: DrawSink) -> Lender | None:
    """Who lends the tiles of a run whose draws go there; None if workers could not find it."""
    if not isinstance(sink, StoreSink) or (address := sink.store.home.address) is None:
        return None
    return Lender(sink, address)
