"""Tiles that are advanced by somebody else's workers: pools of processes, Dask, MPI.

One process, the coordinator, has all tiles. It sends out tasks (`limpet.run.task`), one for a tile
at a time, and takes in what comes back. Draws come back, and it alone writes them; or workers write
them to a store that all see, and only a few numbers come back. Either way a worker may die at any
moment, or answer when nobody waits any more: its task is done again by another.
"""

import concurrent.futures
import contextlib
import heapq
import queue
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from limpet.errors import ExecutorError, InputError, StoreError
from limpet.run import task
from limpet.run.quantities import Draws
from limpet.run.tile_run import TileRun

RETRIES = 3  # times that a lost task is sent again before its run is given up
SHORTEST, LONGEST = 1.0, 60.0  # seconds of a task, after compiling
SHARE = 0.05  # of its time that a coordinator may spend on tasks, while they are not yet longest
PATIENCE = 5.0  # seconds that a run which is told to stop waits for the tasks under way
RECENT = 3.0  # times the seconds of a task in which a worker that is alive has answered


class Executor(Protocol):
    """What `concurrent.futures.Executor` is to those who call it."""

    def submit(self, function: Callable, /, *arguments: Any) -> Any:
        """Have a function called elsewhere; a future of what it returns."""


def as_executor(executor: Any) -> Executor:
    """An executor as the user gave it; of a Dask client, the one that it has."""
    if callable(getattr(executor, "get_executor", None)):
        # tasks are not to be told apart by their arguments, which takes long
        return executor.get_executor(pure=False)
    if isinstance(executor, type) or not callable(getattr(executor, "submit", None)):
        raise InputError(
            f"executor={executor!r}: expected something with a method submit, such as"
            " concurrent.futures.ProcessPoolExecutor(...), dask.distributed.Client(...) or"
            " mpi4py.futures.MPIPoolExecutor(...)."
        )
    return executor


class Sink(Protocol):
    """What takes in draws that come back (`limpet.draws.sink`)."""

    resumable: bool  # whether it looks at the tiles, too, to write down where they are

    def put(self, tile: TileRun, new: dict[str, Draws]):
        """Take them in."""


class Lender(Protocol):
    """Who lets workers write to a store (`limpet.draws.lending`)."""

    lent: set[int]

    def lend(self, tile: TileRun, waited: float) -> task.Given:
        """A tile for a task."""
        ...

    def snapshot(self, index: int) -> dict[str, Any]:
        """A lent tile as it last was."""
        ...

    def take_back(self, tile: TileRun):
        """Bring a tile up to date that nobody writes to any more."""

    def ask_to_stop(self):
        """Let tasks end early."""

    def recall(self):
        """Let no worker write any more."""


class _Sent(NamedTuple):
    """A task that is under way."""

    future: Any
    lost: int  # how often it was before


