"""What else a user of limpet could run on the paper's two models, and how well it does there.

    python -m bench.alternatives --json out.json
    python -m bench.alternatives --only numpyro,emcee --models ellipsoid_sphere --betas 1e2,2e4

Each sampler is set up as its users would, with every fair advantage: starts on the surface, its own
adaptation, derivatives in the form that is fastest for it. Compiling and warm-up are left out of
`ess_per_second`, and are in `total_seconds`. All is in float64, on one core; limpet runs right
after each sampler, so a noisy machine is noisy for both. `core_share` is how much of that core a
run had: well below one, something else was running. Effective draws are of x_1.

An answer is right if R-hat (rank-normalised, split) is at most 1.05, and the shares of 20 bins and
the mean of |q / eps|^2 agree with the exact ones: the farthest may be off by as much as happens
once in 1,000 runs without fault. The bins are of the angle around the circle for the two spheres,
which is uniform at every eps, and of x_1 for the ellipsoid-sphere.
"""

# before numpy and others count the cores and start as many threads
from bench.timing import pin

pin()

import argparse
import functools
import importlib.metadata
import json
import logging
import math
import time
from pathlib import Path
from typing import NamedTuple

import blackjax
import emcee
import jax
import jax.numpy as jnp
import mici
import numpy as np
import nutpie
import pymc
import scipy.optimize
import scipy.stats
from arviz_stats.base import array_stats
from numpyro.infer import MCMC, NUTS
from rich.console import Console
from rich.table import Table

import limpet
from limpet.paper import START, angle, ellipsoid_sphere, eps_of, two_spheres

FALSE_ALARM = 1e-3
R_HAT = 1.05
CHAINS, WARMUP = 4, 1_000  # of the samplers that take gradients
MOST_DRAWS = 10_000  # per chain kept of a limpet kernel: more are thinned, to spare memory
LIMPET_SECONDS = 3  # give 10^5 effective draws or more: enough for a rate


class Quadrics(NamedTuple):
    """q_i = sum_k weight_ik (x_k - centre_ik)^2 - level_i, for samplers that do not take JAX."""

    weight: np.ndarray
    centre: np.ndarray
    level: np.ndarray


SPHERE = ([1, 1, 1], [0, 0, 1], 2)
MODELS = {
    two_spheres: Quadrics(*map(np.array, zip(SPHERE, ([1, 1, 1], [0, -1, 0], 2), strict=True))),
    ellipsoid_sphere: Quadrics(
        *map(np.array, zip(SPHERE, ([1 / 2, 1 / 3, 1 / 5], [0, -1, 0], 1), strict=True))
    ),
}


class Problem(NamedTuple):
    """One model at one beta."""

    q: object
    beta: float
    seed: int

    @property
    def target(self):
        """As limpet takes it."""
        return _target(self.q, self.beta)

    def log_density(self, x):
        """As JAX samplers take it."""
        return -self.beta * jnp.sum(self.q(x) ** 2)

    def starts(self, count):
        """Points on the surface."""
        return np.array(limpet.find_start(self.target, START, count=count, seed=self.seed))

    @property
    def key(self):
        """For JAX's random numbers."""
        return jax.random.key(self.seed)


@functools.cache  # limpet compiles once for each
def _target(q, beta):
    return limpet.Target(q, eps=eps_of(beta))


class Run(NamedTuple):
    """Draws (chain, draw, 3), the seconds they took, and those of it all."""

    x: np.ndarray
    seconds: float
    total: float
    independent: bool = False  # chains are whole runs, and the order of the draws means nothing


def in_blocks(block, seconds, begin):
    """A Run of `block(count)`, which goes on where it stopped, until `seconds` have passed.

    The first call of each length is not timed, for it may compile; the very first one, with all
    that was done since `begin`, is the price of getting ready.
    """
    count, ready = 10, None
    while True:
        block(count)
        now = time.perf_counter()
        ready = ready or now - begin
        block(count)
        spent = time.perf_counter() - now
        if spent > seconds / 8:
            break
        count *= math.ceil(min(100, seconds / 4 / spent))
    draws, begin = [], time.perf_counter()
    while time.perf_counter() - begin < seconds:
        draws.append(block(count))
    spent = time.perf_counter() - begin
    return Run(np.concatenate(draws, axis=1), spent, ready + spent)


