"""How limpet's cost grows: with chains, constraints, eps and draws.

    python -m bench.growth --json out.json

A stiff chain has N beads in space, the first at the origin, and N - 1 bonds of length 1: n = 3(N -
1) unknowns, m = N - 1. Its yardstick is NumPy's Gram matrix and Cholesky factor of that size.
"""

from bench.timing import measure_and_write, pin, spread

pin()

import time

import jax.numpy as jnp
import numpy as np
from arviz_stats.base import array_stats

import limpet
from bench.speed import limpets_rate
from limpet.kernels import noise
from limpet.paper import START, ellipsoid_sphere, eps_of, two_spheres
from limpet.paper.experiments import PAPER
from limpet.run import tile
from limpet.run.tuning import Tuner

CHAINS = [1, 4, 16, 64, 128, 256, 1024, 4096]
BEADS = [4, 6, 10, 20, 40, 60, 81, 100]
BETAS = [1e2, 1e3, 1e4, 1e5, 1e6]
DRAWS = [1_000, 5_000, 20_000]
TURNS, BETA_TURNS = 5, 9
SAMPLERS = {"limpet.Lifted()": limpet.Lifted(), "limpet.SAS()": limpet.SAS()}


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
    target = limpet.Target(bonds, eps=0.01).freeze(jnp.asarray(x))
    steps = 2 * tile.block_for(len(x))
    scales = Tuner(kernel, kernel.parameters(target), width, 0).scales(0, steps)
    states = tile.first_states(kernel, target, np.tile(x, (width, 1)))
    carry = states, noise.generators(0, 0, width)
    program = tile.compile_steps(kernel, target, carry, scales)

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


def rates(q, kernel, beta, draws=4_000, seed=0):
    """Steps and effective draws of x_1 per second at this beta."""
    target = limpet.Target(q, eps=eps_of(beta))
    options = {"kernel": kernel, "seed": seed, "workers": 1, "progress": False}
    run = limpet.sample(target, START, draws=draws, chains=256, **options)
    ess = float(array_stats.ess(run.posterior["x"].values[..., 0], method="bulk"))
    return run.attrs["steps"] / run.attrs["seconds"], ess / run.attrs["seconds"]


def against_beta(q, name):
    """The rates of a sampler; all betas by turns, for a machine is not the same all day.

    `relative` is to the mean of a turn: how flat a rate is in beta is seen best by it.
    """
    kernel = SAMPLERS[name]
    turns = [[rates(q, kernel, b, seed=turn) for b in BETAS] for turn in range(BETA_TURNS)]
    steps, effective = np.transpose(turns, (2, 1, 0))
    measured = {
        "steps_per_second": steps,
        "ess_per_second": effective,
        "relative": effective / effective.mean(axis=0),
    }
    found = {what: [spread(of_beta) for of_beta in each] for what, each in measured.items()}
    return {"model": q.__name__, "sampler": name} | found


def exponent(sizes, times):
    """The slope of log time against log size."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def measure():
    """All curves."""
    limpets_rate(256)
    chains = [(c, spread([limpets_rate(c, min(4e6, 1e5 * c)) for _ in range(3)])) for c in CHAINS]
    beads = [stiff_chain(each) for each in BEADS]
    large = [each for each in beads if each["beads"] >= 20]
    flat = [against_beta(q, name) for q in (two_spheres, ellipsoid_sphere) for name in SAMPLERS]
    draws = [
        (d, spread([rates(ellipsoid_sphere, PAPER, 1e4, d)[0] for _ in range(2)])) for d in DRAWS
    ]
    return {
        "chains": chains,
        "beads": beads,
        "beads_exponent": exponent(
            [each["beads"] for each in large], [each["seconds"]["median"] for each in large]
        ),
        "betas": BETAS,
        "against_beta": flat,
        "draws": draws,
    }


if __name__ == "__main__":
    result = measure_and_write(__doc__, measure)
    for each in result["beads"]:
        microseconds, times = 1e6 * each["seconds"]["median"], each["yardsticks"]["median"]
        print(f"{each['beads']} beads: {microseconds:.1f} microseconds, {times:.1f} x NumPy's")
    print(f"time grows as N^{result['beads_exponent']:.2f} from 20 to 100 beads")
    for each in result["against_beta"]:
        rates_of = ", ".join(f"{r['median']:,.0f}" for r in each["ess_per_second"])
        print(f"{each['model']}, {each['sampler']}: {rates_of} effective draws per second")
