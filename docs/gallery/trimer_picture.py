"""Draw docs/gallery/trimer.png: triangles of sticky disks, rigid and vibrating."""

from pathlib import Path

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import limpet

KAPPAS = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 16.0])
EPS = {"rigid": 0.0, "eps = 0.1": 0.1, "eps = 0.2": 0.2}
COLOURS = ["#2b7a9b", "#d9822b", "#5b4a3f"]


def contacts(x):
    """The contacts of three disks."""
    a, b, c = x.reshape(3, 2)

    def gap(r):
        return (r @ r - 1) / 2

    return jnp.stack([gap(b - a), gap(c - b), gap(c - a)])


def centred(x):
    """The centre is near the origin."""
    return -jnp.sum(x.reshape(3, 2).mean(axis=0) ** 2) / 2


def odds(eps):
    """How much likelier a triangle is than none, at kappa = 1: a sum over both bonds and angle."""
    if eps == 0:
        return np.sqrt(3) / np.pi
    node, weight = np.polynomial.hermite_e.hermegauss(60)
    fine = 1 + 2 * eps * node > 0  # a bond's length is real
    q, weight = eps * node[fine], weight[fine]
    r1, r2 = np.sqrt(1 + 2 * q)[:, None, None], np.sqrt(1 + 2 * q)[None, :, None]
    angle = (np.arange(20_000) + 0.5) * np.pi / 20_000
    third = (r1**2 + r2**2 - 2 * r1 * r2 * np.cos(angle) - 1) / 2
    both = weight[:, None, None] * weight[None, :, None]
    bonded = np.sum(both * np.exp(-((third / eps) ** 2) / 2)) / (eps * np.sqrt(2 * np.pi))
    return bonded / np.sum(both * (third > 0))


if __name__ == "__main__":
    start = [-1.0, 0.1, 0.0, 0.0, 1.0, 0.1]
    figure, panel = plt.subplots(figsize=(6, 3.9), layout="constrained")
    line = np.geomspace(KAPPAS[0], KAPPAS[-1], 200)
    for (name, eps), colour in zip(EPS.items(), COLOURS, strict=True):
        each = odds(eps)
        panel.plot(line, line * each / (1 + line * each), color=colour, label=name, linewidth=1)
        for kappa in KAPPAS:
            target = limpet.Strata(contacts, eps or 0.1, kappa, always=[0, 1], log_density=centred)
            kernel = limpet.StrataSampler("soft" if eps == 0 else None)
            draws = limpet.sample(target, start, draws=1_000, kernel=kernel, progress=False)
            means = draws.posterior["bonds"].mean(["draw", "bonds_dim"]).values
            error = 2 * means.std(ddof=1) / np.sqrt(len(means))
            panel.errorbar(kappa, means.mean(), error, fmt=".", color=colour, markersize=5)
            exact = kappa * each / (1 + kappa * each)
            print(name, kappa, means.mean(), "+-", error / 2, "exact", exact)
    panel.set(xscale="log", xlabel="stickiness", ylabel="share of triangles")
    panel.set_xticks(KAPPAS, [f"{kappa:g}" for kappa in KAPPAS])
    panel.minorticks_off()
    panel.legend(frameon=False)
    panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(Path(__file__).with_name("trimer.png"), dpi=120)
