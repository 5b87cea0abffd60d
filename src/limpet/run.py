"""`limpet.sample` and `limpet.resume`: tiles over workers, with progress, stores and interrupts."""

import dataclasses
import functools
import os
import queue
import signal
import threading
import time
import uuid
from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from limpet import advice, errors, results, tile
from limpet.collect import Memory
from limpet.draws import open as open_store
from limpet.draws.commits import Commits, NoCommits
from limpet.draws.reader import as_path
from limpet.draws.recognition import check_same, described
from limpet.draws.specification import RunSpecification, check_names, chunk_length
from limpet.draws.writer import Store, new_path
from limpet.errors import (
    InputError,
    InterruptedWarning,
    StoreError,
    StuckError,
    warn,
)
from limpet.kernels import SAS, Kernel, Lifted, Move, SurfaceSampler
from limpet.layout import read_points
from limpet.progress import Progress, Show, shown
from limpet.start import check_resolution, find_vectors
from limpet.target import Target, check_target
from limpet.voyage import LOOK, Plan, Voyage
from limpet.watch import UNKNOWN, mixing


def sample(
    target: Target,
    start,
    *,
    draws: int = 1_000,
    chains: int | None = None,
    warmup: int = 1_000,
    kernel: Kernel | None = None,
    seed: int = 0,
    thin: int = 1,
    keep_surface: bool = False,
    store: str | os.PathLike | None = None,
    workers: int | None = None,
    progress: bool | Show = True,
) -> xr.DataTree:
    """Draw from a target near its surface.

    Ctrl-C (or SIGTERM) stops at the next block and returns what was drawn so far; a second one
    stops at once.

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
        `limpet.Progress` every now and then.

    Returns
    -------
    xarray.DataTree
        Groups `posterior`, `sample_stats` and `moves`, in ArviZ's schema; `attrs` has kernel,
        parameters (as tuned), steps, seconds, acceptance and counts. With a store, draws are read
        from it as they are used.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.01)
    >>> draws = limpet.sample(circle, [1.0, 0.0], draws=200, chains=4, seed=1)
    >>> dict(draws.posterior["x"].sizes)
    {'chain': 4, 'draw': 200, 'x_dim': 2}
    """
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
    workers = _workers(workers)
    path = None if store is None else new_path(store)
    if path is not None:
        layout.to_json()  # refuses what a store cannot hold, before anything takes time
        check_names(layout)
    with shown(progress) as show:
        width = tile.width_for(plan.chains)
        flat = target.on_vectors(layout).checked(jnp.asarray(guesses[0]))
        spare = -plan.chains % width
        starts = find_vectors(flat, guesses, plan.chains, plan.seed, "start", spare)
        if not isinstance(kernel, SurfaceSampler):
            check_resolution(flat, starts)
        run = functools.partial(_Run, kernel, flat, layout, starts, plan)
        if path is None:
            about = _specification(kernel, flat, layout, plan, width)
            return run(about, _memory(plan, layout), workers).go(show)
        about = _specification(kernel, flat, layout, plan, width, described(flat, starts))
        with Store.create(path, about, starts) as room:
            return run(about, room, workers).begin().go(show)


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
    check_target(target)
    workers = _workers(workers)
    with shown(progress) as show, Store(as_path(store)) as room:
        about, starts = room.specification, room.starts
        asked = about.draws if draws is None else errors.whole("draws", draws, 1)
        flat = target.on_vectors(room.layout).checked(jnp.asarray(starts[0]))
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
        return run.begin().go(show)


