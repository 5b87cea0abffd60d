"""What `limpet.sample` and `limpet.resume` refuse of their arguments."""

import os

import numpy as np

from limpet import errors
from limpet.coordinates import Coordinates
from limpet.draws.writer import Store
from limpet.errors import InputError
from limpet.geometry.labels import label_starts
from limpet.kernels import Kernel, Move, StrataSampler
from limpet.layout import read_points
from limpet.strata import Strata
from limpet.target import check_target

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


def number_of_workers(workers) -> int:
    """How many workers there are to be; as many as there are cores if that is not said."""
    if workers is not None:
        return errors.whole("workers", workers, 1)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def number_of_draws(store: Store, draws) -> int:
    """How many draws a stored run is to have; fewer than every chain has are refused.

    What was counted is of all of them.
    """
    before = store.specification.draws
    asked = before if draws is None else errors.whole("draws", draws, 1)
    if asked < before and asked < (made := min(store.fewest(), before)):
        raise InputError(
            f"draws={asked} is less than the {made} that store={str(store.path)!r} has of every"
            " chain: expected as many or more. limpet.open(store) reads those that there are."
        )
    return asked
