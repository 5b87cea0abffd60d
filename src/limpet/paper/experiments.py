"""The paper's experiments, and three that its claims call for; each gives one Dataset.

A Dataset holds what was published, what is exactly true where that is known, and what limpet
measures, with its standard error. Everything is run with the paper's own settings: see `PAPER`.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import xarray as xr

from limpet import errors
from limpet.geometry.start import find_start
from limpet.kernels import SAS, RandomWalk
from limpet.paper import exact
from limpet.paper.models import START, angle, ellipsoid_sphere, eps_of, flat_surface, two_spheres
from limpet.paper.sokal import windowed_time
from limpet.report.progress import Progress
from limpet.sampling import sample
from limpet.target import Target

# 5 Newton updates at most, to |q| < 1e-10; sizes as they are, so that there is no warm-up
PAPER = SAS(newton_cap=5, tolerance=2e-11)
CHAINS = 256
BURN_IN = 100  # draws of each chain that are left out, in place of a warm-up
BETAS = (1e2, 1e3, 1e4, 2e4)
TAU = {two_spheres: (7.4, 7.3, 7.2, 7.3), ellipsoid_sphere: (9.1, 8.8, 8.9, 8.8)}
TABLE_1 = {  # Off, On
    1e1: (0.768781, 0.763992),
    1e2: (0.919511, 0.919816),
    1e3: (0.974695, 0.974659),
    1e4: (0.992233, 0.99188),
    1e5: (0.997509, 0.997627),
}
# Gaussian Metropolis, by beta: tau as published, and steps of eps that accept 40 % (by trial)
METROPOLIS = {5: (261.0, 0.8206), 10: (601.1, 0.8070), 15: (956.7, 0.8030), 20: (1812.1, 0.8007)}
PDF = {  # the paper's density of x_1 at three bin centres, and its 1/Z in the inner bins
    two_spheres: ({0.03: 9.073e-4, 0.99: 1.541e-3, 1.11: 2.149e-3}, (282, 291)),
    ellipsoid_sphere: ({0.03: 2.999e-3, 0.99: 4.604e-3, 1.11: 5.772e-3}, (83.6, 86.0)),
}
INNER = 1.14  # bins up to here are clear of the sharp edges of the density
MOVES = ["off", "on"]  # those that the paper's Table 1 and section 3 are about
SIDES = ((2, 1), (3, 2), (24, 12))  # n and m of flat surfaces

Show = Callable[[str, Progress], None]


@dataclasses.dataclass(frozen=True)
class Effort:
    """How much to draw, from which seed, and whom to tell.

    At `size` 1 there are at least as many draws as in the paper: 10^6 for its autocorrelation
    times, 2 10^6 for its Figure 2. `show` is given what is being sampled, and its progress.
    """

    size: float = 1.0
    seed: int = 0
    show: Show = lambda what, now: None

    def __post_init__(self):
        errors.positive("size", self.size)
        errors.whole("seed", self.seed, 0)

    def draws(self, many):
        """How many draws of a chain to make, if `many` are to be used at size 1."""
        return BURN_IN + round(many * self.size)

    def seed_of(self, *run):
        """A seed for one run: runs that shared theirs would also share their luck."""
        return int(np.random.SeedSequence([self.seed, *map(int, run)]).generate_state(1)[0])


PAPERS_SIZE = Effort()


def figure_1a(effort: Effort = PAPERS_SIZE) -> xr.Dataset:
    """Figure 1 (A): the angle around the circle of the two spheres, beta = 1000.

    Examples
    --------
    >>> from limpet.paper import Effort, figure_1a
    >>> data = figure_1a(Effort(size=0.01))
    >>> dict(data.sizes)
    {'theta': 36}
    """
    x, _ = _run(effort, two_spheres, 1e3, 4_000)
    theta = angle(x)
    edges = np.linspace(-np.pi, np.pi, 37)
    counts = _count(theta, edges)
    density, error = _over_chains(counts / (x.shape[1] * np.diff(edges)))
    return xr.Dataset(
        {"density": ("theta", density), "error": ("theta", error)},
        coords={"theta": (edges[1:] + edges[:-1]) / 2},
        attrs={"beta": 1e3, "draws": theta.size, "exact": 1 / (2 * np.pi)},
    )


def figure_1b(effort: Effort = PAPERS_SIZE) -> xr.Dataset:
    """Figure 1 (B): autocorrelation of x_1 on two spheres, as eps falls."""
    return _autocorrelations(effort, two_spheres, BETAS, TAU[two_spheres])


def figure_2a(effort: Effort = PAPERS_SIZE) -> xr.Dataset:
    """Figure 2 (A): the density of x_1 in bins, two spheres."""
    return _bins(effort, two_spheres)


def figure_2b(effort: Effort = PAPERS_SIZE) -> xr.Dataset:
    """Figure 2 (B): the density of x_1 in bins, ellipsoid-sphere."""
    return _bins(effort, ellipsoid_sphere)


def figure_3a(effort: Effort = PAPERS_SIZE) -> xr.Dataset:
    """Figure 3 (A): autocorrelation of x_1 on ellipsoid-sphere, as eps falls."""
    return _autocorrelations(effort, ellipsoid_sphere, BETAS, TAU[ellipsoid_sphere])


def figure_3b(effort: Effort = PAPERS_SIZE) -> xr.Dataset:
    """Figure 3 (B): the same for Gaussian Metropolis, which must take steps as small as eps."""
    starts = np.array(find_start(Target(ellipsoid_sphere, 0.1), START, CHAINS, seed=effort.seed))
    starts[::2, 0] *= -1  # the law is symmetric in x_1, and chains are slow to find the other side
    rows, thin, lags = [], 10, 600
    for beta, (_, step) in METROPOLIS.items():
        tree = sample(
            Target(ellipsoid_sphere, eps_of(beta)),
            starts,
            kernel=RandomWalk(step_size=step * eps_of(beta)),
            draws=5 * BURN_IN + round(4_000 * max(effort.size, 0.25)),
            thin=thin,
            warmup=0,
            seed=effort.seed_of(beta),
            progress=lambda now, beta=beta: effort.show(f"Metropolis, β = {beta:,.0f}", now),
        )
        x1 = _draws(tree)[:, 5 * BURN_IN :, 0]
        rows.append((*_autocorrelation(x1, lags), tree.attrs["acceptance"]["soft"]))
    data = _by_beta(METROPOLIS, [published for published, _ in METROPOLIS.values()], rows, thin)
    data["acceptance"] = "beta", [row[-1] for row in rows]
    return data


def table_1(effort: Effort = PAPERS_SIZE) -> xr.Dataset:
    """Table 1: how often Off and On are accepted as eps falls, on ellipsoid-sphere."""
    means, spreads = [], []
    for beta in TABLE_1:
        # at the largest eps chains stay long in some places from which no On move is accepted
        _, tree = _run(effort, ellipsoid_sphere, beta, 16_000 if beta == 10 else 2_000)
        means.append([tree.attrs["acceptance"][move] for move in MOVES])
        spreads.append(_over_chains(tree["moves"]["acceptance"].sel(move=MOVES).values)[1])
    return xr.Dataset(
        {
            "acceptance": (("beta", "move"), means),
            "error": (("beta", "move"), spreads),
            "published": (("beta", "move"), list(TABLE_1.values())),
            "eps": ("beta", [eps_of(beta) for beta in TABLE_1]),
        },
        coords={"beta": list(TABLE_1), "move": MOVES},
    )


def flat_surfaces(effort: Effort = PAPERS_SIZE) -> xr.Dataset:
    """Section 3: Off and On are always accepted on flat surfaces; random linear q."""
    means = []
    for n, m in SIDES:
        target = Target(flat_surface(n, m, effort.seed), eps=0.01)
        tree = sample(
            target,
            np.ones(n),
            kernel=PAPER,
            draws=500,
            chains=8,
            warmup=0,
            seed=effort.seed,
            progress=lambda now, n=n, m=m: effort.show(f"flat, n = {n}, m = {m}", now),
        )
        means.append([tree.attrs["acceptance"][move] for move in MOVES])
    return xr.Dataset(
        {"acceptance": (("surface", "move"), means)},
        coords={"surface": [f"n = {n}, m = {m}" for n, m in SIDES], "move": MOVES},
        attrs={"exact": 1.0},
    )


def tiny_eps(effort: Effort = PAPERS_SIZE) -> xr.Dataset:
    """The claim of uniform mixing, far beyond the paper: beta = 10^6 and 10^10, both models."""
    models = (two_spheres, ellipsoid_sphere)
    parts = [
        _autocorrelations(effort, q, (1e6, 1e10), [np.nan] * 2).assign_coords(model=_name(q))
        for q in models
    ]
    return xr.concat(parts, "model", coords="different", compat="equals")


def convergence(effort: Effort = PAPERS_SIZE) -> xr.Dataset:
    """Equation (1.4) with its rate: the mean of x_1^2 tends to that under pi_s as eps^2."""
    betas = (5.0, 10.0, 20.0, 50.0, 100.0)
    means = []
    for beta in betas:
        x, _ = _run(effort, ellipsoid_sphere, beta, 3_000)
        means.append(_over_chains((x[..., 0] ** 2).mean(axis=1)))
    means, spreads = zip(*means, strict=True)
    return xr.Dataset(
        {
            "mean": ("beta", list(means)),
            "error": ("beta", list(spreads)),
            "exact": ("beta", [exact.mean_square(ellipsoid_sphere, beta) for beta in betas]),
            "eps": ("beta", [eps_of(beta) for beta in betas]),
        },
        coords={"beta": list(betas)},
        attrs={"limit": exact.mean_square_on_ellipsoid_sphere()},
    )


def _run(effort, q, beta, many):
    """Draws of a model in the paper's way (chain, draw, 3), burn-in cut off, and the whole run."""
    tree = sample(
        Target(q, eps_of(beta)),
        START,
        kernel=PAPER,
        draws=effort.draws(many),
        chains=CHAINS,
        warmup=0,
        seed=effort.seed_of(list(TAU).index(q), beta),
        progress=lambda now: effort.show(f"{_name(q)}, β = {beta:,.0f}", now),
    )
    return _draws(tree)[:, BURN_IN:], tree


