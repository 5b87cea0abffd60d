"""Which sampler? limpet's own, on problems of several kinds and at several eps.

    python -m bench.kernels --json out.json
    python -m bench.kernels --json out.json --only-problems torus --eps 0.01 --seconds 1

What counts is the slowest of several observables: every coordinate of x and |q / eps|^2; of a stiff
chain its end-to-end distance, the coordinates of its last bead and of its first bond, and
|q / eps|^2. Effective draws are per second of sampling on one core, without compiling and warm-up,
and per projection: one with its reverse check counts once, and a trajectory has one for each slide.
The kernels run by turns on each problem, so ratios to SAS (paper) are of the same minute.

A run whose R-hat is above 1.05 has not converged: its rate is too high, and is shown with "<".
"""

from bench.timing import pin

pin()

import argparse
import json
import math
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from arviz_stats.base import array_stats
from rich.console import Console
from rich.table import Table

import limpet
from bench.bonds import chain
from limpet.paper import START, ellipsoid_sphere, two_spheres

EPS = (0.3, 1e-2, 1e-4, 1e-6)
R_HAT = 1.05
MOST_DRAWS = 2_000  # per chain: more take longer to judge than to make
REFERENCE = "SAS (paper)"
SLIDES = {"off_probability": 0.8, "on_probability": 0.2, "slide_probability": 0.6}
KERNELS = {
    REFERENCE: limpet.SAS(),
    "SAS, trajectories": limpet.SAS(trajectory=None),
    "SAS, slides": limpet.SAS(**SLIDES),
    "SAS, slides and trajectories": limpet.SAS(**SLIDES, trajectory=None),
    "Lifted": limpet.Lifted(),
}


def torus(x):
    """Radii 1 and 1/2."""
    return jnp.array([(jnp.hypot(x[0], x[1]) - 1) ** 2 + x[2] ** 2 - 0.25])


def trimer(x):
    """Two bonds in space from a bead at the origin; the cosine of their angle is uniform."""
    return jnp.sum(x.reshape(2, 3) ** 2, axis=1) - 1


def misfit(x):
    """Two curved measurements of six unknowns, less what was read.

    Given x_3 to x_6, the first says what x_1 is, and then the second x_2: one connected piece.
    """
    first = x[0] + x[2] * x[3] + 0.5 * x[4] ** 2
    second = x[1] + jnp.sin(2 * x[0] + x[5]) + 0.5 * x[2] ** 2
    return jnp.stack([first, second]) - 1


def normal(x):
    """A standard normal prior."""
    return -(x @ x) / 2


def coordinates(x):
    """Every coordinate, by name."""
    return {f"x{i + 1}": x[..., i] for i in range(x.shape[-1])}


def ends(x):
    """What tells how a stiff chain lies; its first bead is at the origin."""
    parts = {"last bead": x[..., -3:], "first bond": x[..., :3]}
    named = {f"{part}, {'xyz'[i]}": v[..., i] for part, v in parts.items() for i in range(3)}
    return {"end-to-end": np.linalg.norm(x[..., -3:], axis=-1)} | named


class Problem(NamedTuple):
    """What to sample, at which eps, and how many chains of what warm-up it is given."""

    q: object
    start: object
    log_density: object = None
    eps: tuple = EPS
    observables: object = coordinates
    chains: int = 256
    warmup: int = 1_000
    draws: int = 200  # of the first short run, per chain
    least: float = 0.0  # seconds, at least


def stiff_chain(beads, *eps):
    """The problem of a chain of beads: a step takes long, so there are fewer chains.

    Random walks take long to get anywhere, so all have more time.
    """
    few = {"chains": 8, "warmup": 500, "draws": 100, "least": 10.0}
    target, start = chain(beads, eps[0])
    return Problem(target.q, start, None, eps, ends, **few)


PROBLEMS = {
    "two spheres": Problem(two_spheres, START),
    "ellipsoid-sphere": Problem(ellipsoid_sphere, START),
    "torus": Problem(torus, [1.4, 0.1, 0.1]),
    "trimer": Problem(trimer, [1.0, 0.2, 0.1, -0.5, 0.8, 0.3]),
    "posterior": Problem(misfit, [0.5] * 6, normal),
    "10 beads": stiff_chain(10, 1e-2),
    "30 beads": stiff_chain(30, 0.3, 1e-2, 1e-6),
    "60 beads": stiff_chain(60, 1e-2),
}


class Cell(NamedTuple):
    """One problem at one eps, and the kernels that run on it by turns."""

    problem: str
    eps: float
    kernels: tuple


SLOW = {("30 beads", 0.3), ("30 beads", 1e-6), ("60 beads", 1e-2)}  # for two kernels only
CELLS = [
    Cell(name, eps, (REFERENCE, "Lifted") if (name, eps) in SLOW else tuple(KERNELS))
    for name, problem in PROBLEMS.items()
    for eps in problem.eps
]


