"""Stores: what is written is what was drawn, whatever happens on the way."""

import contextlib
import errno
import functools
import json
import os
import re
import resource
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
import zarr

import limpet
from limpet import sampling, session
from limpet.draws import commits, writer
from limpet.draws.folder import Folder
from limpet.run import specification, tile


def circle(x):
    return jnp.array([x @ x - 1])


TARGET = limpet.Target(circle, 0.05)
START = [1.0, 0.0]
ASKED = {"draws": 400, "chains": 3, "seed": 2, "kernel": limpet.SAS(), "progress": False}


def commit_at_once(self, *what):
    self.commit(*what)
    self.finish()


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    """Many chunks and many commits, and a look at the run after each of them."""
    monkeypatch.setattr(specification, "LONGEST_CHUNK", 64)
    monkeypatch.setattr(commits.Commits, "look", commit_at_once)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # one test looks at these
    monkeypatch.setattr(session, "LOOK", 0.001)
    monkeypatch.setattr(tile, "blocks_at_once", lambda width, block: 8)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.zarr"


def sample(path=None, **options):
    return limpet.sample(TARGET, START, store=path, **ASKED | options)


def same(one: xr.DataTree, other: xr.DataTree):
    """Bit for bit, but for times, and means that may be summed in another order."""
    assert set(one.children) == set(other.children)
    for group in one.children:
        ours, theirs = one[group].to_dataset().load(), other[group].to_dataset()
        if group == "moves":
            np.testing.assert_allclose(ours["acceptance"], theirs["acceptance"], rtol=1e-12)
            ours, theirs = ours.drop_vars("acceptance"), theirs.drop_vars("acceptance")
        xr.testing.assert_identical(ours, theirs)
    names = ("start_seconds", "compile_seconds", "warmup_seconds", "seconds", "wall_seconds")
    times = dict.fromkeys((*names, "acceptance"), 0)
    assert one.attrs | times == other.attrs | times


@pytest.fixture(scope="module")
def whole():
    return sample(keep_surface=True)


class At:
    """A progress callback that does something once, when a run is half way."""

    def __init__(self, action, share=0.5, phase="draws"):
        self.action, self.share, self.phase = action, share, phase

    def __call__(self, now):
        """Look, and act if it is time."""
        due = now.phase == self.phase and now.draws >= self.share * now.asked
        if self.action is not None and due:
            action, self.action = self.action, None
            action()


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def interrupted(path=None, number=signal.SIGINT, **options):
    stop = At(lambda: os.kill(os.getpid(), number))
    with pytest.warns(limpet.LimpetWarning, match="Interrupted"):
        return sample(path, **{"draws": 30_000, "progress": stop} | options)


# what is stored is what was drawn


def test_stored_draws_are_those_in_memory(path, whole):
    same(sample(path, keep_surface=True), whole)
    same(limpet.open(path), whole)


def test_a_store_is_read_as_it_is_used(path):
    draws = sample(path)
    assert not draws.posterior["x"].variable._in_memory
    np.testing.assert_array_equal(
        draws.posterior["x"][1, 100:110, 0].values, sample().posterior["x"][1, 100:110, 0]
    )


def test_points_as_trees_and_thinning(path):
    def bent(point):
        return jnp.array([point["a"] @ point["a"] + point["b"][0] ** 2 - 1])

    target = limpet.Target(bent, 0.05)
    start = {"a": [1.0, 0.1], "b": (0.2,)}
    options = ASKED | {"draws": 100, "thin": 3}
    limpet.sample(target, start, store=path, **options)
    same(limpet.open(path), limpet.sample(target, start, **options))
    longer = limpet.resume(path, target, draws=200, progress=False)
    same(longer, limpet.sample(target, start, **options | {"draws": 200}))


def test_a_longer_run_is_the_run_that_was_longer_from_the_start(path):
    sample(path, draws=150)
    longer = limpet.resume(path, TARGET, draws=400, progress=False)
    same(longer, sample())


class Own(limpet.SAS):
    """A user's sampler, made from one of limpet's."""


