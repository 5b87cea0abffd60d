"""A summary of a run: how its moves went, and what its draws say of each variable."""

import dataclasses
import io
import math

import numpy as np
import rich.box
import rich.console
import rich.table
import rich.text
import xarray as xr

from limpet.draws.attributes import attributes_of
from limpet.draws.tree import OUTCOMES, totals
from limpet.errors import InputError
from limpet.report import notebook
from limpet.report.bonds import has_labels, numbers_of
from limpet.report.ladder import exchanges_of, table_of
from limpet.report.variables import measure_variables

COLUMNS = ("mean", "sd", "mcse", "tau", "ess", "r_hat")
FORMATS = {"sd": "#.4g", "tau": "#.3g", "ess": ",.0f", "r_hat": ".3f"}


@dataclasses.dataclass(frozen=True)
class Summary:
    """What `limpet.summary` found; printing it shows its tables.

    Attributes
    ----------
    moves : xarray.Dataset
        By move: proposals, mean acceptance probability, and the share of each outcome.
    variables : xarray.Dataset
        By scalar variable: `mean`; standard deviation `sd`; `mcse`, the Monte Carlo error of the
        mean, which is sd sqrt(tau / draws); `tau`, as from `limpet.autocorrelation_time`; `ess`,
        which is draws / tau, of all chains together; `r_hat`, split R-hat, the larger of that of
        the variable and that of its squared distance from the mean. The last four are NaN for a
        variable that never changed.
    steps_per_draw : float
        Kernel steps from one draw to the next.
    bonds : xarray.Dataset or None
        Of a `limpet.Strata`, by the number of constraints that hold, of those that may break: its
        `probability`, and the Monte Carlo error of that, `mcse`.
    exchanges : xarray.Dataset or None
        Of a run with `limpet.Exchange`, by pair of neighbouring rungs: `upper_eps`, `lower_eps`,
        `tries`, mean `acceptance` probability, and the `share` of each outcome; and `round_trips`
        of points from the lowest rung to the highest and back, per chain.
    """

    moves: xr.Dataset
    variables: xr.Dataset
    steps_per_draw: float
    bonds: xr.Dataset | None = None
    exchanges: xr.Dataset | None = None

    def __str__(self):
        # not a notebook's console, which would show the tables by itself
        console = rich.console.Console(
            file=io.StringIO(), width=110, record=True, force_jupyter=False
        )
        console.print(self)
        return console.export_text().rstrip()

    __repr__ = __str__

    def __rich__(self):
        parts = []
        for title, about, columns, rows in self._tables():
            table = _table(*columns)
            for row in rows:
                table.add_row(*map(rich.text.Text, row))  # x[red] is no markup
            gap = "\n" if parts else ""
            parts += [rich.text.Text.assemble((gap + title, "bold"), about), table]
        return rich.console.Group(*parts)

    def _repr_html_(self):
        return "".join(notebook.table(*table) for table in self._tables())

    def _tables(self):
        """The tables, as text: title, what it is about, names of the columns, rows."""
        failures = [outcome for outcome in OUTCOMES if outcome != "accepted"]
        names = [outcome.replace("_", " ") for outcome in failures]
        moves = []
        for name in self.moves["move"].values:
            row = self.moves.sel(move=name)
            shares = row["share"].sel(outcome=failures).values
            cells = [f"{share:.2%}" if share else "-" for share in shares]
            proposals = int(row["proposals"])
            acceptance = f"{float(row['acceptance']):.1%}" if proposals else "-"
            moves.append([str(name), f"{proposals:,}", acceptance, *cells])
        columns = [str(name) for name in self.variables.data_vars]
        variables = []
        for k, name in enumerate(self.variables["variable"].values):
            row = self.variables.isel(variable=k)  # labels of a model may be there twice
            formats = FORMATS | dict.fromkeys(("mean", "mcse"), digits(float(row["mcse"])))
            numbers = {column: float(row[column]) for column in columns}
            cells = ["-" if np.isnan(x) else format(x, formats[c]) for c, x in numbers.items()]
            if numbers["sd"] == 0:
                cells[-1] = "never changed"
            variables.append([str(name), *cells])
        about_moves = ": mean acceptance probability, and the share of each failure"
        about_variables = f": {self.steps_per_draw:#.3g} steps per draw"
        yield "moves", about_moves, ["move", "proposals", "acceptance", *names], moves
        yield "variables", about_variables, ["variable", *columns], variables
        if self.bonds is not None:
            yield "bonds", ": how many hold", ["number", "probability", "mcse"], self._numbers()
        if self.exchanges is not None:
            yield table_of(self.exchanges)

    def _numbers(self):
        """The rows of the table of bonds."""
        rows = []
        if self.bonds is None:
            return rows
        for number in self.bonds["number"].values:
            row = self.bonds.sel(number=number)
            error = float(row["mcse"])
            shown = [format(float(row["probability"]), digits(error)), format(error, digits(error))]
            rows.append([str(number), *("-" if text == "nan" else text for text in shown)])
        return rows


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

    Draws are read in pieces: memory does not grow with them.

    Parameters
    ----------
    draws : xarray.DataTree
        From `limpet.sample`.

    Returns
    -------
    Summary
        Tables, shown when printed.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.01)
    >>> draws = limpet.sample(circle, [1.0, 0.0], draws=200, chains=4, seed=1)
    >>> table = limpet.summary(draws)
    >>> round(float(table.moves["share"].sel(move="hard").sum()), 9)
    1.0
    """
    posterior = check_draws(draws)
    counted = counted_of(draws)
    counts = np.array([[row[o] for o in OUTCOMES] for row in counted["counts"].values()])
    proposals = counts.sum(axis=1)
    moves = xr.Dataset(
        {
            "proposals": ("move", proposals),
            "acceptance": ("move", np.array(list(counted["acceptance"].values()), float)),
            "share": (("move", "outcome"), counts / np.maximum(proposals, 1)[:, None]),
        },
        coords={"move": list(counted["counts"]), "outcome": OUTCOMES},
    )
    bonds = numbers_of(posterior) if has_labels(posterior) else None
    return Summary(moves, _variables(posterior), steps_per_draw(draws), bonds, exchanges_of(draws))


def counted_of(draws: xr.DataTree) -> dict:
    """`totals` of the chains that are there: those of the attributes are of all that were."""
    return totals(draws["moves"].to_dataset(), list(attributes_of(draws)["counts"]))


def steps_per_draw(draws: xr.DataTree) -> float:
    """Steps from one draw to the next, of the draws that are there."""
    ends = draws["sample_stats"].to_dataset()["step"].isel(draw=[0, -1]).values
    return float(np.mean(ends[:, 1] - ends[:, 0])) / (draws["posterior"].sizes["draw"] - 1)


def check_draws(draws) -> xr.Dataset:
    """The posterior of what `limpet.sample` returned; two draws are the fewest that tell anything.

    Nothing is loaded.
    """
    groups = "posterior", "sample_stats", "moves"
    if not isinstance(draws, xr.DataTree) or not (
        "counts" in draws.attrs and all(group in draws for group in groups)
    ):
        raise InputError(f"draws={type(draws).__name__}: expected what limpet.sample returned.")
    posterior = draws["posterior"].to_dataset()
    for axis in ("chain", "draw"):
        if axis not in posterior.sizes:
            raise InputError(
                f"draws has no dimension {axis!r}: expected what limpet.sample returned. To take"
                f" one {axis}, keep the dimension: draws.isel({axis}=[0])."
            )
    if posterior.sizes["draw"] < 2:
        raise InputError(f"draws has {posterior.sizes['draw']} per chain: expected two or more.")
    return posterior


def _variables(posterior):
    names, measures = measure_variables(posterior)
    columns = {name: ("variable", getattr(measures, name)) for name in COLUMNS}
    return xr.Dataset(columns, coords={"variable": names})
