"""From the call to the last draw, beside NumPyro's NUTS: problems on which everything counts.

    python -m bench.nuts --json out.json
    python -m bench.nuts --json out.json --only "quadratics, 40 in 120" --eps 0.01 --draws 250
    python -m bench.nuts --json out.json --only "equation, 50 steps" --samplers ladder nuts

Compiling and warm-up are included, each run is in a process of its own, and nothing was compiled
before. NUTS is run as it comes, with 1,000 steps of warm-up and 1,000 draws of four chains, which
are vectorised (on one core its fastest); limpet with as many of 32 chains, for 128, its default,
take longer on some of these than one waits; `default` has 128. `ladder` is limpet's sampler for
surfaces in parts, and runs on the equation as well. Where 1,000 draws would take too long,
`--draws` asks for fewer of each sampler: warm-up then weighs more. Effective draws are those of the
slowest coordinate; ArviZ counts at most log10(N) times as many as the N draws, which some runs here
reach. Seconds are of the processor, so that what else the machine does counts for neither; a run
that takes more of them than `--seconds` is ended, and has no draws. More data than unknowns are in
`bench.inverse`.

The posterior of the equation has a part of its own, with another turn (`bench.turns`), that chains
seldom enter or leave. Effective draws of chains that were all outside count it as if it were not
there. So each run also tells the share of its draws in there, and the effective draws of those
chains that never were: of the rest of the posterior, which is all that some samplers see.
"""

from bench.timing import pin, processor_seconds

pin()

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
from arviz_stats.base import array_stats

import limpet
from bench import problems, turns

EPS = (0.01, 0.001)
SECONDS = 600.0
CHAINS, WARMUP, DRAWS = 4, 1_000, 1_000  # of NUTS
LIMPET_CHAINS = 32
R_HAT = 1.05
PROBLEMS = {
    "quadratics, 20 in 60": lambda eps: problems.quadratics(20, 60, eps),
    "quadratics, 40 in 120": lambda eps: problems.quadratics(40, 120, eps),
    "equation, 50 steps": lambda eps: problems.lotka_volterra(50, eps),
    "equation, 200 steps": lambda eps: problems.lotka_volterra(200, eps),
    "equation, 1000 steps": lambda eps: problems.lotka_volterra(1_000, eps),
}
INVERSE = {"one direction loose": problems.enzyme, "all identified": problems.populations}


def by_limpet(target, start, seed, draws, kernel=None, chains=LIMPET_CHAINS):
    """Draws (chain, draw, coordinate)."""
    options = {"chains": chains, "seed": seed, "workers": 1, "progress": False}
    found = limpet.sample(target, start, kernel=kernel, draws=draws, **options)
    return found.posterior["x"].values


def by_default(target, start, seed, draws):
    """The same with as many chains as limpet has if nothing is said."""
    return by_limpet(target, start, seed, draws, chains=128)


def by_ladder(target, start, seed, draws):
    """The same by the sampler that limpet names after a run whose chains were in parts apart."""
    return by_limpet(target, start, seed, draws, limpet.Exchange())


def by_nuts(target, start, seed, draws):
    """The same."""
    import jax
    import jax.numpy as jnp
    from numpyro.infer import MCMC, NUTS

    log_density = problems.log_posterior(target.freeze(jnp.asarray(start)))
    kernel = NUTS(potential_fn=lambda x: -log_density(x))
    options = {"num_chains": CHAINS, "chain_method": "vectorized", "progress_bar": False}
    mcmc = MCMC(kernel, num_warmup=WARMUP, num_samples=draws, **options)
    starts = limpet.find_start(target, start, count=CHAINS, seed=seed)
    mcmc.run(jax.random.key(seed), init_params=jnp.asarray(starts))
    return np.asarray(mcmc.get_samples(group_by_chain=True))


SAMPLERS = {"limpet": by_limpet, "default": by_default, "ladder": by_ladder, "nuts": by_nuts}
BESIDE, BESIDE_IN_PARTS = ("limpet", "nuts"), ("limpet", "ladder", "nuts")


