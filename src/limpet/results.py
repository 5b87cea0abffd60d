"""What a run gives back: an xarray DataTree in ArviZ's schema, and a summary of it."""

import dataclasses
import io
import math

import numpy as np
import rich.box
import rich.console
import rich.table
import rich.text
import xarray as xr

from limpet.clock import times_of
from limpet.diagnostics import windowed_time
from limpet.errors import InputError
from limpet.kernels.base import Move, Outcome
from limpet.layout import Layout, labels

MOVES = [move.name.lower() for move in Move]
OUTCOMES = [outcome.name.lower() for outcome in Outcome]
FORMATS = {"sd": "#.4g", "tau": "#.3g", "ess": ",.0f", "r_hat": ".3f"}


def tree(arrays: dict[str, dict], layout: Layout, snapshots: list[dict], about: dict, keep=None):
    """The result: draws by group and name, and what the tiles counted.

    `about` tells what the run is; `keep` which chains to show, all by default.
    """
    axes = dict(zip(layout.names, layout.axes, strict=True))
    groups = {
        group: _dataset(named, [axes[name] if group in about["groups"] else () for name in named])
        for group, named in arrays.items()
    }
    counts = np.concatenate([snapshot["counts"][0] for snapshot in snapshots])
    expected = np.concatenate([snapshot["acceptance"][0] for snapshot in snapshots])
    sizes = np.concatenate([np.tile(s["sizes"], (s["counts"].shape[1], 1)) for s in snapshots])
    proposals = counts.sum(axis=2)
    acceptance = np.where(proposals, expected / np.maximum(proposals, 1), np.nan)
    groups["moves"] = xr.Dataset(
        {
            "counts": (("chain", "move", "outcome"), counts),
            "acceptance": (("chain", "move"), acceptance),
        }
        | {name: ("chain", size) for name, size in zip(about["sizes"], sizes.T, strict=True)},
        coords={"chain": np.arange(len(counts)), "move": MOVES, "outcome": OUTCOMES},
    )
    if keep is not None:
        groups = {name: group.isel(chain=keep) for name, group in groups.items()}
    result = xr.DataTree.from_dict(groups)
    result.attrs = {
        **{name: about[name] for name in ("kernel", "seed", "limpet_version", "warmup", "thin")},
        "draws_asked": about["draws"],
        "parameters": about["parameters"]
        | {
            name: type(about["parameters"][name])(size)  # slides are whole
            for name, size in zip(about["sizes"], np.median(sizes, 0), strict=True)
        },
        **times_of(snapshots),
        **totals(groups["moves"], about["moves"]),
    }
    return result


def totals(moves: xr.Dataset, used: list[str]) -> dict:
    """Steps, counts and mean acceptance probability of all chains together, as plain numbers."""
    counts = moves["counts"].sum("chain")
    expected = (moves["acceptance"] * moves["counts"].sum("outcome")).sum("chain")
    by_move, acceptance = {}, {}
    for name in used:
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
        failures = [outcome for outcome in OUTCOMES if outcome != "accepted"]
        names = [outcome.replace("_", " ") for outcome in failures]
        moves = _table("move", "proposals", "acceptance", *names)
        for name in self.moves["move"].values:
            row = self.moves.sel(move=name)
            shares = row["share"].sel(outcome=failures).values
            cells = [f"{share:.2%}" if share else "-" for share in shares]
            proposals = int(row["proposals"])
            acceptance = f"{float(row['acceptance']):.1%}" if proposals else "-"
            moves.add_row(str(name), f"{proposals:,}", acceptance, *cells)
        columns = [str(name) for name in self.variables.data_vars]
        variables = _table("variable", *columns)
        for name in self.variables["variable"].values:
            row = self.variables.sel(variable=name)
            formats = FORMATS | dict.fromkeys(("mean", "mcse"), digits(float(row["mcse"])))
            cells = [format(float(row[column]), formats[column]) for column in columns]
            variables.add_row(str(name), *cells)
        about_moves = ": mean acceptance probability, and the share of each failure"
        about_variables = f": {self.steps_per_draw:#.3g} steps per draw"
        return rich.console.Group(
            rich.text.Text.assemble(("moves", "bold"), about_moves),
            moves,
            rich.text.Text.assemble(("\nvariables", "bold"), about_variables),
            variables,
        )


def digits(error):
    """The format of a number that is known up to this error, of which two digits are shown."""
    if not (np.isfinite(error) and 1e-8 < error < 1e8):
        return ".4g"
    return f",.{max(0, 1 - math.floor(math.log10(error)))}f"


def _table(name, *numbers):
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, padding=(0, 0, 0, 1), show_edge=False)
    table.add_column(name, style="cyan")
    for number in numbers:
        table.add_column(number, justify="right", no_wrap=True)
    return table


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
    >>> float(table.moves["share"].sel(move="hard").sum())
    1.0
    """
    posterior = check_draws(draws)
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
    kept = posterior.sizes["chain"] * posterior.sizes["draw"]
    return Summary(moves, _variables(posterior), draws.attrs["steps"] / kept)


def check_draws(draws) -> xr.Dataset:
    """The posterior of what `limpet.sample` returned; two draws are the fewest that tell anything.

    Nothing is loaded.
    """
    if not isinstance(draws, xr.DataTree) or not ("counts" in draws.attrs and "posterior" in draws):
        raise InputError(f"draws={type(draws).__name__}: expected what limpet.sample returned.")
    posterior = draws["posterior"].to_dataset()
    if posterior.sizes["draw"] < 2:
        raise InputError(f"draws has {posterior.sizes['draw']} per chain: expected two or more.")
    return posterior


def _variables(posterior):
    from arviz_stats.base.array import array_stats  # slow to import, and wanted here only

    names, columns = [], []
    for name, array in posterior.data_vars.items():
        names += labels(str(name), array.shape[2:])
        columns.append(array.values.reshape(*array.shape[:2], -1))
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
        coords={"variable": names},
    )