@pytest.mark.parametrize("kernel", [limpet.Lifted, limpet.SurfaceSampler, limpet.RandomWalk, Own])
def test_every_sampler_goes_on(path, kernel):
    sample(path, kernel=kernel(), draws=150)
    longer = limpet.resume(path, TARGET, draws=400, progress=False)
    same(longer, sample(kernel=kernel()))


def test_a_run_that_is_done_stays_as_it_is(path, whole):
    sample(path, keep_surface=True)
    same(limpet.resume(path, TARGET, progress=False), whole)


def test_arviz_reads_a_store(path):
    from arviz_stats import ess

    assert float(ess(sample(path))["x"].min()) > 10


def test_other_readers_of_zarr_read_the_numbers(path, whole):
    sample(path, keep_surface=True)
    for group in ("posterior", "surface", "sample_stats"):
        plain = xr.open_zarr(path, group=group, consolidated=False)
        assert plain.sizes["draw"] == 400
        for name, array in plain.data_vars.items():
            np.testing.assert_array_equal(array, whole[group][name])


def test_other_readers_of_zarr_see_what_is_missing(path):
    draws = interrupted(path)
    made = draws.posterior.sizes["draw"]
    plain = zarr.open_group(path, mode="r")["posterior/x"]
    assert plain.shape == (3, 30_000, 2)
    np.testing.assert_array_equal(plain[:, :made], draws.posterior["x"])
    assert np.isnan(plain[:, -1]).all()


def test_nothing_in_a_store_can_be_run(path):
    sample(path)
    every = [json.loads(file.read_text()) for file in path.rglob("zarr.json")]
    codecs = {codec["name"] for metadata in every for codec in metadata.get("codecs", [])}
    assert codecs == {"sharding_indexed"}
    kinds = {file.name.split(".")[0] for file in path.rglob("*") if file.is_file()}
    assert kinds == {"zarr", "c", "0"}  # metadata, chunks, states


def test_draws_are_on_the_disk_before_the_state_that_counts_them(path, monkeypatch):
    events, replace = [], os.replace

    def sync(number):
        events.append(("sync", os.path.relpath(os.readlink(f"/proc/self/fd/{number}"), path)))

    def rename(draft, place):
        events.append(("rename", os.path.relpath(draft, path), os.path.relpath(place, path)))
        replace(draft, place)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    sample(path, draws=100)
    state, last_state = [k for k, e in enumerate(events) if "limpet/tiles" in e[-1]][-4:-2]
    assert events[state][0] == "rename"
    since = events[:state]
    for group, chunk in (("posterior/x", "c.0.1.0"), ("sample_stats/step", "c.0.1")):
        written = [k for k, e in enumerate(since) if e[-1] == f"{group}/{chunk}"][-1]
        draft = since[written][1]
        assert ("sync", draft) in since[:written]
        assert ("sync", group) in since[written:]
    assert events[state - 1] == ("sync", events[state][1])
    assert events[last_state] == ("sync", "limpet/tiles")


# interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_gives_back_what_there_is(number):
    handler = signal.getsignal(number)
    draws = interrupted(number=number, chains=40, draws=1_000)
    assert signal.getsignal(number) is handler
    made = draws.posterior.sizes["draw"]
    assert 0 < made < 1_000
    assert draws.posterior.sizes == {"chain": 40, "draw": made, "x_dim": 2}
    assert draws.sample_stats.sizes == {"chain": 40, "draw": made}
    assert np.isfinite(draws.posterior["x"]).all()
    complete = sample(chains=40, draws=made)
    np.testing.assert_array_equal(draws.posterior["x"], complete.posterior["x"])


def test_an_interrupted_store_goes_on_as_if_nothing_had_happened(path):
    draws = interrupted(path, draws=3_000)
    made = draws.posterior.sizes["draw"]
    assert 0 < made < 3_000
    assert draws.attrs["draws_asked"] == 3_000
    same(limpet.resume(path, TARGET, progress=False), sample(draws=3_000))


def test_an_interrupt_in_warm_up_loses_nothing(path):
    stop = At(interrupt, share=0, phase="warmup")
    with pytest.warns(limpet.LimpetWarning, match="Interrupted: 0 of 50"):
        draws = sample(path, draws=50, warmup=20_000, progress=stop)
    assert draws.posterior.sizes["draw"] == 0
    same(limpet.resume(path, TARGET, progress=False), sample(draws=50, warmup=20_000))


