"""`limpet.sample` and `limpet.resume`: tiles over workers, with progress, stores and interrupts."""

import dataclasses
import functools
import os
import queue
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from limpet import errors
from limpet.draws import open as open_store
from limpet.draws.commits import Commits, NoCommits
from limpet.draws.reader import as_path
from limpet.draws.recognition import check_same, described
from limpet.draws.tree import tree as tree_of
from limpet.draws.writer import Store, new_path
from limpet.engine.interrupts import not_done
from limpet.errors import (
    InputError,
    InterruptedWarning,
    StoreError,
    StuckError,
)
from limpet.geometry.start import JITTER, check_resolution, find_vectors
from limpet.kernels import SAS, Kernel, Lifted, Move, SurfaceSampler
from limpet.layout import read_points
from limpet.report import advice
from limpet.report.progress import DOING, Show, at_the_start, show_progress
from limpet.report.reporter import Reporter
from limpet.run import tile
from limpet.run.collect import Memory
from limpet.run.signals import Signals, tell_interruption
from limpet.run.specification import RunSpecification, check_names, chunk_length
from limpet.run.tile_run import LOOK, Plan, TileRun
from limpet.target import Target, check_target


def sample(
    target: Target,
    start,
    *,
    draws: int = 1_000,
    chains: int | None = None,
    warmup: int = 1_000,
    kernel: Kernel | None = None,
    seed: int = 0,
    jitter: float = JITTER,
    thin: int = 1,
    keep_surface: bool = False,
    store: str | os.PathLike | None = None,
    workers: int | None = None,
    progress: bool | Show = True,
) -> xr.DataTree:
    """Draw from a target near its surface.

    Ctrl-C (or SIGTERM) stops at the next block and returns what was drawn so far; a second one
    stops at once. In a thread, where no signal is heard, `progress` can stop a run.

    Parameters
    ----------
    target : Target
        What to sample.
    start : vector, batch of vectors, pytree or list of pytrees
        One point, or several, from which a solver can reach the surface. The names of a dict of
        arrays name the variables of the result; those of a plain vector are called `x`.
    draws : int
        Draws from pi_eps per chain. Steps on the surface are not counted: each chain's first
        `draws` visits off it are kept.
    chains : int, optional
        Default: as many as there are starts, or 128 if there is one.
    warmup : int
        Steps per chain made before the first draw, and forgotten. The first three quarters of them
        tune the kernel's step sizes, from whatever they are; 0 takes the kernel as it is.
    kernel : Lifted, SAS, SurfaceSampler or RandomWalk, optional
        Default `Lifted()`, the fastest; with `keep_surface` it is `SAS()`, the paper's sampler,
        for others do not go on and off the surface.
    seed : int
        The same seed gives the same draws, bit for bit, on the same machine.
    jitter : float
        How far chains start from each other: by how much the start is perturbed for each, in units
        of its own size. With 0 all begin at the start as it is, or where a solver reaches the
        surface from it. As many starts as chains are never perturbed.
    thin : int
        Keep every `thin`-th visit.
    keep_surface : bool
        Also keep the first `draws` visits *on* the surface, of law pi_s, in the group `surface`.
    store : str or path, optional
        A folder to write the draws to as they come, such as "run.zarr"; it must not exist. See
        `limpet.resume` and `limpet.open`.
    workers : int, optional
        Threads that run tiles of 128 chains side by side. Default: as many as there are cores. The
        draws are the same whatever their number.
    progress : bool or callable
        Whether to show how the run goes, on standard error; or a function that is given a
        `limpet.Progress` about five times a second. If it returns False the run stops as by
        Ctrl-C; if it raises, that is a warning, and the run goes on.

    Returns
    -------
    xarray.DataTree
        Groups `posterior`, `sample_stats` and `moves`, in ArviZ's schema; `attrs` has kernel,
        parameters (as tuned), steps, acceptance and counts, and where the time went: `seconds` for
        the draws, before that `start_seconds` (tracing, and the search for the surface),
        `compile_seconds` and `warmup_seconds`, and `wall_seconds` in all. They are wall-clock
        times, of all sessions of a run that was resumed. With a store, draws are read from it as
        they are used.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.01)
    >>> draws = limpet.sample(circle, [1.0, 0.0], draws=200, chains=4, seed=1)
    >>> dict(draws.posterior["x"].sizes)
    {'chain': 4, 'draw': 200, 'x_dim': 2}
    """
    began = time.perf_counter()
    if kernel is None:
        kernel = SAS() if keep_surface is True else Lifted()
    _check(target, kernel, keep_surface)
    layout, guesses = read_points("start", start)
    several = len(guesses) if len(guesses) > 1 else tile.WIDTH
    plan = Plan(
        chains=several if chains is None else errors.whole("chains", chains, 1),
        draws=errors.whole("draws", draws, 1),
        warmup=errors.whole("warmup", warmup, 0),
        thin=errors.whole("thin", thin, 1),
        keep_surface=bool(keep_surface),
        seed=errors.whole("seed", seed, 0),
    )
    workers, jitter = _workers(workers), errors.zero_or_more("jitter", jitter)
    path = None if store is None else new_path(store)
    if path is not None:
        layout.to_json()  # refuses what a store cannot hold, before anything takes time
        check_names(layout)
    with show_progress(progress) as show:
        show(at_the_start(plan.chains, plan.draws))
        width = tile.width_for(plan.chains)
        flat = target.on_vectors(layout).freeze(jnp.asarray(guesses[0]))
        if kernel.is_forced:
            flat.check_forces(jnp.asarray(guesses[0]))
        spare = -plan.chains % width
        starts = find_vectors(flat, guesses, plan.chains, plan.seed, "start", spare, jitter)
        if not isinstance(kernel, SurfaceSampler):
            check_resolution(flat, starts)
        run = functools.partial(_Run, kernel, flat, layout, starts, plan)
        if path is None:
            about = _specification(kernel, flat, layout, plan, width)
            return run(about, _memory(plan, layout), workers).go(show, began)
        about = _specification(kernel, flat, layout, plan, width, described(flat, starts))
        with Store.create(path, about, starts) as room:
            return run(about, room, workers).begin().go(show, began)


