"""`limpet.sample` and `limpet.resume`: from arguments, through all rooms, to draws."""

import contextlib
import dataclasses
import functools
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from limpet import errors
from limpet.arguments import (
    UNKNOWN_NOISE,
    check_model,
    coordinates_of,
    number_of_draws,
    number_of_workers,
    read_goal,
    read_scale,
    start_of,
)
from limpet.coordinates import Coordinates
from limpet.draws.memory import MemorySink
from limpet.draws.recognition import describe
from limpet.draws.sink import DrawSink
from limpet.draws.store_sink import StoreSink
from limpet.draws.where import StoreLike, as_home
from limpet.draws.writer import Store, new_home
from limpet.errors import ExecutorError, StartError, StoreError, StuckError
from limpet.geometry.escape import check_proper
from limpet.geometry.fit import find_peaks
from limpet.geometry.start import JITTER, find_vectors
from limpet.geometry.start_checks import check_guesses, check_resolution
from limpet.geometry.symmetry_checks import check_symmetries
from limpet.kernels import SAS, Exchange, Kernel, Lifted, Move, StrataSampler
from limpet.layout import Layout, read_points
from limpet.report.progress import Show, at_the_start, show_progress
from limpet.report.reporter import says_stop
from limpet.run import tile
from limpet.run.executors import Executor, as_executor
from limpet.run.goal import Goal
from limpet.run.pilot import find_ladder
from limpet.run.signals import every_one_heard
from limpet.run.specification import RunSpecification, check_names, chunk_length
from limpet.run.task import pack
from limpet.run.tile_run import LEARN
from limpet.session import Session
from limpet.stored import begin_tile, stored_run
from limpet.strata import Strata
from limpet.target import Target, check_target