def test_a_second_interrupt_stops_at_once():
    def twice():
        interrupt()
        interrupt()

    with pytest.raises(KeyboardInterrupt):
        sample(draws=10_000_000 // 3, progress=At(twice, share=1e-6))


def test_a_store_can_be_read_while_it_is_written(path):
    lengths = []

    def look(now):
        if path.exists():
            lengths.append(limpet.open(path).posterior["x"].load().sizes["draw"])
        # once, however fast the run is, and however slow the looks
        if len(set(lengths)) == 5 and lengths.count(lengths[-1]) == 1:
            interrupt()

    draws = interrupted(path, draws=200_000, progress=look)
    assert len(set(lengths)) >= 5
    assert lengths == sorted(lengths)
    assert 0 < lengths[-2] <= draws.posterior.sizes["draw"]


# damage


DAMAGE = {
    "truncated": lambda file: os.truncate(file, 100),
    "empty": lambda file: os.truncate(file, 0),
    "missing": lambda file: file.unlink(),
    "flipped": lambda file: file.write_bytes(file.read_bytes()[:-50] + b"#" * 50),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("place", ["posterior/x/c.0.2.0", "sample_stats/step/c.0.2"])
def test_damaged_draws_are_told_and_earlier_ones_are_read(path, kind, place, whole):
    sample(path)
    DAMAGE[kind](path / place)
    group, name, *_ = place.split("/")
    array = limpet.open(path)[group][name]
    with pytest.raises(limpet.StoreError, match=r"draws 128 to 191 of chains 0 to 2") as caught:
        array.values  # noqa: B018
    assert "slice(0, 128)" in str(caught.value)
    earlier = array.isel(draw=slice(0, 128))
    np.testing.assert_array_equal(earlier.values, whole[group][name][:, :128])


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("slot", [0, 1])
def test_a_damaged_state_loses_seconds(path, kind, slot):
    made = interrupted(path, draws=3_000).posterior.sizes["draw"]
    DAMAGE[kind](path / f"limpet/tiles/0.{slot}")
    left = limpet.open(path).posterior["x"]
    assert 0 < left.sizes["draw"] <= made
    complete = sample(draws=3_000)
    np.testing.assert_array_equal(left, complete.posterior["x"][:, : left.sizes["draw"]])
    same(limpet.resume(path, TARGET, progress=False), complete)


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_tile_without_a_state_begins_again(path, kind, whole):
    sample(path, keep_surface=True)
    for slot in (0, 1):
        DAMAGE[kind](path / f"limpet/tiles/0.{slot}")
    with pytest.raises(limpet.StoreError, match=r"stored of chains 0 to 2 is damaged.*resume"):
        limpet.open(path)
    with pytest.warns(limpet.LimpetWarning, match="chains 0 to 2 .* begin again"):
        again = limpet.resume(path, TARGET, progress=False)
    same(again, whole)


def test_chains_of_a_damaged_state_are_left_out(path):
    complete = sample(path, chains=130, draws=100).load()
    for slot in (0, 1):
        (path / f"limpet/tiles/0.{slot}").unlink()
    with pytest.warns(limpet.LimpetWarning, match="stored of chains 0 to 127 .* are left out"):
        rest = limpet.open(path)
    assert rest.posterior["chain"].values.tolist() == [128, 129]
    np.testing.assert_array_equal(rest.posterior["x"], complete.posterior["x"][128:])
    with pytest.warns(limpet.LimpetWarning, match="chains 0 to 127 .* begin again"):
        again = limpet.resume(path, TARGET, progress=False)
    same(again, complete)


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_draws_are_made_again(path, kind, whole):
    sample(path, keep_surface=True)
    DAMAGE[kind](path / "posterior/x/c.0.2.0")
    with pytest.warns(limpet.LimpetWarning, match=r"chains 0 to 2 .*(begin again|go on)"):
        again = limpet.resume(path, TARGET, progress=False)
    same(again, whole)


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_starts_end_the_run_but_not_the_reading(path, kind, whole):
    sample(path, keep_surface=True)
    DAMAGE[kind](path / "limpet/start/c.0.0")
    with pytest.raises(limpet.StoreError, match=r"'limpet/start/c.0.0' .*cannot go on"):
        limpet.resume(path, TARGET, progress=False)
    same(limpet.open(path), whole)


@pytest.mark.parametrize("name", ["posterior", "posterior/x", "limpet/start"])
def test_metadata_for_other_readers_is_mended(path, name, whole):
    sample(path, keep_surface=True)
    text = (path / name / "zarr.json").read_text()
    (path / name / "zarr.json").write_text("{")
    same(limpet.open(path), whole)
    limpet.resume(path, TARGET, progress=False)
    assert (path / name / "zarr.json").read_text() == text


def refuse_writes(monkeypatch, code, after=0):
    """Let the system refuse every file after some."""
    draft, count = Folder._draft, [0]

    def refused(self, name, parts):
        count[0] += 1
        if count[0] > after:
            raise OSError(code, os.strerror(code))
        return draft(self, name, parts)

    monkeypatch.setattr(Folder, "_draft", refused)


@functools.cache
def whole_run():
    """Long enough for a disk to be full meanwhile."""
    return sample(draws=30_000)


@pytest.mark.parametrize("code", [errno.ENOSPC, pytest.param(errno.EDQUOT, marks=pytest.mark.slow)])
def test_a_full_disk_stops_the_run_and_keeps_what_was_committed(path, code, monkeypatch):
    with monkeypatch.context() as patch:
        refuse_writes(patch, code, after=150)
        with pytest.raises(limpet.StoreError, match=r"Make room on the disk, then go on") as caught:
            sample(path, draws=30_000)
    draws = caught.value.draws
    assert 0 < draws.posterior["x"].load().sizes["draw"] < 30_000
    same(limpet.resume(path, TARGET, progress=False), whole_run())


def test_a_file_size_limit_stops_the_run_and_keeps_what_was_committed(path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    lower = At(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1])), share=0.2)
    try:
        with pytest.raises(limpet.StoreError, match=r"(?i)file too large.* make room") as caught:
            sample(path, draws=20_000, progress=lower)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert 0 < caught.value.draws.posterior["x"].load().sizes["draw"] < 20_000


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written_to(path, code, monkeypatch):
    refuse_writes(monkeypatch, code)
    with pytest.raises(limpet.StoreError, match=r"Could not create .*can be written to"):
        sample(path)
    assert not path.exists()
    assert not list(path.parent.iterdir())


