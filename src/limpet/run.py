"""`limpet.sample` and `limpet.resume`: tiles over workers, with progress, stores and interrupts."""

import dataclasses
import os
import queue
import time
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from limpet import advice, errors, results, tile
from limpet import store as stores
from limpet.cache import keep_programs
from limpet.collect import Memory
from limpet.errors import (
    InputError,
    InterruptedWarning,
    LimpetWarning,
    StoreError,
    StuckError,
    warn,
)
from limpet.kernels import SAS, Kernel, Lifted, Move, SurfaceSampler
from limpet.layout import read_points
from limpet.progress import DOING, Show, at_the_start, shown
from limpet.reporter import Reporter
from limpet.signals import Signals, not_done, tell_interruption
from limpet.start import JITTER, check_resolution, find_vectors
from limpet.store import Store
from limpet.target import Target, check_target
from limpet.voyage import LOOK, Plan, Voyage

COMMIT = 1.0  # seconds between two commits of a tile to a store, at least
WRITING = 0.02  # most of the time that a commit may take
CHUNKS = 32  # of a tile that may wait for a slow disk
PROBES = 4  # starts at which a target must be what it was, to be resumed


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
    path = None if store is None else _new_path(store)
    structure = None if path is None else layout.to_json()
    with shown(progress) as show:
        show(at_the_start(plan.chains, plan.draws))
        width = tile.width_for(plan.chains)
        flat = target.on_vectors(layout).checked(jnp.asarray(guesses[0]))
        spare = -plan.chains % width
        starts = find_vectors(flat, guesses, plan.chains, plan.seed, "start", spare, jitter)
        if not isinstance(kernel, SurfaceSampler):
            check_resolution(flat, starts)
        about = _about(kernel, flat, layout, plan, width)
        if path is None:
            room = _memory(plan, layout)
            return _Run(kernel, flat, layout, starts, plan, about, room, workers).go(show, began)
        about |= {"layout": structure, "target": _described(flat, starts)}
        one = plan._replace(draws=1)
        blank = Voyage(kernel, flat, starts, 0, one, _memory(one, layout)).snapshot()
        with Store.create(path, about, starts, blank) as room:
            return _Run(kernel, flat, layout, starts, plan, about, room, workers).go(show, began)


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
        Draws per chain in all, if more than were asked for at first.
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
    keep_programs()
    with shown(progress) as show, Store(stores.as_path(store)) as room:
        about, starts = room.about, room.starts
        asked = about["draws"] if draws is None else errors.whole("draws", draws, 1)
        if asked < about["draws"]:
            raise InputError(
                f"draws={asked} is less than the {about['draws']} that store={str(room.path)!r} was"
                " made for: expected as many or more."
            )
        flat = target.on_vectors(room.layout).checked(jnp.asarray(starts[0]))
        _check_same(room.path, about, _described(flat, starts))
        plan = Plan(*(about[name] for name in Plan._fields))._replace(draws=asked)
        kernel = _kernel(about)
        run = _Run(kernel, flat, room.layout, starts, plan, about, room, workers)
        run.restore()
        if asked > about["draws"]:
            room.extend(asked)
        return run.go(show, began)


class _Run:
    """The tiles of a run and the workers that advance them."""

    def __init__(self, kernel, target, layout, starts, plan, about, room, workers):
        self.kernel, self.target, self.layout = kernel, target, layout
        self.plan, self.about, self.room = plan, about, room
        tiles = len(starts) // about["width"]
        self.voyages = [Voyage(kernel, target, starts, k, plan, room) for k in range(tiles)]
        self.workers = min(workers, len(self.voyages))
        self.writer = ThreadPoolExecutor(1)  # so that no worker waits for a disk
        self.writing: dict[int, tuple[float, Future]] = {}  # by tile: since when, and what
        self.error = None

    def restore(self):
        """Go on from where the store is."""
        for voyage in self.voyages:
            snapshot = self.room.snapshot(voyage.index)
            if snapshot["step"]:
                voyage.restore(snapshot)
                draws = voyage.collector.kept["posterior"].draws
                for first, x in self.room.drawn(voyage.first_chain, voyage.chains, draws.max()):
                    known = first + np.arange(x.shape[1]) < draws[:, None]
                    chain, at = np.nonzero(known)
                    voyage.watch.add(chain, first + at, x[known])

    def go(self, show: Show, began: float) -> xr.DataTree:
        """Run until every chain has its draws, or somebody says stop; `began` is when that was."""
        self.reporter = Reporter(self.voyages, self.kernel, self.plan, show, began)
        with Signals() as signals, self.writer:
            with signals.nothing_to_lose():
                self._compile(began, signals.stop)
            if not signals.stop.is_set():
                self._draw(signals.stop)
            if isinstance(self.room, Store):
                for voyage in self.voyages:
                    self._guarded(lambda voyage=voyage: self._commit(voyage))
                self._guarded(self._finish_writing)
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
                voyage.embark()
        finally:
            now = time.perf_counter()
            for voyage in self.voyages:
                voyage.count_from(now, compiling_since - began, now - compiling_since)

    def _draw(self, stop):
        todo = queue.PriorityQueue()
        for voyage in self.voyages:
            if not voyage.arrived:
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
            if not voyage.arrived and not voyage.stuck.any():
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
        if isinstance(self.room, Store):
            since, writing = self.writing.get(voyage.index, (-np.inf, None))
            waiting = sum(len(kept.chunks) for kept in voyage.collector.kept.values())
            if writing is not None and not writing.done() and waiting < CHUNKS:
                return
            took = 0.0 if writing is None else writing.result()
            if time.monotonic() > since + max(COMMIT, took / WRITING):
                self._commit(voyage)

    def _commit(self, voyage):
        """Write what a tile has, in the background; an error of the last time comes up here."""
        if voyage.index in self.writing:
            self.writing[voyage.index][1].result()
        writes, snapshot = self.room.prepared(voyage.collector.kept), voyage.snapshot()

        def write():
            began = time.monotonic()
            self.room.commit(voyage.index, writes, snapshot)
            return time.monotonic() - began

        self.writing[voyage.index] = time.monotonic(), self.writer.submit(write)

    def _finish_writing(self):
        for _, writing in self.writing.values():
            writing.result()

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
            return stores.open(self.room.path)
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
        return results.tree(arrays, self.layout, snapshots, self.about, keep)

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
            return stores.open(self.room.path)
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


