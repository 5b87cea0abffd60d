"""Dask and MPI: the draws of threads, also with workers that are killed at random moments."""

import json
import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from elsewhere import OPTIONS, START, assert_same, make_target
from killed import RUN

import limpet
from limpet.cli.problems import sampler
from limpet.draws import check

distributed, dask = pytest.importorskip("distributed"), pytest.importorskip("dask")

# what MPI runs, in two processes beside the coordinator: a problem's file in, a store out
BY_MPI = """
import json, sys
from pathlib import Path
from mpi4py.futures import MPIPoolExecutor
from limpet.cli.problems import sampler

if __name__ == "__main__":
    problem, store, options = sys.argv[1:]
    with MPIPoolExecutor() as executor:
        draw = sampler(Path(problem), json.loads(options))
        draw(executor=executor, store=store)
"""
SMALL = """
from elsewhere import START as start, make_target

target = make_target()
"""
# the paper's model, and a chain of 30 beads in space
LARGE = {
    "spheres": """
import limpet
from limpet.paper import two_spheres

target, start = limpet.Target(two_spheres, eps=0.005), [1.0, 0.0, 0.0]
""",
    "beads": """
import jax.numpy as jnp
import limpet

def bonds(x):
    place = jnp.concatenate([jnp.zeros((1, 3)), x.reshape(29, 3)])
    return jnp.sum(jnp.diff(place, axis=0) ** 2, axis=1) - 1

target = limpet.Target(bonds, eps=0.05)
start = jnp.outer(jnp.arange(1.0, 30), jnp.array([0.8, 0.6, 0.0])).ravel()
""",
}


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes of Dask, which starts another for one that dies."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    # by default Dask forgets a worker that is not there a quarter of a minute after it died
    patience = {"distributed.deploy.lost-worker-timeout": "1 hour"}
    with (
        dask.config.set(patience),
        distributed.LocalCluster(**options, silence_logs=logging.CRITICAL) as started,
    ):
        yield started


@pytest.fixture(scope="module")
def client(cluster):
    with distributed.Client(cluster) as made:
        yield made


def test_dask(client):
    draws = limpet.sample(make_target(), START, executor=client, **OPTIONS)
    assert_same(draws, limpet.sample(make_target(), START, **OPTIONS))


class Killer:
    """Kills workers at random moments, so many in all; says stop when that is done.

    Between two of them some task comes back. If workers lived for less than it takes them to import
    JAX, no task ever would, and the run would be given up, as it should be.
    """

    def __init__(self, cluster, kills, seed):
        self.cluster, self.kills, self.chance = cluster, kills, random.Random(seed)
        self.killed, self.gone, self.over = 0, set(), threading.Event()  # who is gone: addresses
        self.far, self.came = (0, 0), threading.Event()  # how far the run is; that a task came back
        self.thread = threading.Thread(target=self._kill, daemon=True)

    def __call__(self, now):
        """What a run tells its progress."""
        if now.phase in ("warmup", "draws") and not self.thread.ident:
            self.thread.start()
        if (now.draws, now.steps) != self.far:
            self.far = now.draws, now.steps
            self.came.set()
        return not self.over.is_set()

    def _kill(self):
        while self.killed < self.kills:
            self.came.wait()
            self.over.wait(self.chance.uniform(0, 3))
            # not one that is just starting: Dask then gives it up, and in the end has none
            known = self.cluster.scheduler.workers.keys() - self.gone
            alive = [w for w in self.cluster.workers.values() if w.worker_address in known]
            if alive:
                chosen = self.chance.choice(alive)
                self.gone.add(chosen.worker_address)
                os.kill(chosen.pid, signal.SIGKILL)
                self.killed += 1
                self.came.clear()
        self.over.set()


def finish_and_compare(path, executor=None):
    """Bring a run to its end; it is what it would have been, had it been left alone."""
    options = RUN | {"chains": 257}
    assert check(path).readable
    asked = max(tile.draws for tile in check(path).tiles) + 20
    draws = limpet.resume(path, make_target(), draws=asked, executor=executor, progress=False)
    assert_same(draws, limpet.sample(make_target(), START, draws=asked, progress=False, **options))
    assert check(path).intact


