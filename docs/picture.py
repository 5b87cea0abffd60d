"""Draw docs/limpet.png, the picture of the README."""

from pathlib import Path

import jax
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
    kernel = limpet.SAS(sigma_hrd=0.8, sigma_tan=0.05, sigma_on=0.05, sigma_sft=0.05)
    state = kernel.init(target, limpet.find_start(target, [1.0, 0.0])[0])

    def step(state, key):
        state, _ = kernel.step(target, key, state)
        return state, (state.x, state.on)

    keys = jax.random.split(jax.random.key(3), 60_000)
    _, (x, on) = jax.jit(lambda state: jax.lax.scan(step, state, keys))(state)
    x, on = np.asarray(x), np.asarray(on)
    axes.scatter(*x[~on][:4_000].T, s=2, color=SEA, alpha=0.25, linewidths=0)
    grid = np.linspace(-1.6, 1.6, 500)
    mesh = np.stack(np.meshgrid(grid, grid))
    axes.contour(*mesh, clover(mesh)[0], levels=[0], colors=ROCK, linewidths=2)
    way, clings = x[:30], on[:30]
    axes.plot(*way.T, color=GRASS, linewidth=0.9)
    axes.scatter(*way[clings].T, s=18, color=GRASS, zorder=3, label="on the surface")
    off = {"facecolors": "white", "edgecolors": GRASS, "zorder": 3}
    axes.scatter(*way[~clings].T, s=20, label="off it", **off)
    axes.set(aspect="equal", title="thirty steps of a chain, and 4,000 draws")
    axes.set(xlim=(-1.5, 2.0), ylim=(-1.55, 1.35))
    axes.set_axis_off()
    axes.legend(loc="lower right", frameon=False)


def draw_mixing(axes):
    """Steps per independent draw of x1, against eps."""
    eps = {
        "Metropolis": np.array([0.5, 0.3, 0.2, 0.14, 0.1]),
        "limpet (SAS)": np.array([0.5, 0.3, 0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6]),
    }
    kernels = {"Metropolis": limpet.RandomWalk, "limpet (SAS)": limpet.SAS}
    for (name, values), color in zip(eps.items(), (ROCK, SEA), strict=True):
        cost = []
        for e in values:
            draws = limpet.sample(
                limpet.Target(ellipsoid_sphere, e),
                [1.0, 0.3, 0.1],
                kernel=kernels[name](),
                draws=20_000 if name == "Metropolis" else 2_000,
                chains=128,
            )
            x1 = draws.posterior["x"].values[..., 0]
            cost.append(limpet.autocorrelation_time(x1) * draws.attrs["steps"] / x1.size)
        axes.loglog(values, cost, "o-", color=color, label=name)
    axes.set(xlabel="eps", ylabel="steps per independent draw", title="ellipsoid-sphere model")
    axes.invert_xaxis()
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    draw_chain(left)
    draw_mixing(right)
    figure.savefig(Path(__file__).with_name("limpet.png"), dpi=150)
