"""What limpet's speed does not depend on, or hardly: chains, eps and draws.

python -m bench.steady --json out.json
"""

from bench.timing import measure_and_write, pin, spread

pin()

import numpy as np
from arviz_stats.base import array_stats

import limpet
from bench.speed import limpets_rate
from limpet.paper import START, ellipsoid_sphere, eps_of, two_spheres
from limpet.paper.experiments import PAPER

CHAINS = [1, 4, 16, 64, 128, 256, 1024, 4096]
BETAS = [1e2, 1e3, 1e4, 1e5, 1e6]
DRAWS = [1_000, 5_000, 20_000]
TURNS = 9
SAMPLERS = {"limpet.Lifted()": limpet.Lifted(), "limpet.SAS()": limpet.SAS()}


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
    turns = [[rates(q, kernel, b, seed=turn) for b in BETAS] for turn in range(TURNS)]
    steps, effective = np.transpose(turns, (2, 1, 0))
    measured = {
        "steps_per_second": steps,
        "ess_per_second": effective,
        "relative": effective / effective.mean(axis=0),
    }
    found = {what: [spread(of_beta) for of_beta in each] for what, each in measured.items()}
    return {"model": q.__name__, "sampler": name} | found


def measure():
    """All curves."""
    limpets_rate(256)
    chains = [(c, spread([limpets_rate(c, min(4e6, 1e5 * c)) for _ in range(3)])) for c in CHAINS]
    flat = [against_beta(q, name) for q in (two_spheres, ellipsoid_sphere) for name in SAMPLERS]
    draws = [
        (d, spread([rates(ellipsoid_sphere, PAPER, 1e4, d)[0] for _ in range(2)])) for d in DRAWS
    ]
    return {
        "chains": chains,
        "betas": BETAS,
        "against_beta": flat,
        "draws": draws,
    }


if __name__ == "__main__":
    result = measure_and_write(__doc__, measure)
    for each in result["against_beta"]:
        rates_of = ", ".join(f"{r['median']:,.0f}" for r in each["ess_per_second"])
        print(f"{each['model']}, {each['sampler']}: {rates_of} effective draws per second")