def _draws(tree):
    return tree["posterior"].to_dataset()["x"].values


def _name(q):
    return {two_spheres: "two spheres", ellipsoid_sphere: "ellipsoid-sphere"}[q]


def _autocorrelations(effort, q, betas, published, lags=61):
    rows = []
    for beta in betas:
        x, _ = _run(effort, q, beta, 8_000)
        rows.append(_autocorrelation(x[..., 0], lags))
    return _by_beta(betas, published, rows).assign_coords(published_mean=np.mean(TAU[q]))


def _autocorrelation(x1, lags):
    """Correlation up to some lag, tau and its standard error (Sokal's), of x_1 (chain, draw)."""
    tau, correlation, window = windowed_time(x1)
    summed = x1.shape[1] if window is None else 2 * window + 1
    return correlation[:lags], tau, tau * np.sqrt(2 * summed / x1.size)


def _by_beta(betas, published, rows, thin=1):
    correlation, tau, error = (
        np.array(column) for column in zip(*[r[:3] for r in rows], strict=True)
    )
    return xr.Dataset(
        {
            "correlation": (("beta", "lag"), correlation),
            "tau": ("beta", thin * tau),
            "error": ("beta", thin * error),
            "published": ("beta", list(published)),
        },
        coords={"beta": list(betas), "lag": thin * np.arange(correlation.shape[1])},
    )


