"""Draw docs/gallery/field.png: runs the code of the page beside it."""

import doctest
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

SEA, SAND = "#2b7a9b", "#d98032"


def main():
    """The field and its truth; the pressure and the wells."""
    page = Path(__file__).with_name("field.md").read_text()
    names: dict = {}
    exec(doctest.script_from_examples(page), names)
    z, truth, n, wells = (names[name] for name in ("z", "truth", "n", "wells"))
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    fields = np.asarray(jax.vmap(names["log_k"])(z))
    middles, points = (np.arange(n) + 0.5) / n, np.arange(1, n) / n
    left.fill_between(middles, *np.quantile(fields, [0.05, 0.95], axis=0), color=SEA, alpha=0.25)
    left.plot(middles, fields[[0, len(z) // 2, -1]].T, color=SEA, linewidth=0.7)
    left.plot(middles, names["log_k"](truth), color="black", linewidth=1.2)
    left.set(xlabel="s", ylabel="log k")
    fits = np.asarray(names["fits"])
    right.fill_between(points, *np.quantile(fits, [0.05, 0.95], axis=0), color=SEA, alpha=0.25)
    right.plot(points, names["pressure"](truth), color="black", linewidth=1.2)
    right.plot(points[wells], names["seen"], "o", color=SAND, markersize=5)
    right.set(xlabel="s", ylabel="pressure")
    figure.savefig(Path(__file__).with_name("field.png"), dpi=120)


if __name__ == "__main__":
    main()
