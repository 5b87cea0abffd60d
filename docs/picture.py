"""Draw docs/limpet.png, the picture of the README."""

from pathlib import Path

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import limpet
from limpet.paper import ellipsoid_sphere

ROCK, GRASS, SEA = "#5b4a3f", "#d9822b", "#2b7a9b"


def clover(x):
    """A curve with three leaves."""
    return jnp.array([jnp.hypot(x[0], x[1]) - 1 - 0.35 * jnp.sin(3 * jnp.arctan2(x[1], x[0]))])


def draw_chain(axes):
    """A curve, draws near it, and the way of one chain."""
    target = limpet.Target(clover, eps=0.05)
    x = limpet.sample(target, [1.0, 0.0], draws=1_000, chains=128).posterior["x"].values
    axes.scatter(*x[:, ::32].reshape(-1, 2).T, s=2, color=SEA, alpha=0.3, linewidths=0)
    grid = np.linspace(-1.6, 1.6, 500)
    mesh = np.stack(np.meshgrid(grid, grid))
    axes.contour(*mesh, clover(mesh)[0], levels=[0], colors=ROCK, linewidths=2)
    axes.plot(*x[0, :20].T, "o-", color=GRASS, linewidth=0.7, markersize=4)
    axes.set(aspect="equal", title="twenty draws of one chain, and 4,096 of all")
    axes.set(xlim=(-1.5, 1.5), ylim=(-1.55, 1.35))
    axes.set_axis_off()


def cost(kernel, eps, draws):
    """Steps per independent draw of x1; each slide of a trajectory is one."""
    target = limpet.Target(ellipsoid_sphere, eps)
    run = limpet.sample(target, [1.0, 0.3, 0.1], kernel=kernel, draws=draws, chains=128)
    x1 = run.posterior["x"].values[..., 0]
    steps = run.attrs["steps"] * run.attrs["parameters"].get("trajectory", 1)
    return limpet.autocorrelation_time(x1) * steps / x1.size


def draw_mixing(axes):
    """Steps per independent draw of x1, against eps."""
    large, small = np.array([0.5, 0.3, 0.2, 0.14, 0.1]), 10.0 ** -np.arange(2, 7)
    metropolis = [cost(limpet.RandomWalk(), eps, 20_000) for eps in large]
    axes.loglog(large, metropolis, "o-", color=ROCK, label="Metropolis")
    every = np.concatenate([large[[0, 1, 4]], small])
    axes.loglog(every, [cost(None, eps, 2_000) for eps in every], "o-", color=SEA, label="limpet")
    axes.set(xlabel="eps", ylabel="steps per independent draw", title="ellipsoid-sphere model")
    axes.invert_xaxis()
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    draw_chain(left)
    draw_mixing(right)
    figure.savefig(Path(__file__).with_name("limpet.png"), dpi=150)
