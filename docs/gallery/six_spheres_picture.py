"""Draw docs/gallery/six_spheres.png: contacts of six sticky spheres, rigid and vibrating."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import limpet

KAPPAS = (0.6065, 1.0, 2.0, 4.0, 8.8309)
BROWNIAN = {0.6065: 6.855, 2.2885: 10.047, 8.8309: 11.527}  # published, of wells and springs
RIGID = (2.0, 9.7764)  # published
KINDS = {"rigid": "soft", "eps = 0.1": None}
COLOURS = ["#2b7a9b", "#d9822b"]

if __name__ == "__main__":
    row = [[0.8 * k, 0.6 * (k % 2), 0.0] for k in range(6)]
    chain = [(k, k + 1) for k in range(5)]
    figure, panel = plt.subplots(figsize=(6, 3.9), layout="constrained")
    for (name, measure), colour in zip(KINDS.items(), COLOURS, strict=True):
        means, errors = [], []
        for kappa in KAPPAS:
            target = limpet.sticky_spheres(row, chain, kappa, eps=0.1)
            kernel = limpet.StrataSampler(measure)
            draws = limpet.sample(target, draws=1_500, kernel=kernel, progress=False)
            each = len(chain) + draws.posterior["bonds"].sum("bonds_dim").mean("draw").values
            means.append(each.mean())
            errors.append(2 * each.std(ddof=1) / np.sqrt(len(each)))
            print(name, kappa, means[-1], "+-", errors[-1] / 2, flush=True)
        panel.errorbar(KAPPAS, means, errors, color=colour, label=name, linewidth=1, capsize=2)
    panel.plot(*RIGID, "o", mfc="none", color="black", label="rigid, published")
    panel.plot(*zip(*BROWNIAN.items(), strict=True), "x", color="black", label="Brownian dynamics")
    panel.set(xscale="log", xlabel="stickiness", ylabel="contacts")
    panel.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
    panel.minorticks_off()
    panel.legend(frameon=False)
    panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(Path(__file__).with_name("six_spheres.png"), dpi=120)