def test_a_path_below_a_file(path):
    path.write_text("not a folder")
    with pytest.raises(limpet.StoreError, match="Could not create"):
        sample(path / "run.zarr")


def test_a_store_removed_while_running(path):
    moved = path.with_name("elsewhere")
    with pytest.raises(limpet.StoreError, match="removed or replaced while") as caught:
        sample(path, draws=100_000, progress=At(lambda: path.rename(moved), share=0.01))
    assert caught.value.draws is None


def test_a_store_removed_in_the_middle_of_writing(path, monkeypatch):
    write = Folder.write

    def remove(self, written, draft="draft"):
        if path.exists():
            path.rename(path.with_name("elsewhere"))
        write(self, written, draft)

    monkeypatch.setattr(Folder, "write", remove)
    with pytest.raises(limpet.StoreError, match="removed or replaced while"):
        sample(path)


def test_a_store_that_another_run_holds(path):
    sample(path, draws=20)
    with (
        writer.Store(Folder(path)),
        pytest.raises(limpet.StoreError, match="written to by another run"),
    ):
        limpet.resume(path, TARGET, draws=40, progress=False)


# stores that are not what was thought


def test_a_store_that_exists_is_never_overwritten(path, whole):
    sample(path, keep_surface=True)
    message = r"exists: a run of 3 chains of 400 draws with kernel=SAS and seed=2.*limpet.resume"
    with pytest.raises(limpet.StoreError, match=message):
        sample(path, seed=7, chains=2, kernel=limpet.RandomWalk())
    same(limpet.open(path), whole)


