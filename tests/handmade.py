"""Results made by hand, for what is shown of draws that no run would make."""

import numpy as np
import xarray as xr

from limpet.draws.tree import MOVES, OUTCOMES, totals


def result(moves, tried, **variables):
    """A result with these draws, of shape (chain, draw, ...), three steps to a draw.

    Of each of these moves as many were tried as `tried` says, by outcome, seven in ten accepted.
    """
    dims = {
        name: ["chain", "draw", *(f"{name}_{i}" for i in range(a.ndim - 2))]
        for name, a in variables.items()
    }
    posterior = xr.Dataset({name: (dims[name], a) for name, a in variables.items()})
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    counts = np.zeros((chains, len(MOVES), len(OUTCOMES)), np.int64)
    for move in moves:
        counts[0, MOVES.index(move)] = [tried.get(outcome, 0) for outcome in OUTCOMES]
    counted = xr.Dataset(
        {
            "counts": (("chain", "move", "outcome"), counts),
            "acceptance": (("chain", "move"), np.full(counts.shape[:2], 0.7)),
        },
        coords={"move": np.array(MOVES, object), "outcome": np.array(OUTCOMES, object)},
    )
    steps = np.tile(3 * np.arange(draws), (chains, 1))
    stats = xr.Dataset({"step": (("chain", "draw"), steps)})
    groups = {"posterior": posterior, "sample_stats": stats, "moves": counted}
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = {"kernel": "SAS", **totals(counted, list(moves))}
    return tree
