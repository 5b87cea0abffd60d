"""What `limpet.sample` and `limpet.resume` refuse of their arguments."""

import os
import reprlib
from typing import Any

import numpy as np

from limpet import errors
from limpet.coordinates import Coordinates
from limpet.draws.writer import Store
from limpet.errors import InputError
from limpet.geometry.labels import label_starts
from limpet.kernels import Kernel, Move, StrataSampler
from limpet.layout import Layout, read_points
from limpet.run.goal import MOST_DRAWS, Goal
from limpet.run.specification import MOST_CHAINS
from limpet.run.tile_run import LEARN
from limpet.strata import Strata
from limpet.target import check_target

USUAL_DRAWS = 1_000  # per chain, if nothing is said
SINGULAR = 1e-12  # ratio of a matrix' least singular value to its largest, below which it is
UNKNOWN_NOISE = {"eps": "a function"}  # what the parameters of a run say of its noise, if so


def check_model(target, kernel, keep_surface):
    """Refuse a target, a kernel and `keep_surface` that are none, or do not fit each other."""
    check_target(target)
    if isinstance(kernel, type):
        raise InputError(f"kernel={kernel.__name__} is a class: expected {kernel.__name__}(...).")
    if not isinstance(kernel, Kernel):
        raise InputError(
            f"kernel={kernel!r}: expected limpet.Lifted(...), limpet.SAS(...),"
            " limpet.SurfaceSampler(...) or limpet.RandomWalk(...)."
        )
    if isinstance(target, Strata) != isinstance(kernel, StrataSampler):
        needed = "kernel=limpet.StrataSampler(...)" if isinstance(target, Strata) else "another"
        raise InputError(
            f"kernel={kernel!r} does not fit target={target!r}: expected {needed}, for"
            " limpet.StrataSampler and limpet.Strata go together."
        )
    if not isinstance(keep_surface, bool | np.bool_):
        raise InputError(f"keep_surface={keep_surface!r}: expected True or False.")
    if keep_surface and Move.OFF not in kernel.moves:
        raise InputError(
            f"keep_surface=True does not fit kernel={kernel!r}, which does not move on and off the"
            " surface: expected limpet.SAS(...), or keep_surface=False."
        )


def start_of(target, start, kernel):
    """Where to start: as given, or where the target says."""
    if start is None and target.start is None:
        raise InputError(
            "start is missing: expected a point from which a solver can reach the surface."
        )
    given = target.start if start is None else start
    if target.start is not None:
        has, expected = (str(read_points("start", each)[0]) for each in (given, target.start))
        if has != expected:
            raise InputError(f"start has {has}: expected {expected}, as target.start has it.")
    if isinstance(target, Strata):
        return label_starts(target, given, rigid=kernel.measure is not None)
    return given


def coordinates_of(target, layout, dims, coords) -> Coordinates:
    """What the user calls axes and places along them; a model has its own words for that."""
    for name, given in (("dims", dims), ("coords", coords)):
        if given is not None and target.start is not None and not isinstance(target, Strata):
            raise InputError(
                f"{name} does not fit target={target!r}, whose variables are the model's: give the"
                " model names of axes, by numpyro.plate or pymc.Model(coords=...), and leave out"
                f" {name}."
            )
    return Coordinates.of(layout, dims, coords)


def read_scale(given, layout: Layout, kernel: Kernel) -> Any:
    """The scale of a run as a store keeps it: "learn", None, or a list of numbers or of rows."""
    if given is None or (isinstance(given, str) and given == LEARN):
        return given
    if not kernel.takes_frames:
        raise InputError(
            f"scale={reprlib.repr(given)} does not fit kernel={kernel!r}, which takes the unknowns"
            " as they are: leave it out, or write q in other units."
        )
    expected = (
        f"expected {LEARN!r}, None, {layout.size} numbers above 0, a dict of such by variable, or a"
        f" matrix of {layout.size} x {layout.size}"
    )
    try:
        scale = np.asarray(_by_variable(given, layout) if isinstance(given, dict) else given, float)
    except (TypeError, ValueError):
        raise InputError(f"scale={reprlib.repr(given)}: {expected}.") from None
    n = layout.size
    scale = np.full(n, scale) if scale.ndim == 0 else scale
    if scale.shape not in ((n,), (n, n)) or not np.isfinite(scale).all():
        raise InputError(f"scale={reprlib.repr(given)} has shape {scale.shape}: {expected}.")
    if scale.ndim == 1:
        if not (scale > 0).all():
            raise InputError(f"scale={reprlib.repr(given)} has {scale.min():g}: {expected}.")
        return scale.tolist()
    lengths = np.linalg.svd(scale, compute_uv=False)
    if not lengths[-1] > SINGULAR * lengths[0]:
        raise InputError(
            f"scale is a matrix with singular values from {lengths[-1]:.3g} to {lengths[0]:.3g}:"
            " expected one that can be inverted, such as the Cholesky factor of a covariance."
        )
    # a rotation of z changes nothing: the lower triangular one of those with the same B B^T
    return np.asarray(np.linalg.qr(scale.T, mode="r")).T.tolist()


def _by_variable(given, layout) -> np.ndarray:
    """Numbers by variable as one vector."""
    if unknown := set(given) ^ set(layout.names):
        raise InputError(
            f"scale has or lacks {', '.join(map(repr, sorted(map(str, unknown))))}: expected a"
            f" number or an array for each of {', '.join(map(repr, layout.names))}."
        )
    pieces = zip(layout.names, layout.shapes, strict=True)
    return np.concatenate(
        [np.broadcast_to(np.asarray(given[n], float), shape).ravel() for n, shape in pieces]
    )


def number_of_workers(workers, executor=None) -> int:
    """How many tiles are advanced side by side; if that is not said, as many as there are cores.

    An executor is given all of them: it knows how many workers it has.
    """
    if workers is not None:
        return errors.whole("workers", workers, 1)
    if executor is not None:
        return MOST_CHAINS
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def read_goal(ess, draws, chains: int) -> tuple[Goal | None, int]:
    """What a new run is to reach, if anything, and how many draws its chains make at first."""
    if ess is None:
        return None, USUAL_DRAWS if draws is None else errors.whole("draws", draws, 1)
    most = MOST_DRAWS if draws is None else errors.whole("draws", draws, 1)
    goal = Goal(errors.whole("ess", ess, 1), most)
    return goal, goal.first(chains)


def number_of_draws(store: Store, draws, ess) -> tuple[int, Goal | None]:
    """How many draws a stored run is to have for now, and what it is to reach.

    Fewer than every chain has are refused: what was counted is of all of them.
    """
    run = store.specification
    before = run.draws
    if draws is None and ess is None:
        return before, run.goal
    asked, goal, made = before, None, before
    if draws is not None and (asked := errors.whole("draws", draws, 1)) < before:
        made = min(store.fewest(), before)
        if asked < made:
            raise InputError(
                f"draws={asked} is less than the {made} that store={str(store.home)!r} has of every"
                " chain: expected as many or more. limpet.open(store) reads those that there are."
            )
    if ess is not None:
        most = asked if draws is not None else run.goal.most if run.goal else MOST_DRAWS
        goal = Goal(errors.whole("ess", ess, 1), max(most, made))
        # a stage that was begun is finished, but not one that was to be all
        made = before if run.goal else min(store.fewest(), before)
        asked = min(max(made, goal.first(run.chains)), goal.most)
    return asked, goal