def _about(kernel, target, layout, plan, width):
    """What a run is, as JSON."""
    return {
        **plan._asdict(),
        "kernel": type(kernel).__name__,
        "fields": dataclasses.asdict(kernel),
        "parameters": kernel.parameters(target),
        "moves": [move.name.lower() for move in kernel.moves],
        "sizes": [name for tunable in kernel.tunables for name in tunable.names],
        "groups": ["posterior", "surface"] if plan.keep_surface else ["posterior"],
        "width": width,
        "constraints": jax.eval_shape(target.values, jnp.zeros(layout.size)).shape[0],
        "limpet_version": version("limpet"),
        "jax_version": jax.__version__,
    }


def _new_path(store) -> Path:
    """A path for a new store, refused if there is something."""
    path = stores.as_path(store)
    if not os.path.lexists(path):
        return path
    try:
        about = stores.read_about(path)
    except StoreError:
        raise StoreError(
            f"store={str(path)!r} exists and is not a limpet store: choose another path."
        ) from None
    raise StoreError(
        f"store={str(path)!r} exists: a run of {about['chains']} chains of {about['draws']} draws"
        f" with kernel={about['kernel']} and seed={about['seed']}. To go on with that run use"
        " limpet.resume(store, target); to begin another, remove it or choose another path."
    )


def _described(target, starts):
    """What a target is: digests of its programs, and its values at a few points."""
    points = jnp.asarray(starts[:PROBES])
    q, normals = jax.vmap(target.plain().values_and_normals)(points)
    values = {"q": q, "normals of q": normals}
    if target.log_density is not None:
        values["log_density"] = jax.vmap(target.log_density)(points)
    if target.inside is not None:
        values["inside"] = jax.vmap(target.inside)(points)
    return {
        "eps": np.asarray(target.eps).tolist(),
        "values": {name: np.nan_to_num(v).ravel().tolist() for name, v in values.items()},
        "programs": target.fingerprint(points[0]),
    }


def _check_same(path, about, target):
    """Refuse another target than the one that a store is of."""
    stored = about["target"]
    different = [name for name in ("eps",) if stored[name] != target[name]]
    names = sorted(stored["values"].keys() | target["values"].keys())
    for name in names:
        was, now = stored["values"].get(name, []), target["values"].get(name, [])
        if len(was) != len(now) or not np.allclose(was, now, rtol=1e-6, atol=1e-6):
            different.append(name)
    if different:
        raise StoreError(
            f"store={str(path)!r} is of another target: {', '.join(different)} differ (eps was"
            f" {stored['eps']}, is {target['eps']}). Give the target that the run began with, or"
            " begin another run in another store."
        )
    versions = {"limpet": version("limpet"), "jax": jax.__version__}
    older = {name: about[f"{name}_version"] for name in versions}
    if older != versions:
        was, now = (", ".join(f"{n} {v}" for n, v in each.items()) for each in (older, versions))
        warn(
            f"store={str(path)!r} was begun with {was}; this is {now}: draws from here on have the"
            " right law, but may not be bit for bit those of a run without interruption.",
            LimpetWarning,
        )
    elif stored["programs"] != target["programs"]:
        names = [n for n in stored["programs"] if stored["programs"][n] != target["programs"][n]]
        warn(
            f"{', '.join(names)} of the target are written differently from those that"
            f" store={str(path)!r} began with, though they agree at its starts: make sure that they"
            " are the same.",
            LimpetWarning,
        )


def _kernel(about) -> Kernel:
    if about["kernel"] not in Kernel.known:
        raise StoreError(
            f"The store was made with kernel={about['kernel']}, which is not defined here: import"
            " the module that defines it first."
        )
    return Kernel.known[about["kernel"]](**about["fields"])
