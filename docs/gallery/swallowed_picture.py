"""Draw docs/gallery/swallowed.png: runs the code of the page beside it."""

import doctest
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

SEA, SAND = "#2b7a9b", "#d98032"


def main():
    """Share and volume, and the concentration."""
    page = Path(__file__).with_name("swallowed.md").read_text()
    names: dict = {}
    exec(doctest.script_from_examples(page), names)
    draws, hours = names["draws"].posterior, names["hours"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    volume, share = (np.exp(draws[name].values.ravel()) for name in ("volume", "share"))
    left.scatter(volume, share, s=3, color=SEA, alpha=0.4, linewidths=0)
    left.plot(18, 0.7, "o", color="black", markersize=4)
    left.set(xlabel="volume", ylabel="share absorbed")
    points = {name: draws[name].values.ravel()[::20] for name in draws.data_vars}
    fits = np.asarray(jax.jit(jax.vmap(names["concentration"]))(points))
    right.plot(hours, fits.T, color=SEA, linewidth=0.5, alpha=0.3)
    right.plot(hours, names["seen"], "o", color=SAND, markersize=5)
    right.set(xlabel="hours", ylabel="concentration")
    figure.savefig(Path(__file__).with_name("swallowed.png"), dpi=120)


if __name__ == "__main__":
    main()
