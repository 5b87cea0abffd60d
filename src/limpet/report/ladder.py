"""What a run says of its ladder: how often rungs exchange points, and what to do if they do not."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from limpet.draws.tree import OUTCOMES
from limpet.errors import LimpetWarning, warn

GROUP = "exchanges"
FEWEST_TRIES = 50  # of a pair, from which its acceptance is known to a few per cent
LEAST_EXCHANGED = 0.02  # acceptance of a pair that counts as none: a choice
APART = 1.5  # standard deviations to each side of its mean that a chain fills: a choice
MOST_DRAWS = (0.05, 0.95)  # quantiles, between which draws of one piece lie close together
# Of the way between these, with no draw in it. In 200 samples of 400 draws the widest is 0.05 of
# it where these are normal, 0.15 where their logarithms are
GAP = 0.2
CLOSER = 3.0  # how much smaller than the upper eps one between is to be, where layers are thick


def exchanges_of(draws: xr.DataTree) -> xr.Dataset | None:
    """By pair of rungs: their eps, tries, acceptance and outcomes; and round trips per chain."""
    if GROUP not in draws:
        return None
    found = draws[GROUP].to_dataset()
    counts = found["counts"].sum("chain")
    tries = counts.sum("outcome")
    expected = (found["acceptance"] * found["counts"].sum("outcome")).sum("chain")
    return xr.Dataset(
        {
            "upper_eps": found["upper_eps"],
            "lower_eps": found["lower_eps"],
            "tries": tries,
            "acceptance": expected / np.maximum(tries, 1),
            "share": counts / np.maximum(tries, 1),
            "round_trips": found["round_trips"].mean("chain"),
        }
    )


def table_of(exchanges: xr.Dataset) -> tuple[str, str, list[str], list[list[str]]]:
    """The table, as text: title, what it is about, names of the columns, rows."""
    failures = [outcome for outcome in OUTCOMES if outcome != "accepted"]
    rows = []
    for k in exchanges["pair"].values:
        row = exchanges.sel(pair=k)
        shares = row["share"].sel(outcome=failures).values
        rows.append(
            [
                f"{_eps(row['upper_eps'])} - {_eps(row['lower_eps'])}",
                f"{int(row['tries']):,}",
                f"{float(row['acceptance']):.1%}" if int(row["tries"]) else "-",
                *(f"{share:.2%}" if share else "-" for share in shares),
            ]
        )
    about = (
        f": of neighbours on the ladder; {float(exchanges['round_trips']):.1f} round trips a chain"
    )
    names = [outcome.replace("_", " ") for outcome in failures]
    return "exchanges", about, ["eps", "tries", "acceptance", *names], rows


def warn_of_ladder(exchanges: xr.Dataset, ladder: Sequence[Any]) -> None:
    """Warn of neighbours that do not exchange, and how to help them."""
    rare = exchanges["acceptance"].values < LEAST_EXCHANGED
    rare &= exchanges["tries"].values >= FEWEST_TRIES
    if not rare.any():
        return
    k = int(np.argmax(rare))
    row, total = exchanges.isel(pair=k), int(rare.sum())
    also = "" if total == 1 else f" ({total - 1} more pairs as rarely)"
    upper, lower = (np.asarray(row[name].values) for name in ("upper_eps", "lower_eps"))
    between = np.vectorize(_between)(upper, lower).tolist()
    better = [*ladder[: k + 1], between, *ladder[k + 1 :]]
    warn(
        f"The rungs eps={upper.tolist()!r} and {lower.tolist()!r} of the ladder hardly exchange: in"
        f" {float(row['acceptance']):.2%} of {int(row['tries']):,} tries{also}. So the draws are"
        " not what the rungs above make them. Insert a rung:"
        f" kernel=limpet.Exchange({better!r}).",
        LimpetWarning,
    )


def sit_in_heaps(posterior: xr.Dataset, variable: int) -> bool:
    """Whether chains are in several places with nothing between, as far as one number tells.

    Either no chain was in both of two places; or some were, but no draw is between these.
    """
    for array in posterior.data_vars.values():
        lead = array.shape[:2]
        size = int(np.prod(array.shape[2:]))
        if variable < size:
            values = array.values.reshape(*lead, -1)[..., variable]
            means, widths = values.mean(axis=1), APART * values.std(axis=1)
            order = np.argsort(means)
            low, high = (means - widths)[order], (means + widths)[order]
            most = np.quantile(values, MOST_DRAWS)
            inside = np.sort(values[(most[0] <= values) & (values <= most[1])])
            wide = np.diff(inside) > GAP * (most[1] - most[0])
            return bool((low[1:] > np.maximum.accumulate(high)[:-1]).any() or wide.any())
        variable -= size
    return False


def _between(upper: float, lower: float) -> float:
    """An eps between two: near the upper one, where the surface is too curved for its layer."""
    return float(f"{max(upper / CLOSER, np.sqrt(upper * lower)):.3g}")


def _eps(value: xr.DataArray) -> str:
    return ", ".join(f"{each:.3g}" for each in np.atleast_1d(value.values))
