"""What a task costs the coordinator of a run by an executor, and what a second process is worth.

`python -m bench.machines` prints both, for docs/machines.md. The first is CPU time of one thread:
an executor whose one worker is in the same thread packs tasks and answers as a pool of processes
does, and takes the time of the coordinator's side. The second is draws per second of pools of one
and of two processes, by the clock, so the machine should be otherwise idle.
"""

import argparse
import multiprocessing
import pickle
import time
from concurrent.futures import Future, ProcessPoolExecutor

import jax.numpy as jnp

import limpet
from limpet.run.signals import on_interruption

CHAINS = 512  # four tiles
SECONDS = 20.0  # of draws that are timed
TASKS = 12  # that are counted, after warm-up


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


class Inline:
    """One worker, in the thread of the coordinator; the time and bytes that go to its tasks."""

    def __init__(self):
        self.tasks, self.working, self.sent, self.back = 0, 0.0, 0, 0

    def submit(self, function, *arguments):
        """Do a task at once; packing it and unpacking its answer are the coordinator's work."""
        task, future = pickle.dumps(arguments), Future()
        began = time.thread_time()
        answer = pickle.dumps(function(*pickle.loads(task)))
        self.working += time.thread_time() - began
        self.tasks, self.sent, self.back = (
            self.tasks + 1,
            self.sent + len(task),
            self.back + len(answer),
        )
        future.set_result(pickle.loads(answer))
        return future


def cost_of_a_task(model: str) -> dict[str, float]:
    """CPU milliseconds of the coordinator and megabytes, each way, of a task.

    Of one of some seconds: tasks get longer the more time the coordinator spends on them, and here
    the worker's is in that.
    """
    target, start, thin = MODELS[model]()
    inline, marks = Inline(), []

    def watch(now):
        if now.phase == "draws":
            marks.append((time.thread_time(), inline.working, inline.tasks, inline.sent))
            marks[-1] += (inline.back,)
        return not marks or inline.tasks - marks[0][2] < TASKS

    with on_interruption(lambda _: None):
        options = {"chains": CHAINS, "draws": 5_000, "warmup": 100, "thin": thin}
        limpet.sample(target, start, executor=inline, workers=1, progress=watch, **options)
    cpu, working, tasks, sent, back = (b - a for a, b in zip(marks[0], marks[-1], strict=True))
    return {
        "tasks": tasks,
        "ms": 1e3 * (cpu - working) / tasks,
        "% of the worker's time": 100 * (cpu - working) / working,
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
    if only != "scaling":
        for model in MODELS:
            cost = cost_of_a_task(model)
            print(model, ", ".join(f"{name} {value:.1f}" for name, value in cost.items()))
    if only != "cost":
        one, two = (draws_per_second("beads", processes) for processes in (1, 2))
        print(f"beads: {one:,.0f} draws/s by one process, {two:,.0f} by two: {two / one:.2f} x")


if __name__ == "__main__":
    main()