class _Run:
    """The tiles of a run and the workers that advance them."""

    def __init__(self, kernel, target, layout, starts, plan, about, room, workers):
        self.kernel, self.target, self.layout = kernel, target, layout
        self.plan, self.about, self.room = plan, dict(vars(about)), room
        self.began = time.perf_counter()
        self._voyage = functools.partial(Voyage, kernel, target, starts, plan=plan, room=room)
        self.voyages = [self._voyage(k) for k in range(about.tiles)]
        self.workers = min(workers, len(self.voyages))
        stored = isinstance(room, Store)
        self.commits = self.writer = Commits(room, about.tiles) if stored else NoCommits()
        self.error = None
        self.drawing_since = None  # when, and with how many draws

    def restore(self):
        """Go on from where the store is."""
        self.commits.restore(self.voyages, self._voyage)

    def begin(self):
        """Write the first state of every tile that has none: draws are never without one."""
        for voyage in self.voyages:
            self.commits.commit(voyage)
        return self

    def go(self, show: Show) -> xr.DataTree:
        """Run until every chain has its draws, or a signal says stop."""
        with _Signals() as signals, self.writer:
            show(self._progress("compile"))
            self.voyages[0].embark(self.began)
            for voyage in self.voyages[1:]:
                voyage.embark(time.perf_counter())
            todo = queue.PriorityQueue()
            for voyage in self.voyages:
                if not voyage.arrived:
                    todo.put((voyage.step, voyage.index))
            threads = [
                threading.Thread(target=self._work, args=(todo, signals.stop))
                for _ in range(self.workers)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    drawing = all(voyage.drawing for voyage in self.voyages)
                    show(self._progress("draws" if drawing else "warmup"))
                    thread.join(LOOK)
            if isinstance(self.room, Store):
                for voyage in self.voyages:
                    self._guarded(lambda voyage=voyage: self._commit(voyage))
                self._guarded(self._finish_writing)
        if self.error is not None:
            raise self.error
        show(self._progress("done"))
        return self._result(signals.came)

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
        self.commits.look(voyage)

    def _commit(self, voyage):
        self.commits.commit(voyage)

    def _finish_writing(self):
        self.commits.finish()

    def _drawn(self):
        kept = [voyage.collector.kept["posterior"].draws for voyage in self.voyages]
        return int(np.minimum(np.concatenate(kept), self.plan.draws).sum())

    def _common(self):
        """Draws that every chain has."""
        fewest = min(int(voyage.collector.draws.min()) for voyage in self.voyages)
        return min(fewest, self.plan.draws)

    def _mixing(self):
        return mixing([voyage.watch for voyage in self.voyages], self._common())

    def _progress(self, phase):
        drawn, asked = self._drawn(), self.plan.chains * self.plan.draws
        rate = left = None
        if phase in ("draws", "done"):
            now = time.perf_counter()
            since, before = self.drawing_since = self.drawing_since or (now, drawn)
            if drawn > before:
                rate = (drawn - before) / (now - since)
                left = (asked - drawn) / rate
        books = [voyage.collector for voyage in self.voyages]
        counts = np.sum([book.counts[0].sum(axis=(0, 2)) for book in books], axis=0)
        likely = np.sum([book.acceptance[0].sum(axis=0) for book in books], axis=0)
        mixed = UNKNOWN if phase == "compile" else self._mixing()
        return Progress(
            phase=phase,
            draws=drawn,
            asked=asked,
            chains=self.plan.chains,
            draws_per_second=rate,
            seconds_left=left,
            acceptance={
                move.name.lower(): float(likely[move] / counts[move]) if counts[move] else None
                for move in self.kernel.moves
            },
            r_hat=None if np.isnan(mixed.r_hat) else mixed.r_hat,
            ess=None if np.isnan(mixed.ess) else mixed.ess,
        )

    def _result(self, signal_number):
        for voyage in self.voyages:
            advice.warn_of_singular_surface(voyage.begin, jax.tree.map(np.asarray, voyage.states))
        stuck = [voyage for voyage in self.voyages if voyage.stuck.any()]
        if stuck:
            raise self._stuck(stuck)
        draws = self._common()
        tree = self._tree(draws)
        if draws < self.plan.draws or signal_number is not None:  # it may have come at the very end
            held = isinstance(self.room, Store) and draws < self.plan.draws
            after = "; limpet.resume(store, target) goes on" if held else ""
            message = f"Interrupted: {draws:,} of {self.plan.draws:,} draws per chain were made"
            warn(InterruptedWarning(f"{message}{after}.", signal_number), InterruptedWarning)
        dimension = self.layout.size - self.about["constraints"]
        advice.warn_of(tree, self.kernel, self.layout, dimension, self._mixing())
        return tree

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
            return open_store(self.room.path)
        except (OSError, StoreError):
            return None


class _Signals:
    """Ctrl-C and SIGTERM ask to stop; asked twice, they interrupt."""

    def __init__(self):
        self.stop = threading.Event()
        self.came = None  # the number of the first one

    def __enter__(self):
        main = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if main else ()
        self.before = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_):
        self.stop.set()
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _handle(self, number, _):
        if self.came is not None:
            raise KeyboardInterrupt(number)
        self.came = number
        self.stop.set()


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
        sizes=tuple(name for knob in kernel.knobs for name in knob.names),
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
