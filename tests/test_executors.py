"""Runs on somebody else's workers: the same draws, whatever becomes of the workers."""

import multiprocessing
import threading
import types
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor

import jax.numpy as jnp
import pytest
from elsewhere import OPTIONS, START, assert_same, make_target

import limpet
from limpet.draws import check
from limpet.run import executors, task

pytestmark = pytest.mark.usefixtures("short_tasks")


class Inline:
    """An executor that is its own worker, does a task when it is sent, and counts them."""

    def __init__(self):
        self.count = 0

    def submit(self, function, *arguments):
        """Do it now."""
        self.count += 1
        future = Future()
        self.act(future, function, arguments)
        return future

    def act(self, future, function, arguments):
        """What becomes of a task."""
        future.set_result(function(*arguments))


class Losing(Inline):
    """Loses tasks: those whose number is among these."""

    def __init__(self, lost):
        super().__init__()
        self.lost = lost

    def act(self, future, function, arguments):
        """Do it; or do it, and lose what came of it."""
        result = function(*arguments)
        if self.count in self.lost:
            future.set_exception(ConnectionError("gone"))
        else:
            future.set_result(result)


class Differing(Inline):
    """A worker with an older JAX."""

    def act(self, future, function, arguments):
        """As if the coordinator's were newer."""
        expected, *rest = arguments
        future.set_result(function(expected | {"jax": "99.0"}, *rest))


class Polled(Inline):
    """Jobs that can be asked, but do not tell when they are done."""

    def submit(self, function, *arguments):
        """A job."""
        future = super().submit(function, *arguments)
        names = ("done", "result", "exception", "cancel")
        return types.SimpleNamespace(**{name: getattr(future, name) for name in names})


@pytest.mark.parametrize(
    "executor",
    [Inline(), Polled(), Losing({2, 3, 5, 8, 9, 10})],
    ids=["inline", "polled", "losing"],
)
def test_draws_are_those_of_threads(by_threads, executor):
    draws = limpet.sample(make_target(), START, executor=executor, **OPTIONS)
    assert_same(draws, by_threads)
    assert executor.count > 4
    for name in ("warmup_seconds", "seconds"):
        assert draws.attrs[name] > 0


def test_all_that_is_kept_comes_from_workers_of_threads_too(tmp_path):
    options = {"kernel": limpet.SAS(), "keep_surface": True} | OPTIONS | {"chains": 3, "thin": 1}
    alone = limpet.sample(make_target(), START, **options)
    with ThreadPoolExecutor(2) as pool:
        draws = limpet.sample(
            make_target(), START, executor=pool, store=tmp_path / "run.zarr", **options
        )
        eps = [0.1, 0.05]
        rungs = {"draws": 20, "chains": 4, "warmup": 50, "progress": False}
        curve = limpet.ladder(make_target(), START, eps=eps, executor=pool, **rungs)
    assert_same(draws, alone)
    assert draws["surface"].to_dataset().identical(alone["surface"].to_dataset())
    assert check(tmp_path / "run.zarr").intact
    assert curve.identical(limpet.ladder(make_target(), START, eps=eps, **rungs))


def test_spawned_processes_and_a_run_that_goes_on_without_them(tmp_path):
    path, seen = tmp_path / "run.zarr", []

    def stop(now):
        seen.append(now)
        return not now.draws

    planned = OPTIONS | {"draws": 10**7, "progress": stop, "store": path}
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        with pytest.warns(limpet.InterruptedWarning, match="goes on"):
            limpet.sample(make_target(), START, executor=pool, **planned)
        with pytest.warns(limpet.InterruptedWarning):  # at its first look
            limpet.resume(path, make_target(), executor=pool, progress=lambda now: False)
    asked = max(tile.draws for tile in check(path).tiles) + 100
    whole = limpet.sample(make_target(), START, **OPTIONS | {"draws": asked})
    assert_same(limpet.resume(path, make_target(), draws=asked, progress=False), whole)
    assert seen[0].workers is None
    assert seen[-1].workers in (1, 2)


