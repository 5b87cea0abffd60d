"""The paper's models, its Table 1, and exact values that surfaces are known to have.

Chains are independent, so standard errors come from the spread of the chains' means. A check at
4 standard errors has a false-alarm rate of 6e-5; there are 12 of them. The other checks here are
set at 5.5, or are wider than 6.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import limpet
from limpet.paper import angle, ellipsoid_sphere, two_spheres
from limpet.paper.experiments import PAPER

pytestmark = pytest.mark.optimized

TABLE_1 = {1e1: 0.7664, 1e2: 0.9200, 1e3: 0.9744, 1e4: 0.9919, 1e5: 0.9974}
HAUSDORFF_COS2 = 0.3210211


def off_by(f, truth):
    """How many standard errors the mean of f (chain, draw) is from the truth."""
    means = f.mean(axis=1)
    return abs(means.mean() - truth) / (means.std(ddof=1) / np.sqrt(len(means)))


@pytest.mark.parametrize("beta", TABLE_1)
def test_table_1(beta):
    target = limpet.Target(ellipsoid_sphere, np.sqrt(1 / (2 * beta)))
    options = {"draws": 3_000, "chains": 256, "kernel": limpet.SAS(), "seed": 1}
    draws = limpet.sample(target, [1.0, 0.3, 0.1], **options)
    for move in ("off", "on"):
        assert draws.attrs["acceptance"][move] == pytest.approx(TABLE_1[beta], abs=0.003)


def run_two_spheres(eps, **options):
    target = limpet.Target(two_spheres, eps)
    given = {"draws": 2_000, "chains": 256, "kernel": limpet.SAS(), "seed": 2}
    return limpet.sample(target, [1.0, 0.0, 0.0], **given | options)


@pytest.fixture(scope="module")
def two_spheres_runs():
    return {eps: run_two_spheres(eps) for eps in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)}


def test_two_spheres_at_every_eps(two_spheres_runs):
    for eps, draws in two_spheres_runs.items():
        x = draws.posterior["x"].values
        assert off_by(x[..., 0] ** 2, 3 / 4 - eps**2 / 8) < 4, eps
        steps, kept = draws.attrs["steps"], x[..., 0].size
        assert kept / steps == pytest.approx(0.2, abs=0.005), eps
        theta = angle(x)
        for k in range(1, 5):
            assert off_by(np.cos(k * theta), 0) < 5.5, (eps, k)
            assert off_by(np.sin(k * theta), 0) < 5.5, (eps, k)


def test_mixing_does_not_depend_on_eps(two_spheres_runs):
    tau = {
        eps: limpet.autocorrelation_time(two_spheres_runs[eps].posterior["x"].values[..., 0])
        for eps in (1e-2, 1e-6)
    }
    assert tau[1e-6] == pytest.approx(tau[1e-2], rel=0.1)


def trimer(x):
    """Three beads, two bonds: r^2 - 1 of each."""
    bonds = jnp.diff(x["bead"], axis=0)
    return jnp.sum(bonds**2, axis=1) - 1


def held(x):
    """Holds the middle of the trimer near the origin; its shape does not notice."""
    return -jnp.sum(jnp.mean(x["bead"], axis=0) ** 2) / 2


@pytest.mark.parametrize(
    ("kernel", "eps", "truth"),
    [
        (limpet.SAS(sigma_hrd=0.6), 0.1, 1 / 3),
        (limpet.SAS(sigma_hrd=0.6), 0.01, 1 / 3),
        (limpet.SAS(sigma_hrd=0.6), 0.001, 1 / 3),
        (limpet.SurfaceSampler(measure="soft", step_size=0.6), 0.01, 1 / 3),
        (limpet.SurfaceSampler(measure="hausdorff", step_size=0.6), 0.01, HAUSDORFF_COS2),
    ],
)
def test_stiff_trimer(kernel, eps, truth):
    target = limpet.Target(trimer, eps, log_density=held)
    start = {"bead": np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])}
    thin = 4 if isinstance(kernel, limpet.SurfaceSampler) else 1
    draws = limpet.sample(
        target, start, kernel=kernel, draws=3_000, thin=thin, chains=256, warmup=2_000, seed=3
    )
    bonds = np.diff(draws.posterior["bead"].values, axis=2)
    bonds /= np.linalg.norm(bonds, axis=-1, keepdims=True)
    cos2 = np.sum(bonds[:, :, 0] * bonds[:, :, 1], axis=-1) ** 2
    assert off_by(cos2, truth) < 4
    assert cos2.mean() == pytest.approx(truth, abs=0.003)  # so that the two truths differ


def test_the_papers_newton_cap_gives_the_papers_hard_acceptance():
    target = limpet.Target(ellipsoid_sphere, np.sqrt(1 / 2e3))
    draws = limpet.sample(
        target, [1.0, 0.3, 0.1], kernel=PAPER, draws=2_000, chains=256, seed=4, warmup=0
    )
    assert draws.attrs["acceptance"]["hard"] == pytest.approx(0.746, abs=0.003)
    assert draws.attrs["acceptance"]["soft"] == pytest.approx(0.443, abs=0.005)
