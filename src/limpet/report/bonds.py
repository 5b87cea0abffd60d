"""What draws of a `limpet.Strata` say of its labels: how many hold, and which sets follow which."""

import numpy as np
import xarray as xr

from limpet.errors import InputError, LimpetWarning, warn
from limpet.report.diagnostics import measure
from limpet.strata import LABELS, Strata
from limpet.target import Target

MOST_SETS = 12  # of labels, in a graph: the most frequent
MOST_LOOKED_AT = 2**22  # labels of a run, at its end: it takes no time, nor memory
FEWEST_DRAWS = 500  # in all chains, from which it is strange that no label ever changes


def has_labels(posterior: xr.Dataset) -> bool:
    """Whether these are draws of a `limpet.Strata`."""
    return LABELS in posterior


def numbers_of(posterior: xr.Dataset) -> xr.Dataset:
    """How likely each number of constraints is to hold, and the Monte Carlo error of that."""
    held = count_of(posterior)
    numbers = np.arange(held.min(), held.max() + 1)
    probability, mcse = np.array([_share(held == number) for number in numbers]).T
    columns = {"probability": ("number", probability), "mcse": ("number", mcse)}
    return xr.Dataset(columns, coords={"number": numbers})


def warn_of_bonds(posterior: xr.Dataset) -> None:
    """Warn if no label ever changed: then a run says little of how likely constraints hold."""
    labels = posterior[LABELS].transpose("chain", "draw", ...)
    chains, draws, k = labels.shape[0], labels.shape[1], int(np.prod(labels.shape[2:]))
    every = -(-labels.size // MOST_LOOKED_AT)
    if chains * draws < FEWEST_DRAWS or not k:
        return
    seen = labels[:, ::every].values.reshape(chains, -1, k)
    if (seen.min(axis=1) != seen.max(axis=1)).any():
        return
    held = seen[:, 0].mean()
    if held == 0:
        happened, remedy = (
            "none of them ever held",
            "Raise kappa, or reach if chains come no nearer",
        )
    elif held == 1:
        happened, remedy = "all of them always held", "Lower kappa, or name them in always"
    else:
        happened, remedy = "none ever formed or broke", "Look at kappa, and at reach"
    warn(
        f"Of {k} constraints that may break, {happened} in {chains * draws} draws: how likely that"
        f" is cannot be told from these. {remedy}; or draw longer.",
        LimpetWarning,
    )


def warn_of_rooms(target: Target, posterior: xr.Dataset) -> None:
    """Warn if as many constraints held at one time as may: more would have, if they might."""
    if not isinstance(target, Strata) or target.rooms == target.m:
        return
    held = count_of(posterior) + len(target.always)
    if (full := np.mean(held >= target.rooms)) > 0:
        warn(
            f"In {full:.2%} of all draws {target.rooms} constraints hold, which is all that"
            f" at_once={target.at_once} allows: how many hold is cut off there. Raise at_once.",
            LimpetWarning,
        )


def count_of(posterior: xr.Dataset) -> np.ndarray:
    """How many constraints hold, of those that may break, by chain and draw."""
    labels = posterior[LABELS]
    axes = [axis for axis in labels.dims if axis not in ("chain", "draw")]
    return labels.sum(axes).transpose("chain", "draw").values.astype(int)


def _share(flags: np.ndarray) -> tuple[float, float]:
    """How often a flag is set, and the Monte Carlo error."""
    values = flags[..., None].astype(float)
    chains, draws = flags.shape
    found = measure(lambda chain, draw: values[chain, draw], chains, draws, 1)
    return float(found.mean[0]), float(found.mcse[0])


def label_graph(draws: xr.DataTree) -> xr.Dataset:
    """Which sets of labels follow which, from draw to draw, of the most frequent sets.

    Parameters
    ----------
    draws : xarray.DataTree
        Of a `limpet.Strata`, from `limpet.sample`.

    Returns
    -------
    xarray.Dataset
        `labels` (set, constraint), `probability` (set), and `moves` (set, next): how often a draw
        with one set is followed by one with another. Sets that are rarer than the first twelve are
        left out.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> wall = limpet.Strata(lambda x: x[:1], 0.01, kappa=1.0, log_density=lambda x: -x @ x)
    >>> draws = limpet.sample(wall, [0.5], draws=500, chains=32, progress=False)
    >>> graph = limpet.label_graph(draws)
    >>> graph["moves"].shape
    (2, 2)
    """
    posterior = draws["posterior"].to_dataset() if isinstance(draws, xr.DataTree) else None
    if posterior is None or not has_labels(posterior):
        raise InputError("draws has no labels: expected draws of a limpet.Strata.")
    labels = posterior[LABELS].values.astype(np.int8)
    sets, which = np.unique(labels.reshape(-1, labels.shape[-1]), axis=0, return_inverse=True)
    which = which.reshape(labels.shape[:2])
    often = np.bincount(which.ravel(), minlength=len(sets))
    kept = np.argsort(-often, kind="stable")[:MOST_SETS]
    place = np.full(len(sets), len(kept))
    place[kept] = np.arange(len(kept))
    before, after = place[which[:, :-1]].ravel(), place[which[:, 1:]].ravel()
    moves = np.zeros((len(kept) + 1, len(kept) + 1), int)
    np.add.at(moves, (before, after), 1)
    return xr.Dataset(
        {
            "labels": (("set", "constraint"), sets[kept]),
            "probability": ("set", often[kept] / which.size),
            "moves": (("set", "next"), moves[:-1, :-1]),
        }
    )