def of_numpyro(problem, seconds):
    """NUTS of numpyro with its defaults; its vectorised chains are the faster ones on one core.

    After warm-up, the same kernel in a scan: each call of `MCMC.run` would compile anew.
    """
    begin = time.perf_counter()
    kernel = NUTS(potential_fn=lambda x: -problem.log_density(x))
    options = {"num_chains": CHAINS, "chain_method": "vectorized", "progress_bar": False}
    warm = MCMC(kernel, num_warmup=WARMUP, num_samples=1, **options)
    warm.run(problem.key, init_params=jnp.array(problem.starts(CHAINS)))
    state = warm.last_state

    @functools.partial(jax.jit, static_argnums=1)
    def chains(state, count):
        def step(state, _):
            state = kernel.sample(state, (), {})
            return state, state.z

        return jax.lax.scan(step, state, length=count)

    def block(count):
        nonlocal state
        state, x = chains(state, count)
        return np.asarray(x).swapaxes(0, 1)

    return in_blocks(block, seconds, begin)


def of_nutpie(problem, seconds):
    """NUTS of nutpie on a PyMC model compiled by numba: the way its users go.

    A run cannot be continued, so warm-up is left out by its share of the leapfrog steps.
    """
    begin = time.perf_counter()
    weight, centre, level = MODELS[problem.q]
    with pymc.Model() as model:
        x = pymc.Flat("x", shape=3, initval=problem.starts(1)[0])
        q = (weight * (x - centre) ** 2).sum(axis=1) - level
        pymc.Potential("soft", -problem.beta * (q**2).sum())
    compiled = nutpie.compile_pymc_model(model, backend="numba")

    def run(draws):
        begin = time.perf_counter()
        options = {"chains": CHAINS, "cores": 1, "seed": problem.seed, "progress_bar": False}
        result = nutpie.sample(compiled, draws=draws, tune=WARMUP, **options)
        spent = time.perf_counter() - begin
        steps = int(result.sample_stats.n_steps.sum())
        share = steps / (steps + int(result.warmup_sample_stats.n_steps.sum()))
        return Run(result.posterior.x.values, spent * share, ready + spent)

    ready = time.perf_counter() - begin
    draws = 100
    for part in (0.1, 1):  # the first runs tell how many draws the next one can make
        draws = max(100, math.ceil(draws * part * seconds / run(draws).seconds))
    return run(draws)


def of_blackjax(problem, seconds):
    """NUTS of blackjax after window adaptation of each chain."""
    begin = time.perf_counter()
    adaptation = blackjax.window_adaptation(blackjax.nuts, problem.log_density)
    key, warm = jax.random.split(problem.key)

    @jax.jit
    @jax.vmap
    def adapt(key, x):
        (state, parameters), _ = adaptation.run(key, x, WARMUP)
        return state, parameters

    @functools.partial(jax.jit, static_argnums=3)
    @functools.partial(jax.vmap, in_axes=(0, 0, 0, None))
    def chain(key, state, parameters, count):
        def step(state, key):
            state, _ = blackjax.nuts(problem.log_density, **parameters).step(key, state)
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(key, count))

    def block(count):
        nonlocal key, state
        key, now = jax.random.split(key)
        state, x = chain(jax.random.split(now, CHAINS), state, parameters, count)
        return np.asarray(x)

    state, parameters = adapt(jax.random.split(warm, CHAINS), jnp.array(problem.starts(CHAINS)))
    return in_blocks(block, seconds, begin)


PARTICLES, MOVES, LEAPS, SIZE, TARGET_ESS, BOX = 8_000, 5, 4, 0.4, 0.5, 3.0


