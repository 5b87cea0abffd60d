"""Workers that write to the store themselves: the same draws, whatever becomes of them."""

import errno
import pickle
import shutil
import threading

import pytest
from elsewhere import OPTIONS, START, assert_same, make_target
from test_executors import Inline, Losing

import limpet
from limpet.draws import check, commits, sessions
from limpet.draws.folder import Folder
from limpet.draws.lending import InStore
from limpet.run import executors, task

pytestmark = pytest.mark.usefixtures("short_tasks")


class Noting(Inline):
    """Takes note of tasks and answers; a task may be changed on its way."""

    def __init__(self, change=lambda given: given):
        super().__init__()
        self.change, self.tasks, self.answers = change, [], []

    def act(self, future, function, arguments):
        """Do it, changed, and keep both."""
        *first, given, seconds = arguments
        changed = (*first, self.change(given), seconds)
        answer = function(*changed)
        self.tasks.append(changed)
        self.answers.append(answer)
        future.set_result(answer)

    @property
    def lent(self):
        """Of each task, whether its tile was lent, and of each answer, whether draws were sent."""
        return [
            (isinstance(done[3], InStore), answer.draws is not None)
            for done, answer in zip(self.tasks, self.answers, strict=True)
        ]


def sample(path, executor, **options):
    return limpet.sample(make_target(), START, executor=executor, store=path, **OPTIONS | options)


@pytest.mark.parametrize("kind", ["folder", "url"])
def test_only_a_few_numbers_come_back(tmp_path, by_threads, kind):
    path = tmp_path / "run.zarr"
    if kind == "url":
        pytest.importorskip("fsspec")
        path = f"memory://{tmp_path}"
    executor = Noting()
    draws = sample(path, executor)
    assert_same(draws, by_threads)
    assert check(path).intact
    assert not check(path).unexpected
    assert executor.count > 4
    assert set(executor.lent) == {(True, False)}
    assert max(len(pickle.dumps(answer)) for answer in executor.answers) < 10_000
    assert max(len(pickle.dumps(done)) for done in executor.tasks) < 20_000
    for name in ("warmup_seconds", "seconds"):
        assert draws.attrs[name] > 0
    longer = limpet.resume(path, make_target(), draws=410, executor=executor, progress=False)
    assert longer.posterior.sizes["draw"] == 410
    assert set(executor.lent) == {(True, False)}


def test_draws_by_need(tmp_path):
    asked = OPTIONS | {"draws": None, "ess": 60_000}
    draws = sample(tmp_path / "run.zarr", Noting(), **asked)
    alone = limpet.sample(make_target(), START, **asked)
    assert draws.posterior.to_dataset().identical(alone.posterior.to_dataset())
    assert draws.posterior.sizes["draw"] > 462  # of the first stage


@pytest.mark.parametrize("what", ["nothing", "copy", "another run", "unknown address"])
def test_a_store_that_workers_do_not_see(tmp_path, by_threads, what):
    """All of them, or one that comes later: draws are sent, and nothing is written elsewhere."""
    path, elsewhere = tmp_path / "run.zarr", tmp_path / "elsewhere.zarr"
    address = "nosuch://place" if what == "unknown address" else str(elsewhere)
    if what == "another run":
        sample(elsewhere, Inline(), draws=2)

    def change(given):
        if executor.count < 3 or not isinstance(given, InStore):
            return given
        return given._replace(address=address)

    def copied(now):  # of a moment before workers were let in
        if what == "copy" and not elsewhere.exists() and path.exists():
            shutil.copytree(path, elsewhere)

    executor = Noting(change)
    draws = sample(path, executor, progress=copied)
    assert_same(draws, by_threads)
    assert check(path).intact
    assert (True, False) in executor.lent
    assert (False, True) in executor.lent
    # the two tiles that were under way
    assert 1 <= sum(bool(answer.away) for answer in executor.answers) <= 2
    if what == "copy":
        assert not (elsewhere / sessions.PLACE).exists()
        assert limpet.open(elsewhere).posterior.sizes["draw"] == 0


