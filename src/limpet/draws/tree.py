"""What a run gives back: an xarray DataTree in ArviZ's schema."""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from limpet.coordinates import dataset
from limpet.draws.attributes import nest
from limpet.kernels.base import Kernel
from limpet.kernels.states import Move, Outcome
from limpet.run.clock import times_of
from limpet.run.collect import LADDER
from limpet.run.specification import RunSpecification

MOVES = [move.name.lower() for move in Move]
SYMMETRY = Move.SYMMETRY.name.lower()
OUTCOMES = [outcome.name.lower() for outcome in Outcome]


def tree(
    arrays: dict[str, dict], run: RunSpecification, figures: list[dict], keep=None
) -> xr.DataTree:
    """The result: draws by group and name, and the figures of each tile.

    `keep` tells which chains to show, all by default.
    """
    words = run.coordinates
    groups = {
        group: dataset(named, ("chain", "draw"), words.dims, words.coords)
        for group, named in arrays.items()
    }
    counts = np.concatenate([tile["counts"][0] for tile in figures])
    expected = np.concatenate([tile["acceptance"][0].sum(axis=2) for tile in figures])
    sizes = np.concatenate([np.tile(t["sizes"], (t["counts"].shape[1], 1)) for t in figures])
    proposals = counts.sum(axis=2)
    acceptance = np.where(proposals, expected / np.maximum(proposals, 1), np.nan)
    groups["moves"] = xr.Dataset(
        {
            "counts": (("chain", "move", "outcome"), counts),
            "acceptance": (("chain", "move"), acceptance),
        }
        | {name: ("chain", size) for name, size in zip(run.sizes, sizes.T, strict=True)},
        # as objects, since zarr warns of NumPy's own strings
        coords={
            "chain": np.arange(len(counts)),
            "move": np.array(MOVES, object),
            "outcome": np.array(OUTCOMES, object),
        },
    )
    if run.pairs:
        groups["exchanges"] = _exchanges(run, figures)
    if keep is not None:
        groups = {name: group.isel(chain=keep) for name, group in groups.items()}
    groups["scale"] = _scale(run, figures)
    result = xr.DataTree.from_dict(groups)
    attributes = {
        "kernel": run.kernel,
        "seed": run.seed,
        "limpet_version": run.limpet_version,
        "warmup": max(int(tile["warmup_steps"]) for tile in figures),
        "thin": run.thin,
        "draws_asked": run.draws,
        **({} if run.goal is None else {"ess_asked": run.goal.ess}),
        "parameters": _parameters(run, np.median(sizes, 0)),
        **times_of(figures),
        **totals(groups["moves"], run.moves),
    }
    result.attrs = nest(attributes)
    return result


def _exchanges(run, figures) -> xr.Dataset:
    """What became of exchanges on a ladder by pair of rungs, and how often points came round."""
    counts, expected, trips = (
        np.concatenate([tile[name][0] for tile in figures]) for name in LADDER
    )
    tries = counts.sum(axis=2)
    eps = np.array(run.ladder, float)
    rungs = ("pair",) if eps.ndim == 1 else ("pair", "constraint")
    return xr.Dataset(
        {
            "counts": (("chain", "pair", "outcome"), counts),
            "acceptance": (
                ("chain", "pair"),
                np.where(tries, expected / np.maximum(tries, 1), np.nan),
            ),
            "round_trips": ("chain", trips),
            "upper_eps": (rungs, eps[:-1]),
            "lower_eps": (rungs, eps[1:]),
        },
        coords={
            "chain": np.arange(len(counts)),
            "pair": np.arange(run.pairs),
            "outcome": np.array(OUTCOMES, object),
        },
    )


def _scale(run, figures) -> xr.Dataset:
    """The units in which warm-up found that unknowns vary by about as much, tile by tile."""
    pieces = run.layout.pieces(np.stack([tile["scale"] for tile in figures]))
    named = dict(zip(run.layout.names, pieces, strict=True))
    scale = dataset(named, ("tile",), run.coordinates.dims, run.coordinates.coords)
    return scale.assign_attrs(of="differences" if figures[0]["in_bonds"] else "unknowns")


def _parameters(run, sizes):
    """The numbers that the sampler ran with, also by the names of earlier versions."""
    given = run.parameters
    tuned = dict(zip(run.sizes, sizes, strict=True))
    found = given | {name: type(given[name])(size) for name, size in tuned.items()}
    kernel = Kernel.known.get(run.kernel)
    renamed = {} if kernel is None else kernel.renamed
    return found | {old: found[new] for old, new in renamed.items() if new in found}


def totals(moves: xr.Dataset, used: Sequence[str]) -> dict:
    """Steps, counts and mean acceptance probability of all chains together, as plain numbers."""
    counts = moves["counts"].sum("chain")
    expected = (moves["acceptance"] * moves["counts"].sum("outcome")).sum("chain")
    by_move, acceptance = {}, {}
    for name in used:
        row = counts.sel(move=name).values
        by_move[name] = {o: int(c) for o, c in zip(OUTCOMES, row, strict=True)}
        proposals = int(row.sum())
        acceptance[name] = float(expected.sel(move=name)) / proposals if proposals else None
    # a step is one of the sampler's own moves, with or without symmetries after it
    steps = int(counts.sum()) - sum(by_move.get(SYMMETRY, {}).values())
    return {"steps": steps, "acceptance": acceptance, "counts": by_move}
