"""Problems that grow: each function returns a target and a point from which a search can start.

`quadratics` has constraints that all involve all unknowns, as products of matrices;
`lotka_volterra` two data of an equation in time, solved in a loop of so many steps; `sphere` one
constraint on many unknowns.
"""

import jax
import jax.numpy as jnp
import numpy as np

import limpet

TIME, FIRST, RATES = 5.0, (1.0, 1.0), (2 / 3, 4 / 3, 1.0, 1.0)
PRIOR_DEVIATION = 0.5  # of the logarithm of a rate


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


def lotka_volterra(steps, eps):
    """Prey and predators at one time; unknown are the logarithms of four rates, a priori normal."""
    usual, h = np.log(RATES), TIME / steps

    def at_the_end(x):
        a, b, c, d = jnp.exp(x)

        def change(y):
            u, v = y
            return jnp.array([a * u - b * u * v, d * u * v - c * v])

        def runge_kutta(y, _):
            k1 = change(y)
            k2 = change(y + h / 2 * k1)
            k3 = change(y + h / 2 * k2)
            k4 = change(y + h * k3)
            return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

        return jax.lax.scan(runge_kutta, jnp.array(FIRST), length=steps)[0]

    data = np.asarray(jax.jit(at_the_end)(usual))

    def q(x):
        return at_the_end(x) - data

    def log_density(x):
        return -jnp.sum((x - usual) ** 2) / (2 * PRIOR_DEVIATION**2)

    return limpet.Target(q, eps, log_density=log_density), usual


def sphere(n, eps):
    """The unit sphere in n dimensions."""
    return limpet.Target(lambda x: jnp.array([jnp.sum(x**2) - 1]), eps), np.eye(n)[0]


def log_posterior(target):
    """The log density of a target as other samplers take it, up to a constant."""
    return lambda x: target.log_density_at(x) - jnp.sum(target.values(x) ** 2) / 2