@pytest.mark.parametrize("who", ["one worker", "all"])
def test_a_full_disk(tmp_path, by_threads, monkeypatch, who):
    path, write, count = tmp_path / "run.zarr", Folder.write, []

    def full(self, files, draft="draft"):
        if any("posterior" in place for place, _ in files) and "posterior/zarr.json" not in dict(
            files
        ):
            count.append(draft)
            if len(count) > 4 and (who == "all" or len(draft) > 30):  # of workers, long names
                raise OSError(errno.ENOSPC, "No space left on device")
        write(self, files, draft)

    monkeypatch.setattr(Folder, "write", full)
    if who == "all":
        with pytest.raises(limpet.StoreError, match=r"No space left.*Make room.*limpet.resume"):
            sample(path, Noting())
        monkeypatch.undo()
        draws = limpet.resume(path, make_target(), progress=False)
    else:
        executor = Noting()
        draws = sample(path, executor)
        assert (False, True) in executor.lent
    assert_same(draws, by_threads)
    assert check(path).intact


def test_answers_that_are_lost_after_their_draws_were_written(tmp_path, by_threads):
    path = tmp_path / "run.zarr"
    assert_same(sample(path, Losing({2, 3, 5, 8, 9, 10})), by_threads)
    assert check(path).intact


def test_tasks_that_are_done_by_two_at_once(tmp_path, by_threads, monkeypatch):
    """As by a worker that was thought dead: they commit by turns, each on top of the other."""
    for name in ("SOONEST", "LATEST"):
        monkeypatch.setattr(commits, name, 0.0)
    for name in ("SHORTEST", "LONGEST"):
        monkeypatch.setattr(executors, name, 0.05)
    monkeypatch.setattr(task, "_KEPT", {})
    monkeypatch.setattr(task, "keep", lambda packed, tile: None)  # each has a tile of its own

    class Twice(Noting):
        def act(self, future, function, arguments):
            both = [
                threading.Thread(target=Noting.act, args=(self, f, function, arguments))
                for f in (future, type(future)())
            ]
            for thread in both:
                thread.start()
            both[0].join()
            others.append(both[1])

    others, path, executor = [], tmp_path / "run.zarr", Twice()
    assert_same(sample(path, executor), by_threads)
    for thread in others:
        thread.join()
    assert all(given for given, _ in executor.lent)
    assert check(path).intact
    assert_same(limpet.open(path), by_threads)


def test_a_task_of_a_run_that_was_left_does_no_harm(tmp_path, by_threads):
    class Ending(Noting):
        def submit(self, function, *arguments):
            if self.count == 4:
                raise RuntimeError("it is over")
            return super().submit(function, *arguments)

    path, executor = tmp_path / "run.zarr", Ending()
    with pytest.raises(limpet.ExecutorError, match="takes no more tasks"):
        sample(path, executor)
    assert_same(limpet.resume(path, make_target(), progress=False), by_threads)
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    task._KEPT.clear()
    answer = task.advance_tile(*executor.tasks[-1])
    assert "is not the one that tasks are to write to" in answer.away
    assert before == {file: file.stat().st_mtime_ns for file in path.rglob("*")}


def test_two_coordinators(tmp_path, by_threads):
    """In a folder the second is refused; elsewhere the first stops when the second has come."""
    pytest.importorskip("fsspec")
    again = {"executor": Inline(), "progress": False}
    path, url, tried = tmp_path / "run.zarr", f"memory://{tmp_path}", []

    class Meanwhile(Inline):
        def __init__(self, meanwhile):
            super().__init__()
            self.meanwhile = meanwhile

        def act(self, future, function, arguments):
            if self.count == 4:
                task._KEPT.clear()
                tried.append(self.meanwhile())
            super().act(future, function, arguments)

    def refused():
        with pytest.raises(limpet.StoreError, match="being written to by another run"):
            limpet.resume(path, make_target(), **again)

    def take_over():
        return limpet.resume(url, make_target(), **again)

    assert_same(sample(path, Meanwhile(refused)), by_threads)
    with pytest.raises(limpet.StoreError, match="another process has gone on"):
        sample(url, Meanwhile(take_over))
    assert_same(tried[1], by_threads)
    assert_same(limpet.open(url), by_threads)
    assert check(url).intact
