"""Draw docs/gallery/pieces.png: two rings, and how often a ladder leads to the small one."""

from pathlib import Path

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import limpet

COLOURS = ["#c9b79c", "#d9822b", "#2b7a9b"]
EPS = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6]
RUNGS = [0.8, 0.4, 0.2]


def distance(x):
    """Distance from the nearer of two rings."""
    large, small = x - jnp.array([1.3, 0.0]), x + jnp.array([1.3, 0.0])
    return jnp.minimum(jnp.sqrt(large @ large) - 1, jnp.sqrt(small @ small) - 0.25)[None]


def sample(eps, ladder, draws):
    """Draws of chains that began on the large ring."""
    target, kernel = limpet.Target(distance, eps), limpet.Exchange(ladder)
    return limpet.sample(target, [0.3, 0.0], draws=draws, kernel=kernel, progress=False)


def draw_rungs(panel):
    """Draws with the eps of three rungs."""
    for eps, colour in zip([0.8, 0.2, 0.01], COLOURS, strict=True):
        x = sample(eps, [r for r in (1.6, *RUNGS) if r > eps] + [eps], 500).posterior["x"].values
        points = x[:, ::32].reshape(-1, 2)
        panel.scatter(*points.T, s=3, color=colour, linewidths=0, label=f"eps = {eps:g}")
    panel.set(aspect="equal", xlim=(-3.6, 4.4), ylim=(-3, 3), xlabel="x1", ylabel="x2")
    panel.legend(frameon=False, markerscale=3, loc="upper left")


def draw_shares(panel):
    """The share of the small ring against eps."""
    for eps in EPS:
        x = sample(eps, [*RUNGS, eps], 2_000).posterior["x"].values
        means = (x[..., 0] < 0).mean(axis=1)
        error = 2 * means.std(ddof=1) / np.sqrt(len(means))
        panel.errorbar(eps, means.mean(), error, fmt="o", color=COLOURS[-1], markersize=4)
        print(eps, means.mean(), "+-", error / 2)
    panel.axhline(0.2, color="#5b4a3f", linewidth=1, label="as long as they are: 1/5")
    panel.set(xscale="log", ylim=(0.15, 0.25), xlabel="eps", ylabel="share of the small ring")
    panel.invert_xaxis()
    panel.legend(frameon=False)


if __name__ == "__main__":
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    draw_rungs(left)
    draw_shares(right)
    for panel in (left, right):
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(Path(__file__).with_name("pieces.png"), dpi=120)
