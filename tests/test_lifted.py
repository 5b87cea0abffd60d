"""What the lifted surface is for: surfaces that cross themselves, and long ways.

Checks "within 4 standard errors" have a false-alarm rate of 6e-5 each; there are 11.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats

import limpet
from limpet.kernels import Outcome
from limpet.paper import START, ellipsoid_sphere, eps_of


def crossing(x):
    """Two planes; the gradient vanishes where they meet."""
    return jnp.array([x[0] * x[1]])


def normal(x):
    return -(x @ x) / 2


CROSSING = limpet.Target(crossing, eps=0.1, log_density=normal)


def standard_errors(values, exact):
    """By how many of them the mean of values (chain, draw) is off."""
    error = values.std() / np.sqrt(array_stats.ess(values, method="mean"))
    return (values.mean() - exact) / error


def test_a_surface_that_crosses_itself():
    draws = limpet.sample(CROSSING, [1.0, 0.1, 0.0], draws=1_000, chains=128, seed=1)
    grid = (np.arange(2_400) + 0.5) / 200 - 6
    x, y = np.meshgrid(grid, grid)
    weight = np.exp(-((x * y / 0.1) ** 2) / 2 - (x**2 + y**2) / 2)
    weight /= weight.sum()
    found = np.moveaxis(draws.posterior["x"].values, -1, 0)
    for observable in (
        lambda x, y: np.abs(x),
        lambda x, y: x**2,
        lambda x, y: np.abs(y),
        lambda x, y: np.hypot(x, y) < 0.3,
        lambda x, y: (x * y) ** 2,
    ):
        values = observable(found[0], found[1]).astype(float)
        assert abs(standard_errors(values, np.sum(weight * observable(x, y)))) < 4
    assert abs(standard_errors(found[2] ** 2, 1.0)) < 4


@pytest.mark.filterwarnings("ignore::limpet.MixingWarning")
def test_of_which_sas_warns():
    with pytest.warns(limpet.LimpetWarning, match="surface is singular.*limpet.Lifted"):
        limpet.sample(CROSSING, [1.0, 0.1, 0.0], draws=100, chains=16, kernel=limpet.SAS(), seed=0)


def bonds(x):
    beads = jnp.concatenate([jnp.zeros((1, 3)), x.reshape(-1, 3)])
    return jnp.sum((beads[1:] - beads[:-1]) ** 2, axis=1) - 1


def test_a_stiff_chain():
    start = np.cumsum([[0.8, 0.6 * (-1) ** k, 0.0] for k in range(6)], axis=0).ravel()
    target = limpet.Target(bonds, eps=0.1)
    draws = limpet.sample(target, start, draws=300, chains=64, seed=2)
    square = np.sum(draws.posterior["x"].values[..., -3:] ** 2, axis=-1)
    assert abs(standard_errors(square, 6 * 1.0050255)) < 4


@pytest.mark.parametrize("beta", [1e2, 1e6])
def test_few_projections_for_an_effective_draw(beta):
    target = limpet.Target(ellipsoid_sphere, eps_of(beta))
    draws = limpet.sample(target, START, draws=1_000, chains=256, seed=3)
    x1 = draws.posterior["x"].values[..., 0]
    slides = draws.attrs["steps"] * draws.attrs["parameters"]["steps"]
    assert slides / array_stats.ess(x1, method="bulk") <= 10
    assert abs(standard_errors(x1, 0.0)) < 4


def test_trajectories_fail_as_one():
    """Past a wall, or where the density is not a number, nothing of them is kept."""

    def undefined_behind(x):
        return jnp.where(x[0] > 0.5, jnp.nan, 0.0)

    circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), 0.05, log_density=undefined_behind)
    walled = limpet.Target(circle.q, 0.05, inside=lambda x: 0.5 - x[:1])
    for target, outcome in ((circle, Outcome.NOT_FINITE), (walled, Outcome.WALL)):
        for kernel in (
            limpet.Lifted(step_size=0.3, steps=6),
            limpet.SAS(sigma_hrd=0.3, trajectory=6),
        ):
            draws = limpet.sample(
                target, [-1.0, 0.0], draws=400, chains=64, warmup=0, kernel=kernel, seed=4
            )
            assert draws.posterior["x"].values[..., 0].max() <= 0.5
            assert draws.attrs["counts"]["hard"][outcome.name.lower()] > 1_000
            assert draws.attrs["counts"]["hard"]["accepted"] > 1_000
