"""How limpet's cost grows: with chains, constraints, eps and draws.

    python -m bench.growth --json out.json

A stiff chain has N beads in space, the first at the origin, and N - 1 bonds of length 1: n = 3(N -
1) unknowns, m = N - 1. Its yardstick is NumPy's Gram matrix and Cholesky factor of that size.
"""

from bench.timing import pin, spread, written

pin()

import time

import jax.numpy as jnp
import numpy as np

import limpet
from bench.speed import limpets_rate
from limpet import noise, tile
from limpet.paper import START, ellipsoid_sphere, eps_of
from limpet.paper.experiments import PAPER
from limpet.tuning import Tuner

CHAINS = [1, 4, 16, 64, 128, 256, 1024, 4096]
BEADS = [4, 6, 10, 20, 40, 60, 81, 100]
BETAS = [1e2, 1e3, 1e4, 1e5, 1e6]
DRAWS = [1_000, 5_000, 20_000]
TURNS = 5


def bonds(x):
    """Squared bond lengths, less one."""
    beads = jnp.concatenate([jnp.zeros((1, 3)), x.reshape(-1, 3)])
    return jnp.sum((beads[1:] - beads[:-1]) ** 2, axis=1) - 1


def zigzag(beads):
    """A chain of unit bonds that turn left and right."""
    bond = np.array([[0.8, 0.6 * (-1) ** i, 0.0] for i in range(beads - 1)])
    return np.cumsum(bond, axis=0).ravel()


def seconds(function, repeats):
    """Of one call."""
    began = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - began) / repeats


def stiff_chain(beads):
    """Seconds of a step of one chain of beads, and how many yardsticks that is."""
    width, kernel = 8, limpet.SAS(sigma_hrd=0.6 / beads**0.5)
    x = zigzag(beads)
    target = limpet.Target(bonds, eps=0.01).checked(jnp.asarray(x))
    steps = 2 * tile.block_for(len(x))
    scales = Tuner(kernel, kernel.parameters(target), width, 0).scales(0, steps)
    states = tile.first_states(kernel, target, np.tile(x, (width, 1)))
    carry = states, noise.generators(0, 0, width)
    program = tile.compiled(kernel, target, carry, scales)

    def go():
        nonlocal carry
        carry, trace = program((kernel, target), carry, scales)
        return np.asarray(trace.x)

    for _ in range(-(-100 // steps)):  # away from the zigzag
        go()
    G = np.random.default_rng(0).normal(size=(3 * (beads - 1), beads - 1))
    times, ratios = [], []
    for _ in range(TURNS):
        unit = seconds(lambda: np.linalg.cholesky(G.T @ G), 300)
        times.append(seconds(go, 3) / (steps * width))
        ratios.append(times[-1] / unit)
    return {"beads": beads, "seconds": spread(times), "yardsticks": spread(ratios)}


def rate_at(beta, draws=4_000):
    """Steps per second at this beta."""
    target = limpet.Target(ellipsoid_sphere, eps=eps_of(beta))
    options = {"kernel": PAPER, "workers": 1, "progress": False}
    attrs = limpet.sample(target, START, draws=draws, chains=256, **options).attrs
    return attrs["steps"] / attrs["seconds"]


def exponent(sizes, times):
    """The slope of log time against log size."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def measure():
    """All curves."""
    limpets_rate(256)
    chains = [(c, spread([limpets_rate(c, min(4e6, 1e5 * c)) for _ in range(3)])) for c in CHAINS]
    beads = [stiff_chain(each) for each in BEADS]
    large = [each for each in beads if each["beads"] >= 20]
    betas = [(beta, spread([rate_at(beta) for _ in range(3)])) for beta in BETAS]
    draws = [(d, spread([rate_at(1e4, d) for _ in range(2)])) for d in DRAWS]
    return {
        "chains": chains,
        "beads": beads,
        "beads_exponent": exponent(
            [each["beads"] for each in large], [each["seconds"]["median"] for each in large]
        ),
        "betas": betas,
        "draws": draws,
    }


if __name__ == "__main__":
    result = written(__doc__, measure)
    for each in result["beads"]:
        microseconds, times = 1e6 * each["seconds"]["median"], each["yardsticks"]["median"]
        print(f"{each['beads']} beads: {microseconds:.1f} microseconds, {times:.1f} x NumPy's")
    print(f"time grows as N^{result['beads_exponent']:.2f} from 20 to 100 beads")
