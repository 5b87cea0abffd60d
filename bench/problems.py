"""Problems that grow: each function returns a target and a point from which a search can start.

`quadratics` has constraints that all involve all unknowns, as products of matrices;
`lotka_volterra` two data of an equation in time, solved in a loop of so many steps; `sphere` one
constraint on many unknowns. `linear`, `enzyme` and `populations` have few unknowns and more data
than these, with noise, of which `eps` is the size.
"""

import jax
import jax.numpy as jnp
import numpy as np

import limpet

TIME, FIRST, RATES = 5.0, (1.0, 1.0), (2 / 3, 4 / 3, 1.0, 1.0)
PRIOR_DEVIATION = 0.5  # of the logarithm of a rate
DATA, STEPS_EACH = 20, 3  # of an inverse problem; and steps in time from one to the next


def quadratics(m, n, eps, seed=0):
    """`m` ellipsoids x^T A_i x = c_i in n dimensions, random ones, all through a point of length 1.

    m = 20, n = 60 and m = 40, n = 120 are those of the documentation.
    """
    rng = np.random.default_rng(seed)
    halves = rng.normal(size=(m, n, n))
    A = np.einsum("ijk,ijl->ikl", halves, halves) / n
    x = rng.normal(size=n)
    x /= np.linalg.norm(x)
    c = np.einsum("ijk,j,k->i", A, x, x)

    def q(x):
        return jnp.einsum("ijk,j,k->i", A, x, x) - c

    return limpet.Target(q, eps), x


def runge_kutta(change, y, h, steps):
    """The solution of y' = change(y) after each of some steps in time."""

    def step(y, _):
        k1 = change(y)
        k2 = change(y + h / 2 * k1)
        k3 = change(y + h / 2 * k2)
        k4 = change(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y, y

    return jax.lax.scan(step, y, length=steps)


def _prey_and_predators(x):
    a, b, c, d = jnp.exp(x)

    def change(y):
        u, v = y
        return jnp.array([a * u - b * u * v, d * u * v - c * v])

    return change


def _with_prior(predict, data, usual, eps):
    def q(x):
        return predict(x) - data

    def log_density(x):
        return -jnp.sum((x - usual) ** 2) / (2 * PRIOR_DEVIATION**2)

    return limpet.Target(q, eps, log_density=log_density), usual


def lotka_volterra(steps, eps):
    """Prey and predators at one time; unknown are the logarithms of four rates, a priori normal."""
    usual, h = np.log(RATES), TIME / steps

    def at_the_end(x):
        return runge_kutta(_prey_and_predators(x), jnp.array(FIRST), h, steps)[0]

    return _with_prior(at_the_end, np.asarray(jax.jit(at_the_end)(usual)), usual, eps)


def _inverse(predict, usual, eps):
    """Data with noise at a point that is not the usual one."""
    rng = np.random.default_rng(0)
    clean = np.asarray(jax.jit(predict)(usual + PRIOR_DEVIATION / 2 * rng.normal(size=len(usual))))
    return _with_prior(predict, clean + eps * rng.normal(size=clean.shape), usual, eps)


def populations(eps):
    """Prey and predators at ten times, which determine all four rates."""
    steps = DATA // 2 * STEPS_EACH

    def predict(x):
        both = runge_kutta(_prey_and_predators(x), jnp.array(FIRST), TIME / steps, steps)[1]
        return both[STEPS_EACH - 1 :: STEPS_EACH].ravel()

    return _inverse(predict, np.log(RATES), eps)


def enzyme(eps):
    """A substrate at twenty times, which an enzyme consumes: the law of Michaelis and Menten.

    Unknown are the logarithms of the rates at which the two bind and part, of the rate at which the
    product is made, and of the first amount. Of binding and parting, the data know one ratio only.
    """
    steps = DATA * STEPS_EACH

    def predict(x):
        binds, parts, makes, first = jnp.exp(x)

        def change(s):
            return -makes * s / ((parts + makes) / binds + s)

        return runge_kutta(change, first, TIME / steps, steps)[1][STEPS_EACH - 1 :: STEPS_EACH]

    return _inverse(predict, np.log([2.0, 1.0, 1.0, 2.0]), eps)


def linear(m, eps, n=10, seed=0):
    """Linear equations for normal unknowns, with noise."""
    rng = np.random.default_rng([n, m, seed])
    A, mean, scale = rng.normal(size=(m, n)), rng.normal(size=n), rng.uniform(0.5, 2, size=n)
    y = A @ (mean + scale * rng.normal(size=n)) + eps * rng.normal(size=m)

    def log_density(x):
        return -jnp.sum(((x - mean) / scale) ** 2) / 2

    start = np.linalg.lstsq(A, y, rcond=None)[0]
    return limpet.Target(lambda x: A @ x - y, eps, log_density=log_density), start


def sphere(n, eps):
    """The unit sphere in n dimensions."""
    return limpet.Target(lambda x: jnp.array([jnp.sum(x**2) - 1]), eps), np.eye(n)[0]


def log_posterior(target):
    """The log density of a target as other samplers take it, up to a constant."""
    return lambda x: target.log_density_at(x) - jnp.sum(target.values(x) ** 2) / 2