def of_smc(problem, seconds):
    """Adaptive tempered SMC of blackjax, from a uniform box to pi_eps, moving by HMC.

    pi_eps at temperature 1/t is pi of eps / sqrt(t), so steps in proportion to that suit every
    temperature. Numbers by trial at beta = 10^6; random walks in place of HMC did half as well.

    There is no warm-up to leave out: whole runs are timed, and repeated with other seeds. Particles
    share ancestors, so they are not independent, and the weights do not tell by how much (they know
    nothing of earlier resampling). Whole runs are independent: see `effective`.
    """
    begin = time.perf_counter()
    hmc = blackjax.hmc.build_kernel()

    def tuned(temper):
        return {"size": jnp.minimum(1.0, SIZE / jnp.sqrt(2 * problem.beta * temper))[None]}

    sampler = blackjax.inner_kernel_tuning(
        smc_algorithm=blackjax.adaptive_tempered_smc,
        logprior_fn=lambda x: jnp.where(jnp.abs(x).max() < BOX, 0.0, -jnp.inf),
        loglikelihood_fn=problem.log_density,
        mcmc_step_fn=lambda key, state, log_density, size: hmc(
            key, state, log_density, size, jnp.ones(3), LEAPS
        ),
        mcmc_init_fn=blackjax.hmc.init,
        resampling_fn=blackjax.smc.resampling.systematic,
        mcmc_parameter_update_fn=lambda key, state, info: tuned(state.tempering_param),
        initial_parameter_value=tuned(0.0),
        target_ess=TARGET_ESS,
        num_mcmc_steps=MOVES,
    )

    @jax.jit
    def run(key):
        first, last, key = jax.random.split(key, 3)
        box = jax.random.uniform(first, (PARTICLES, 3), minval=-BOX, maxval=BOX)

        def step(carry):
            key, now = jax.random.split(carry[0])
            return key, sampler.step(now, carry[1])[0]

        carry = key, sampler.init(box)
        _, state = jax.lax.while_loop(lambda c: c[1].sampler_state.tempering_param < 1, step, carry)
        # the last weights are not yet used: resample by them, and move once more
        return sampler.step(last, state)[0].sampler_state.particles

    keys = iter(jax.random.split(problem.key, 100_000))
    run(next(keys)).block_until_ready()
    x, start = [], time.perf_counter()
    while time.perf_counter() - start < seconds or len(x) < 16:
        x.append(np.asarray(run(next(keys))))
    now = time.perf_counter()
    return Run(np.stack(x), now - start, now - begin, independent=True)


def of_emcee(problem, seconds):
    """Stretch moves of emcee on 32 walkers, the density vectorised in numpy.

    Walkers count as chains, as if they were independent, which flatters it.
    """
    begin = time.perf_counter()
    weight, centre, level = MODELS[problem.q]

    def log_density(x):
        q = (weight * (x[:, None] - centre) ** 2).sum(axis=2) - level
        return -problem.beta * (q**2).sum(axis=1)

    sampler = emcee.EnsembleSampler(32, 3, log_density, vectorize=True)
    np.random.seed(problem.seed)  # noqa: NPY002 - emcee has no other way
    state = sampler.run_mcmc(problem.starts(32), WARMUP, skip_initial_state_check=True)

    def block(count):
        nonlocal state
        sampler.reset()
        state = sampler.run_mcmc(state, count, skip_initial_state_check=True)
        return sampler.get_chain().swapaxes(0, 1)

    return in_blocks(block, seconds, begin)


def of_mici(problem, seconds):
    """Constrained HMC of mici on {(x, eta): q(x) = eps eta} (Au, Graham and Thiery).

    Conditioned on the constraint, a prior exp(-|eta|^2 / 2) has the marginal pi_eps for x: mici
    knows the Gram determinant. Derivatives are written by hand in numpy. Newton projections and
    five steps a draw did best; quasi-Newton ones, three steps, and trees did worse.
    """
    begin = time.perf_counter()
    weight, centre, level = MODELS[problem.q]
    eps = eps_of(problem.beta)
    of_eta, hessian = -eps * np.eye(2), np.hstack([2 * weight, np.zeros((2, 2))])
    system = mici.systems.DenseConstrainedEuclideanMetricSystem(
        neg_log_dens=lambda z: 0.5 * (z[3:] @ z[3:]),
        grad_neg_log_dens=lambda z: np.concatenate([np.zeros(3), z[3:]]),
        constr=lambda z: (weight * (z[:3] - centre) ** 2).sum(axis=1) - level - eps * z[3:],
        jacob_constr=lambda z: np.hstack([2 * weight * (z[:3] - centre), of_eta]),
        mhp_constr=lambda z: lambda matrix: (matrix * hessian).sum(axis=0),
        dens_wrt_hausdorff=False,
    )
    solver = mici.solvers.solve_projection_onto_manifold_newton
    integrator = mici.integrators.ConstrainedLeapfrogIntegrator(system, projection_solver=solver)
    rng = np.random.default_rng(problem.seed)
    sampler = mici.samplers.StaticMetropolisHMC(system, integrator, rng, n_step=5)
    states = [np.concatenate([x, np.zeros(2)]) for x in problem.starts(CHAINS)]

    def block(count, warmup=0):
        nonlocal states
        options = {"trace_funcs": [lambda state: {"x": state.pos[:3]}], "display_progress": False}
        adapters = [mici.adapters.DualAveragingStepSizeAdapter()] if warmup else None
        result = sampler.sample_chains(warmup, count, states, adapters=adapters, **options)
        states = result.final_states
        return np.stack(result.traces["x"])

    block(1, warmup=200)
    return in_blocks(block, seconds, begin)