@pytest.mark.parametrize("attempt", [1, 7])
def test_a_task_that_is_lost_again_and_again(tmp_path, attempt):
    executor = Losing(set(range(attempt, 10**6)))
    path = tmp_path / "run.zarr"
    with pytest.raises(limpet.ExecutorError, match=r"lost a task 4 times \(ConnectionError") as e:
        limpet.sample(make_target(), START, executor=executor, store=path, **OPTIONS)
    assert e.value.draws.attrs["draws_asked"] == OPTIONS["draws"]
    assert executor.count - attempt <= 2 * (executors.RETRIES + 1)  # there are two tiles
    whole = limpet.resume(path, make_target(), executor=Inline(), progress=False)
    assert whole.posterior.sizes["draw"] == OPTIONS["draws"]


def test_an_executor_that_was_shut_down():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(limpet.ExecutorError, match=r"takes no more tasks .*after shutdown"):
        limpet.sample(make_target(), START, executor=pool, **OPTIONS)


def test_a_worker_of_another_version_is_refused():
    import jax

    with pytest.raises(
        limpet.ExecutorError,
        match=rf"it has jax {jax.__version__}, where the run has jax 99.0",
    ):
        limpet.sample(make_target(), START, executor=Differing(), **OPTIONS)


def test_what_goes_wrong_in_a_worker_is_said(monkeypatch):
    def fail(run, seconds, put):
        raise MemoryError("no room")

    monkeypatch.setattr(task, "advance", fail)
    with pytest.raises(
        limpet.ExecutorError, match=r"Chains \d+ to \d+ could not .* MemoryError: no room"
    ):
        limpet.sample(make_target(), START, executor=Inline(), **OPTIONS)


def test_a_target_that_cannot_be_sent_is_named(tmp_path):
    lock = threading.Lock()

    def locked(x):
        with lock:
            return -(x[0] ** 2)

    target = limpet.Target(lambda x: jnp.array([x @ x - 1]), 0.05, log_density=locked)
    path = tmp_path / "run.zarr"
    with pytest.raises(limpet.InputError, match="log_density uses 'lock', a lock"):
        limpet.sample(target, [1.0, 0.0], executor=Inline(), store=path)
    assert not path.exists()


@pytest.mark.parametrize(
    "executor",
    [5, "dask", ProcessPoolExecutor, object()],
    ids=["number", "name", "class", "object"],
)
def test_what_is_no_executor(executor, tmp_path):
    with pytest.raises(limpet.InputError, match=r"executor=.*: expected something with a method"):
        limpet.sample(make_target(), START, executor=executor)


def test_at_most_so_many_tasks_are_under_way(by_threads):
    under_way, most = set(), []

    class Counting(Inline):
        def act(self, future, function, arguments):
            under_way.add(arguments[2])
            most.append(len(under_way))
            timer = threading.Timer(0.01, self.end, (future, function, arguments))
            timer.start()

        def end(self, future, function, arguments):
            result = function(*arguments)
            under_way.discard(arguments[2])
            future.set_result(result)

    draws = limpet.sample(make_target(), START, executor=Counting(), workers=1, **OPTIONS)
    assert_same(draws, by_threads)
    assert max(most) == 1


@pytest.mark.parametrize(("share", "last"), [(1e9, 0.5), (1e-9, 2.0)])
def test_tasks_are_as_long_as_keeps_the_coordinator_idle(monkeypatch, share, last):
    asked = []

    class Noting(Inline):
        def act(self, future, function, arguments):
            asked.append(arguments[-1])
            future.set_result(function(*arguments))

    for name, value in {"SHORTEST": 0.5, "LONGEST": 2.0, "SHARE": share}.items():
        monkeypatch.setattr(executors, name, value)
    monkeypatch.setattr(task, "MOST_BYTES", 1)  # a task with draws ends at once
    limpet.sample(make_target(), START, executor=Noting(), **OPTIONS)
    assert asked[0] == 0.5
    assert asked[-1] == last