def kill_workers(path, cluster, client, kills, seed):
    """A run whose workers are killed, brought to its end, and one that was left alone."""
    killer = Killer(cluster, kills, seed)
    options = RUN | {"chains": 257}
    with pytest.warns(limpet.InterruptedWarning):
        limpet.sample(
            make_target(),
            START,
            draws=10**7,
            store=path,
            executor=client,
            progress=killer,
            **options,
        )
    assert killer.killed == kills
    finish_and_compare(path, client)


def test_five_workers_are_killed(tmp_path, cluster, client):
    kill_workers(tmp_path / "run.zarr", cluster, client, kills=5, seed=1)


@pytest.mark.slow
def test_thirty_workers_are_killed(tmp_path, cluster, client):
    kill_workers(tmp_path / "run.zarr", cluster, client, kills=30, seed=2)


def kill_coordinators(path, engines, seed):
    """Begin a run and go on with it, by one engine after the other, each killed while it draws."""
    chance, made = random.Random(seed), 0
    script = Path(__file__).with_name("coordinator.py")
    for engine in engines:
        command = [sys.executable, script, path, engine]
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
            looks = chance.randint(1, 15)
            for _ in range(looks):  # each a fifth of a second, or when a task has come back
                assert process.stdout.readline(), f"{engine} has ended"
            os.kill(process.pid, signal.SIGKILL)
            os.killpg(process.pid, signal.SIGKILL)  # the workers that it leaves behind
        before, made = made, limpet.open(path).posterior.sizes["draw"]
        assert made >= before
    finish_and_compare(path)


def test_ctrl_c_in_a_terminal_is_heard_by_all_and_loses_nothing(tmp_path):
    path, script = tmp_path / "run.zarr", Path(__file__).with_name("coordinator.py")
    command, pipe = [sys.executable, script, path, "processes"], subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        while process.stdout.readline() in ("0\n", ""):  # nothing is drawn yet
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate()
        assert process.returncode == 0
    assert "Interrupted: " in said
    assert "Traceback" not in said
    finish_and_compare(path)


def test_two_coordinators_are_killed(tmp_path):
    kill_coordinators(tmp_path / "run.zarr", ["processes", "threads"], seed=1)


@pytest.mark.slow
def test_ten_coordinators_are_killed(tmp_path):
    engines = [("dask", "processes", "threads")[k % 3] for k in range(10)]
    kill_coordinators(tmp_path / "run.zarr", engines, seed=2)


def sample_by_mpi(folder, problem, options):
    """The store of a run by three processes."""
    path, script = folder / "mpi.zarr", folder / "by_mpi.py"
    script.write_text(BY_MPI)
    mpiexec = Path(sys.executable).with_name("mpiexec")
    settings = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    settings |= {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [mpiexec, "-n", "3", "--oversubscribe", sys.executable, "-W", "ignore"]
    command += ["-m", "mpi4py.futures", script, problem, path, json.dumps(options)]
    subprocess.run(command, env=os.environ | settings, check=True)
    return path


def test_mpi(tmp_path):
    pytest.importorskip("mpi4py")
    problem = tmp_path / "problem.py"
    problem.write_text(SMALL)
    path = sample_by_mpi(tmp_path, problem, OPTIONS)
    assert_same(limpet.open(path), limpet.sample(make_target(), START, **OPTIONS))


@pytest.mark.slow
@pytest.mark.parametrize("model", LARGE)
def test_five_ways_to_make_one_store(tmp_path, client, model):
    pytest.importorskip("mpi4py")
    problem = tmp_path / "problem.py"
    problem.write_text(LARGE[model])
    options = {"draws": 20, "chains": 1_024, "warmup": 150, "seed": 3, "progress": False}
    draw = sampler(problem, options)
    threads = draw(store=tmp_path / "threads.zarr")
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        assert_same(draw(executor=pool, store=tmp_path / "processes.zarr"), threads)
    assert_same(draw(executor=client, store=tmp_path / "dask.zarr"), threads)
    assert_same(limpet.open(sample_by_mpi(tmp_path, problem, options)), threads)

    jobs, limpet_command = tmp_path / "jobs.zarr", [sys.executable, "-m", "limpet"]
    flags = [f"--{name}={options[name]}" for name in ("draws", "chains", "warmup", "seed")]
    subprocess.run([*limpet_command, "plan", problem, "-o", jobs, *flags], check=True)
    for index in (5, 0, 7, 1, 2, 6, 3, 4):
        job = [*limpet_command, "tile", jobs, problem, "--index", str(index)]
        subprocess.run(job, check=True)
    assert_same(limpet.open(jobs), threads)
