"""Does limpet agree with the paper, and with what is exactly true? Each verdict states its rule.

Rules that allow 4 standard errors are wrong once in 16,000 times when all is well; some look at
the worst of several bins. All together, a run without fault fails about once in 100.
"""

from typing import NamedTuple

import numpy as np
import xarray as xr

from limpet.paper.experiments import INNER
from limpet.report.summary import digits

SURE = 4  # standard errors
NEAR_TAU = 0.3
NEAR_RATE = 0.002
FIVEFOLD = 5


class Verdict(NamedTuple):
    """One number, what it should be, and whether it is."""

    quantity: str
    published: str
    exact: str
    value: float  # by sampling; NaN where nothing is sampled
    error: float  # its standard error; NaN where there is none
    rule: str
    passed: bool | None  # None where nothing is asked

    def measured(self) -> str:
        """The value with its standard error."""
        if np.isnan(self.value):
            return ""
        if np.isnan(self.error):
            return f"{self.value:.6g}"
        form = digits(self.error)
        return f"{self.value:{form}} ± {self.error:{form}}"


def of_angles(data: xr.Dataset) -> list[Verdict]:
    """The density of the angle, against the uniform one."""
    ratio, error = data["density"] / data.attrs["exact"], data["error"] / data.attrs["exact"]
    name = f"2π times the density of θ, farthest of {data.sizes['theta']} bins"
    return [_sure(name, "1", 1.0, *_worst(ratio, error, 1.0))]


def of_autocorrelations(data: xr.Dataset) -> list[Verdict]:
    """Autocorrelation times of Figures 1 (B) and 3 (A)."""
    verdicts, published = [], float(data["published_mean"])
    for row in rows(data, "beta"):
        value, error = float(row["tau"]), float(row["error"])
        near = NEAR_TAU + SURE * error
        rule = f"within {NEAR_TAU} + {SURE} standard errors of {published:.3g}, the published mean"
        figure = float(row["published"])
        verdicts.append(
            Verdict(
                f"τ at β = {float(row.beta):,.0f}",
                "" if np.isnan(figure) else f"{figure:g}",
                "",
                value,
                error,
                rule,
                bool(abs(value - published) <= near),
            )
        )
    return verdicts


def of_tiny_eps(data: xr.Dataset) -> list[Verdict]:
    """Autocorrelation times far beyond the paper's."""
    return [
        verdict._replace(quantity=f"{part.model.item()}, {verdict.quantity}")
        for part in rows(data, "model")
        for verdict in of_autocorrelations(part)
    ]


def of_bins(data: xr.Dataset) -> list[Verdict]:
    """1/Z of every bin that has enough draws, and the paper's own densities."""
    known = data.isel(centre=np.flatnonzero(np.isfinite(data["published_pdf"])))
    miss = np.abs(known["pdf"] / known["published_pdf"] - 1)
    least, most = data.attrs["published"]
    inner, all_bins = abs(data["centre"]) < INNER, data["expected"] > 100
    verdicts = [
        Verdict(
            f"density at {float(pdf.centre):g}",
            f"{float(pdf):.4g}",
            f"{float(ours):.4g}",
            np.nan,
            np.nan,
            "the same to 3 digits",
            bool(off < 1e-3),
        )
        for pdf, ours, off in zip(known["published_pdf"], known["pdf"], miss, strict=True)
        if pdf.centre > 0
    ]
    for chosen, name in ((inner, "inner bins"), (all_bins, "bins with over 100 draws")):
        part = data.isel(centre=np.flatnonzero(chosen))
        worst = _worst(part["mean_inverse_z"], part["error"], data.attrs["exact"])
        count, published = part.sizes["centre"], f"{least:g} … {most:g}"
        quantity = f"1/Z, farthest of {count} {name}"
        verdicts.append(
            _sure(quantity, published if name == "inner bins" else "", data.attrs["exact"], *worst)
        )
    return verdicts