def test_something_else_is_there(path):
    path.mkdir()
    with pytest.raises(limpet.StoreError, match="exists and is not a limpet store"):
        sample(path)
    assert not list(path.iterdir())


def test_no_store(path):
    for action in (limpet.open, lambda path: limpet.resume(path, TARGET)):
        with pytest.raises(limpet.StoreError, match="There is no store"):
            action(path)


def test_not_a_store(path):
    path.mkdir()
    with pytest.raises(limpet.StoreError, match=r"is not a limpet store.*'zarr.json' is missing"):
        limpet.open(path)
    (path / "zarr.json").write_text("{")
    with pytest.raises(limpet.StoreError, match=r"is not a limpet store.*\(it is not JSON\)"):
        limpet.open(path)
    shutil.rmtree(path)
    zarr.create_group(path)
    with pytest.raises(limpet.StoreError, match=r"\(it has no attributes of limpet's\): expected"):
        limpet.open(path)
    shutil.rmtree(path)
    path.write_text("text")
    with pytest.raises(limpet.StoreError, match="is not a limpet store"):
        limpet.open(path)


def describe(path, **changes):
    """Change what a store says of its run, as its writer would: checksums are right."""
    file = path / "zarr.json"
    root = json.loads(file.read_text())
    entries = {k: v for k, v in root["attributes"]["limpet"].items() if k != "checksum"} | changes
    root["attributes"]["limpet"] = entries | {"checksum": specification._digest(entries).hex()}
    file.write_text(json.dumps(root))


def test_another_format(path):
    sample(path, draws=20)
    describe(path, format=99, limpet_version="9.0")
    with pytest.raises(limpet.StoreError, match=r"format '99', written by limpet '9.0'"):
        limpet.open(path)


@pytest.mark.parametrize("name", ["limpet", "jax"])
def test_another_version(path, name, monkeypatch):
    if name == "jax":
        monkeypatch.setattr(jax, "__version__", "0.0.1")
    else:
        monkeypatch.setattr(sampling, "version", lambda _: "0.0.1")
    sample(path, draws=20)
    monkeypatch.undo()
    with pytest.warns(limpet.LimpetWarning, match=rf"with .*{name} 0\.0\.1.*not be bit for bit"):
        limpet.resume(path, TARGET, draws=30, progress=False)


def test_a_kernel_that_is_not_defined_here(path):
    class Glider(limpet.SAS):
        """A sampler that another process has not."""

    sample(path, draws=20, kernel=Glider())
    del limpet.kernels.Kernel.known["Glider"]
    with pytest.raises(limpet.StoreError, match="kernel=Glider"):
        limpet.resume(path, TARGET, draws=30)


