"""Molecules in positions, with nothing said of their shape: how much an effective draw costs.

Figures that a user would compare; `make test-slow` shows them. Means are held against exact ones at
four standard errors: false alarms in 6e-5 of all choices of seeds, each.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import limpet

pytestmark = [pytest.mark.slow, pytest.mark.optimized]
EPS = 0.01
KT = 8.314462618e-3 * 300  # kJ/mol
RYCKAERT_BELLEMANS = (9.28, 12.16, -13.12, -3.06, 26.24, -31.5)  # kJ/mol, powers of cos psi
ANGLE = np.deg2rad(109.5)


def effective(values):
    return values.size / limpet.autocorrelation_time(values)


def check(name, draws, values, truth=None):
    """Projections per effective draw, one with its reverse check counted once."""
    ess, slides = effective(values), draws.attrs["parameters"]["steps"]
    error = values.std() / np.sqrt(ess)
    cost, rate = slides * values.size / ess, ess / draws.attrs["seconds"]
    print(f"{name}: {cost:.1f} projections and {1 / rate:.2g} s per effective draw;", end=" ")
    print(f"mean {values.mean():.4f} +- {error:.4f}, exact {truth}")
    if truth is not None:
        assert abs(values.mean() - truth) < 4 * error
    return cost


def bonded(pairs, count):
    """Beads with unit bonds, the first of them at the origin."""
    begins, ends = np.array(pairs).T

    def q(x):
        at = jnp.concatenate([jnp.zeros((1, 3)), x.reshape(-1, 3)])
        return jnp.sum((at[ends] - at[begins]) ** 2, axis=1) - 1

    return limpet.Target(q, EPS)


def mean_square():
    """Of a bond with q = r^2 - 1."""
    r = np.linspace(0.5, 1.5, 20_001)
    weight = r**2 * np.exp(-((r**2 - 1) ** 2) / (2 * EPS**2))
    return np.sum(r**2 * weight) / np.sum(weight)


@pytest.mark.parametrize("bonds", [29, 59])
def test_chains(bonds):
    target = bonded([(k, k + 1) for k in range(bonds)], bonds + 1)
    start = np.outer(np.arange(1.0, bonds + 1), [0.6, 0.8, 0.0]).ravel()
    draws = limpet.sample(target, start, draws=300, chains=64, progress=False)
    last = draws.posterior["x"].values[..., -3:]
    assert draws.scale.attrs["of"] == "differences"
    check("R^2", draws, np.sum(last**2, axis=-1), bonds * mean_square())
    cost = check(f"chain of {bonds + 1}, R", draws, np.linalg.norm(last, axis=-1))
    assert cost <= 20


def test_a_ring():
    beads = 60
    k = np.arange(beads)
    at = (
        0.5
        / np.sin(np.pi / beads)
        * np.stack([np.cos(k * 2 * np.pi / beads), np.sin(k * 2 * np.pi / beads), 0 * k], axis=1)
    )
    target = bonded([(i, (i + 1) % beads) for i in range(beads)], beads)
    draws = limpet.sample(target, (at - at[0])[1:].ravel(), draws=300, chains=64, progress=False)
    across = draws.posterior["x"].values.reshape(64, 300, -1, 3)[:, :, beads // 2 - 1]
    check("ring of 60, across", draws, np.linalg.norm(across, axis=-1))
    # bonds are exchangeable, and add up to nothing: <|sum of half of them|^2> from the pairs' means
    truth = beads / 4 * (1 + 1 / (beads - 1)) * mean_square()
    check("squared", draws, np.sum(across**2, axis=-1), truth)


def test_a_star():
    arms, length = 6, 10
    directions = np.random.default_rng(0).normal(size=(arms, 1, 3))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    start = (np.arange(1.0, length + 1)[:, None] * directions).ravel()
    pairs = [
        (0 if k == 0 else 10 * a + k, 10 * a + k + 1) for a in range(arms) for k in range(length)
    ]
    draws = limpet.sample(bonded(pairs, 61), start, draws=300, chains=64, progress=False)
    ends = draws.posterior["x"].values.reshape(64, 300, arms, length, 3)[:, :, 0, -1]
    check("star, end of an arm, squared", draws, np.sum(ends**2, axis=-1), length * mean_square())
    assert check("star, end of an arm", draws, np.linalg.norm(ends, axis=-1)) <= 20


def turn(b, library):
    """Cosine of the angle by which three bonds (..., 3, 3) turn out of a plane: 1 for trans."""
    first, second = (
        library.cross(b[..., 0, :], b[..., 1, :]),
        library.cross(b[..., 1, :], b[..., 2, :]),
    )
    lengths = library.sum(first**2, axis=-1) * library.sum(second**2, axis=-1)
    return library.sum(first * second, axis=-1) / library.sqrt(lengths)


def test_butane():
    def bonds(x):
        return jnp.diff(x.reshape(3, 3), axis=0, prepend=0.0)

    def q(x):
        b = bonds(x)
        r = jnp.sqrt(jnp.sum(b**2, axis=1))
        cosine = -jnp.sum(b[1:] * b[:-1], axis=1) / (r[1:] * r[:-1])
        return jnp.concatenate([r - 1, jnp.arccos(cosine) - ANGLE])

    def log_density(x):
        return -jnp.polyval(jnp.array(RYCKAERT_BELLEMANS[::-1]), turn(bonds(x), jnp)) / KT

    psi = np.linspace(0, np.pi, 20_001)
    weight = np.exp(-np.polyval(RYCKAERT_BELLEMANS[::-1], np.cos(psi)) / KT)
    truth = np.sum(weight[psi < np.pi / 3]) / np.sum(weight)
    assert truth == pytest.approx(0.6504, abs=2e-4)
    start = np.cumsum([[1, 0, 0], [-np.cos(ANGLE), np.sin(ANGLE), 0], [1, 0, 0]], axis=0).ravel()
    draws = limpet.sample(
        limpet.Target(q, EPS, log_density=log_density), start, draws=2_000, progress=False
    )
    x = draws.posterior["x"].values.reshape(128, 2_000, 3, 3)
    b = np.diff(np.concatenate([0 * x[:, :, :1], x], axis=2), axis=2)
    check("butane, trans", draws, (turn(b, np) > 0.5).astype(float), truth)
