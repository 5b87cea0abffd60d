"""Tiles of one store that are advanced by different processes, as jobs of an array do."""

import json
import os
import signal
import subprocess
import sys

import pytest
from elsewhere import OPTIONS, assert_same
from typer.testing import CliRunner

import limpet
from limpet.cli import app
from limpet.cli.problems import read_problem
from limpet.draws import check, commits, folder, writer
from limpet.draws.folder import Folder
from limpet.jobs import advance_stored_tile

PROBLEM = """
import jax.numpy as jnp
import limpet

target = limpet.Target(lambda x: jnp.array([x["a b"] @ x["a b"] - 1]), eps=0.05)
start = {"a b": [1.0, 0.0]}
"""
RUN = OPTIONS | {"chains": 257, "draws": 300}
FLAGS = [f"--{name}={RUN[name]}" for name in ("chains", "draws", "thin", "warmup", "seed")]


def command(*arguments, code=0):
    """What the command limpet prints."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    path = tmp_path_factory.mktemp("a problem") / "circle.py"
    path.write_text(PROBLEM)
    return path


@pytest.fixture(scope="module")
def target(problem):
    return read_problem(problem, "target")["target"]


@pytest.fixture
def store(tmp_path, problem):
    """A run that was planned."""
    path = tmp_path / "run.zarr"
    planned = command("plan", problem, "-o", path, *FLAGS)
    assert planned.stdout == "3 tiles of 128 chains, from 0 to 2\n"
    assert f"limpet tile {path} '{problem}' --index 0" in planned.stderr
    return path


@pytest.fixture(scope="module")
def by_threads(target):
    return limpet.sample(target, {"a b": [1.0, 0.0]}, **RUN)


def test_jobs_in_any_order_and_any_number_of_times(store, problem, target, by_threads):
    assert limpet.open(store).posterior.sizes["draw"] == 0
    assert "0 of 300 draws" in command("summary", store, code=1).stderr
    told = command("tile", store, problem, "--index", 2).stdout
    assert told == "chains 256 to 256: 300 of 300 draws\n"
    far = advance_stored_tile(store, target, 0, seconds=1e-3)  # over before it is compiled
    assert (far.done, far.draws, far.chains) == (False, 0, range(128))
    again = command("tile", store, problem, "--index", 0, "--seconds", 1e-3, "--json")
    assert json.loads(again.stdout)["done"] is False
    assert "Go on with the same command" in again.stderr
    for index in (1, 0, 2, 1):
        assert advance_stored_tile(store, target, index).done
    assert_same(limpet.open(store), by_threads)
    assert check(store).intact
    assert not check(store).unexpected
    longer = limpet.resume(store, target, draws=310, progress=False)
    assert longer.posterior.sizes["draw"] == 310


def test_processes_side_by_side_one_of_which_is_killed(store, problem, by_threads):
    words = [sys.executable, "-m", "limpet", "tile", store, problem, "--index"]
    jobs = [subprocess.Popen([*words, str(k)], stdout=subprocess.DEVNULL) for k in (0, 1)]
    lock = store / "limpet" / "tiles" / "0.owner"
    while not lock.exists() and jobs[0].poll() is None:
        os.sched_yield()
    jobs[0].kill()
    assert jobs[0].wait() == -signal.SIGKILL
    assert jobs[1].wait() == 0
    for k in (0, 2):
        command("tile", store, problem, "--index", k)
    assert_same(limpet.open(store), by_threads)
    assert check(store).intact


def test_a_tile_has_one_owner_and_a_store_one_run(store, target):
    with writer.Store(Folder(store), tile=1):
        assert limpet.open(store).posterior.sizes["draw"] == 0
        with pytest.raises(limpet.StoreError, match="chains 128 to 255 are being drawn by another"):
            advance_stored_tile(store, target, 1)
        assert advance_stored_tile(store, target, 0).done
        with pytest.raises(limpet.StoreError, match="being written to by another run"):
            limpet.resume(store, target)
    with (
        writer.Store(Folder(store)),
        pytest.raises(limpet.StoreError, match="being written to by another run"),
    ):
        advance_stored_tile(store, target, 1)
    assert advance_stored_tile(store, target, 1).done


def test_who_was_thought_dead_does_no_harm(store, target, monkeypatch, by_threads):
    """On a disk without locks, a process wakes up after another has gone on with its tile."""
    monkeypatch.setattr(folder, "fcntl", None)
    look, others = commits.Commits.look, []

    def meanwhile(self, tile, chunks):
        if not others and tile.drawing:
            others.append(tile.step)
            assert advance_stored_tile(store, target, 0).done
        self.commit(tile, chunks)
        self.finish()
        look(self, tile, chunks)

    monkeypatch.setattr(commits.Commits, "look", meanwhile)
    with pytest.raises(limpet.StoreError, match=r"gone on with chains 0 to 127.*No draw is lost"):
        advance_stored_tile(store, target, 0)
    assert check(store).intact
    monkeypatch.undo()
    for index in range(3):
        advance_stored_tile(store, target, index)
    assert_same(limpet.open(store), by_threads)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"index": 3}, "index=3: expected 0 to 2"),
        ({"index": -1}, "index=-1: expected a whole number, 0 or more"),
        ({"index": "1"}, "index='1': expected a whole number"),
        ({"index": 0, "seconds": 0}, "seconds=0: expected a finite number above zero"),
    ],
)
def test_what_is_refused(store, target, given, message):
    with pytest.raises(limpet.InputError, match=message):
        advance_stored_tile(store, target, **given)


def test_another_problem_is_refused(store, tmp_path):
    other = tmp_path / "other.py"
    other.write_text(PROBLEM.replace("0.05", "0.06"))
    assert "is of another target: eps" in command("tile", store, other, "--index", 0, code=1).stderr
