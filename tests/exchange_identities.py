"""What exchanges on a ladder must satisfy exactly, with no statistics: detailed balance.

With its random numbers an exchange is a map of both points and both slides to others, its own
inverse. So its log ratio is that of the densities, written out longhand in the user's q, and the
log of the *finite-difference Jacobian* of that map: all numbers go into one determinant. Slides are
written in orthonormal bases of the levels' tangents, which the sampler never builds.
"""

import dataclasses
import functools
from typing import NamedTuple

import exact
import jax
import jax.numpy as jnp
import numpy as np

import limpet
from limpet.engine.xla import RUN_ONCE
from limpet.kernels import rungs
from limpet.kernels.states import Outcome

STEP = 4e-4  # of the finite differences, in units of how long slides are
STENCIL = {-3: -1, -2: 9, -1: -45, 1: 45, 2: -9, 3: 1}  # sixth order; divide by 60
SPREAD = 0.8
PROBLEM = exact.bent_problem(np.random.default_rng(5), (3, 2), 1, eps=(0.1, 0.15), half=True)


def bean(x):
    """Two pieces, where layers are so thick that ways back lead elsewhere."""
    return jnp.array([((x[0] ** 2 - 1) ** 2 + 0.3 * x[0] + x[1] ** 2 - 0.5) / 2])


class Case(NamedTuple):
    """A target, and two rungs; the lower one has the target's eps."""

    target: limpet.Target
    upper: tuple[float, ...]
    n: int

    @property
    def d(self):
        """The dimension of levels."""
        return self.n - len(self.upper)

    @property
    def lower(self):
        """Eps of the lower rung."""
        return tuple(self.target.eps.tolist())

    def points(self, rng, count):
        """Some points of the upper rung and of the lower."""
        if self is CASES["pieces"]:
            return list(rng.normal((0.5, 0.0), size=(2, count, 2)))
        problems = [dataclasses.replace(PROBLEM, eps=eps) for eps in (self.upper, self.lower)]
        return [problem.draw(rng, count, on=False) for problem in problems]


PIECES = limpet.Target(bean, [0.2], log_density=lambda x: -(x[0] ** 2) / 3)
CASES = {
    "bent": Case(PROBLEM.target, (0.19, 0.33), PROBLEM.n),
    "pieces": Case(PIECES, (0.5,), 2),
}


class Exchanged(NamedTuple):
    """Many exchanges."""

    there: np.ndarray  # both points and both slides, after it
    log_ratio: np.ndarray
    met: np.ndarray
    inside: np.ndarray  # both points are, after it


def starts(case, count, seed):
    """Both points and their slides: (count, 2 (n + d))."""
    rng = np.random.default_rng(seed)
    return np.concatenate([*case.points(rng, count), rng.normal(size=(count, 2 * case.d))], axis=1)


def parts(case, numbers):
    """Both points and both slides."""
    n = case.n
    return jnp.split(numbers, [n, 2 * n, 2 * n + case.d])


def _basis(case, x, near):
    """An orthonormal basis of the tangents of the level, the smooth one that is next to another."""
    J = jax.jacrev(case.target.q)(x)
    flat = near - J.T @ jnp.linalg.solve(J @ J.T, J @ near)
    return flat @ jnp.linalg.inv(jnp.linalg.cholesky(flat.T @ flat)).T


def _slide(case, x, y, near):
    """The slide from x to y, in units of its size."""
    J, apart = jax.jacrev(case.target.q)(x), case.target.q(y) - case.target.q(x)
    size = SPREAD * jnp.sqrt(apart @ jnp.linalg.solve(J @ J.T, apart))
    return _basis(case, x, near).T @ (y - x) / size


def swap_by(log_ratio):
    """A swap in the form of `limpet.kernels.rungs.exchange`, with this log ratio, or a mutant's."""
    return functools.partial(_swap, log_ratio)


def _swap(log_ratio, kernel, target, widths, z, points, reach):
    values = rungs.Pair(*map(target.values, points))
    there = rungs.Pair(points.lower, points.upper)
    return there, log_ratio(widths, values), jnp.asarray(Outcome.ACCEPTED)


