"""A picture of a run, for one look: whether the chains mix, and which moves fail and why."""

import functools
import io
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from limpet.draws.tree import OUTCOMES
from limpet.report.bonds import has_labels, numbers_of
from limpet.report.diagnostics import FEWEST_TAUS, autocorrelation
from limpet.report.summary import check_draws, counted_of, steps_per_draw
from limpet.report.variables import measure_variables, names_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# How much is drawn: what can be told apart in a figure eight inches wide, and is soon read.
MOST_VARIABLES = 6  # with a row of their own
CORRELATION_VALUES = 500_000  # of a variable that its autocorrelation is made of, at most
DENSITY_VALUES = 200_000  # of a variable that trace and density are made of, at most
CURVE_POINTS = 250  # at most
FEWEST_FOR_DENSITY = 500  # draws of a chain, for its own density to be worth drawing
SPACE_POINTS = 5_000  # draws shown in space, at most
FEWEST_BARS = 5  # of moves, beside a picture of space: as many as SAS has
FEWEST_LAGS = 10  # of a curve, if there are as many draws
NARROWEST_LABEL = 0.07  # share of a bar that is wide enough to write in
# Tol's and Okabe and Ito's colours, which the colour-blind can tell apart
COLORS = {
    "accepted": "#4477aa",
    "forward": "#ddaa33",
    "reverse": "#bb5566",
    "wall": "#228833",
    "metropolis": "#cccccc",
    "not_finite": "#000000",
}
CHAIN_COLORS, POOL_COLOR, INK_COLOR = ("#0072b2", "#e69f00", "#009e73"), "#c9d3da", "#333333"
LEFT = {"loc": "left", "fontsize": 9}  # clear of the power of ten, which is on the right


def plot(draws: xr.DataTree) -> "Figure":
    """A run in one figure: moves, traces, densities, autocorrelations; the draws if n is 2 or 3.

    Of a `limpet.Strata`, also how many of its constraints hold.

    Of more than six variables, the six with the largest autocorrelation times are shown. These
    times are those of `limpet.summary`.

    Parameters
    ----------
    draws : xarray.DataTree
        From `limpet.sample`. Of long runs curves and points show a part only.

    Returns
    -------
    matplotlib.figure.Figure
        Jupyter shows it; `figure.savefig("run.pdf")` keeps it.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.01)
    >>> draws = limpet.sample(circle, [1.0, 0.0], draws=200, chains=4, seed=1)
    >>> figure = limpet.plot(draws)
    >>> [axes.get_label() for axes in figure.axes][:3]
    ['moves', 'space', 'trace of x[0]']
    """
    from matplotlib.figure import Figure  # slow to import, and wanted here only
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    posterior = check_draws(draws)
    variables = [
        (label, array[(..., *place)])
        for array in posterior.data_vars.values()
        for label, place in zip(names_of(array), np.ndindex(array.shape[2:]), strict=True)
    ]
    _, measures = measure_variables(posterior)
    shown = _slowest(measures.tau)
    spatial = len(variables) in (2, 3)
    counts = counted_of(draws)["counts"]
    bars = max(FEWEST_BARS, len(counts)) if spatial else len(counts)  # of one size, however few
    labelled = has_labels(posterior)
    heights = [2.9 if spatial else 0.7 + 0.5 * bars] + [1.5] * (len(shown) + labelled)
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06)
    figure = Figure(figsize=(8, 0.5 + sum(heights)), layout=layout)
    vars(figure)["_repr_png_"] = functools.partial(_png, figure)  # Jupyter asks, without pyplot
    grid = figure.add_gridspec(len(heights), 3, height_ratios=heights, width_ratios=(1.6, 1, 1))

    axes = figure.add_subplot(grid[0, : 2 if spatial else 3], label="moves")
    _draw_moves(axes, counts, bars)
    if spatial:
        kind = "3d" if len(variables) == 3 else None
        axes = figure.add_subplot(grid[0, 2], label="space", projection=kind)
        _draw_space(axes, variables)
    for row, i in enumerate(shown, start=1):
        label, array = variables[i]
        trace, density, correlation = (
            figure.add_subplot(grid[row, column], label=f"{kind} of {label}")
            for column, kind in enumerate(("trace", "density", "autocorrelation"))
        )
        part = _part(array, DENSITY_VALUES, fewest_chains=256, spread=True)
        values = array.isel(part).values
        _draw_trace(trace, label, values, part["draw"].step)
        _draw_density(density, values)
        run = array.isel(_part(array, CORRELATION_VALUES)).values
        _draw_correlation(correlation, run, measures.tau[i], measures.window[i], array.size)
        if row == len(shown):
            trace.set_xlabel("draw", **LEFT)
            density.set_xlabel(f"value ({values.size:,} draws)", **LEFT)
            correlation.set_xlabel(f"lag ({run.size:,} draws)", **LEFT)
    if labelled:
        _draw_numbers(figure.add_subplot(grid[-1, :], label="bonds"), numbers_of(posterior))
    for axes in figure.axes:
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        for axis in (axes.xaxis, axes.yaxis):
            axis.get_offset_text().set_fontsize(8)
    chains, length = posterior.sizes["chain"], posterior.sizes["draw"]
    title = f"{draws.attrs['kernel']}: {chains:,} chain{'s' * (chains > 1)} of {length:,} draws"
    title += f", steps per draw: {steps_per_draw(draws):.3g}"
    if hidden := len(variables) - len(shown):
        title += f"\nvariables not shown, since their autocorrelation times are smaller: {hidden:,}"
    figure.suptitle(title, fontsize=10)
    return figure