def of_metropolis(data: xr.Dataset) -> list[Verdict]:
    """Autocorrelation times that grow."""
    taus = [
        Verdict(
            f"τ at β = {float(row.beta):,.0f}, accepting {float(row['acceptance']):.1%}",
            f"{float(row['published']):g}",
            "",
            float(row["tau"]),
            float(row["error"]),
            "not judged: the paper's steps are not known",
            None,
        )
        for row in rows(data, "beta")
    ]
    first, last = data.isel(beta=0), data.isel(beta=-1)
    growth = float(last["tau"] / first["tau"])
    relative = np.hypot(float(last["error"] / last["tau"]), float(first["error"] / first["tau"]))
    error = growth * relative
    published = float(last["published"] / first["published"])
    rule = f"{FIVEFOLD} or more, within {SURE} standard errors"
    name = f"growth of τ from β = {float(first.beta):.0f} to {float(last.beta):.0f}"
    passed = growth + SURE * error >= FIVEFOLD
    return [*taus, Verdict(name, f"{published:.2g}", "", growth, error, rule, bool(passed))]


def of_table_1(data: xr.Dataset) -> list[Verdict]:
    """Acceptance of Off and On; in equilibrium they are equal, so their published mean is taken."""
    verdicts = []
    for row in rows(data, "beta"):
        truth = float(row["published"].mean())
        for cell in rows(row, "move"):
            value, error = float(cell["acceptance"]), float(cell["error"])
            near = max(NEAR_RATE, SURE * error)
            verdicts.append(
                Verdict(
                    f"{str(cell.move.values).capitalize()} accepted, ε = {float(row['eps']):.3f}",
                    f"{float(cell['published']):g}",
                    "",
                    value,
                    error,
                    f"within {near:.2g} of {truth:.4f}, the published mean of Off and On",
                    bool(abs(value - truth) <= near),
                )
            )
    return verdicts


def of_flat_surfaces(data: xr.Dataset) -> list[Verdict]:
    """Nothing refused."""
    return [
        Verdict(
            f"Off and On accepted, {surface}",
            "1",
            "1",
            float(least := data["acceptance"].sel(surface=surface).min()),
            np.nan,
            "at least 1 - 1e-9",
            bool(least >= 1 - 1e-9),
        )
        for surface in data["surface"].values
    ]


def of_convergence(data: xr.Dataset) -> list[Verdict]:
    """Means against quadrature, and the power of eps."""
    means = [
        _sure(
            f"mean of x₁², ε = {float(row['eps']):.3f}",
            "",
            float(row["exact"]),
            float(row["mean"]),
            float(row["error"]),
        )
        for row in rows(data, "beta")
    ]
    (truth, _), (slope, error) = power(data, "exact"), power(data, "mean")
    name = "power of ε in the distance from the limit"
    return [*means, _sure(name, "", truth, slope, error)]


def power(data: xr.Dataset, name: str) -> tuple[float, float]:
    """The power of eps that the distance from the limit goes as, and its standard error.

    A weighted straight line through logarithms; the same weights for the exact values.
    """
    distance = np.abs(data[name] - data.attrs["limit"]).values
    weights = (np.abs(data["exact"] - data.attrs["limit"]) / data["error"]).values
    x = np.log(data["eps"].values)
    x = x - np.average(x, weights=weights**2)
    information = np.sum((weights * x) ** 2)
    return float(np.sum(weights**2 * x * np.log(distance)) / information), information**-0.5


def rows(data: xr.Dataset, axis: str) -> list[xr.Dataset]:
    """What a Dataset holds at each place along an axis."""
    return [data.isel({axis: place}) for place in range(data.sizes[axis])]


def _worst(values, errors, truth):
    """The value that is most standard errors away, and its standard error."""
    deviation = np.abs(values - truth) / errors
    # a bin whose error is not known, for it was never or hardly visited, is worst of all
    worst = int(np.argmax(np.nan_to_num(deviation.values, nan=np.inf)))
    return float(values[worst]), float(errors[worst])


def _sure(quantity, published, exact, value, error):
    passed = abs(value - exact) <= SURE * error
    rule = f"within {SURE} standard errors"
    return Verdict(quantity, published, f"{exact:.5g}", value, error, rule, bool(passed))
