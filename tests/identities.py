"""What each move must satisfy exactly, with no statistics: detailed balance, pair by pair.

A move from x to y is made with known random numbers, then the move back is made with the random
numbers that lead back. The two acceptance probabilities must stand in the ratio that (2.2) asks
for, with every density written out longhand: in the user's q (not divided by eps), with
orthonormal bases from a QR decomposition (the samplers never build one), and with the density of a
proposal taken from the *finite-difference Jacobian* of the map from random numbers to proposals.

Pairs lie along the last axis. Moves are made by limpet's own compiler: by the machine code that
users run, in files that are marked so (conftest.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import limpet
from limpet.engine import Example, program
from limpet.engine.xla import RUN_ONCE
from limpet.kernels.noise import Noise
from limpet.kernels.states import Outcome, State
from limpet.run import tile

# Of the finite differences, in standard deviations of the noise: near folds longer ones err by more
# than 1e-8, and shorter ones magnify what Newton leaves, which is more with many unknowns.
STEP, LONGER_STEP, MANY = 5e-4, 2e-3, 10
STENCIL = {-3: -1, -2: 9, -1: -45, 1: 45, 2: -9, 3: 1}  # sixth order; divide by 60


class Pairs(NamedTuple):
    """Forward and back, for many pairs."""

    outcome: np.ndarray  # of the forward move
    inside: np.ndarray  # it ended within the walls
    returned: np.ndarray  # the move back was possible, and ended where the forward one began
    known: np.ndarray  # no finite difference ran into a wall or a failed projection
    error: np.ndarray  # of the log of the ratio of the two acceptance probabilities

    @property
    def accepted(self):
        """Which forward moves were possible."""
        return self.outcome == Outcome.ACCEPTED

    @property
    def irreversible(self):
        """How many moves would be accepted although there is no way back."""
        return int(np.sum(self.accepted & ~self.returned))

    @property
    def outside(self):
        """How many moves would be accepted although they end outside the walls."""
        return int(np.sum(self.accepted & ~self.inside))

    @property
    def errors(self):
        """The errors of the pairs that have a longhand ratio."""
        return self.error[self.accepted & self.returned & self.known]


# The target, longhand.


def q(target, x):
    """The user's q."""
    return target.q(x, *target.more)


def gradients(target, x):
    """The gradients of the user's q, as columns."""
    return jax.jacrev(partial(q, target))(x).T


def tangents(target, x):
    """An orthonormal basis of the directions along the surface, as columns."""
    G = gradients(target, x)
    return jnp.linalg.qr(G, mode="complete")[0][:, G.shape[1] :]


def noise(target, x):
    """Eps for each constraint."""
    eps = target.eps(x) if callable(target.eps) else target.eps
    return jnp.broadcast_to(eps, q(target, x).shape)


def log_off(target, x):
    """Log of f_1 / k_1: exp(l) exp(-|q/eps|^2 / 2), over each eps if that varies."""
    level = 0.0 if target.log_density is None else target.log_density(x)
    if callable(target.eps):
        level = level - jnp.sum(jnp.log(noise(target, x)))
    return level - jnp.sum(scaled_q(target, x) ** 2) / 2


def log_on(target, x):
    """Log of f_2 / k_2: exp(l) det(grad q^T grad q)^(-1/2)."""
    G = gradients(target, x)
    return target.log_density_at(x) - jnp.linalg.slogdet(G.T @ G)[1] / 2


def log_area(target, x):
    """Log of the density with respect to the surface's own area, exp(l)."""
    return target.log_density_at(x)


def is_inside(target, x):
    """Whether a point is within the walls."""
    return target.contains(x)


def foot_of(target, a):
    """The point of S that lies along the gradients at a: (2.14)."""
    return _landed(target, a, gradients(target, a), 0.0)


def _landed(target, a, G, level):
    """The point along the columns of G from a where q has this level."""

    def update(_, c):
        x = a + G @ c
        return c - jnp.linalg.solve(gradients(target, x).T @ G, q(target, x) - level)

    return a + G @ jax.lax.fori_loop(0, 15, update, jnp.zeros(G.shape[1]))


def scaled_q(target, x):
    """Q / eps."""
    return q(target, x) / noise(target, x)


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def each(function, target, *columns):
    """A function of a target and one point, at every pair.

    JAX knows a program by its function: one with a name is compiled once for all the samplers that
    are put to the test, a lambda every time.
    """
    rows = tuple(jnp.moveaxis(column, -1, 0) for column in columns)
    # one after the other: batches of LAPACK can stop for good, see limpet.engine.xla
    results = jax.lax.map(lambda row: function(target, *row), rows)
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), results)


