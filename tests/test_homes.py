"""Stores elsewhere: whatever zarr can write to holds the run that a folder would.

Memory stands for any store of objects; one that refuses, or dies, at each of its writes for those
that are far away. S3 itself is `moto`'s server, on this machine.
"""

import os
import random
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from elsewhere import OPTIONS, START, assert_same, make_target
from killed import RUN
from zarr.storage import LocalStore, MemoryStore, StorePath, WrapperStore, ZipStore

import limpet
from limpet.draws import check, commits, objects
from limpet.draws.where import as_home
from limpet.jobs import advance_stored_tile

FEW = 9  # writes to a store before it is lost sight of


@pytest.fixture(scope="module")
def target():
    return make_target()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, target):
    """The run as a folder holds it."""
    path = tmp_path_factory.mktemp("run") / "run.zarr"
    limpet.sample(target, START, store=path, **OPTIONS)
    return limpet.open(path)


def figures(draws):
    """What a summary shows, but for the time that it took."""
    return [line for line in str(limpet.summary(draws)).splitlines() if "second" not in line]


@pytest.fixture
def often(monkeypatch):
    """Commits as often as there can be."""
    monkeypatch.setattr(commits, "SOONEST", 0.0)
    monkeypatch.setattr(commits, "LATEST", 0.0)


class Mortal(WrapperStore):
    """A store that is lost sight of at some of its writes, for good."""

    def __init__(self, store, last):
        super().__init__(store)
        self.left = last

    async def set(self, key, value):
        """Write, while it lives."""
        self.left -= 1
        if self.left < 0:
            raise ConnectionError("the network\nis down")
        await super().set(key, value)


def test_memory_holds_what_a_folder_does(target, folder):
    store = StorePath(MemoryStore(), "all my runs/the first")
    draws = limpet.sample(target, START, store=store, **OPTIONS)
    assert_same(draws, folder)
    assert_same(limpet.open(store), folder)
    assert figures(limpet.open(store)) == figures(folder)
    assert check(store).intact
    assert not check(store).unexpected
    other = xr.open_zarr(store, group="posterior", consolidated=False)  # as others read it
    np.testing.assert_array_equal(other["a b"], folder.posterior["a b"])
    assert zarr.open_group(store, mode="r")["posterior/a b"].shape == (130, 400, 2)


def test_obstore_and_fsspec(target, folder):
    obstore = pytest.importorskip("obstore.store")
    pytest.importorskip("fsspec")
    for store in (zarr.storage.ObjectStore(obstore.MemoryStore()), "memory://a run.zarr"):
        limpet.sample(target, START, store=store, **OPTIONS)
        assert_same(limpet.resume(store, target, progress=False), folder)
        assert check(store).intact
        assert not check(store).unexpected


@pytest.mark.parametrize("most", [30, pytest.param(FEW, marks=pytest.mark.slow)])
def test_a_run_whose_store_is_lost_at_any_write_goes_on(target, folder, often, most):
    """How many writes a run takes goes by the machine; the first few it has do not end one."""
    chance, memory = random.Random(1), MemoryStore()
    with pytest.raises(limpet.StoreError, match=r"Could not create .*the network is down"):
        limpet.sample(target, START, store=Mortal(MemoryStore(), 3), **OPTIONS)
    with pytest.raises(limpet.StoreError, match=r"the network is down.*go on with limpet.resume"):
        limpet.sample(target, START, store=Mortal(memory, 30), **OPTIONS)
    made, lost = [0], 0
    while made[-1] < 400:
        try:
            last = chance.randint(0, FEW if lost < 10 else most)
            limpet.resume(Mortal(memory, last), target, progress=False)
        except limpet.StoreError as error:
            assert "the network is down" in str(error)  # noqa: PT017
            lost += 1
        made.append(limpet.open(memory).posterior.sizes["draw"])
        assert check(memory).readable
    assert lost > 5
    assert made == sorted(made)
    assert_same(limpet.open(memory), folder)
    assert check(memory).intact


