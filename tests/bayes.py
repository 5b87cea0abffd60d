"""Models that people have, in NumPyro and PyMC, and what is known of them from elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pymc as pm

SCHOOLS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SCHOOLS_SCALE = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
HARE = "30 47.2 70.2 77.4 36.3 20.6 18.1 21.4 22 25.4 27.1 40.3 57 76.6 52.3 19.5 11.2 7.6 14.6 16.2 24.7"  # noqa: E501
LYNX = "4 6.1 9.8 35.2 59.4 41.7 19 13 8.3 9.1 7.4 8 12.3 19.5 45.7 51.1 29.7 15.8 9.7 10.1 8.6"
PELTS = np.array([HARE.split(), LYNX.split()], float).T

# mean and deviation of posteriordb's reference draws, of which there are so many
REFERENCE_DRAWS = 10_000
SCHOOLS_TRUTH = {
    "mu": (4.41052, 3.3093),
    "tau": (3.60206, 3.1985),
    "theta_1": (6.1505, 5.6159),
    "theta_8": (4.8840, 5.3177),
}
PELTS_TRUTH = {
    "alpha": (0.546864, 0.063055),
    "beta": (0.027747, 0.004155),
    "gamma": (0.800095, 0.08937),
    "delta": (0.024086, 0.003528),
    "hare_0": (34.0352, 2.9169),
    "lynx_0": (5.9359, 0.53055),
    "sigma_hare": (0.248057, 0.043263),
    "sigma_lynx": (0.251017, 0.04359),
}


def eight_schools(y, scale):
    """The effects of coaching in eight schools, not centred."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", len(y)):
        eta = numpyro.sample("eta", dist.Normal(0, 1))
        theta = numpyro.deterministic("theta", mu + tau * eta)
        numpyro.sample("y", dist.Normal(theta, scale), obs=y)


def eight_schools_in_pymc():
    """The same."""
    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        eta = pm.Normal("eta", 0, 1, dims="school")
        theta = pm.Deterministic("theta", mu + tau * eta, dims="school")
        pm.Normal("y", theta, SCHOOLS_SCALE, observed=SCHOOLS, dims="school")
    return model


def hares_and_lynxes(rates, first, years, steps=8):
    """Their numbers at the end of each year, and before the first: Runge-Kutta of fourth order."""
    alpha, beta, gamma, delta = rates

    def slope(z):
        return jnp.stack([(alpha - beta * z[1]) * z[0], (-gamma + delta * z[0]) * z[1]])

    def step(z, _):
        h = 1 / steps
        k1 = slope(z)
        k2 = slope(z + h / 2 * k1)
        k3 = slope(z + h / 2 * k2)
        k4 = slope(z + h * k3)
        return z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    def year(z, _):
        z, _ = jax.lax.scan(step, z, length=steps)
        return z, z

    _, later = jax.lax.scan(year, first, length=years)
    return jnp.concatenate([first[None], later])


def lotka_volterra(pelts):
    """Pelts of hares and lynxes, as the Hudson's Bay Company bought them; the noise is unknown."""
    rates = numpyro.sample(
        "rates",
        dist.TruncatedNormal(
            jnp.array([1.0, 0.05, 1.0, 0.05]), jnp.array([0.5, 0.05, 0.5, 0.05]), low=0.0
        ),
    )
    with numpyro.plate("animal", 2):
        first = numpyro.sample("first", dist.LogNormal(jnp.log(10.0), 1.0))
        sigma = numpyro.sample("sigma", dist.LogNormal(-1.0, 1.0))
    numbers = hares_and_lynxes(rates, first, len(pelts) - 1)
    with numpyro.plate("year", len(pelts), dim=-2), numpyro.plate("animal", 2, dim=-1):
        numpyro.sample("pelts", dist.LogNormal(jnp.log(numbers), sigma), obs=pelts)