def run(sampler, problem, eps, seed, draws=DRAWS):
    """What is told of one run."""
    target, start = (PROBLEMS | INVERSE)[problem](eps)
    began = processor_seconds()
    x = SAMPLERS[sampler](target, start, seed, draws)
    seconds = processor_seconds() - began
    ess, slowest = slowest_of(x)
    told = {
        "seconds": seconds,
        "ess": ess,
        "r_hat": float(array_stats.rhat(x[..., slowest], method="rank")),
        "ess_per_second": ess / seconds,
    }
    if problem.startswith("equation"):
        apart = turns.is_apart(x, int(problem.split()[1]))
        outside = x[~apart.any(axis=1)]
        told["share_apart"] = float(apart.mean())
        told["ess_outside"] = slowest_of(outside)[0] if len(outside) else 0.0
    return told


def slowest_of(x):
    """The effective draws of the slowest coordinate, and which one that is."""
    ess = [float(array_stats.ess(x[..., k], method="bulk")) for k in range(x.shape[2])]
    slowest = int(np.argmin(ess))
    return ess[slowest], slowest


def in_a_process(sampler, problem, eps, seed, draws, seconds):
    """The same by a process that may take so many seconds of the processor; else no draws."""
    command = [sys.executable, "-m", "bench.nuts", "--one", sampler, problem, str(eps), str(seed)]
    done = subprocess.run(
        [*command, "--draws", str(draws), "--seconds", str(seconds)],
        env=os.environ | {"LIMPET_CACHE": ""},
        stdout=subprocess.PIPE,
    )
    if done.returncode == -signal.SIGXCPU:
        return {"seconds": seconds, "ess": 0.0, "r_hat": None, "ess_per_second": 0.0}
    done.check_returncode()
    return json.loads(done.stdout)


def measure(names, every_eps, seconds, turns=1, draws=DRAWS, samplers=None):
    """Each problem at each eps: samplers by turns, and how many times NUTS's draws limpet has."""
    for name in names:
        usual = BESIDE_IN_PARTS if name.startswith("equation") else BESIDE
        for eps in every_eps:
            runs = {sampler: [] for sampler in samplers or usual}
            for seed in range(turns):
                for sampler, several in runs.items():
                    several.append(in_a_process(sampler, name, eps, seed, draws, seconds))
            rates = {
                sampler: float(np.median([each["ess_per_second"] for each in several]))
                for sampler, several in runs.items()
            }
            ours = [rate for sampler, rate in rates.items() if sampler != "nuts"]
            ratio = max(ours) / rates["nuts"] if ours and rates.get("nuts") else None
            told = {"problem": name, "eps": eps, "draws": draws, "runs": runs}
            yield told | {"rates": rates, "ratio": ratio}


def line(record):
    """What is told of one problem, for people."""
    parts = [f"{record['problem']}, eps {record['eps']}:"]
    for sampler, several in record["runs"].items():
        draws = float(np.median([each["ess"] for each in several]))
        seconds = float(np.median([each["seconds"] for each in several]))
        parts.append(f"{sampler} {draws:,.0f} effective draws in {seconds:.1f} s;")
        if any("share_apart" in each for each in several):
            shares = [f"{each['share_apart']:.3f}" for each in several if "share_apart" in each]
            parts.append(f"share apart {', '.join(shares)};")
    ratio = record["ratio"]
    return " ".join([*parts, "no draws of NUTS" if ratio is None else f"{ratio:.3g} x NUTS"])


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--eps", nargs="+", type=float, default=EPS)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--draws", type=int, default=DRAWS, help="of each chain, by both")
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--one", nargs=4, metavar=("SAMPLER", "PROBLEM", "EPS", "SEED"))
    options = parser.parse_args()
    if options.one:
        limit = int(options.seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        sampler, problem, eps, seed = options.one
        print(json.dumps(run(sampler, problem, float(eps), int(seed), options.draws)))
        return
    if options.json is None:
        parser.error("--json: expected a file for the result")
    found = []
    bounds = options.seconds, options.turns, options.draws
    for record in measure(options.only, options.eps, *bounds, samplers=options.samplers):
        found.append(record)
        options.json.write_text(json.dumps(found, indent=1) + "\n")
        print(line(record), flush=True)


if __name__ == "__main__":
    main()