def test_jobs_and_a_longer_run(target, folder):
    memory = MemoryStore()
    options = OPTIONS | {"progress": lambda now: now.phase == "start"}
    with pytest.warns(limpet.InterruptedWarning):
        limpet.sample(target, START, store=memory, **options)
    for index in (1, 0):
        assert advance_stored_tile(memory, target, index).done
    assert_same(limpet.open(memory), folder)
    longer = limpet.resume(memory, target, draws=410, progress=False)
    assert longer.posterior.sizes["draw"] == 410
    first = longer.posterior.isel(draw=slice(400)).to_dataset()
    assert first.identical(folder.posterior.to_dataset().load())


def test_of_two_runs_in_one_store_one_stops(target, folder, often, monkeypatch):
    memory, look, others = MemoryStore(), commits.Commits.look, []

    def meanwhile(self, tile, chunks):
        self.finish()
        if tile.drawing and not others:
            others.append("is being made")
            others[:] = [limpet.resume(memory, target, progress=False)]
        look(self, tile, chunks)

    monkeypatch.setattr(commits.Commits, "look", meanwhile)
    options = OPTIONS | {"workers": 1}
    with pytest.raises(limpet.StoreError, match=r"gone on with chains .* No draw") as caught:
        limpet.sample(target, START, store=memory, **options)
    assert_same(others[0], folder)
    assert_same(caught.value.draws, folder)


def test_a_store_removed_or_replaced(target, often):
    for change in (dict.clear, lambda held: held.update({"zarr.json": held["limpet/claim"]})):
        held = {}

        def remove(now, held=held, change=change):
            if now.phase == "draws":
                change(held)

        options = OPTIONS | {"progress": remove, "draws": 100_000, "workers": 1}
        with pytest.raises(limpet.StoreError, match="removed or replaced while") as caught:
            limpet.sample(target, START, store=MemoryStore(held), **options)
        assert caught.value.draws is None


def test_what_is_there_is_not_written_over(target):
    memory = MemoryStore()
    limpet.sample(target, START, store=memory, **OPTIONS | {"draws": 2})
    with pytest.raises(limpet.StoreError, match="exists: a run of 130 chains of 2 draws"):
        limpet.sample(target, START, store=memory)
    for name in ("notes", objects.CLAIM):
        held = {name: zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(b"mine")}
        with pytest.raises(limpet.StoreError, match="exists and is not a limpet store"):
            limpet.sample(target, START, store=MemoryStore(held))
        assert list(held) == [name]
    home = as_home(MemoryStore(held))  # made since somebody looked
    with pytest.raises(limpet.StoreError, match="was made by another run since"):
        home.create([("zarr.json", (b"{}",))], [])


def test_a_store_that_does_not_answer_is_not_called_damaged(target):
    class Silent(WrapperStore):
        async def get(self, key, prototype, byte_range=None):
            raise TimeoutError("no answer")

    memory = MemoryStore()
    limpet.sample(target, START, store=memory, **OPTIONS | {"draws": 2})
    for use in (limpet.open, lambda store: limpet.resume(store, target)):
        with pytest.raises(limpet.StoreError, match=r"Could not read .*TimeoutError: no answer"):
            use(Silent(memory))


def test_a_damaged_object_is_told(target, folder):
    held = {}
    limpet.sample(target, START, store=MemoryStore(held), **OPTIONS)
    for cut in (0, 3):
        held["posterior/a b/c.0.0.0"] = held["posterior/a b/c.0.0.0"][:cut]
        assert check(MemoryStore(held)).arrays["posterior/a b"].bad
    with pytest.warns(limpet.LimpetWarning, match="have the same draws, bit for bit"):
        assert_same(limpet.resume(MemoryStore(held), target, progress=False), folder)