def _bins(effort, q):
    x, _ = _run(effort, q, 1e3, 8_000)
    edges = np.round(np.linspace(-3, 3, 101), 2)
    counts = _count(x[..., 0], edges)
    centres, width = np.round((edges[1:] + edges[:-1]) / 2, 2), 0.06
    pdf, average = exact.marginal(q, 1e3, centres), exact.bin_averages(q, 1e3, edges)
    inverse_z = exact.inverse_z(q, 1e3)
    share, error = _over_chains(counts / x.shape[1])
    seen = counts.sum(axis=0) > 0
    published, (least, most) = PDF[q]
    return xr.Dataset(
        {
            "count": ("centre", counts.sum(axis=0)),
            "pdf": ("centre", pdf),
            "inverse_z": ("centre", _ratio(share, pdf * width, seen)),
            "mean_pdf": ("centre", average),
            "mean_inverse_z": ("centre", _ratio(share, average * width, seen)),
            "error": ("centre", _ratio(error, average * width, seen)),
            "expected": ("centre", average * width * inverse_z * x[..., 0].size),
            "published_pdf": ("centre", [published.get(abs(c), np.nan) for c in centres]),
        },
        coords={"centre": centres, "bin": ("centre", np.arange(100))},
        attrs={
            "beta": 1e3,
            "draws": x[..., 0].size,
            "exact": inverse_z,
            "published": [least, most],
        },
    )


def _ratio(a, b, where):
    return np.divide(a, b, out=np.full(a.shape, np.nan), where=where & (b > 0))


def _count(values, edges):
    """How many values (chain, draw) of each chain are in each bin."""
    return np.stack([np.histogram(chain, edges)[0] for chain in values])


def _over_chains(values):
    """Mean and standard error of what independent chains found: (chain, ...)."""
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))
