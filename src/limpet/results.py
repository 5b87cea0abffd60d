"""What a run gives back: an xarray DataTree in ArviZ's schema, and a summary of it."""

import dataclasses
import io

import numpy as np
import rich.box
import rich.console
import rich.table
import xarray as xr

from limpet.collect import Collector
from limpet.diagnostics import windowed_time
from limpet.errors import InputError
from limpet.kernels.base import Move, Outcome
from limpet.layout import Layout

MOVES = [move.name.lower() for move in Move]
OUTCOMES = [outcome.name.lower() for outcome in Outcome]


def datasets(collector: Collector, layout: Layout, first_chain: int) -> dict[str, xr.Dataset]:
    """The groups of the result, for the chains of one tile that have all their draws."""
    kept = {"posterior": collector.posterior}
    if collector.surface is not None:
        kept["surface"] = collector.surface
    groups = {
        name: _dataset(dict(zip(layout.names, layout.pieces(group.x), strict=True)), layout.axes)
        for name, group in kept.items()
    }
    groups["sample_stats"] = _dataset(
        {"lp": collector.posterior.lp, "step": collector.posterior.step}, axes=[(), ()]
    )
    proposals = collector.counts.sum(axis=2)
    acceptance = np.where(proposals, collector.acceptance / np.maximum(proposals, 1), np.nan)
    groups["moves"] = xr.Dataset(
        {
            "counts": (("chain", "move", "outcome"), collector.counts),
            "acceptance": (("chain", "move"), acceptance),
        },
        coords={"move": MOVES, "outcome": OUTCOMES},
    )
    chain = first_chain + np.arange(len(collector.counts))
    return {
        name: group.assign_coords(chain=chain).isel(chain=collector.full)
        for name, group in groups.items()
    }


def totals(moves: xr.Dataset, used: tuple[Move, ...]) -> dict:
    """Steps, counts and mean acceptance probability of all chains together, as plain numbers."""
    counts = moves["counts"].sum("chain")
    expected = (moves["acceptance"] * moves["counts"].sum("outcome")).sum("chain")
    by_move, acceptance = {}, {}
    for name in (move.name.lower() for move in used):
        row = counts.sel(move=name).values
        by_move[name] = {o: int(c) for o, c in zip(OUTCOMES, row, strict=True)}
        proposals = int(row.sum())
        acceptance[name] = float(expected.sel(move=name)) / proposals if proposals else None
    return {"steps": int(counts.sum()), "acceptance": acceptance, "counts": by_move}


def _dataset(arrays, axes):
    """Arrays of shape (chain, draw, ...) with the names of their further axes."""
    variables, coords = {}, {}
    for (name, array), own in zip(arrays.items(), axes, strict=True):
        dims = ("chain", "draw", *own)
        variables[name] = (dims, array)
        coords |= {dim: np.arange(size) for dim, size in zip(dims, array.shape, strict=True)}
    return xr.Dataset(variables, coords)


