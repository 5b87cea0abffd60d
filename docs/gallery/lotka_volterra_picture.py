"""Draw docs/gallery/lotka_volterra.png, from the example on its page."""

import doctest
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__)

if __name__ == "__main__":
    page = HERE.with_name("lotka_volterra.md").read_text("utf-8")
    names: dict = {}
    exec(doctest.script_from_examples(page), names)
    draws, pelts = names["draws"].posterior, names["pelts"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    year = 1900 + np.arange(len(pelts))
    low, high = np.quantile(draws["z"].values.reshape(-1, *pelts.shape), [0.05, 0.95], axis=0)
    for k, (animal, colour) in enumerate([("hares", "#d9822b"), ("lynxes", "#2b7a9b")]):
        left.fill_between(year, low[:, k], high[:, k], color=colour, alpha=0.3, linewidth=0)
        left.plot(year, pelts[:, k], "o", color=colour, markersize=4, label=animal)
        sigma = draws["sigma"].values[..., k].ravel()
        right.hist(sigma, bins=40, color=colour, alpha=0.5, density=True, label=animal)
    left.set(xlabel="year", ylabel="pelts, in thousands", xticks=year[::5])
    right.set(xlabel="sigma", yticks=[])
    for axes in (left, right):
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE.with_suffix("").with_name("lotka_volterra.png"), dpi=120)
