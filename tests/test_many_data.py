"""More data than unknowns: y = A x + sigma xi with a Gaussian prior, where all is known.

Every check asks that a mean is within 4.5 standard errors of the truth: false alarms 7e-6 each, and
there are some 700 of them, so that one choice of seeds in 200 raises one.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats

import limpet

MOST_ERRORS = 4.5
SIZES = [(1, 1), (3, 2), (5, 5), (4, 40), (50, 10)]
SIGMAS = [1.0, 1e-3, 1e-6]


def check_standard(z):
    """Draws (chain, draw, n) of a standard normal: means, variances and some covariances."""
    n = z.shape[-1]
    turned = np.roll(z, 1, axis=-1) if n > 1 else z
    for values, truth in ((z, 0.0), (z**2, 1.0), (z * turned, 0.0 if n > 1 else 1.0)):
        for i in range(n):
            each = values[..., i]
            error = each.std() / np.sqrt(array_stats.ess(each, method="mean"))
            assert abs(each.mean() - truth) <= MOST_ERRORS * error


def linear(n, m, sigma, seed):
    """A target, and the map that makes its draws standard normal."""
    rng = np.random.default_rng([n, m, seed])
    A, mean, scale = rng.normal(size=(m, n)), rng.normal(size=n), rng.uniform(0.5, 2, size=n)
    y = A @ (mean + scale * rng.normal(size=n)) + sigma * rng.normal(size=m)

    def log_density(x):
        return -jnp.sum(((x - mean) / scale) ** 2) / 2

    target = limpet.Target(lambda x: A @ x - y, sigma, log_density=log_density)
    # by least squares, for the precision itself may be too stiff for a factor
    Q, R = np.linalg.qr(np.concatenate([A / sigma, np.diag(1 / scale)]))
    centre = np.linalg.solve(R, Q.T @ np.concatenate([y / sigma, mean / scale]))
    return target, lambda x: (x - centre) @ R.T


def cost(n, sigma):
    """Many unknowns take fifteen seconds each: two of three noises are in `make test-slow`."""
    return [pytest.mark.slow] * (n > 10 and sigma != min(SIGMAS))


@pytest.mark.parametrize(
    ("n", "m", "sigma"),
    [pytest.param(n, m, s, marks=cost(n, s)) for n, m in SIZES for s in SIGMAS],
)
def test_linear_data(n, m, sigma):
    target, standardise = linear(n, m, sigma, 0)
    draws = limpet.sample(target, np.ones(n), draws=300, chains=64, warmup=500, seed=1)
    check_standard(standardise(draws.posterior["x"].values))


@pytest.mark.slow
@pytest.mark.parametrize("sigma", SIGMAS)
def test_a_thousand_data(sigma):
    target, standardise = linear(10, 1_000, sigma, 0)
    draws = limpet.sample(target, np.ones(10), draws=200, chains=32, warmup=300, seed=1)
    check_standard(standardise(draws.posterior["x"].values))


def test_data_that_no_x_fits():
    target = limpet.Target(lambda x: jnp.repeat(x, 10) - jnp.arange(20.0), 0.1)
    with pytest.warns(limpet.LimpetWarning, match=r"No x fits .*\|q/eps\|\^2 is 1\.65e\+04.*18 is"):
        draws = limpet.sample(target, [1.0, 1.0], draws=100, chains=16, seed=1)
    found = draws.posterior["x"].values.mean(axis=(0, 1))
    assert np.abs(found - [4.5, 14.5]).max() < 0.02


def test_random_walk_takes_any_number_of_data():
    target, standardise = linear(2, 5, 1.0, 1)
    kernel = limpet.RandomWalk(0.5)
    draws = limpet.sample(target, [1.0, 1.0], draws=3_000, chains=64, kernel=kernel, seed=2)
    check_standard(standardise(draws.posterior["x"].values))


def calibrated(x, data):
    return data["A"] @ x["b"] - data["y"]


def noise(x, data):
    return jnp.exp(x["t"])


def prior(x, data):
    """Of b given s a normal of precision 1 / (2 s^2), of s^2 an inverse gamma; t = log s."""
    precision, n = jnp.exp(-2 * x["t"]), len(x["b"])
    return -jnp.sum(x["b"] ** 2) * precision / 4 - (n + 4) * x["t"] - precision


@pytest.mark.parametrize(("n", "m"), [(2, 3), (4, 2), pytest.param(3, 40, marks=pytest.mark.slow)])
def test_unknown_noise(n, m):
    """Normal-inverse-gamma: means, and variances in units of the noise."""
    rng = np.random.default_rng(n)
    A = rng.normal(size=(m, n))
    y = A @ rng.normal(size=n) + 0.3 * rng.normal(size=m)
    target = limpet.Target(calibrated, noise, log_density=prior, data={"A": A, "y": y})
    start = {"b": np.zeros(n), "t": 0.0}
    draws = limpet.sample(target, start, draws=500, chains=64, warmup=500, seed=3)
    precision = A.T @ A + np.eye(n) / 2
    mean = np.linalg.solve(precision, A.T @ y)
    scale = 1 + (y @ y - mean @ precision @ mean) / 2
    found = np.exp(-2 * draws.posterior["t"].values)
    b = np.moveaxis(draws.posterior["b"].values, -1, 0)
    pairs = [(found, (2 + m / 2) / scale), *zip(b, mean, strict=True)]
    spread = np.diagonal(np.linalg.inv(precision))
    pairs += [((b[i] - mean[i]) ** 2 * found, spread[i]) for i in range(n)]
    for values, truth in pairs:
        error = values.std() / np.sqrt(array_stats.ess(values, method="mean"))
        assert abs(values.mean() - truth) <= MOST_ERRORS * error


def failing(x, data):
    """A solver that fails for some x."""
    return jnp.where(x[0] > 1.2, jnp.nan, 1.0) * (x - data)


def turning(x):
    """A noise that is negative for some x."""
    return 1.2 - x[0]


@pytest.mark.parametrize(
    "target",
    [
        limpet.Target(failing, 0.5, data=np.ones(2)),
        limpet.Target(lambda x: x - 1, turning, log_density=lambda x: -(x @ x)),
    ],
)
def test_what_is_not_finite_is_refused_and_counted(target):
    draws = limpet.sample(target, [0.5, 0.9], draws=2_000, chains=32, warmup=200, seed=1)
    assert draws.posterior["x"].values[..., 0].max() <= 1.2
    assert draws.attrs["counts"]["hard"]["not_finite"] > 5


@pytest.mark.parametrize("by_xla", [False, True])
def test_other_data_compile_nothing(by_xla, monkeypatch):
    from limpet import lanes

    made = []

    def listen(name, *_, **__):
        if name.startswith("/jax/core/compile/backend_compile"):
            made.append(name)

    def refuse(*_, **__):
        raise lanes.UnsupportedError("this is a test")

    real = lanes._code
    monkeypatch.setattr(lanes, "_code", refuse if by_xla else lambda *a: made.append(a) or real(*a))
    rng = np.random.default_rng(5)
    scale = 1.0 + by_xla  # a program of its own

    def q(x, data):
        return scale * (data["A"] @ x - data["y"])

    def sample(seed):
        data = {"A": rng.normal(size=(5, 2)), "y": rng.normal(size=5)}
        target = limpet.Target(q, 3.0, data=data, log_density=lambda x, data: -(x @ x) / 2)
        return limpet.sample(target, [0.3, 0.1], draws=8, chains=8, warmup=128, seed=seed)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", limpet.LimpetWarning)
        sample(0)
        jax.monitoring.register_event_duration_secs_listener(listen)
        assert made or by_xla
        made.clear()
        found = sample(1)
    assert not made
    assert np.isfinite(found.posterior["x"].values).all()