@dataclasses.dataclass(frozen=True)
class Summary:
    """What `limpet.summary` found; printing it shows both tables.

    Attributes
    ----------
    moves : xarray.Dataset
        By move: proposals, mean acceptance probability, and the share of each outcome.
    variables : xarray.Dataset
        By scalar variable: mean, standard deviation, Monte Carlo error, tau, ESS and R-hat.
    steps_per_draw : float
        Kernel steps that one draw took.
    """

    moves: xr.Dataset
    variables: xr.Dataset
    steps_per_draw: float

    def __str__(self):
        console = rich.console.Console(file=io.StringIO(), width=110, record=True)
        console.print(self)
        return console.export_text().rstrip()

    __repr__ = __str__

    def __rich__(self):
        style = {"box": rich.box.SIMPLE_HEAD, "padding": (0, 0, 0, 1)}
        failures = [outcome for outcome in OUTCOMES if outcome != "accepted"]
        moves = rich.table.Table(title="moves: acceptance, and the share of each failure", **style)
        for column in ("move", "proposals", "acceptance", *failures):
            moves.add_column(column.replace("_", " "), justify="right", no_wrap=True)
        for name in self.moves["move"].values:
            row = self.moves.sel(move=name)
            shares = [f"{share:.2%}" for share in row["share"].sel(outcome=failures).values]
            acceptance = f"{float(row['acceptance']):.4f}"
            moves.add_row(str(name), f"{int(row['proposals']):,}", acceptance, *shares)
        title = f"variables ({self.steps_per_draw:.3g} steps per draw)"
        variables = rich.table.Table(title=title, **style)
        columns = [str(name) for name in self.variables.data_vars]
        for column in ("variable", *columns):
            variables.add_column(column, justify="right")
        for name in self.variables["variable"].values:
            row = self.variables.sel(variable=name)
            variables.add_row(str(name), *(f"{float(row[c]):.5g}" for c in columns))
        return rich.console.Group(moves, variables)


def summary(draws: xr.DataTree) -> Summary:
    """How a run went: acceptance and causes of failure by move; tau, ESS, R-hat by variable.

    Parameters
    ----------
    draws : xarray.DataTree
        From `limpet.sample`.

    Returns
    -------
    Summary
        Two tables, shown when printed.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.01)
    >>> draws = limpet.sample(circle, [1.0, 0.0], draws=200, chains=4, seed=1)
    >>> table = limpet.summary(draws)
    >>> float(table.moves["share"].sel(move="off").sum())
    1.0
    """
    if not isinstance(draws, xr.DataTree) or not ("counts" in draws.attrs and "posterior" in draws):
        raise InputError(f"draws={type(draws).__name__}: expected what limpet.sample returned.")
    counts = np.array([[row[o] for o in OUTCOMES] for row in draws.attrs["counts"].values()])
    proposals = counts.sum(axis=1)
    names = list(draws.attrs["counts"])
    moves = xr.Dataset(
        {
            "proposals": ("move", proposals),
            "acceptance": ("move", np.array(list(draws.attrs["acceptance"].values()), float)),
            "share": (("move", "outcome"), counts / np.maximum(proposals, 1)[:, None]),
        },
        coords={"move": names, "outcome": OUTCOMES},
    )
    posterior = draws["posterior"].to_dataset()
    if posterior.sizes["draw"] < 2:
        raise InputError("draws has 1 draw per chain: expected two or more to make a summary of.")
    kept = posterior.sizes["chain"] * posterior.sizes["draw"]
    return Summary(moves, _variables(posterior), draws.attrs["steps"] / kept)


def _variables(posterior):
    from arviz_stats.base.array import array_stats  # slow to import, and wanted here only

    labels, columns = [], []
    for name, array in posterior.data_vars.items():
        flat = array.values.reshape(*array.shape[:2], -1)
        inside = array.shape[2:]
        labels += [
            f"{name}[{', '.join(map(str, np.unravel_index(i, inside)))}]" if inside else str(name)
            for i in range(flat.shape[-1])
        ]
        columns.append(flat)
    values = np.concatenate(columns, axis=-1)
    tau = [windowed_time(values[:, :, i])[0] for i in range(values.shape[-1])]
    deviation = values.std(axis=(0, 1))
    with np.errstate(all="ignore"):  # a variable that never changes has neither
        ess = array_stats.ess(values, chain_axis=0, draw_axis=1)
        r_hat = array_stats.rhat(values, chain_axis=0, draw_axis=1)
    return xr.Dataset(
        {
            "mean": ("variable", values.mean(axis=(0, 1))),
            "sd": ("variable", deviation),
            "mcse": ("variable", deviation * np.sqrt(np.array(tau) / values[:, :, 0].size)),
            "tau": ("variable", tau),
            "ess": ("variable", ess),
            "r_hat": ("variable", r_hat),
        },
        coords={"variable": labels},
    )
