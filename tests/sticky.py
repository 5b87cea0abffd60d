"""Targets whose constraints come and go, and what is known of them."""

import jax.numpy as jnp
import numpy as np

import limpet

SIGMAS = 4.5  # of Monte Carlo error: one false alarm in 150,000


def gap(r):
    """How far two disks or spheres of diameter 1 are apart; zero in contact."""
    return (r @ r - 1) / 2


def trimer(x):
    """Two bonds of three disks in a row, and that of the first and the last."""
    a, b, c = x.reshape(3, 2)
    return jnp.stack([gap(b - a), gap(c - b), gap(c - a)])


def near_the_origin(x):
    """The centre of three disks is near the origin: translations are not for free."""
    return -jnp.sum(x.reshape(3, 2).mean(axis=0) ** 2) / 2


def four_spheres(x):
    """Three bonds of a chain of four spheres, the first at the origin, and three more."""
    p = jnp.concatenate([jnp.zeros((1, 3)), x.reshape(3, 3)])
    pairs = (0, 1), (1, 2), (2, 3), (0, 2), (0, 3), (1, 3)
    return jnp.stack([gap(p[i] - p[j]) for i, j in pairs])


def parabola_line(x):
    """Above a parabola, and below a line."""
    return jnp.stack([x[1] - x[0] ** 2, 2 - x[1]])


def two_walls(x):
    """Two parallel ones, and one across."""
    return jnp.stack([x[0], x[0] - 1, x[1]])


TRIMER_START = [-1.0, 0.1, 0.0, 0.0, 1.0, 0.1]
TRIANGLE_START = [-0.5, 0.0, 0.0, 0.75**0.5, 0.5, 0.0]
FOUR_START = [1.0, 0.0, 0.0, 1.5, 0.9, 0.0, 2.5, 0.9, 0.0]


def trimer_target(eps=0.02, kappa=2.0) -> limpet.Strata:
    """The sticky trimer."""
    return limpet.Strata(trimer, eps, kappa, always=[0, 1], log_density=near_the_origin)


def rigid_trimer_probability(kappa):
    """How likely the trimer's bond holds in the limit of small eps."""
    return np.sqrt(3) * kappa / (np.sqrt(3) * kappa + np.pi)


def at_other_kappa(probability, kappa, other):
    """How likely one bond holds at another stickiness: odds go with it."""
    odds = probability / (1 - probability) * other / kappa
    return odds / (1 + odds)


def four_sphere_shares(kappa):
    """Of four rigid spheres, how likely 0 to 3 more bonds hold than those of the chain."""
    weights = np.array([0.114799, 0.299283, 0.392324, 0.193594]) * (kappa / 2) ** np.arange(4)
    return weights / weights.sum()


def zigzag(beads):
    """A chain of touching spheres that turns left and right."""
    return [[0.8 * k, 0.6 * (k % 2), 0.0] for k in range(beads)]


def in_a_row(beads):
    """The bonds of a chain."""
    return [(k, k + 1) for k in range(beads - 1)]


def at_a_wall(beads, kappa, eps=1e-3):
    """A chain of beads whose first is held at a wall, to which each other may stick.

    Beads do not see each other, but for the bonds of the chain. Contacts as published have half the
    stickiness of these.
    """

    def q(x):
        places = jnp.concatenate([jnp.zeros((1, 3)), x.reshape(-1, 3)])
        between = places[1:] - places[:-1]
        bonds = (jnp.sum(between**2, axis=1) - 1) / 2
        return jnp.concatenate([bonds, places[1:, 2]])

    target = limpet.Strata(q, eps, 2 * kappa, always=range(beads - 1))
    start = np.array([[0.8 * k, 0.0, 0.6 * (k % 2) + 0.1 * (k > 0)] for k in range(beads)])
    return target, start[1:].ravel()


def exact_rigid_trimers(kappa, count, seed):
    """Draws of the rigid trimer: labels, then coordinates."""
    rng = np.random.default_rng(seed)
    held = rng.uniform(size=count) < rigid_trimer_probability(kappa)
    angle = rng.uniform(np.pi / 3, 5 * np.pi / 3, size=count)
    angle = np.where(held, np.pi * np.where(rng.uniform(size=count) < 0.5, 1, 5) / 3, angle)
    turn = rng.uniform(0, 2 * np.pi, size=count)
    ends = [np.stack([np.cos(t), np.sin(t)], axis=1) for t in (turn, turn + angle)]
    x = np.stack([ends[0], np.zeros((count, 2)), ends[1]], axis=1)
    x += rng.normal(size=(count, 1, 2)) - x.mean(axis=1, keepdims=True)
    return np.concatenate([held[:, None], x.reshape(count, 6)], axis=1)


def mean_and_error(values):
    """The mean over chains and draws, and its Monte Carlo error, by chains."""
    means = np.asarray(values, float).mean(axis=1)
    return means.mean(), means.std(ddof=1) / np.sqrt(len(means))


def agrees(values, truth) -> bool:
    """Whether a mean is within `SIGMAS` errors of the truth."""
    mean, error = mean_and_error(values)
    return abs(mean - truth) <= SIGMAS * error