def run(kernel, problem, eps, seconds):
    """Draws that took about so many seconds, or fewer if they are very many."""
    target = limpet.Target(problem.q, eps, log_density=problem.log_density)
    options = {"warmup": problem.warmup, "kernel": kernel, "seed": 0}
    options |= {"chains": problem.chains, "workers": 1, "progress": False}
    count = problem.draws
    while True:  # each run tells how many draws the next one can make
        draws = limpet.sample(target, problem.start, draws=count, **options)
        more = seconds / draws.attrs["seconds"]
        if more < 1.5 or count == MOST_DRAWS:
            return draws
        count = min(MOST_DRAWS, math.ceil(count * min(more, 30)))


def slides(draws):
    """How many a trajectory has, by chain: each tile of chains finds its own number."""
    name = "trajectory" if draws.attrs["kernel"] == "SAS" else "steps"
    given = np.full(len(draws.posterior.chain), draws.attrs["parameters"][name])
    return np.asarray(draws["moves"].get(name, given), int)


def projections(draws):
    """How many were made, by all chains."""
    made = draws["moves"]["counts"].sum("outcome")
    sliding = slides(draws) @ made.sel(move=["hard", "slide"]).sum("move").values
    return int(sliding + made.sel(move=["off", "on"]).sum())


def off_by(x, eps):
    """Standard errors between a chain's mean squared end-to-end distance and the exact one.

    Bonds are independent, with lengths r of density r^2 exp(-(r^2 - 1)^2 / 2 eps^2).
    """
    r = np.linspace(max(0, 1 - 8 * eps), 1 + 8 * eps, 20_001)
    weight = r**2 * np.exp(-(((r**2 - 1) / eps) ** 2) / 2)
    exact = x.shape[-1] / 3 * (weight @ r**2) / weight.sum()
    square = np.sum(x[..., -3:] ** 2, axis=-1)
    error = square.std() / math.sqrt(array_stats.ess(square, method="mean"))
    return float((square.mean() - exact) / error)


def measured(kernel, problem, eps, seconds):
    """What is recorded of a kernel on a problem."""
    draws = run(kernel, problem, eps, seconds)
    x, attrs = draws.posterior["x"].values, draws.attrs
    q = np.asarray(jax.jit(jax.vmap(jax.vmap(problem.q)))(x))
    values = problem.observables(x) | {"|q/eps|^2": np.sum((q / eps) ** 2, axis=-1)}
    ess = {name: float(array_stats.ess(v, method="bulk")) for name, v in values.items()}
    slowest = min(ess, key=ess.get)
    r_hat = float(array_stats.rhat(values[slowest], method="rank"))
    made = projections(draws)
    return {
        "slowest": slowest,
        "r_hat": r_hat,
        "converged": r_hat <= R_HAT,
        "ess_per_second": ess[slowest] / attrs["seconds"],
        "projections_per_ess": made / ess[slowest],
        "ess": ess,
        "means": {name: float(v.mean()) for name, v in values.items()},
        "draws": x.shape[0] * x.shape[1],
        "steps": attrs["steps"],
        "projections": made,
        "seconds": attrs["seconds"],
        "compile_seconds": attrs["compile_seconds"],
        "acceptance": attrs["acceptance"],
        "slides": np.unique(slides(draws)).tolist(),
    } | ({"end_to_end_off_by": off_by(x, eps)} if problem.observables is ends else {})


def records(cell, names, seconds):
    """Of each kernel in turn."""
    reference = None
    for name in (each for each in cell.kernels if each in names):
        record = {"problem": cell.problem, "eps": cell.eps, "kernel": name}
        try:
            problem = PROBLEMS[cell.problem]
            budget = max(seconds, problem.least)
            record |= measured(KERNELS[name], problem, cell.eps, budget)
        except Exception as error:  # one that fails is a result too
            record |= {"converged": False, "note": f"{type(error).__name__}: {error}"}
        rate = record.get("ess_per_second")
        reference = rate if name == REFERENCE else reference
        if rate and reference:
            record["ratio"] = rate / reference
        yield record


def table(found):
    """The records, for people."""
    columns = {"ratio": ".3g", "projections_per_ess": ",.3g", "r_hat": ".3f"}
    headings = ("draws/s", "x paper's", "projections", "R-hat", "slowest, or what went wrong")
    shown = Table("problem", "eps", "kernel", *headings)
    for each in found:
        rate = f"{each['ess_per_second']:,.4g}" if "ess_per_second" in each else ""
        rate = rate if each["converged"] else f"< {rate}"
        cells = (f"{each[c]:{form}}" if c in each else "" for c, form in columns.items())
        told = each.get("slowest") or each["note"]
        shown.add_row(each["problem"], f"{each['eps']:.3g}", each["kernel"], rate, *cells, told)
    return shown


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, known in (("problems", PROBLEMS), ("kernels", KERNELS)):
        parser.add_argument(f"--only-{name}", nargs="+", choices=known, default=list(known))
    parser.add_argument("--eps", nargs="+", type=float)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    found, console = [], Console()
    for cell in CELLS:
        near = not options.eps or np.isclose(cell.eps, options.eps, rtol=0.01, atol=0).any()
        if cell.problem in options.only_problems and near:
            for record in records(cell, options.only_kernels, options.seconds):
                found.append(record)
                options.json.write_text(json.dumps(found, indent=1) + "\n")
                console.print(table([record]))
    console.print(table(found))


if __name__ == "__main__":
    main()