def sample(
    target: Target,
    start=None,
    *,
    draws: int | None = None,
    ess: int | None = None,
    chains: int | None = None,
    warmup: int | None = None,
    scale: Any = LEARN,
    kernel: Kernel | None = None,
    seed: int = 0,
    jitter: float = JITTER,
    thin: int = 1,
    keep_surface: bool = False,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Any] | None = None,
    store: StoreLike | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
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
        arrays name the variables of the result; those of a plain vector are called `x`. Targets
        made of models know where to start.
    draws : int, optional
        Draws from pi_eps per chain, by default 1,000; with `ess`, at most so many, by default
        100,000. Steps on the surface are not counted: each chain's first `draws` visits off it are
        kept.
    ess : int, optional
        Draw until every variable has this effective sample size, as `limpet.summary` will show it,
        and chains agree; a warning tells if `draws` of each chain were not enough. The draws are
        the same however they are made, and so is their number.
    chains : int, optional
        Default: as many as there are starts, or 128 if there is one.
    warmup : int, optional
        Steps per chain made before the first draw, and forgotten. They find step sizes, lengths of
        trajectories and the scale, from whatever these are. Default: as many as it takes until
        nothing changes any more and the chains agree, 1,000 at most; of a `Strata` 32,000, while
        chains disagree on how many constraints hold. With a number the first three quarters are
        spent on finding; 0 takes the kernel as it is.
    scale : "learn", None, numbers or dict, optional
        Units in which the unknowns vary by about as much: slides have one size in all directions
        of them. By default warm-up finds them, also which unknowns go together, and bonds are
        sampled in terms of differences. Give your own by a number for each unknown, by variable
        (`{"bead": 1.0, "field": 1e3}`), or as an n x n matrix B, for x = B z. None takes the
        unknowns as they are. Draws are of x in any case, and of the same law.
    kernel : Lifted, SAS, SurfaceSampler, RandomWalk or Exchange, optional
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
    dims : dict, optional
        Names of a variable's own axes, as ArviZ and PyMC have them: `{"bead": ["which", "axis"]}`.
        Variables may share a name if they are equally long. Without it an axis is called `x_dim`,
        or `x_dim_0`, `x_dim_1`. Targets made of models have their model's.
    coords : dict, optional
        Labels along axes, by the axis' name: `{"axis": ["x", "y", "z"]}`. Strings or numbers, all
        different, in a list, an array or a pandas Index; dates as strings. Without it they are 0,
        1 and so on.
    store : str, path or zarr store, optional
        Where to write the draws to as they come: a folder such as "run.zarr", which must not
        exist, a URL such as "s3://bucket/run.zarr", or any zarr store. See `limpet.resume` and
        `limpet.open`.
    workers : int, optional
        Threads that run tiles of 128 chains side by side. Default: as many as there are cores. The
        draws are the same whatever their number. With an executor: tiles that are sent to it at a
        time, by default all.
    executor : concurrent.futures.Executor, dask.distributed.Client or the like, optional
        Runs tiles on workers of its own instead of threads: anything with a method `submit` in the
        manner of `concurrent.futures`. The draws are the same. See "More than one machine" in the
        documentation.
    progress : bool or callable
        Whether to show how the run goes, on standard error; or a function that is given a
        `limpet.Progress` about five times a second. If it returns False the run stops as by
        Ctrl-C; if it raises, that is a warning, and the run goes on.

    Returns
    -------
    xarray.DataTree
        Groups `posterior`, `sample_stats`, `moves` and `scale`, in ArviZ's schema; `attrs` has
        kernel, parameters (as tuned), steps, acceptance and counts, and where the time went:
        `seconds` for the draws, before that `start_seconds` (tracing, and the search for the
        surface), `compile_seconds` and `warmup_seconds`, and `wall_seconds` in all. They are
        wall-clock times, of all sessions of a run that was resumed. With a store, draws are read
        from it as they are used.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.01)
    >>> draws = limpet.sample(circle, [1.0, 0.0], draws=200, chains=4, seed=1)
    >>> dict(draws.posterior["x"].sizes)
    {'chain': 4, 'draw': 200, 'x_dim': 2}

    Axes and places along them in your own words:

    >>> words = {"dims": {"x": ["way"]}, "coords": {"way": ["east", "north"]}}
    >>> draws = limpet.sample(circle, [1.0, 0.0], draws=200, chains=4, seed=1, **words)
    >>> draws.posterior["x"].sel(way="north").shape
    (4, 200)
    """
    began = time.perf_counter()
    if kernel is None:
        usual = StrataSampler() if isinstance(target, Strata) else Lifted()
        kernel = SAS() if keep_surface is True else usual
    check_model(target, kernel, keep_surface)
    layout, guesses = read_points("start", start_of(target, start, kernel))
    coordinates = coordinates_of(target, layout, dims, coords)
    several = len(guesses) if len(guesses) > 1 else tile.WIDTH
    chains = several if chains is None else errors.whole("chains", chains, 1)
    goal, draws = read_goal(ess, draws, chains)
    thin = errors.whole("thin", thin, 1)
    warmup = None if warmup is None else errors.whole("warmup", warmup, 0)
    scale, seed = read_scale(scale, layout, kernel), errors.whole("seed", seed, 0)
    jitter, hands = errors.zero_or_more("jitter", jitter), number_of_workers(workers, executor)
    engine = None if executor is None else as_executor(executor)
    home = None if store is None else new_home(store)
    if home is not None:
        layout.to_json()  # refuses what a store cannot hold, before anything takes time
        check_names(layout)
        coordinates.check_storable()
    with show_progress(progress) as show:
        stop_at_once = says_stop(show(at_the_start(chains, draws, ess)))
        with every_one_heard():
            flat = target.on_vectors(layout).freeze(jnp.asarray(guesses[0]))
            kernel = kernel.fitted(flat)
            kernel.check_room(flat, jnp.asarray(guesses[0]))
            if kernel.is_forced:
                flat.check_forces(jnp.asarray(guesses[0]))
            if engine is not None:
                pack(None, kernel, flat)  # refuses what cannot be sent, before anything takes time
            specification = _specify(
                kernel,
                flat,
                layout,
                coordinates,
                chains=chains,
                draws=draws,
                goal=goal,
                warmup=warmup,
                scale=scale,
                thin=thin,
                keep_surface=bool(keep_surface),
                seed=seed,
            )
            spare = -chains % specification.width
            of_model = target.start is not None
            starts = _find_starts(kernel, flat, guesses, chains, seed, spare, jitter, of_model)
            if isinstance(kernel, Exchange) and kernel.ladder is None:
                show(at_the_start(chains, draws, ess)._replace(phase="ladder"))
                kernel, scale = find_ladder(specification, kernel, flat, starts)
                found = {
                    "fields": dataclasses.asdict(kernel),
                    "parameters": kernel.parameters(flat),
                }
                specification = dataclasses.replace(specification, scale=scale, **found)
            if getattr(kernel, "measure", None) is None:  # else it is on the surface itself
                check_resolution(flat, starts)
            check_symmetries(flat, starts)
        with _new_sink(home, specification, flat, starts) as sink:
            begin = functools.partial(begin_tile, sink.specification, kernel, flat, starts)
            tiles = [begin(k) for k in range(specification.tiles)]
            session = Session(kernel, tiles, sink, show, began)
            return _translated(target, lambda: session.go(hands, engine, stop_at_once))


def resume(
    store: StoreLike,
    target: Target,
    *,
    draws: int | None = None,
    ess: int | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: bool | Show = True,
) -> xr.DataTree:
    """Go on with a run that was interrupted, killed, or is to be longer.

    The draws are those that the run would have made without the interruption, bit for bit.

    Parameters
    ----------
    store : str, path or zarr store
        What `limpet.sample(store=...)` was given.
    target : Target
        The target of that run. A store holds no code, so it cannot know it; another is refused.
    draws : int, optional
        Draws per chain in all, if not as many as were asked for before: more, or fewer, but no
        fewer than there are. With `ess`, at most so many.
    ess : int, optional
        Draw until there is this effective sample size, as in `limpet.sample`. A run that was begun
        so goes on so, unless `draws` is given alone.
    workers, executor, progress
        As in `limpet.sample`, whatever the run had before.

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
    hands = number_of_workers(workers, executor)
    engine = None if executor is None else as_executor(executor)
    with show_progress(progress) as show, Store(as_home(store)) as held:
        with every_one_heard():
            kernel, flat, starts = stored_run(held, target)
        if engine is not None:
            pack(None, kernel, flat)
        asked = number_of_draws(held, draws, ess)
        if asked != (held.specification.draws, held.specification.goal):
            held.extend(*asked)
        sink = StoreSink(held)
        begin = functools.partial(begin_tile, held.specification, kernel, flat, starts)
        tiles = sink.restore(begin)
        session = Session(kernel, tiles, sink, show, began)
        return _translated(target, lambda: session.go(hands, engine))


