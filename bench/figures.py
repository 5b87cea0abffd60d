"""The figures of the documentation's page on speed."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

INK, BLUE, ORANGE, GREY = "#222222", "#1f6fb4", "#d9730d", "#9a9a9a"
NAMES = {
    "limpet": "limpet",
    "sas": "limpet.SAS(), the paper's",
    "numpyro": "NumPyro NUTS",
    "nutpie": "nutpie",
    "blackjax": "blackjax NUTS",
    "smc": "blackjax tempered SMC",
    "emcee": "emcee",
    "metropolis": "Gaussian Metropolis",
    "mici": "mici, lifted HMC",
}
MARKERS = "oXsD^v<>P"
KERNELS = {  # color and marker
    "SAS (paper)": (INK, "o"),
    "SAS, trajectories": ("#c0392b", "s"),
    "SAS, slides": ("#2a8c4a", "D"),
    "SAS, slides and trajectories": (ORANGE, "^"),
    "Lifted": (BLUE, "v"),
}


def draw(found: dict, folder: Path):
    """Every figure for which there are numbers."""
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 11})
    if "alternatives" in found:
        _save(_alternatives(found["alternatives"]), folder / "alternatives.png")
    if "steady" in found:
        _save(_steady(found["steady"]), folder / "steady.png")
    if "growth" in found:
        _save(_growth(found["growth"]), folder / "growth.png")
    if "anatomy" in found:
        _save(_anatomy(found["anatomy"]), folder / "anatomy.png")
    if "kernels" in found:
        _save(_kernels(found["kernels"]), folder / "kernels.png")


def _save(figure, path):
    figure.savefig(path, dpi=150, bbox_inches="tight")
    plt.close(figure)


def _alternatives(records):
    models = sorted({each["model"] for each in records})
    figure, panels = plt.subplots(1, len(models), figsize=(5.5 * len(models), 4.6), sharey=True)
    for model, axes in zip(models, np.atleast_1d(panels), strict=True):
        for k, ((key, name), marker) in enumerate(zip(NAMES.items(), MARKERS, strict=True)):
            mine = [e for e in records if (e["model"], e["sampler"]) == (model, key)]
            if key == "limpet":  # it ran beside every other, too
                mine = [e | {"ess_per_second": _beside(records, model, e["beta"])} for e in mine]
            mine = sorted((e for e in mine if "ess_per_second" in e), key=lambda e: e["beta"])
            right = [e for e in mine if e["right"]]
            wrong = [e for e in mine if not e["right"]]
            color = BLUE if key == "limpet" else f"C{k}"
            (line,) = axes.plot(
                [e["beta"] for e in right],
                [e["ess_per_second"] for e in right],
                marker=marker,
                color=color,
                linewidth=2.5 if key == "limpet" else 1.2,
                label=name,
            )
            axes.plot(
                [e["beta"] for e in wrong],
                [e["ess_per_second"] for e in wrong],
                "x",
                color=line.get_color(),
            )
        axes.set(xscale="log", yscale="log", title=model.replace("_", "-"))
        axes.set_xlabel(r"$\beta = 1/2\varepsilon^2$")
    first = np.atleast_1d(panels)[0]
    first.set_ylabel("effective draws of $x_1$ per second, one core")
    handles, labels = first.get_legend_handles_labels()
    figure.legend(handles, labels, loc="center left", bbox_to_anchor=(0.92, 0.5), frameon=False)
    return figure


def _beside(records, model, beta):
    """The median rate of limpet in all turns on one problem."""
    there = [e for e in records if (e["model"], e["beta"]) == (model, beta)]
    return np.median([e["limpet_ess_per_second"] for e in there])


def exponent(sizes, times):
    """The slope of log time against log size."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def _steady(steady):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    chains, rates = zip(*steady["chains"], strict=True)
    left.plot(chains, [r["median"] / 1e6 for r in rates], "o-", color=BLUE)
    left.set(xscale="log", xlabel="chains", ylabel="million steps per second, one core", ylim=0)
    for each in steady["against_beta"]:
        rates = [r["median"] for r in each["ess_per_second"]]
        color = BLUE if "Lifted" in each["sampler"] else INK
        line = "o-" if each["model"] == "two_spheres" else "s--"
        name = f"{each['model'].replace('_', '-')}, {each['sampler']}"
        right.plot(steady["betas"], rates, line, color=color, label=name)
    right.set(xscale="log", yscale="log", xlabel=r"$\beta = 1/2\varepsilon^2$", ylim=(1e4, 2e7))
    right.set_ylabel("effective draws of $x_1$ per second")
    right.legend(loc="upper left", frameon=False, fontsize=9)
    figure.tight_layout()
    return figure