def of_kernel(kernel, problem, seconds):
    """A kernel of limpet, or its own choice; 256 chains, tuned in its warm-up."""
    target, starts = problem.target, problem.starts(256)
    options = {"kernel": kernel, "workers": 1, "progress": False, "seed": problem.seed}

    def run(visits):
        thin = math.ceil(visits / MOST_DRAWS)
        return limpet.sample(target, starts, draws=visits // thin, thin=thin, **options)

    visits, compiling = 200, 0.0
    for part in (0.2, 1):  # the first runs tell how many draws the next one can make
        draws = run(visits)
        compiling += draws.attrs["compile_seconds"]
        visits = max(200, round(visits * part * seconds / draws.attrs["seconds"]))
    begin = time.perf_counter()
    draws = run(visits)
    total = compiling + time.perf_counter() - begin
    return Run(draws.posterior["x"].values, draws.attrs["seconds"], total)


SAMPLERS = {
    "limpet": ("limpet", functools.partial(of_kernel, None)),
    "sas": ("limpet", functools.partial(of_kernel, limpet.SAS())),
    "numpyro": ("numpyro", of_numpyro),
    "nutpie": ("nutpie", of_nutpie),
    "blackjax": ("blackjax", of_blackjax),
    "smc": ("blackjax", of_smc),
    "emcee": ("emcee", of_emcee),
    "metropolis": ("limpet", functools.partial(of_kernel, limpet.RandomWalk())),
    "mici": ("mici", of_mici),
}


class Truth(NamedTuple):
    """Numbers whose means are known: of points (..., 3), shape (..., k); means; variances."""

    of: object
    means: np.ndarray
    variances: np.ndarray


@functools.cache
def truth(q, beta):
    """Shares of 20 bins of a marginal, and |q / eps|^2, which tells a wrong thickness."""
    if q is two_spheres:  # exact by symmetry: the angle is uniform, and q / eps is N(0, 1) twice
        place, edges = angle, np.linspace(-np.pi, np.pi, 21)
        shares, energy, fourth = np.full(20, 1 / 20), 2.0, 8.0
    else:
        place = functools.partial(np.take, indices=0, axis=-1)  # x_1
        half = [*np.linspace(0, 1.08, 10), np.inf]
        edges = np.array([*(-e for e in half[:0:-1]), *half])
        shares, energy, fourth = _ellipsoid_sphere(eps_of(beta), half)
        shares = np.concatenate([shares[::-1], shares]) / 2

    def of(x):
        bins = np.searchsorted(edges[1:-1], place(x))
        values = np.asarray(q(np.moveaxis(x, -1, 0))) / eps_of(beta)
        return [*(bins == each for each in range(20)), (values**2).sum(axis=0)]

    variances = np.array([*shares * (1 - shares), fourth - energy**2])
    return Truth(of, np.array([*shares, energy]), variances)


def _ellipsoid_sphere(eps, edges):
    """Shares of bins of |x_1|, and the first two moments of |q / eps|^2, at any eps.

    limpet.paper's own quadrature needs a grid of cells as small as eps, too many at 10^-3. Here the
    integral is over the values of q, and then along the curve that has those values: an ellipse in
    x_2 and x_3, followed by t, on which x_1^2 is positive between two ends, with dt / |x_1|.
    """
    nodes, phase = np.arange(-5, 5.1, 0.25), (np.arange(10_000) + 0.5) * np.pi / 10_000
    shares, moments = 0, np.zeros(3)
    for u in nodes:
        for v in nodes:
            size = math.sqrt(1 + 3 / 8 * eps * (u - 2 * v))
            rest = functools.partial(_square_of_x1, size=size, level=2 + eps * u)
            first, last = (scipy.optimize.brentq(rest, *ends) for ends in ((2, 3.5), (3.5, 5)))
            square = rest((first + last) / 2 - (last - first) / 2 * np.cos(phase))
            mass = np.exp(-(u**2 + v**2) / 2) * (last - first) * np.sin(phase) / np.sqrt(square)
            shares = shares + np.histogram(np.sqrt(square), edges, weights=mass)[0]
            moments += mass.sum() * (u**2 + v**2) ** np.arange(3)
    return shares / moments[0], *(moments[1:] / moments[0])


def _square_of_x1(t, size, level):
    x2, x3 = 2 + size * math.sqrt(8) * np.cos(t), 5 / 3 + size * math.sqrt(40 / 9) * np.sin(t)
    return level - x2**2 - (x3 - 1) ** 2


def effective(values, mean, variance, independent, method="mean"):
    """Effective draws in values (chain, draw), of which mean and variance are known.

    Of whole runs: the number of exact draws whose average would vary as much as theirs do.
    """
    if independent:
        return len(values) * variance / np.mean((values.mean(axis=1) - mean) ** 2)
    return float(array_stats.ess(values, method=method))


def effective_x1(run):
    """Effective draws of x_1, whose mean is zero by symmetry."""
    x1 = run.x[..., 0]
    return effective(x1, 0.0, x1.var(), run.independent, "bulk")


def judge(problem, run):
    """What is recorded of a run."""
    exact, ess = truth(problem.q, problem.beta), effective_x1(run)
    worst = 0.0
    for values, mean, variance in zip(exact.of(run.x), exact.means, exact.variances, strict=True):
        averages = values.mean(axis=1)
        if run.independent:  # their spread is known from a few runs only: Student's t, as normal
            student = (averages.mean() - mean) / scipy.stats.sem(averages)
            z = scipy.stats.norm.isf(scipy.stats.t.sf(abs(student), len(averages) - 1))
        else:
            own = effective(values.astype(float), mean, variance, False)
            # a bin that is never visited, or never left, tells nothing of its own
            own = own if np.ptp(averages) or 0 < averages[0] < 1 else ess
            z = abs(averages.mean() - mean) / math.sqrt(variance / own)
        worst = max(worst, z) if np.isfinite(z) else math.inf
    r_hat = float(array_stats.rhat(run.x[..., 0], method="rank"))
    allowed = scipy.stats.norm.isf(FALSE_ALARM / 2 / len(exact.means))
    reasons = []
    if not r_hat <= R_HAT:
        reasons.append(f"R-hat above {R_HAT}")
    if not worst <= allowed:
        reasons.append(f"off by more than {allowed:.2f} standard errors")
    return {
        "ess_per_second": ess / run.seconds,
        "ess": ess,
        "r_hat": r_hat,
        "right": not reasons,
        "worst_z": worst,
        "sampling_seconds": run.seconds,
        "total_seconds": run.total,
        "draws": run.x.shape[0] * run.x.shape[1],
        "note": "; ".join(reasons),
    }


def watched(name, problem, seconds):
    """A run of a sampler, and the share of the core that it had."""
    wall, core = time.perf_counter(), time.process_time()
    run = SAMPLERS[name][1](problem, seconds)
    return run, (time.process_time() - core) / (time.perf_counter() - wall)


def record(name, problem, seconds):
    """One sampler on one problem, and limpet in the same minute."""
    result = {
        "sampler": name,
        "model": problem.q.__name__,
        "beta": problem.beta,
        "version": importlib.metadata.version(SAMPLERS[name][0]),
    }
    try:
        run, result["core_share"] = watched(name, problem, seconds)
        result |= judge(problem, run)
    except Exception as error:  # one that fails is a result too
        result |= {"right": False, "note": f"{type(error).__name__}: {error}"}
    limpets, result["limpet_core_share"] = watched("limpet", problem, min(seconds, LIMPET_SECONDS))
    result["limpet_ess_per_second"] = effective_x1(limpets) / limpets.seconds
    if rate := result.get("ess_per_second"):
        result["ratio"] = result["limpet_ess_per_second"] / rate
    return result


def table(records):
    """The records, for people."""
    columns = {"ess_per_second": ",.4g", "ratio": ",.4g", "r_hat": ".3f", "core_share": ".2f"}
    shown = Table("model", "beta", "sampler", "draws/s", "limpet's/its", "R-hat", "core", "right")
    for each in records:
        cells = (f"{each[c]:{form}}" if c in each else "" for c, form in columns.items())
        right = "yes" if each["right"] else f"NO: {each['note']}"
        shown.add_row(each["model"], f"{each['beta']:g}", each["sampler"], *cells, right)
    return shown


def main():
    """The command line."""
    models = {q.__name__: q for q in MODELS}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    several = {"type": lambda text: text.split(",")}
    parser.add_argument("--only", default=list(SAMPLERS), **several)
    parser.add_argument("--models", default=list(models), **several)
    parser.add_argument("--betas", default=["1e2", "1e3", "2e4", "1e5", "1e6"], **several)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    records, console = [], Console()
    for model in options.models:
        for beta in map(float, options.betas):
            for name in options.only:
                problem = Problem(models[model], beta, options.seed)
                records.append(record(name, problem, options.seconds))
                options.json.write_text(json.dumps(records, indent=1) + "\n")
                console.print(table(records[-1:]))
    console.print(table(records))


if __name__ == "__main__":
    main()
