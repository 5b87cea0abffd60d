"""Beads in space with stiff bonds: chains, rings, stars and networks, their bonds in any order.

As in `bench.problems`, each function returns a target and a start. One bead is held at the origin,
so that nothing drifts away; unknown are the places of the others. q is the squared length of each
bond less what it is at the start.
"""

import jax.numpy as jnp
import numpy as np

import limpet

ARMS = 100  # of a star
BONDS_PER_BEAD = 2  # of a network
NEAR = 12  # beads that one may be joined to: of fewer, some would have more bonds than can move


def bonded(beads, pairs, eps, order):
    """Beads where they are now, the first of which stays, and bonds between pairs of them.

    With `order`, a seed, bonds are in a random order, each the one way around or the other.
    """
    if order is not None:
        rng = np.random.default_rng(order)
        pairs = rng.permuted(rng.permutation(pairs), axis=1)
    begins, ends = np.asarray(pairs).T
    beads = beads - beads[0]
    squares = np.sum((beads[ends] - beads[begins]) ** 2, axis=1)

    def q(x):
        at = jnp.concatenate([jnp.zeros((1, 3)), x.reshape(-1, 3)])
        return jnp.sum((at[ends] - at[begins]) ** 2, axis=1) - squares

    return limpet.Target(q, eps), beads[1:].ravel()


def zigzag(beads):
    """A chain of unit bonds that turn left and right."""
    bond = np.array([[0.8, 0.6 * (-1) ** i, 0.0] for i in range(beads - 1)])
    return np.concatenate([np.zeros((1, 3)), np.cumsum(bond, axis=0)])


def chain(beads, eps, order=None):
    """One after the other."""
    k = np.arange(beads - 1)
    return bonded(zigzag(beads), np.stack([k, k + 1], axis=1), eps, order)


def ring(beads, eps, order=None):
    """The same, and the last with the first; a crown, for a flat ring has no room to move."""
    k = np.arange(beads)
    angle = 2 * np.pi * k / beads
    radius = 0.4 / np.sin(np.pi / beads)
    side = 0.3 * (-1) ** k
    circle = np.stack([radius * np.cos(angle), radius * np.sin(angle), side], axis=1)
    return bonded(circle, np.stack([k, (k + 1) % beads], axis=1), eps, order)


def star(beads, eps, order=None):
    """Arms that turn left and right, from a free bead in the middle; the end of one is held."""
    arms = min(ARMS, beads - 1)
    directions = np.random.default_rng(0).normal(size=(arms, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    # counted from the ends inwards, arm after arm; the middle is the last
    arm = np.arange(beads - 1) * arms // (beads - 1)
    first = np.searchsorted(arm, np.arange(arms))
    length = np.append(first[1:], beads - 1) - first
    k = np.arange(beads - 1)
    to_the_end = k - first[arm]
    steps = (length[arm] - to_the_end)[:, None]
    sideways = np.roll(directions, 1, axis=1)[arm] * (steps % 2)
    at = 0.8 * steps * directions[arm] + 0.6 * sideways
    inward = np.where(to_the_end + 1 < length[arm], k + 1, beads - 1)
    return bonded(
        np.append(at, np.zeros((1, 3)), axis=0), np.stack([k, inward], axis=1), eps, order
    )


def network(beads, eps, order=None):
    """Beads at random places, joined to others that are near: two bonds for each bead.

    First each with the nearest of those before it, which makes one piece of all; then with any of
    the nearest few.
    """
    rng = np.random.default_rng(beads)
    at = rng.uniform(size=(beads, 3)) * beads ** (1 / 3)
    distance = np.linalg.norm(at[:, None] - at, axis=2)
    pairs = {(int(np.argmin(distance[k, :k])), k) for k in range(1, beads)}
    near = np.argsort(distance, axis=1)[:, 1 : NEAR + 1]
    while len(pairs) < BONDS_PER_BEAD * beads:
        k = int(rng.integers(beads))
        other = int(rng.choice(near[k]))
        pairs.add((min(k, other), max(k, other)))
    return bonded(at, sorted(pairs), eps, order)