def resume(
    store: str | os.PathLike,
    target: Target,
    *,
    draws: int | None = None,
    workers: int | None = None,
    progress: bool | Show = True,
) -> xr.DataTree:
    """Go on with a run that was interrupted, killed, or is to be longer.

    The draws are those that the run would have made without the interruption, bit for bit.

    Parameters
    ----------
    store : str or path
        What `limpet.sample(store=...)` was given.
    target : Target
        The target of that run. A store holds no code, so it cannot know it; another is refused.
    draws : int, optional
        Draws per chain in all, if not as many as were asked for before: more, or fewer, but no
        fewer than there are.
    workers, progress
        As in `limpet.sample`.

    Returns
    -------
    xarray.DataTree
        As from `limpet.open`.

    Examples
    --------
    >>> import tempfile
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.01)
    >>> store = tempfile.mkdtemp() + "/circle.zarr"
    >>> draws = limpet.sample(circle, [1.0, 0.0], draws=200, chains=4, seed=1, store=store)
    >>> limpet.resume(store, circle, draws=300).posterior["x"].shape
    (4, 300, 2)
    """
    began = time.perf_counter()
    check_target(target)
    workers = _workers(workers)
    with show_progress(progress) as show, Store(as_path(store)) as room:
        about, starts = room.specification, room.starts
        asked = about.draws if draws is None else errors.whole("draws", draws, 1)
        flat = target.on_vectors(room.layout).freeze(jnp.asarray(starts[0]))
        check_same(room.path, about, described(flat, starts))
        kernel = _kernel(about)
        if asked < about.draws:
            _check_fewer(room, asked)
        if asked != about.draws:
            room.extend(asked)
        about = room.specification
        plan = Plan(*(getattr(about, name) for name in Plan._fields))
        run = _Run(kernel, flat, room.layout, starts, plan, about, room, workers)
        run.restore()
        return run.begin().go(show, began)