OTHERS = {
    "eps": limpet.Target(circle, 0.06),
    "q": limpet.Target(lambda x: jnp.array([x @ x - 1.001]), 0.05),
    "normals": limpet.Target(lambda x: jnp.array([2 * (x @ x - 1)]), 0.05),
    "log_density": limpet.Target(circle, 0.05, log_density=lambda x: x[0]),
    "inside": limpet.Target(circle, 0.05, inside=lambda x: x[0] + 5),
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_target_is_refused(path, what):
    sample(path, draws=20)
    with pytest.raises(limpet.StoreError, match=rf"of another target: {what}"):
        limpet.resume(path, OTHERS[what], draws=30, progress=False)


def test_a_target_that_is_written_differently_is_told(path):
    sample(path, draws=20)
    rewritten = limpet.Target(lambda x: jnp.array([x[0] ** 2 + x[1] ** 2 - 1]), 0.05)
    with pytest.warns(limpet.LimpetWarning, match="q of the target are written differently"):
        limpet.resume(path, rewritten, draws=30, progress=False)


def test_a_target_of_other_points_is_refused(path):
    sample(path, draws=20)
    with pytest.raises(limpet.InputError, match="2 numbers"):
        limpet.resume(path, limpet.Target(lambda x: jnp.array([x["a"] @ x["a"] - 1]), 0.05))


class Pair(NamedTuple):
    """A point that is neither a dict, a list nor a tuple."""

    a: float
    b: float


def test_a_start_that_a_store_cannot_hold(path):
    target = limpet.Target(lambda p: jnp.array([p.a**2 + p.b**2 - 1]), 0.05)
    with pytest.raises(limpet.InputError, match="type Pair, which a store cannot hold"):
        limpet.sample(target, Pair(1.0, 0.0), store=path, **ASKED)


def test_fewer_draws_than_there_are(path):
    sample(path, kernel=limpet.Lifted())
    with pytest.raises(limpet.InputError, match=r"draws=399 is less than the 400"):
        limpet.resume(path, TARGET, draws=399)


def test_fewer_draws_than_were_planned(path):
    made = interrupted(path, kernel=limpet.Lifted()).posterior.sizes["draw"]
    draws = limpet.resume(path, TARGET, draws=made + 50, progress=False)
    assert draws.attrs["draws_asked"] == made + 50
    same(draws, sample(kernel=limpet.Lifted(), draws=made + 50))
    longer = limpet.resume(path, TARGET, draws=made + 500, progress=False)
    same(longer, sample(kernel=limpet.Lifted(), draws=made + 500))


def test_a_variable_that_cannot_be_a_folder(path):
    target = limpet.Target(lambda p: jnp.array([p[".."] @ p[".."] - 1]), 0.05)
    with pytest.raises(limpet.InputError, match=r"called '\.\.', which a store cannot hold"):
        limpet.sample(target, {"..": [1.0, 0.0]}, store=path, **ASKED)
    assert not list(path.parent.iterdir())


# chains that do not fill their tiles


# 2,000 are the same once more, with 16 tiles
@pytest.mark.parametrize(
    "chains", [129, 130, 200, 257, 300, pytest.param(2_000, marks=pytest.mark.slow)]
)
def test_any_number_of_chains_is_stored_interrupted_and_resumed(path, chains):
    options = {"chains": chains, "draws": 150, "warmup": 200, "thin": 4}
    with contextlib.suppress(pytest.fail.Exception):  # it may be done before the signal comes
        interrupted(path, **options)
    same(limpet.resume(path, TARGET, progress=False), sample(**options))


# more than one wants it


def test_of_two_threads_that_make_one_store_one_wins(path):
    outcomes = []

    def attempt(seed):
        try:
            outcomes.append(sample(path, draws=50, seed=seed))
        except limpet.StoreError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=attempt, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    losers = [outcome for outcome in outcomes if isinstance(outcome, limpet.StoreError)]
    assert len(losers) == 3
    for error in losers:
        assert re.search(r"exists: a run of|was made by another run", str(error))
    (winner,) = (outcome for outcome in outcomes if isinstance(outcome, xr.DataTree))
    same(limpet.open(path), winner)
    assert [file.name for file in path.parent.iterdir()] == ["run.zarr"]


def test_a_store_made_in_the_meantime_is_not_replaced(path, monkeypatch):
    fill = Folder.fill

    def slow(self, *rest):
        fill(self, *rest)
        if not path.exists():
            path.mkdir()
            (path / "precious").write_text("data")

    monkeypatch.setattr(Folder, "fill", slow)
    with pytest.raises(limpet.StoreError, match="made by another run since"):
        sample(path)
    assert [file.name for file in path.parent.iterdir()] == ["run.zarr"]
    assert (path / "precious").read_text() == "data"


def test_what_a_killed_process_left_is_removed(path):
    for age in (10, 1_000):
        stale = path.parent / f".run.zarr.{age:032x}"
        (stale / "posterior").mkdir(parents=True)
        os.utime(stale, (time.time() - age, time.time() - age))
    sample(path, draws=20)
    left = sorted(file.name for file in path.parent.iterdir())
    assert left == [f".run.zarr.{10:032x}", "run.zarr"]  # the young one may be another's
    (path / "limpet/drafts/0.0").write_text("half of a chunk")
    limpet.resume(path, TARGET, draws=30, progress=False)
    assert not list((path / "limpet/drafts").iterdir())


@pytest.mark.parametrize("given", [3, "", b"run.zarr", [Path("run.zarr")]])
def test_what_is_no_path(given):
    with pytest.raises(limpet.InputError, match=r"store=.*: expected the path of a folder"):
        sample(given)
