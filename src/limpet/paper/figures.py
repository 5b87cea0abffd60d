"""The figures of the reproduction, each drawn from the Dataset of its experiment."""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from limpet.paper.experiments import BETAS, TAU, ellipsoid_sphere, two_spheres

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind can tell apart
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")
INK = "#333333"
SIZE = (4.6, 3.4)  # inches: letters stay readable when it is as wide as a phone


def angles(data: xr.Dataset) -> "Figure":
    """Figure 1 (A): histogram of the angle, and the uniform density."""
    figure, axes = _blank("θ", "density")
    exact = data.attrs["exact"]
    axes.axhline(exact, color=COLORS[0], label="uniform")
    style = {"fmt": ".", "color": COLORS[2], "elinewidth": 1, "label": "limpet"}
    axes.errorbar(data["theta"], data["density"], data["error"], **style)
    axes.set(xlim=(-np.pi, np.pi), ylim=(0.85 * exact, 1.15 * exact))
    axes.set_xticks([-np.pi, 0, np.pi], ["-π", "0", "π"])
    axes.legend(frameon=False, loc="upper right")
    return figure


def autocorrelations(data: xr.Dataset) -> "Figure":
    """Figures 1 (B), 3 (A) and 3 (B): the autocorrelation of x_1 at each beta, with tau."""
    figure, axes = _blank("lag", "autocorrelation of x₁")
    for color, beta in zip(COLORS, data["beta"].values, strict=True):
        row = data.sel(beta=beta)
        tau, published = float(row["tau"]), float(row["published"])
        number = f"{tau:.1f}" if tau < 100 else f"{tau:,.0f}"
        label = f"β = {beta:,.0f}: τ = {number} (paper {published:,.5g})"
        axes.plot(data["lag"], row["correlation"], color=color, label=label)
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.set(xlim=(0, float(data["lag"][-1])), ylim=(-0.05, 1))
    axes.legend(frameon=False, loc="upper right")
    return figure


def bins(data: xr.Dataset) -> "Figure":
    """Figure 2: 1/Z of each bin, with the density at its centre and with its mean over the bin."""
    figure, axes = _blank("x₁", "1/Z of the bin")
    seen = data.isel(centre=np.flatnonzero(data["expected"] > 100))
    exact = data.attrs["exact"]
    axes.axhline(exact, color=COLORS[0], label=f"exact, {exact:.4g}")
    midpoint = {"color": COLORS[1], "marker": "x", "linestyle": "", "markersize": 4}
    axes.plot(seen["centre"], seen["inverse_z"], label="density at the centre (paper)", **midpoint)
    points = {"color": COLORS[2], "fmt": ".", "markersize": 5, "elinewidth": 1}
    axes.errorbar(
        seen["centre"], seen["mean_inverse_z"], seen["error"], label="mean over the bin", **points
    )
    axes.set_ylim(0.85 * exact, 1.2 * exact)
    axes.legend(frameon=False, loc="upper center", ncols=1)
    return figure


def acceptance(data: xr.Dataset) -> "Figure":
    """Table 1: how many of the Off and On moves are refused, against eps."""
    figure, axes = _blank("ε", "refused")
    for color, move in zip(COLORS, data["move"].values, strict=False):
        rows = data.sel(move=move)
        name = str(move).capitalize()
        axes.plot(rows["eps"], 1 - rows["published"], "o", color=color, mfc="none", ms=9)
        axes.plot(rows["eps"], 1 - rows["acceptance"], ".-", color=color, label=f"{name}, limpet")
    axes.plot([], [], "o", color=INK, mfc="none", ms=9, label="paper")
    axes.set(xscale="log", yscale="log")
    axes.legend(frameon=False, loc="upper left")
    return figure


def tiny_eps(data: xr.Dataset) -> "Figure":
    """Autocorrelation times against beta: the paper's and limpet's."""
    figure, axes = _blank("β = 1 / 2ε²", "τ of x₁")
    models = {"two spheres": two_spheres, "ellipsoid-sphere": ellipsoid_sphere}
    for color, (name, q) in zip(COLORS, models.items(), strict=False):
        axes.plot(BETAS, TAU[q], "o", color=color, mfc="none", ms=7)
        rows = data.sel(model=name)
        style = {"color": color, "fmt": ".", "capsize": 3}
        axes.errorbar(rows["beta"], rows["tau"], rows["error"], label=f"{name}, limpet", **style)
    axes.plot([], [], "o", color=INK, mfc="none", ms=7, label="paper")
    axes.set(xscale="log", ylim=(0, 12))
    axes.legend(frameon=False, loc="lower left")
    return figure


def convergence(data: xr.Dataset) -> "Figure":
    """How far the mean of x_1^2 is from its limit, against eps."""
    figure, axes = _blank("ε", "limit - mean of x₁²")
    eps, limit = data["eps"], data.attrs["limit"]
    far, near = limit - data["exact"], limit - data["mean"]
    axes.plot(eps, far, color=COLORS[0], label="quadrature")
    axes.errorbar(eps, near, data["error"], fmt=".", color=COLORS[1], capsize=3, label="limpet")
    square = float(far[-1]) * (eps / float(eps[-1])) ** 2
    axes.plot(eps, square, ":", color=INK, label="ε²")
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(eps.values, [f"{value:.2g}" for value in eps.values])
    axes.tick_params(which="minor", labelbottom=False, labelleft=False)
    axes.legend(frameon=False, loc="upper left")
    return figure


def _blank(x: str, y: str) -> "tuple[Figure, Axes]":
    from matplotlib.figure import Figure  # slow to import, and wanted here only

    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=x, ylabel=y)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