class _Run:
    """The tiles of a run and the workers that advance them."""

    def __init__(self, kernel, target, layout, starts, plan, about, room, workers):
        self.kernel, self.target, self.layout = kernel, target, layout
        self.plan, self.about, self.room = plan, dict(vars(about)), room
        self._voyage = functools.partial(TileRun, kernel, target, starts, plan=plan, room=room)
        self.voyages = [self._voyage(k) for k in range(about.tiles)]
        self.workers = min(workers, len(self.voyages))
        stored = isinstance(room, Store)
        self.commits = Commits(room, about.tiles) if stored else NoCommits()
        self.error = None

    def restore(self):
        """Go on from where the store is."""
        self.commits.restore(self.voyages, self._voyage)

    def begin(self):
        """Write the first state of every tile that has none: draws are never without one."""
        for voyage in self.voyages:
            self.commits.commit(voyage)
        return self

    def go(self, show: Show, began: float) -> xr.DataTree:
        """Run until every chain has its draws, or somebody says stop; `began` is when that was."""
        self.reporter = Reporter(self.voyages, self.kernel, self.plan, show, began)
        with Signals() as signals, self.commits:
            with signals.nothing_to_lose():
                self._compile(began, signals.stop)
            if not signals.stop.is_set():
                self._draw(signals.stop)
            for voyage in self.voyages:
                self._guarded(lambda voyage=voyage: self.commits.commit(voyage))
            self._guarded(self.commits.finish)
        phase, stop = self.reporter.phase, signals.stop
        if self.error is None:
            self.reporter.tell("done", stop)
        if error := self.error or self.reporter.failure:
            raise error
        return self._result(signals.came, phase)

    def _compile(self, began, stop):
        compiling_since = time.perf_counter()
        try:
            self.reporter.tell("compile", stop)
            for voyage in () if stop.is_set() else self.voyages:
                voyage.compile()
        finally:
            now = time.perf_counter()
            for voyage in self.voyages:
                voyage.count_from(now, compiling_since - began, now - compiling_since)

    def _draw(self, stop):
        todo = queue.PriorityQueue()
        for voyage in self.voyages:
            if not voyage.done:
                todo.put((voyage.step, voyage.index))
        threads = ThreadPoolExecutor(self.workers)
        work = [threads.submit(self._work, todo, stop) for _ in range(self.workers)]
        threads.shutdown(wait=False)
        while True:
            drawing = not self.plan.warmup or all(voyage.drawing for voyage in self.voyages)
            self.reporter.tell("draws" if drawing else "warmup", stop)
            if not not_done(work, LOOK):
                break
        for each in work:
            each.result()

    def _work(self, todo, stop):
        """Advance the tile that is most behind, until there is none or it is time to stop."""
        while not stop.is_set() and self.error is None:
            try:
                _, index = todo.get_nowait()
            except queue.Empty:
                return
            voyage = self.voyages[index]
            self._guarded(lambda voyage=voyage: self._advance(voyage))
            if not voyage.done and not voyage.stuck.any():
                todo.put((voyage.step, index))

    def _guarded(self, action):
        """Keep the first error for the end."""
        try:
            if self.error is None:
                action()
        except BaseException as error:
            if isinstance(error, StoreError):
                error.draws = self._readable()
            self.error = error

    def _advance(self, voyage):
        voyage.advance()
        self.commits.look(voyage)

    def _result(self, signal_number, phase):
        for voyage in self.voyages:
            advice.warn_of_singular_surface(voyage.begin, jax.tree.map(np.asarray, voyage.states))
        stuck = [voyage for voyage in self.voyages if voyage.stuck.any()]
        if stuck:
            raise self._stuck(stuck)
        draws = self.reporter.common()
        tree = self._tree(draws)
        if draws < self.plan.draws or signal_number is not None:  # it may have come at the very end
            message = self._interruption(draws, phase)
            tell_interruption(InterruptedWarning(message, signal_number))
        dimension = self.layout.size - self.about["constraints"]
        advice.warn_of(tree, self.kernel, self.layout, dimension, self.reporter.mixing())
        return tree

    def _interruption(self, draws, phase):
        message = f"Interrupted: {draws:,} of {self.plan.draws:,} draws per chain were made"
        if not draws and phase in DOING:
            message += f", for the run was still {DOING[phase]}"
        if draws < self.plan.draws and isinstance(self.room, Store):
            message += "; limpet.resume(store, target) goes on"
        return f"{message}."

    def _tree(self, draws, keep=None):
        """The first `draws` draws of every chain, or of those to keep."""
        if isinstance(self.room, Store):
            return open_store(self.room.path)
        arrays = {
            group: dict(zip(self.layout.names, self.layout.pieces(chunk.x[:, :draws]), strict=True))
            for group, chunk in self.room.groups.items()
        }
        posterior = self.room.groups["posterior"]
        arrays["sample_stats"] = {
            "lp": posterior.lp[:, :draws],
            "step": posterior.step[:, :draws],
        }
        snapshots = [voyage.snapshot() for voyage in self.voyages]
        return tree_of(arrays, self.layout, snapshots, self.about, keep)

    def _stuck(self, voyages):
        message = advice.stuck_message(self.kernel, voyages)
        if isinstance(self.room, Store):
            return StuckError(message, self._readable())
        full = np.concatenate([voyage.collector.full for voyage in self.voyages])
        if not full.any():
            return StuckError(message)
        message += f" The {full.sum()} chains that were finished are in the exception's `draws`."
        return StuckError(message, self._tree(self.plan.draws, full))

    def _readable(self):
        try:
            return open_store(self.room.path)
        except (OSError, StoreError):
            return None


