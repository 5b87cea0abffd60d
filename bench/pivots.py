"""A stiff chain with a bending energy, with and without pivots: `python -m bench.pivots [beads]`.

The log density is kappa times the sum of cosines between bonds; persistence over 10 bonds has
kappa = 10. Effective draws are of the squared end-to-end distance, per second of CPU time of the
draws alone, after a default warm-up; of five seeds it shows the median and all. `tau` is in draws.
"""

import statistics
import sys
import time

import jax.numpy as jnp
import numpy as np

import limpet
from bench.bonds import chain

KAPPA, EPS, CHAINS, DRAWS = 10.0, 0.01, 64, 1_000
SEEDS = range(5)
ORIGIN = (0.0, 0.0, 0.0)
MOVES = {
    "none": [],
    "pivots": [limpet.pivot(held=ORIGIN)],
    "pivots, crankshafts": [limpet.pivot(held=ORIGIN), limpet.crankshaft(held=ORIGIN)],
}


def bending(x):
    """The log density of a chain that begins at the origin."""
    bonds = jnp.diff(x.reshape(-1, 3), axis=0, prepend=0.0)
    return KAPPA * jnp.sum(bonds[1:] * bonds[:-1])


def exact_r2(bonds):
    """The mean of the squared end-to-end distance of a chain of unit bonds."""
    u = 1 / np.tanh(KAPPA) - 1 / KAPPA
    return bonds * (1 + u) / (1 - u) - 2 * u * (1 - u**bonds) / (1 - u) ** 2


def measure(beads, symmetries, seed):
    """The mean of R^2, its error, tau, and effective draws per second of CPU time."""
    q = chain(beads, EPS)[0].q
    target = limpet.Target(q, EPS, log_density=bending, symmetries=symmetries)
    start = np.outer(np.arange(1.0, beads), [1.0, 0.0, 0.0]).ravel()
    began = {}

    def note(progress):
        began.setdefault(progress.phase, time.process_time())

    settings = {"draws": DRAWS, "chains": CHAINS, "jitter": 0.05, "workers": 1, "seed": seed}
    draws = limpet.sample(target, start, progress=note, **settings)
    r2 = np.sum(draws.posterior["x"].values[..., -3:] ** 2, axis=-1)
    tau = float(np.asarray(limpet.autocorrelation_time(r2)))
    effective = r2.size / tau
    seconds = began["done"] - began["draws"]
    return r2.mean(), r2.std() / np.sqrt(effective), tau, effective / seconds


def main(beads):
    """Print a line for each set of symmetries and each seed, and then the medians of all seeds."""
    print(f"{beads} beads, kappa = {KAPPA}, eps = {EPS}: exactly R^2 = {exact_r2(beads - 1):.2f}")
    rates = {name: [] for name in MOVES}
    for seed in SEEDS:
        for name, symmetries in MOVES.items():
            mean, error, tau, rate = measure(beads, symmetries, seed)
            rates[name].append(rate)
            print(f"{name:20} R^2 {mean:.2f} +- {error:.2f}, tau {tau:.3g}, {rate:,.0f} a second")
    for name, found in rates.items():
        gains = [rate / without for rate, without in zip(found, rates["none"], strict=True)]
        print(
            f"{name:20} {statistics.median(found):,.0f} a second, {statistics.median(gains):.2f} x"
            f" without ({', '.join(f'{gain:.2f}' for gain in gains)})"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