# Moves with given random numbers.


CROSS, STAY = 0.0, 1.0  # choices of Off or On, and of Hard or Soft


def aside(kernel):
    """The choice of a Slide, in the middle of its range."""
    return kernel.on_probability + kernel.slide_probability / 2


def go(kernel, target, states, z, choice):
    """The proposals made of z, accepted where possible, of the kind of move that was chosen."""
    pairs = z.shape[-1]
    choice, coin = np.full((pairs, 1), choice), np.full((pairs, 1), -1.0)
    noise = Noise(np.moveaxis(z, -1, 0)[:, None], choice, coin)
    states = jax.tree.map(lambda leaf: np.moveaxis(leaf, -1, 0), states)
    leaves, tree = jax.tree.flatten(((kernel, target), states))
    program = _program(tree, tuple((np.shape(a), jnp.result_type(a)) for a in leaves), len(z))
    states, info = program((kernel, target), states, noise)
    info = jax.tree.map(lambda leaf: leaf[:, 0], info)
    return jax.tree.map(lambda leaf: np.moveaxis(leaf, 0, -1), (states, info))


@lru_cache(maxsize=8)
def _program(tree, shapes, size):
    constants, states = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*s) for s in shapes])
    state = jax.tree.map(lambda leaf: leaf.update(shape=leaf.shape[1:]), states)
    number = jax.ShapeDtypeStruct((), float)

    def move(constants, state, noise):
        kernel, target = constants
        return type(kernel).move(kernel, target, {}, noise, state)

    noise = Noise(jax.ShapeDtypeStruct((size,), float), number, number)
    return program(move, Example(constants, state, noise), width=len(states.x), block=1)


def log_proposal(kernel, target, states, z, choice, directions, basis):
    """Log density of the proposals made of z, and where it could be computed.

    `directions` are those of z that a proposal depends on, `basis` those that it moves in; the
    density is the Gaussian of z along the former over the Jacobian of the map to the latter.
    """
    d, step = directions.shape[1], STEP if len(z) < MANY else LONGER_STEP
    known, columns = np.ones(z.shape[-1], bool), []
    for i in range(d):
        column = 0.0
        for k, weight in STENCIL.items():
            shifted = z + k * step * directions[:, i]
            ends, info = go(kernel, target, states, shifted, choice)
            known &= info.outcome == Outcome.ACCEPTED
            column = column + weight * ends.x
        columns.append(column / (60 * step))
    jacobian = np.einsum("niw,njw->wij", basis, np.stack(columns, axis=1))
    t = np.einsum("niw,nw->iw", directions, z)
    gaussian = -np.sum(t**2, axis=0) / 2 - d * np.log(2 * np.pi) / 2
    return gaussian - np.linalg.slogdet(jacobian)[1], known


def along(basis, v):
    """The part of v in the span of an orthonormal basis, pair by pair."""
    return np.einsum("niw,miw,mw->nw", basis, basis, v)


@dataclass(frozen=True)
class Rattle:
    """A trajectory, longhand: slides of size h from x with momentum z; its end, and momentum there.

    One slide alone feels no force, as in the paper. How many there are is no part of the program.
    """

    log_f: Callable

    def __call__(self, target, x, z, h, slides):
        """Where it ends, and the momentum there."""
        level, forced = q(target, x), slides > 1

        def along(x, v):
            T = tangents(target, x)
            return T @ (T.T @ v)

        def kick(x):
            return forced * h / 2 * along(x, jax.grad(self.log_f, argnums=1)(target, x))

        def slide(_, path):
            x, p = path
            half = p + kick(x)
            y = _landed(target, x + h * half, gradients(target, x), level)
            return y, along(y, y - x) / h + kick(y)

        return jax.lax.fori_loop(0, slides, slide, (x, along(x, z)))


def hard(kernel, target, states, z, log_f=log_on, choice=STAY) -> Pairs:
    """Hard moves from states on S, or Slides from states off it; the density is exp(log_f)."""
    there, forward = go(kernel, target, states, z, choice)
    T_x, T_y = each(tangents, target, states.x), each(tangents, target, there.x)
    end, p = each(Rattle(log_f), target, states.x, z, *sizes(kernel, choice, z))
    change = each(log_f, target, there.x) - each(log_f, target, states.x)
    begin, turn = (states, z, T_x, T_y), (there, -np.asarray(p), T_y, T_x)
    return _there_and_back(kernel, target, begin, forward, turn, choice, change, end)


def slide(kernel, target, states, z) -> Pairs:
    """Slides from states off S."""
    return hard(kernel, target, states, z, choice=aside(kernel))


