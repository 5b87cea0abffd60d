"""Tiles that are advanced by somebody else's workers: pools of processes, Dask, MPI.

One process, the coordinator, has all tiles. It sends out tasks (`limpet.run.task`), one for a tile
at a time, takes in what comes back, and alone writes draws. So a worker may die at any moment, or
answer when nobody waits any more: its task is done again by another.
"""

import concurrent.futures
import heapq
import queue
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from limpet.errors import ExecutorError, InputError
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


class _Sent(NamedTuple):
    """A task that is under way."""

    future: Any
    lost: int  # how often it was before


class Coordinator:
    """Tiles that are advanced by an executor's workers, always the one that is most behind.

    All is done by the thread that calls `wait`.
    """

    def __init__(
        self,
        tiles: Sequence[TileRun],
        advanced: Callable[[TileRun, dict[str, Draws]], None],
        stop: threading.Event,
        executor: Executor,
        most: int,
    ):
        """Begin; `advanced` is told of each tile that has advanced and of its draws.

        At most so many tasks are under way at a time. It ends when all tiles are done or stuck,
        when `stop` is set, or at the first error.
        """
        self.tiles, self.advanced, self.stop = tiles, advanced, stop
        self.executor, self.most = executor, most
        self.error: BaseException | None = None
        self.seconds = SHORTEST  # of a task
        self._cost = 0.0  # seconds that a task costs here
        self._until: float | None = None  # when to wait no longer, of a run that is to stop
        self._heard: dict[str, float] = {}  # when each worker last answered
        self._sent: dict[int, _Sent] = {}
        self._answered: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._versions = task.versions()
        first = tiles[0]
        self._packed = task.pack(first.specification, first.kernel, first.target)
        self._waiting = [(tile.step, k) for k, tile in enumerate(tiles) if not tile.done]
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
        tile, began = self.tiles[k], time.perf_counter()
        given = self._versions, self._packed, k, tile.starts, tile.snapshot(), self.seconds
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
            if self._until is None:
                self._send_again(k, sent.lost, error)
            return
        answer = sent.future.result()
        self._heard[answer.worker] = time.monotonic()
        if answer.error:
            raise ExecutorError(
                f"Chains {self.tiles[k].chains[0]} to {self.tiles[k].chains[-1]} could not be"
                f" advanced by a worker ({answer.worker}): {answer.error}."
            )
        self._arrive(self.tiles[k], answer)
        self._count(time.perf_counter() - began)
        tile = self.tiles[k]
        if not tile.done and not tile.stuck.any():
            heapq.heappush(self._waiting, (tile.step, k))

    def _arrive(self, tile, answer):
        """Bring a tile up to date. The time that it was not worked on counts as well."""
        worked = sum(float(answer.snapshot[name]) - tile.times[name] for name in tile.times)
        tile.restore(answer.snapshot)
        now = time.perf_counter()
        phase = "seconds" if tile.drawing else "warmup_seconds"
        tile.times[phase] += max(0.0, now - tile.since - worked)
        tile.since = now
        self.advanced(tile, answer.draws)

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
        if now >= self._until or self.error is not None:
            self._sent.clear()

    def _count(self, seconds):
        """Take note of what half of a task has cost here."""
        self._cost += 0.1 * (2 * seconds - self._cost)