@pytest.mark.parametrize(
    ("store", "error", "message"),
    [
        (3, limpet.InputError, "expected the path of a folder, such as 'run.zarr', a URL"),
        ({}, limpet.InputError, "expected the path of a folder"),
        (MemoryStore(read_only=True), limpet.StoreError, "is read-only"),
        ("://run.zarr", limpet.InputError, "expected the path of a folder"),
        ("nosuch://run.zarr", limpet.InputError, "not understood .*nosuch|not installed"),
    ],
)
def test_what_is_refused(target, store, error, message):
    with pytest.raises(error, match=message):
        limpet.sample(target, START, store=store)


def test_what_cannot_replace_is_refused(target, tmp_path):
    store = ZipStore(tmp_path / "run.zip", mode="w")
    with pytest.raises(limpet.StoreError, match="cannot replace what it has"):
        limpet.sample(target, START, store=store, **OPTIONS)


def test_a_folder_by_other_names(target, tmp_path):
    path = tmp_path / "a run.zarr"
    limpet.sample(target, START, store=path.as_uri(), **OPTIONS | {"draws": 2})
    assert (path / "zarr.json").exists()
    assert limpet.open(LocalStore(path)).posterior.sizes["draw"] == 2
    assert limpet.open(StorePath(LocalStore(tmp_path), path.name)).posterior.sizes["draw"] == 2
    assert str(as_home(LocalStore(path))) == str(path)


@pytest.fixture(scope="module")
def bucket():
    """A bucket of S3, and how to get there."""
    pytest.importorskip("obstore")
    pytest.importorskip("flask_cors", reason="no server of S3: python -m pip install --group s3")
    server = pytest.importorskip("moto.server", reason="python -m pip install --group s3")
    started = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    started.start()
    address = "http://{}:{}".format(*started.get_host_and_port())
    settings = {"ENDPOINT_URL": address, "ALLOW_HTTP": "true", "REGION": "us-east-1"}
    settings |= {"ACCESS_KEY_ID": "me", "SECRET_ACCESS_KEY": "secret"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(f"AWS_{name}", value)
        make = urllib.request.Request(f"{address}/bucket", method="PUT")
        assert urllib.request.urlopen(make).status == 200
        yield "s3://bucket"
    started.stop()


def kill_on_s3(url, kills, seed):
    """A run in a bucket, killed again and again, and the same in memory."""
    chance, target = random.Random(seed), make_target()
    command = [sys.executable, Path(__file__).with_name("coordinator.py"), url, "threads"]
    for _ in range(kills):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            while process.stdout.readline() == b"0\n":  # nothing is drawn yet
                pass
            for _ in range(chance.randint(0, 12)):
                assert process.stdout.readline(), "it has ended"
            os.kill(process.pid, signal.SIGKILL)
        assert check(url).readable
    asked = max(tile.draws for tile in check(url).tiles) + 20
    options = RUN | {"chains": 257, "draws": asked, "progress": False}
    draws = limpet.resume(url, target, draws=asked, progress=False)
    assert_same(draws, limpet.sample(target, START, **options))
    assert check(url).intact
    return draws


def test_a_run_on_s3_is_killed(bucket):
    url = f"{bucket}/some where/run.zarr"
    draws = kill_on_s3(url, kills=1, seed=1)
    assert figures(limpet.open(url)) == figures(draws)
    with pytest.raises(limpet.StoreError, match="exists: a run of 257 chains"):
        limpet.sample(make_target(), START, store=url)
    with pytest.raises(limpet.StoreError, match=r"There is no store 's3://bucket/another.zarr'"):
        limpet.open(f"{bucket}/another.zarr")
    with pytest.raises(limpet.StoreError, match=r"store='s3://none/run.zarr'.*NoSuchBucket"):
        limpet.sample(make_target(), START, store="s3://none/run.zarr", progress=False)


@pytest.mark.slow
def test_a_run_on_s3_is_killed_ten_times(bucket):
    kill_on_s3(f"{bucket}/run.zarr", kills=10, seed=2)