@functools.cache
def exchanger(name, exchange):
    """The map, of many; `exchange` is that of `limpet.kernels.rungs`, a mutant's, or a swap.

    Bases are those next to the ones given, of both points before and after.
    """
    case = CASES[name]
    kernel = limpet.Exchange([case.upper, case.lower], spread=SPREAD, tolerance=1e-14)
    widths = rungs.Pair(jnp.array(case.upper) / case.target.eps, jnp.ones(len(case.upper)))
    target = case.target.freeze(jnp.zeros(case.n))

    def one(before, bases):
        upper, lower, v, w = parts(case, before)
        z = jnp.concatenate([_basis(case, lower, bases[1]) @ w, _basis(case, upper, bases[0]) @ v])
        there, log_ratio, met = exchange(
            kernel, target, widths, z, rungs.Pair(upper, lower), jnp.ones(())
        )
        if isinstance(exchange, functools.partial):  # a swap: nothing slides
            there_too = jnp.concatenate([*there, v, w])
            return Exchanged(there_too, log_ratio, met, jnp.bool_(True))
        back = jnp.concatenate(  # what was below is above, and its slide leads down
            [
                _slide(case, there.upper, lower, bases[2]),
                _slide(case, there.lower, upper, bases[3]),
            ]
        )
        inside = target.contains(there.upper) & target.contains(there.lower)
        return Exchanged(jnp.concatenate([*there, back]), log_ratio, met, inside)

    return jax.jit(jax.vmap(one), compiler_options=RUN_ONCE)


def _bases(case, before, there):
    """Bases at both points before and after."""
    n, m = case.n, len(case.upper)
    points = np.concatenate([before[:, : 2 * n], there[:, : 2 * n]], axis=1).reshape(-1, 4, n)
    jacobians = jax.vmap(jax.vmap(jax.jacrev(case.target.q)))(points)
    return np.linalg.qr(np.swapaxes(jacobians, -1, -2), mode="complete")[0][..., m:]


def _shortest(case, before):
    """How near the surface the nearer point is, in eta: slides are that short, but not above 1."""
    points = before[:, : 2 * case.n].reshape(len(before), 2, case.n)
    eta = np.asarray(jax.vmap(jax.vmap(case.target.q))(points)) / np.array([case.upper, case.lower])
    return np.minimum(1, np.linalg.norm(eta, axis=2).min(axis=1))


def log_densities(case, numbers):
    """Longhand, of both points and both slides."""

    def one(numbers):
        upper, lower, v, w = parts(case, numbers)
        log = -(v @ v + w @ w) / 2
        for x, eps in ((upper, case.upper), (lower, case.lower)):
            log += case.target.log_density(x)
            log -= jnp.sum((case.target.q(x) / jnp.array(eps)) ** 2) / 2
        return log

    return np.asarray(jax.vmap(one)(numbers))


class Found(NamedTuple):
    """How exchanges compare with what they must be."""

    possible: np.ndarray
    reversed: np.ndarray  # those that no way leads back from
    outside: int  # possible ones that end outside the walls
    irreversible: int  # possible ones that do not lead back
    errors: np.ndarray  # of log ratios, where finite differences ran into nothing


def compare(name, exchange, count, seed) -> Found:
    """Many exchanges, their ways back, and longhand ratios."""
    case = CASES[name]
    before = starts(case, count, seed)
    go = exchanger(name, exchange)
    end = np.asarray(go(before, _bases(case, before, before)).there)
    bases = _bases(case, before, np.where(np.isfinite(end), end, before))
    first = Exchanged(*map(np.asarray, go(before, bases)))
    possible = first.met == Outcome.ACCEPTED
    back = Exchanged(*map(np.asarray, go(first.there, bases[:, [2, 3, 0, 1]])))
    returned = (back.met == Outcome.ACCEPTED) & (np.abs(back.there - before).max(axis=1) < 1e-6)
    columns, step = [], STEP * _shortest(case, before)[:, None]
    for direction in np.eye(before.shape[1]):
        total = 0.0
        for k, weight in STENCIL.items():
            near = go(before + k * step * direction, bases)
            fine = np.asarray(near.met == Outcome.ACCEPTED)[:, None]
            total = total + weight * np.where(fine, near.there, np.nan)
        columns.append(total / (60 * step))
    jacobian = np.stack(columns, axis=2)
    known = possible & returned & np.isfinite(jacobian).all(axis=(1, 2))
    volume = np.linalg.slogdet(jacobian[known])[1]
    longhand = log_densities(case, first.there[known]) - log_densities(case, before[known])
    return Found(
        possible,
        first.met == Outcome.REVERSE,
        int(np.sum(possible & ~first.inside)),
        int(np.sum(possible & ~returned)),
        first.log_ratio[known] - longhand - volume,
    )