PANELS = {  # of the figure of growth: what its sizes are, and the kinds of problems
    "unknowns": ("sphere", "sphere, Lifted", "dense", "dense, Lifted"),
    "beads": ("chain", "ring", "star", "network"),
    "steps in time": ("equation",),
}


def _growth(growth):
    """Above, the time of a step; below, that of compiling it."""
    panels = {name: [k for k in kinds if growth.get(k)] for name, kinds in PANELS.items()}
    panels = {name: kinds for name, kinds in panels.items() if kinds}
    figure, grid = plt.subplots(
        2, len(panels), figsize=(4.6 * len(panels), 6.4), sharex="col", squeeze=False
    )
    for (name, kinds), (above, below) in zip(panels.items(), grid.T, strict=True):
        for k, kind in enumerate(kinds):
            sizes = [each["size"] for each in growth[kind]]
            times = [1e6 * each["seconds"]["median"] for each in growth[kind]]
            compiling = [each["compile_seconds"] for each in growth[kind]]
            above.plot(sizes, times, marker=MARKERS[k], color=f"C{k}", label=kind)
            below.plot(sizes, compiling, marker=MARKERS[k], color=f"C{k}")
        if "chain" in kinds:
            beside = [each for each in growth["chain"] if "yardstick" in each]
            times = [1e6 * each["yardstick"]["seconds"] for each in beside]
            above.plot([e["size"] for e in beside], times, "--", color=GREY, label="chain, C++")
        above.set(xscale="log", yscale="log")
        above.legend(frameon=False, fontsize=9)
        below.set(xlabel=name, ylim=0)
    grid[0, 0].set_ylabel("microseconds per step and chain")
    grid[1, 0].set_ylabel("seconds to compile")
    figure.tight_layout()
    return figure


def _anatomy(parts):
    figure, axes = plt.subplots(figsize=(8, 3))
    names = list(parts)[::-1]
    axes.barh(names, [parts[name] for name in names], color=BLUE)
    for k, name in enumerate(names):
        axes.text(parts[name], k, f" {parts[name]:.0f}", va="center", color=INK)
    axes.set_xlabel("nanoseconds per step and chain")
    return figure


def _kernels(records):
    """Against eps, a panel for each problem; against beads, one for those of a single eps."""
    records = [
        each | {"beads": int(name.split()[0]) if "beads" in (name := each["problem"]) else None}
        for each in records
        if "ess_per_second" in each
    ]
    problems = list(dict.fromkeys(e["problem"] for e in records if e["beads"] in (None, 30)))
    panels = [(name, "eps", [e for e in records if e["problem"] == name]) for name in problems]
    chains = [e for e in records if e["beads"] and e["eps"] == 0.01]
    if chains:
        panels.append((r"stiff chains, $\varepsilon$ = 0.01", "beads", chains))
    columns = min(4, len(panels) + 1)  # a place is left for the legend
    rows = -(-(len(panels) + 1) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(3.9 * columns, 3.3 * rows), squeeze=False)
    for (title, along, mine), axes in zip(panels, grid.flat, strict=False):
        for kernel, (color, marker) in KERNELS.items():
            runs = [e for e in mine if e["kernel"] == kernel]
            places = sorted({e[along] for e in runs})
            at = [[e for e in runs if e[along] == place] for place in places]
            rates = [np.median([e["ess_per_second"] for e in several]) for several in at]
            axes.plot(places, rates, color=color, linewidth=2.5 if kernel == "Lifted" else 1.2)
            for place, rate, several in zip(places, rates, at, strict=True):
                face = color if all(e["converged"] for e in several) else "white"
                axes.plot(place, rate, marker, color=color, markerfacecolor=face)
        axes.set(xscale="log", yscale="log", title=title)
        low, high = np.log10(axes.get_ylim())
        axes.set_ylim(10 ** np.floor(low), 10 ** np.ceil(high))  # whole decades have short labels
        axes.set_xlabel(r"$\varepsilon$" if along == "eps" else "beads")
        axes.xaxis.set_minor_locator(plt.NullLocator())
        if along == "beads":
            axes.set_xticks(sorted({e["beads"] for e in mine}))
            axes.xaxis.set_major_formatter("{x:.0f}")
    for row in grid:
        row[0].set_ylabel("effective draws per second")
    for axes in grid.flat[len(panels) :]:
        axes.axis("off")
    handles = [
        plt.Line2D([], [], color=color, marker=marker, label=kernel)
        for kernel, (color, marker) in KERNELS.items()
    ]
    hollow = plt.Line2D([], [], color=GREY, marker="o", markerfacecolor="white", linestyle="none")
    hollow.set_label("not converged: too high")
    grid.flat[len(panels)].legend(handles=[*handles, hollow], loc="center", frameon=False)
    figure.tight_layout()
    return figure