def _png(figure):
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _part(draws, most, fewest_chains=8, spread=False):
    """Which chains and draws to read, so that there are at most `most` values of a variable.

    Draws are consecutive, as autocorrelations need them, or `spread` over the run.
    """
    chains, length = draws.sizes["chain"], draws.sizes["draw"]
    kept = min(chains, max(fewest_chains, most // length))
    each = min(length, max(2, most // kept))
    return {
        "chain": slice(None, None, -(-chains // kept)),
        "draw": slice(None, None, -(-length // each)) if spread else slice(None, each),
    }


def _slowest(tau):
    """Which variables have the largest autocorrelation times, in their order."""
    tau = np.where(np.isnan(tau), np.inf, tau)  # what never changes is worth a look
    return sorted(np.argsort(tau, kind="stable")[-MOST_VARIABLES:])


def _draw_moves(axes, counts, bars):
    used = [o for o in OUTCOMES if o == "accepted" or any(row[o] for row in counts.values())]
    for y, row in enumerate(counts.values()):
        proposals, left, small = sum(row.values()), 0.0, []
        for outcome in used:
            name, share = outcome.replace("_", " "), row[outcome] / max(proposals, 1)
            axes.barh(y, share, 0.5, left, color=COLORS[outcome], label=name if y == 0 else "")
            if share >= NARROWEST_LABEL:
                ink = "black" if outcome in ("metropolis", "forward") else "white"
                style = {"ha": "center", "va": "center", "fontsize": 8, "color": ink}
                axes.text(left + share / 2, y, f"{share:.1%}", **style)
            elif share:
                small.append(f"{name} {100 * share:.2g}%")
            left += share
        note = "; ".join([f"{proposals:,} proposals", *small])
        axes.text(0, y + 0.3, note, va="top", fontsize=8, color=INK_COLOR)
    style = {"ncols": len(used), "frameon": False, "borderpad": 0, "fontsize": 8}
    above = {"bbox_to_anchor": (0, -0.35), "bbox_transform": axes.get_yaxis_transform()}
    axes.legend(loc="lower left", handlelength=1, **above, **style)
    spare = (bars - len(counts)) / 2  # the rows are in the middle
    axes.set(xlim=(0, 1), ylim=(bars - 0.3 - spare, -0.35 - spare), xticks=[])
    axes.set_yticks(range(len(counts)), list(counts))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _draw_space(axes, variables):
    part = _part(variables[0][1], SPACE_POINTS, fewest_chains=256, spread=True)
    columns = [array.isel(part).values.ravel() for _, array in variables]
    style = {"s": 4, "linewidths": 0, "color": COLORS["accepted"], "rasterized": True}
    axes.scatter(*columns, alpha=max(0.3, 1 / (1 + columns[0].size / 1_000)), **style)
    axes.set_aspect("equal", adjustable="datalim")
    axes.locator_params(nbins=5)
    for axis, (label, _) in zip("xyz", variables, strict=False):
        label = label if len(label) <= 12 else f"{label[:11]}…"
        getattr(axes, f"set_{axis}label")(label, fontsize=9, parse_math=False)
    if len(variables) == 3:
        axes.set(xticklabels=[], yticklabels=[], zticklabels=[])  # the densities have them
        for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
            axis.labelpad = -12
            axis.set_rotate_label(True)
        # of four views, the one nearest to where the cloud looks widest: not a ring from its side
        cloud = np.array(columns) - np.mean(columns, axis=1, keepdims=True)
        normal = np.linalg.svd(cloud, full_matrices=False)[0][:, -1]
        x, y, _ = normal if normal[2] > 0 else -normal
        axes.view_init(30, 30 + 90 * round((np.degrees(np.arctan2(y, x)) - 30) / 90))


def _draw_trace(axes, label, values, every):
    step = -(-values.shape[1] // CURVE_POINTS)
    x = every * np.arange(values.shape[1])[::step]
    for chain, color in _few(values):
        axes.plot(x, chain[::step], color=color, linewidth=0.6, alpha=0.8)
    axes.set_title(label, fontweight="bold", parse_math=False, **LEFT)
    axes.locator_params(axis="x", nbins=5, integer=True)
    axes.margins(x=0)


def _draw_density(axes, values):
    if np.ptp(values) == 0:
        axes.plot([values.flat[0]] * 2, [0, 1], color=CHAIN_COLORS[0])
    else:
        bins = min(30, int(2 * values.size ** (1 / 3)))  # Rice's rule, for short runs
        edges = np.unique(np.linspace(values.min(), values.max(), bins + 1))
        axes.hist(values.ravel(), edges, density=True, color=POOL_COLOR)
        for chain, color in _few(values) if values.shape[1] >= FEWEST_FOR_DENSITY else ():
            heights = np.histogram(chain, edges, density=True)[0]
            axes.stairs(heights, edges, color=color, linewidth=0.8)
    axes.locator_params(axis="x", nbins=4)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def _draw_correlation(axes, values, tau, window, draws):
    correlation = autocorrelation(values)
    if np.isnan(tau) or not len(correlation):
        axes.set_title("τ undefined: never changes", **LEFT)
        axes.set_axis_off()
        return
    told = not np.isnan(window)
    last = min(len(correlation) - 1, max(2 * int(window), FEWEST_LAGS) if told else draws)
    lags = np.unique(np.linspace(0, last, CURVE_POINTS).astype(int))
    axes.axhline(0, color=INK_COLOR, linewidth=0.6)
    if told:
        axes.axvspan(0, window, color=POOL_COLOR, alpha=0.5, linewidth=0)
    axes.axvline(tau, color=INK_COLOR, linewidth=0.8, linestyle=":")
    axes.plot(lags, correlation[lags], color=CHAIN_COLORS[0], linewidth=1, marker="." * (last < 25))
    lowest = min(-0.1, 1.05 * correlation[lags].min())
    axes.set(xlim=(0, last), ylim=(lowest, 1.05), yticks=[0, 0.5, 1])
    axes.locator_params(axis="x", nbins=5, integer=True)
    number = f"{tau:.3g}" if tau < 1_000 else f"{tau:,.0f}"
    enough = told and draws >= FEWEST_TAUS * tau
    text = f"τ = {number}, window {window:,.0f}" if enough else f"τ ≥ {number}? too few draws"
    axes.set_title(text, **LEFT)


def _draw_numbers(axes, bonds):
    number, style = bonds["number"].values, {"color": COLORS["accepted"], "ecolor": INK_COLOR}
    axes.bar(number, bonds["probability"].values, 0.6, yerr=2 * bonds["mcse"].values, **style)
    axes.set_title("bonds: how many hold, and two standard errors", fontweight="bold", **LEFT)
    axes.locator_params(axis="x", integer=True)


def _few(chains):
    """A few chains, spread over all, and their colours."""
    chosen = np.linspace(0, len(chains) - 1, min(len(chains), len(CHAIN_COLORS))).astype(int)
    return zip(chains[chosen], CHAIN_COLORS, strict=False)
