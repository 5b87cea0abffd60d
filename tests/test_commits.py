"""When a run commits: in time and in bytes, whatever a write costs."""

import os
import signal
import threading
import time
import types
from concurrent.futures import Future

import jax.numpy as jnp
import numpy as np
import pytest

import limpet
from limpet.draws import chunks, commits, writer

TARGET = limpet.Target(lambda x: jnp.array([x @ x - 1]), 0.05)


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        """Seconds since some moment."""
        return self.now


# of chunks, so that a commit has nothing but the state
NOTHING = types.SimpleNamespace(complete_bytes=lambda _: 0, writes=lambda _: [])


class Disk:
    """A store that takes its time, and remembers when it was written to."""

    def __init__(self, clock, took):
        self.clock, self.took, self.at = clock, took, []

    def commit(self, *_):
        """Written, at once but for the clock."""
        self.clock.now += self.took
        self.at.append(self.clock.now)

    def submit(self, action, *arguments):
        """What the thread that writes does, done here."""
        future = Future()
        future.set_result(action(*arguments))
        return future


@pytest.mark.parametrize("took", [0.001, 0.05, 0.2, 1.0, 1.9])
@pytest.mark.parametrize("looks", [0.01, 0.2, 1.0, 1.7])
def test_commits_are_never_more_than_five_seconds_apart(monkeypatch, took, looks):
    clock = Clock()
    monkeypatch.setattr(commits, "time", clock)
    disk = Disk(clock, took)
    book = commits.Commits(disk, 1)
    book.writer = disk
    tile = types.SimpleNamespace(index=0, step=0, times={}, snapshot=dict)
    for _ in range(2_000):
        clock.now += looks
        tile.step += 1
        book.look(tile, NOTHING)
    gaps = np.diff(disk.at)
    assert gaps.max() <= 5
    assert np.median(gaps) >= 0.6  # what costs little is not done all the time either


@pytest.mark.parametrize(
    "kernel",
    [limpet.Lifted(), pytest.param(limpet.SAS(), marks=pytest.mark.slow)],
    ids=["lifted", "sas"],
)
def test_a_run_waits_for_a_slow_disk_and_memory_stays_flat(tmp_path, monkeypatch, kernel):
    commit, seen, books = writer.Store.commit, [], []
    take, init = chunks.TileChunks.writes, commits.Commits.__init__

    def slow(self, *what):
        seen.append(books[0].waiting)
        time.sleep(0.2)
        commit(self, *what)
        if len(seen) == 8:
            os.kill(os.getpid(), signal.SIGINT)

    def writes(self, tile):
        held.append(sum(array.nbytes for chunk in self.open.values() for array in chunk.values()))
        return take(self, tile)

    def made(self, *arguments):
        init(self, *arguments)
        books.append(self)

    held = []
    monkeypatch.setattr(writer.Store, "commit", slow)
    monkeypatch.setattr(chunks.TileChunks, "writes", writes)
    monkeypatch.setattr(commits.Commits, "__init__", made)
    with pytest.warns(limpet.LimpetWarning, match="Interrupted"):
        draws = limpet.sample(
            TARGET,
            [1.0, 0.0],
            draws=10**7,
            warmup=100,
            kernel=kernel,
            store=tmp_path / "run.zarr",
            progress=False,
        )
    chunk = 2**22
    assert max(seen) <= commits.WAITING + 6 * chunk  # a commit may be larger than what may wait
    assert max(held) <= commits.WAITING + 6 * chunk  # chunks that are being filled
    assert np.isfinite(draws.posterior["x"]).all()


def test_chunks_that_a_slow_chain_will_come_to_are_read_again(tmp_path, monkeypatch):
    """One chain in three moves off the surface far more rarely, and falls behind for ever."""
    from limpet.run import specification

    def commit_at_once(self, *what):
        self.commit(*what)
        self.finish()
        most.append(len(what[1].open))

    most = []
    monkeypatch.setattr(specification, "LONGEST_CHUNK", 8)
    monkeypatch.setattr(commits.Commits, "look", commit_at_once)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    options = {"draws": 3_000, "chains": 3, "kernel": limpet.SAS(), "progress": False, "seed": 5}
    stored = limpet.sample(TARGET, [1.0, 0.0], store=tmp_path / "run.zarr", **options)
    alone = limpet.sample(TARGET, [1.0, 0.0], **options)
    np.testing.assert_array_equal(stored.posterior["x"], alone.posterior["x"])
    np.testing.assert_array_equal(stored.sample_stats["step"], alone.sample_stats["step"])
    draws = alone.sample_stats["step"].values[:, -1]
    assert draws.max() - draws.min() > 64  # the chains are apart by many chunks
    assert max(most) < 3_000 / 8 / 3


def test_an_error_of_the_disk_is_not_lost(tmp_path, monkeypatch):
    commit, count = writer.Store.commit, []

    def failing(self, *arguments):
        count.append(threading.current_thread().name)
        if len(count) == 3:
            raise limpet.StoreError("the disk is on fire")
        commit(self, *arguments)

    monkeypatch.setattr(writer.Store, "commit", failing)
    with pytest.raises(limpet.StoreError, match="on fire") as caught:
        limpet.sample(TARGET, [1.0, 0.0], draws=10**7, store=tmp_path / "run.zarr", progress=False)
    assert caught.value.draws is not None
    assert {name.startswith("limpet-store") for name in count} == {True}  # no worker writes


def test_a_run_that_has_ended_keeps_no_worker_waiting(monkeypatch):
    monkeypatch.setattr(commits, "WAITING", 1)
    book = commits.Commits(Disk(Clock(), 0.0), 2)
    book.close()
    for index in (0, 1):  # the second waited for the first, for ever
        tile = types.SimpleNamespace(
            index=index, step=1, times={}, snapshot=lambda: {"x": np.zeros(9)}
        )
        with pytest.raises(RuntimeError, match="shutdown"):
            book.commit(tile, NOTHING)
    assert not book.waiting