def _check(target, kernel, keep_surface):
    check_target(target)
    if isinstance(kernel, type):
        raise InputError(f"kernel={kernel.__name__} is a class: expected {kernel.__name__}(...).")
    if not isinstance(kernel, Kernel):
        raise InputError(
            f"kernel={kernel!r}: expected limpet.Lifted(...), limpet.SAS(...),"
            " limpet.SurfaceSampler(...) or limpet.RandomWalk(...)."
        )
    if not isinstance(keep_surface, bool | np.bool_):
        raise InputError(f"keep_surface={keep_surface!r}: expected True or False.")
    if keep_surface and Move.OFF not in kernel.moves:
        raise InputError(
            f"keep_surface=True does not fit kernel={kernel!r}, which does not move on and off the"
            " surface: expected limpet.SAS(...), or keep_surface=False."
        )


def _workers(workers):
    if workers is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return errors.whole("workers", workers, 1)


def _memory(plan, layout):
    groups = ("posterior", "surface") if plan.keep_surface else ("posterior",)
    try:
        return Memory(plan.chains, layout.size, plan.draws, groups)
    except (MemoryError, ValueError):  # NumPy says either
        raise InputError(
            f"draws={plan.draws} of {plan.chains} chains with {layout.size} numbers each do not fit"
            " into memory: expected fewer, a larger thin, or a store."
        ) from None


def _specification(kernel, target, layout, plan, width, recognised=None):
    """What a run is."""
    return RunSpecification(
        **plan._asdict(),
        run=uuid.uuid4().hex,
        kernel=type(kernel).__name__,
        fields=dataclasses.asdict(kernel),
        parameters=kernel.parameters(target),
        moves=tuple(move.name.lower() for move in kernel.moves),
        sizes=tuple(name for tunable in kernel.tunables for name in tunable.names),
        groups=("posterior", "surface") if plan.keep_surface else ("posterior",),
        width=width,
        chunk=chunk_length(layout, plan.chains, width),
        constraints=jax.eval_shape(target.values, jnp.zeros(layout.size)).shape[0],
        layout=layout,
        target=recognised,
        limpet_version=version("limpet"),
        jax_version=jax.__version__,
    )


def _check_fewer(store, asked):
    """Refuse fewer draws than every chain has: what was counted is of all of them."""
    if asked < (made := min(store.made(), store.specification.draws)):
        raise InputError(
            f"draws={asked} is less than the {made} that store={str(store.path)!r} has of every"
            " chain: expected as many or more. limpet.open(store) reads those that there are."
        )


def _kernel(about) -> Kernel:
    if about.kernel not in Kernel.known:
        raise StoreError(
            f"The store was made with kernel={about.kernel}, which is not defined here: import"
            " the module that defines it first."
        )
    try:
        return Kernel.known[about.kernel](**about.fields)
    except (InputError, TypeError) as error:
        raise StoreError(
            f"The store was made with numbers that kernel={about.kernel} does not take: {error}"
        ) from None
