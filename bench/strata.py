"""Bonds that break and form: effective draws of their number, by `python -m bench.strata [part]`.

`six`: the polymer of six spheres at kappa = 2, beside the Stratification Sampler. Of that is
published that 10^7 steps take 816 s; steps per effective draw are counted with a plain program of
it, `bench/stratification.cpp`, for the step sizes that are best of a few. `trimer`: effective draws
per second of the sticky trimer against eps. Seconds are those of the processor, for the draws
alone, after a default warm-up.
"""

from bench.timing import pin

pin()

import subprocess
import sys
import tempfile
import time

import jax.numpy as jnp
import numpy as np

import limpet
from bench.speed import build

KAPPA, PUBLISHED_STEPS, PUBLISHED_SECONDS = 2.0, 1e7, 816.0
SPHERES, COUNTED, THIN = 6, 400_000, 10  # THIN as in the C++ program
SIZES = ((0.2, 0.4, 0.4), (0.3, 0.4, 0.4), (0.2, 0.8, 0.4), (0.3, 0.8, 0.4))
EPS = (0.1, 0.01, 1e-4, 1e-6)


def draw(target, start=None, draws=2_000, **options):
    """The number of bonds by chain and draw, seconds for these, and acceptance by move."""
    began = {}

    def note(progress):
        began.setdefault(progress.phase, time.process_time())

    settings = {"draws": draws, "workers": 1, "seed": 1, "progress": note}
    found = limpet.sample(target, start, **settings | options)
    held = found.posterior["bonds"].sum("bonds_dim").values
    return held, began["done"] - began["draws"], found.attrs["acceptance"]


def rate_of(held, seconds):
    """Effective draws per second, of the mean."""
    return held.size / limpet.autocorrelation_time(held) / seconds


def published_tau(program, sizes):
    """The mean number of bonds and its autocorrelation time in steps, of the published sampler."""
    arguments = [SPHERES, KAPPA, COUNTED, *sizes, 0.3, 1]
    done = subprocess.run(
        [program, *map(str, arguments)], check=True, capture_output=True, text=True
    )
    held = np.array(done.stdout.split(), float)
    return held.mean(), THIN * limpet.autocorrelation_time(held)


def six():
    """Beside the published sampler."""
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder, "stratification")
        counted = {sizes: published_tau(program, sizes) for sizes in SIZES}
    for sizes, (mean, tau) in counted.items():
        print(f"published sampler, sizes {sizes}: mean {mean:.3f}, {tau:.0f} steps a draw")
    best = min(tau for _, tau in counted.values())
    published = PUBLISHED_STEPS / PUBLISHED_SECONDS / best
    row = [[0.8 * k, 0.6 * (k % 2), 0.0] for k in range(SPHERES)]
    bonds = [(k, k + 1) for k in range(SPHERES - 1)]
    target = limpet.sticky_spheres(row, bonds, KAPPA)
    for measure in (None, "soft"):
        held, seconds, accepted = draw(target, kernel=limpet.StrataSampler(measure))
        rate = rate_of(held, seconds)
        kind = "eps = 0.01" if measure is None else "rigid"
        print(
            f"limpet, {kind}: mean {held.mean() + len(bonds):.3f}, {rate:,.0f} a second,"
            f" {rate / published:.1f} x the published {published:.0f}; {accepted}"
        )


def contacts(x):
    """Those of three disks."""
    a, b, c = x.reshape(3, 2)
    return jnp.stack([(r @ r - 1) / 2 for r in (b - a, c - b, c - a)])


def centred(x):
    """Their centre is near the origin."""
    return -jnp.sum(x.reshape(3, 2).mean(axis=0) ** 2) / 2


def trimer():
    """Flat in eps."""
    start = [-1.0, 0.1, 0.0, 0.0, 1.0, 0.1]
    for eps in EPS:
        target = limpet.Strata(contacts, eps, KAPPA, always=[0, 1], log_density=centred)
        held, seconds, accepted = draw(target, start, 4_000)
        rate = rate_of(held, seconds)
        print(f"trimer, eps = {eps:g}: {held.mean():.4f}, {rate:,.0f} a second; {accepted}")


if __name__ == "__main__":
    for name in sys.argv[1:] or ("six", "trimer"):
        {"six": six, "trimer": trimer}[name]()