def is_sas(kernel):
    """Whether this is the paper's sampler, or a mutant of it."""
    return type(kernel).__name__ == "SAS"


def slides(kernel):
    """How many a trajectory has."""
    return kernel.trajectory if is_sas(kernel) else kernel.steps


def step_size(kernel, choice):
    """That of a trajectory: what the choice of a move leaves to chance makes it long or short."""
    size = kernel.sigma_hrd if is_sas(kernel) else kernel.step_size
    if slides(kernel) == 1:
        return size
    rest = 0.5 if is_sas(kernel) and choice == aside(kernel) else choice
    return size * (1 + 0.3 * (2 * rest - 1))


def sizes(kernel, choice, z):
    """The size of slides and their number, for every pair."""
    pairs = z.shape[-1]
    return np.full(pairs, step_size(kernel, choice)), np.full(pairs, slides(kernel))


@lru_cache
def _functions_above(target, n):
    def q(point, length):
        return scaled_q(target, point[:n]) - point[n:] / length

    def log_density(point, length):
        x, eta = point[:n], point[n:] / length
        return log_off(target, x) + jnp.sum(scaled_q(target, x) ** 2) / 2 - jnp.sum(eta**2) / 2

    return q, log_density


def _above(target, n, length):
    """The lifted surface of a target, longhand: points are x, and eta times a length.

    The length is data, so that slides of other sizes are no other program.
    """
    q, log_density = _functions_above(target, n)
    return limpet.Target(q, 1.0, log_density=log_density, data=length)


def lifted(kernel, target, states, z) -> Pairs:
    """Moves on the lifted surface, as moves in x alone: their density is pi_eps itself."""
    n, length = len(states.x), max(kernel.steps, 3) * kernel.step_size * 2 / np.pi
    above = _above(target, n, length)

    def raised(states):
        return np.concatenate([states.x, length * np.asarray(each(scaled_q, target, states.x))])

    there, forward = go(kernel, target, states, z, STAY)
    end, p = each(Rattle(log_on), above, raised(states), z, *sizes(kernel, STAY, z))
    axes = np.repeat(np.eye(n)[..., None], z.shape[-1], axis=-1)
    T_x, T_y = (np.asarray(each(tangents, above, raised(s))) for s in (states, there))
    change = each(log_off, target, there.x) - each(log_off, target, states.x)
    begin, turn = (states, z, T_x, axes), (there, -np.asarray(p), T_y, axes)
    return _there_and_back(kernel, target, begin, forward, turn, STAY, change, end[:n])


def frame(target, x, length):
    """The tangents of the lifted surface over x, as columns, and their Gram matrix's factor."""
    B = jnp.concatenate([jnp.eye(len(x)), length * jax.jacrev(partial(scaled_q, target))(x)])
    return B, jnp.linalg.cholesky(B.T @ B)


def ambient(target, x, z, length):
    """The momentum on the lifted surface that n standard normals stand for."""
    B, L = frame(target, x, length)
    return B @ jnp.linalg.solve(L.T, z)


def coordinates(target, x, p, length):
    """The reverse."""
    B, L = frame(target, x, length)
    return jnp.linalg.solve(L, B.T @ p)


def crowded(kernel, target, states, z) -> Pairs:
    """Moves on the lifted surface where m >= n, which take n normal numbers."""
    n, length = len(states.x), max(kernel.steps, 3) * kernel.step_size * 2 / np.pi
    above, lengths = _above(target, n, length), np.full(z.shape[-1], length)
    raised = np.concatenate([states.x, length * np.asarray(each(scaled_q, target, states.x))])
    there, forward = go(kernel, target, states, z, STAY)
    p = each(ambient, target, states.x, z, lengths)
    end, p = each(Rattle(log_on), above, raised, p, *sizes(kernel, STAY, z))
    z_back = -np.asarray(each(coordinates, target, there.x, p, lengths))
    axes = np.repeat(np.eye(n)[..., None], z.shape[-1], axis=-1)
    change = each(log_off, target, there.x) - each(log_off, target, states.x)
    begin, turn = (states, z, axes, axes), (there, z_back, axes, axes)
    return _there_and_back(kernel, target, begin, forward, turn, STAY, change, end[:n])


def _there_and_back(kernel, target, begin, forward, turn, choice, change, end):
    """The pairs of trajectories, where the log density changes by `change` from begin to turn.

    Begin and turn are each the states, the z that leads on from them, and what `log_proposal` asks
    for: the directions of z, and those of the proposals.
    """
    states, there = begin[0], turn[0]
    back, backward = go(kernel, target, there, turn[1], choice)
    (log_h, known), (log_h_back, known_back) = (
        log_proposal(kernel, target, at, z, choice, directions, basis)
        for at, z, directions, basis in (begin, turn)
    )
    longhand, known = change + log_h_back - log_h, known & known_back
    return _pairs(target, states, there, forward, back, backward, longhand, known, end)