def _find_starts(kernel, target, guesses, count, seed, spare, jitter, of_model) -> np.ndarray:
    """Where chains begin: on the surface, but near the data of a model that fits them nowhere.

    With noise that is unknown, the surface may be far from where the density is.
    """
    if isinstance(target, Strata):  # they were found with their labels
        check_proper(target, guesses[0])
        return guesses[np.arange(count + spare) % len(guesses)]
    forced, may_miss = kernel.is_forced, of_model and not kernel.needs_surface
    if target.has_fixed_eps or not may_miss:
        try:
            return find_vectors(target, guesses, count, seed, "start", spare, jitter, forced)
        except StartError:
            if not may_miss:
                raise
    check_guesses(target, guesses, "start")
    return find_peaks(target.coloured(None), guesses, count + spare, seed, jitter, forced)


def _translated(target: Target, go: Callable[[], xr.DataTree]) -> xr.DataTree:
    """The draws of a session, or what an error has of them, in the target's own words."""
    try:
        return target.translate(go())
    except (ExecutorError, StoreError, StuckError) as error:
        if error.draws is not None:
            error.draws = target.translate(error.draws)
        raise


def _specify(
    kernel: Kernel,
    target: Target,
    layout: Layout,
    coordinates: Coordinates,
    *,
    chains: int,
    draws: int,
    goal: Goal | None = None,
    warmup: int | None,
    scale: Any,
    thin: int,
    keep_surface: bool,
    seed: int,
) -> RunSpecification:
    """What a run is; how its target is recognised is left open."""
    width = tile.width_for(chains)
    symmetries = [Move.SYMMETRY] if target.symmetries else []
    return RunSpecification(
        run=uuid.uuid4().hex,
        chains=chains,
        draws=draws,
        goal=goal,
        warmup=warmup,
        scale=scale,
        thin=thin,
        keep_surface=keep_surface,
        seed=seed,
        kernel=type(kernel).__name__,
        fields=dataclasses.asdict(kernel),
        parameters=kernel.parameters(target) | ({} if target.has_fixed_eps else UNKNOWN_NOISE),
        moves=tuple(move.name.lower() for move in (*kernel.moves, *symmetries)),
        sizes=tuple(name for tunable in kernel.tunables for name in tunable.names),
        width=width,
        chunk=chunk_length(layout, chains, width),
        constraints=jax.eval_shape(target.values, np.zeros(layout.size)).shape[0],
        layout=layout,
        target=None,
        limpet_version=version("limpet"),
        jax_version=jax.__version__,
        coordinates=coordinates,
    )


@contextlib.contextmanager
def _new_sink(home, specification, target, starts) -> Iterator[DrawSink]:
    """Where the draws of a new run go: into a store, if there is to be one."""
    if home is None:
        yield MemorySink(specification)
        return
    specification = dataclasses.replace(specification, target=describe(target, starts))
    with Store.create(home, specification, starts) as store:
        yield StoreSink(store)