class Coordinator:
    """Tiles that are advanced by an executor's workers, always the one that is most behind.

    All is done by the thread that calls `wait`. Tiles are brought up to date when that is asked for
    (`catch_up`, `close`): until then only their standings are.
    """

    def __init__(
        self,
        tiles: Sequence[TileRun],
        sink: Sink,
        stop: threading.Event,
        executor: Executor,
        most: int,
        lender: Lender | None,
    ):
        """Begin, with at most so many tasks under way at a time.

        It ends when all tiles are done or stuck, when `stop` is set, or at the first error.
        """
        self.tiles, self.sink, self.stop = tiles, sink, stop
        self.executor, self.most = executor, most
        self.lender, self._lending = lender, lender is not None
        self.error: BaseException | None = None
        self.seconds = SHORTEST  # of a task
        self.standings = [tile.standing() for tile in tiles]
        self._since = [(tile.since, sum(tile.times.values())) for tile in tiles]
        self._states: dict[int, bytes] = {}  # of tiles that go by message, as they last came
        self._came: dict[int, float] = {}  # when tiles last came back
        self._behind: set[int] = set()  # tiles that have advanced since they were brought up here
        self._cost = 0.0  # seconds that a task costs here
        self._until: float | None = None  # when to wait no longer, of a run that is to stop
        self._unsure = False  # whether a worker may be at work on a task that was given up
        self._heard: dict[str, float] = {}  # when each worker last answered
        self._sent: dict[int, _Sent] = {}
        self._answered: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._versions = task.versions()
        first = tiles[0]
        self._packed = task.pack(first.specification, first.kernel, first.target)
        self._waiting = [(now.step, k) for k, now in enumerate(self.standings) if not now.done]
        heapq.heapify(self._waiting)

    @property
    def workers(self) -> int:
        """How many workers have answered lately."""
        since = time.monotonic() - RECENT * self.seconds - 1
        return sum(heard > since for heard in self._heard.values())

    def wait(self, seconds: float) -> bool:
        """Whether anything is still under way after so many seconds at most."""
        until = time.monotonic() + seconds
        try:
            self._send()
            while self._sent and (left := until - time.monotonic()) > 0:
                self._take(self._answered.get(timeout=left))
                self._send()
        except queue.Empty:
            self._look()
        except Exception as error:
            self.error = self.error or error
        return bool(self._sent)

    def _send(self):
        """Send out tasks for which there is room, or call them back."""
        if self.stop.is_set() or self.error is not None:
            self._call_back()
            return
        while self._waiting and len(self._sent) < self.most:
            self._submit(heapq.heappop(self._waiting)[1])
        # so long that the coordinator is idle most of the time
        self.seconds = min(max(self._cost * len(self._sent) / SHARE, SHORTEST), LONGEST)

    def _submit(self, k, lost=0):
        began = time.perf_counter()
        given = self._versions, self._packed, k, self._given(k, began), self.seconds
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Sending large graph")  # Dask, of megabytes
                future = self.executor.submit(task.advance_tile, *given)
        except Exception as error:  # it is broken, or was shut down
            raise self._refusal("takes no more tasks", error) from error
        self._sent[k] = _Sent(future, lost)
        if hasattr(future, "add_done_callback"):
            future.add_done_callback(lambda _: self._answered.put(k))
        self._count(time.perf_counter() - began)

    def _given(self, k, now) -> task.Given:
        """A tile as its task has it."""
        tile, lender = self.tiles[k], self.lender
        if lender is not None and self._lending:
            return lender.lend(tile, self._waited(k, now))
        if lender is not None and k in lender.lent:
            self._take_back(k)
        if k not in self._states:
            self._states[k] = task.pack_state(tile.snapshot())
        return task.ByMessage(tile.starts, self._states[k], self._waited(k, now))

    def _waited(self, k, now):
        """Seconds in which nobody worked on a tile: they count as well."""
        since, before = self._since[k]
        return max(0.0, now - since - (self.standings[k].seconds - before))

    def _look(self):
        """See which tasks are done, of an executor whose futures do not tell."""
        for k, sent in self._sent.items():
            if not hasattr(sent.future, "add_done_callback") and sent.future.done():
                self._answered.put(k)

    def _take(self, k):
        """Take in what came of a task."""
        sent, began = self._sent.pop(k, None), time.perf_counter()
        if sent is None:  # nobody waits for it any more
            return
        try:
            error = sent.future.exception()
        except concurrent.futures.CancelledError as cancelled:
            error = cancelled
        if error is not None:
            self._unsure = True
            if self._until is None:
                self._send_again(k, sent.lost, error)
            return
        answer = sent.future.result()
        self._heard[answer.worker] = time.monotonic()
        if answer.away:
            self._stop_lending(k)
            return
        if answer.error:
            raise ExecutorError(
                f"Chains {self.tiles[k].chains[0]} to {self.tiles[k].chains[-1]} could not be"
                f" advanced by a worker ({answer.worker}): {answer.error}."
            )
        self._arrive(k, answer)
        self._count(time.perf_counter() - began)
        if not (answer.standing.done or answer.standing.stuck):
            heapq.heappush(self._waiting, (answer.standing.step, k))

    def _arrive(self, k, answer):
        """Take in what a task has made."""
        self.standings[k], self._came[k] = answer.standing, time.perf_counter()
        self._behind.add(k)
        if answer.draws is not None:
            self._states[k] = answer.state
            if self.sink.resumable:
                self._bring_up(k)
            self.sink.put(self.tiles[k], answer.draws)

    def _stop_lending(self, k):
        """Have all draws sent here, for a worker does not see the store, or cannot write to it."""
        assert self.lender is not None
        if self._until is None and self._lending:
            self.lender.recall()
            self._lending = False
        heapq.heappush(self._waiting, (self.standings[k].step, k))

    def catch_up(self):
        """Bring tiles to about where they are; for estimates, while tasks are under way."""
        for k in list(self._behind):
            with contextlib.suppress(StoreError):  # of a store that does not answer now
                self._bring_up(k)

    def _bring_up(self, k):
        if self.lender is not None and k in self.lender.lent:
            snapshot = self.lender.snapshot(k)
        else:
            snapshot = task.unpack_state(self._states[k])
        self.tiles[k].restore(snapshot)
        self._behind.discard(k)

    def _take_back(self, k):
        assert self.lender is not None
        tile, told = self.tiles[k], self.standings[k].step
        self.lender.take_back(tile)
        if tile.step < told:
            raise StoreError(
                f"Chains {tile.chains[0]} to {tile.chains[-1]} have made {told:,} steps, but the"
                f" store has only the first {tile.step:,}: what workers have written is not to be"
                " seen here. Give a store that is the same for all, then go on with limpet.resume."
            )
        self.standings[k] = tile.standing()
        self._behind.discard(k)

    def close(self):
        """Bring all tiles to where they are, when nothing is under way any more."""
        try:
            if self.lender is not None and self._lending and self._unsure:
                self.lender.recall()
            for k, tile in enumerate(self.tiles):
                if self.lender is not None and k in self.lender.lent:
                    self._take_back(k)
                elif k in self._behind:
                    self._bring_up(k)
                tile.since = self._came.get(k, tile.since)
                tile.wait(self._waited(k, tile.since))
        except Exception as error:
            self.error = self.error or error
        self.standings = [tile.standing() for tile in self.tiles]

    def _send_again(self, k, lost, error):
        if lost == RETRIES:
            raise self._refusal(f"lost a task {lost + 1} times", error) from error
        self._submit(k, lost + 1)

    def _refusal(self, what, error):
        return ExecutorError(
            f"executor={self.executor!r} {what} ({type(error).__name__}: {error}). See that its"
            " workers are alive, have this limpet installed, and memory enough; then go on with"
            " limpet.resume(store, target) and an executor that works, or without one."
        )

    def _call_back(self):
        """Cancel what has not begun, and wait for the rest, but not for long."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + PATIENCE
            for sent in list(self._sent.values()):
                sent.future.cancel()
            if self.lender is not None and self._lending and self._sent:
                self.lender.ask_to_stop()
        if now >= self._until or self.error is not None:
            self._unsure |= bool(self._sent)
            self._sent.clear()

    def _count(self, seconds):
        """Take note of what half of a task has cost here."""
        self._cost += 0.1 * (2 * seconds - self._cost)
