"""Draw docs/partition.png, the likelihood of a noise level."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import multivariate_normal

import limpet

A, Y = np.array([[0.5, 0.2], [0.1, -0.6], [0.4, 0.3]]), np.array([1.2, -0.9])


def likelihood(eps):
    """p(y | eps), exactly."""
    return multivariate_normal(cov=A.T @ A + eps**2 * np.eye(2)).pdf(Y)


if __name__ == "__main__":
    model = limpet.Target(lambda x: x @ A - Y, eps=1.0, log_density=lambda x: -x @ x / 2)
    curve = limpet.ladder(model, np.zeros(3), eps=np.geomspace(0.01, 5, 16), draws=2_000)
    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    eps = np.geomspace(0.008, 6, 300)
    exact = [likelihood(e) / likelihood(0) for e in eps]
    axes.plot(eps, exact, color="#5b4a3f", linewidth=1, label="exact")
    bars = {"yerr": 2 * curve["standard_error"], "fmt": "o", "markersize": 4, "capsize": 2}
    axes.errorbar(curve["eps"], curve["ratio"], **bars, color="#2b7a9b", label="limpet")
    axes.set(xscale="log", xlabel="eps", ylabel="p(y | eps) / p(y | 0)")
    axes.legend(frameon=False)
    figure.savefig(Path(__file__).with_name("partition.png"), dpi=150)