def soft(kernel, target, states, z) -> Pairs:
    """Soft moves from states off S; the proposal is symmetric by construction."""
    there, forward = go(kernel, target, states, z, STAY)
    back, backward = go(kernel, target, there, -z, STAY)
    longhand = each(log_off, target, there.x) - each(log_off, target, states.x)
    known = np.ones(z.shape[-1], bool)
    return _pairs(target, states, there, forward, back, backward, longhand, known)


def off(kernel, target, states, z) -> Pairs:
    """Off moves from states on S."""
    there, forward = go(kernel, target, states, z, CROSS)
    foot = each(foot_of, target, there.x)
    z_back = along(each(tangents, target, foot), states.x - foot) / kernel.sizes(target)["sigma_on"]
    back, backward = go(kernel, target, there, z_back, CROSS)
    longhand, known = _off_ratio(kernel, target, states, z, there, z_back, foot)
    return _pairs(target, states, there, forward, back, backward, longhand, known)


def on(kernel, target, states, z) -> Pairs:
    """On moves from states off S."""
    there, forward = go(kernel, target, states, z, CROSS)
    # a kick is linear in z, so small kicks along each axis tell which z leads back
    kicks = [
        go(kernel, target, there, np.full_like(z, 0.0) + STEP * e[:, None], CROSS)[0].x - there.x
        for e in np.eye(len(z))
    ]
    matrix = np.moveaxis(np.stack(kicks, axis=1), -1, 0) / STEP
    singular = np.linalg.cond(matrix) > 1e12
    matrix[singular] = np.eye(len(z))
    z_back = np.linalg.solve(matrix, np.asarray(states.x - there.x).T[..., None])[..., 0].T
    back, backward = go(kernel, target, there, z_back, CROSS)
    foot = each(foot_of, target, states.x)
    longhand, known = _off_ratio(kernel, target, there, z_back, states, z, foot)
    known &= ~singular
    return _pairs(target, states, there, forward, back, backward, -longhand, known)


def _off_ratio(kernel, target, on_s, z_off, off_s, z_on, foot):
    """Log of (2.2) for the Off moves, with the constants (3.11)."""
    m, (n, width) = len(on_s.values), z_off.shape
    leaving, landing = kernel.off_probability, kernel.on_probability
    eps = np.broadcast_to(target.eps, (m,))
    log_k2 = np.log(landing / leaving) + m / 2 * np.log(2 * np.pi) + np.sum(np.log(eps))
    T_foot, T_s = each(tangents, target, foot), each(tangents, target, on_s.x)
    axes = np.repeat(np.eye(n)[..., None], width, axis=-1)
    log_h12, known = log_proposal(kernel, target, off_s, z_on, CROSS, T_foot, T_s)
    log_h21, known_off = log_proposal(kernel, target, on_s, z_off, CROSS, axes, axes)
    numerator = each(log_off, target, off_s.x) + np.log(landing) + log_h12
    denominator = log_k2 + each(log_on, target, on_s.x) + np.log(leaving) + log_h21
    return numerator - denominator, known & known_off


def _pairs(target, states, there, forward, back, backward, longhand, known, end=None):
    with np.errstate(divide="ignore", invalid="ignore"):
        measured = np.log(forward.acceptance) - np.log(backward.acceptance)
        error = np.abs(measured - np.asarray(longhand))
    miss = np.linalg.norm(back.x - states.x, axis=0)
    if end is not None:  # it is to end where it should, too
        miss = np.maximum(miss, np.linalg.norm(there.x - end, axis=0))
    return Pairs(
        outcome=np.asarray(forward.outcome),
        inside=np.asarray(each(is_inside, target, there.x)),
        returned=np.asarray(backward.outcome == Outcome.ACCEPTED) & (miss < 1e-7),
        known=known,
        error=error,
    )


# States to start from.


def on_states(kernel, target, points) -> State:
    """States on S."""
    states = tile.first_states(kernel, target, points)
    return jax.tree.map(lambda leaf: np.moveaxis(leaf, 0, -1), states)


def off_states(kernel, target, points, seed) -> State:
    """States off S: from each point, Off moves until one was possible."""
    states = on_states(kernel, target, points)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        left, _ = go(kernel, target, states, rng.normal(size=states.x.shape), CROSS)
        states = jax.tree.map(lambda a, b, on=states.on: np.where(on, a, b), left, states)
    return jax.tree.map(lambda a: a[..., ~states.on], states)
