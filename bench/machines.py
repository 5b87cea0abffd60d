"""What a task costs the coordinator of a run by an executor, and what a second process is worth.

`python -m bench.machines` prints both, for docs/machines.md. The first is CPU time: of all threads
of the process that coordinates a pool of one worker, beside what its tasks take there, and bytes
that go each way. Tasks are of about a second. The second is draws per second of pools of one and
of two processes, by the clock, so the machine should be otherwise idle.
"""

import argparse
import io
import multiprocessing
import pickle
import tempfile
import time
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import jax.numpy as jnp

import limpet
from limpet.run import executors
from limpet.run.signals import on_interruption

CHAINS = 512  # four tiles
SECONDS = 20.0  # of draws that are timed
TASKS = 24  # that are counted, after warm-up


def circle():
    """A small model: most of what is sent is draws."""
    return limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.01), [1.0, 0.0], 100


def beads():
    """A chain of 30 beads in space."""

    def bonds(x):
        place = jnp.concatenate([jnp.zeros((1, 3)), x.reshape(29, 3)])
        return jnp.sum(jnp.diff(place, axis=0) ** 2, axis=1) - 1

    start = jnp.outer(jnp.arange(1.0, 30), jnp.array([0.8, 0.6, 0.0])).ravel()
    return limpet.Target(bonds, eps=0.05), start, 1


MODELS = {"circle": circle, "beads": beads}


class Measured:
    """An executor's tasks, the CPU time that they take there, and the bytes that go each way."""

    def __init__(self, pool: ProcessPoolExecutor):
        self.pool = pool
        self.tasks, self.working, self.sent, self.back = 0, 0.0, 0, 0

    def submit(self, function, *arguments):
        """Have a task done and timed."""
        future, measured = Future(), self.pool.submit(timed, function, *arguments)
        future.set_running_or_notify_cancel()  # it cannot be called back
        measured.add_done_callback(lambda done: self._take(done, future))
        return future

    def _take(self, done: Future, future: Future):
        answer, working, sent, back = done.result()
        self.tasks, self.working = self.tasks + 1, self.working + working
        self.sent, self.back = self.sent + sent, self.back + back
        future.set_result(answer)


class Count(io.RawIOBase):
    """A file that is but counted."""

    size = 0

    def write(self, data):
        """Count."""
        self.size += memoryview(data).nbytes
        return memoryview(data).nbytes


def size_of(value) -> int:
    """Bytes of it as a message."""
    counted = Count()
    pickle.dump(value, counted)
    return counted.size


def timed(function, *arguments):
    """What a function returns, the CPU seconds that it took, and bytes in and out."""
    began = time.process_time()
    answer = function(*arguments)
    return answer, time.process_time() - began, size_of(arguments), size_of(answer)


def cost_of_a_task(model: str, store: Path | None) -> dict[str, float]:
    """CPU milliseconds of the coordinator and megabytes, each way, of a task."""
    target, start, thin = MODELS[model]()
    marks = []
    executors.LONGEST = executors.SHORTEST  # else tasks get longer the more they cost
    spawned = multiprocessing.get_context("spawn")
    with on_interruption(lambda _: None), ProcessPoolExecutor(1, spawned) as pool:
        measured = Measured(pool)

        def watch(now):
            if now.phase == "draws":
                seen = (time.process_time(), measured.working, measured.tasks)
                marks.append((*seen, measured.sent, measured.back))
            return not marks or measured.tasks - marks[0][2] < TASKS

        options = {"chains": CHAINS, "draws": 3_000, "warmup": 100, "thin": thin, "store": store}
        limpet.sample(target, start, executor=measured, progress=watch, **options)
    cpu, working, tasks, sent, back = (b - a for a, b in zip(marks[0], marks[-1], strict=True))
    return {
        "tasks": tasks,
        "worker's s": working / tasks,
        "ms": 1e3 * cpu / tasks,
        "% of the worker's": 100 * cpu / working,
        "MB sent": sent / tasks / 1e6,
        "MB back": back / tasks / 1e6,
    }


def draws_per_second(model: str, processes: int) -> float:
    """By the clock, once every tile draws."""
    target, start, thin = MODELS[model]()
    marks = []

    def watch(now):
        if now.phase == "draws":
            marks.append((time.perf_counter(), now.draws))
        return not marks or marks[-1][0] - marks[0][0] < SECONDS

    spawned = multiprocessing.get_context("spawn")
    with (
        on_interruption(lambda _: None),
        ProcessPoolExecutor(processes, spawned) as pool,
    ):
        options = {"chains": CHAINS, "draws": 3_000, "warmup": 100, "thin": 2 * thin}
        limpet.sample(target, start, executor=pool, progress=watch, **options)
    (began, before), (ended, after) = marks[0], marks[-1]
    return (after - before) / (ended - began)


def main():
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("cost", "scaling"))
    only = parser.parse_args().only
    for model in MODELS if only != "scaling" else ():
        for where in ("memory", "store"):
            with tempfile.TemporaryDirectory() as folder:
                store = Path(folder) / "run.zarr" if where == "store" else None
                cost = cost_of_a_task(model, store)
            figures = ", ".join(f"{name} {value:.2f}" for name, value in cost.items())
            print(f"{model}, {where}: {figures}", flush=True)
    if only != "cost":
        one, two = (draws_per_second("beads", processes) for processes in (1, 2))
        print(f"beads: {one:,.0f} draws/s by one process, {two:,.0f} by two: {two / one:.2f} x")


if __name__ == "__main__":
    main()
