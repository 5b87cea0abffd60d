"""What Form and Break must satisfy exactly, with no statistics: detailed balance, pair by pair.

A constraint is changed with known random numbers, then changed back with those that lead back. The
two log ratios must be each other's negative, and be that of the densities, written out longhand: in
the user's q, with bases from a QR decomposition, and with the density of a proposal taken from the
*finite-difference Jacobian* of the map from random numbers to proposals. Soft constraints that hold
keep their level in such a move; densities are those given this level, per unit of its area.
"""

import functools
from typing import NamedTuple

import exact
import jax
import jax.numpy as jnp
import numpy as np

import limpet
from limpet.kernels import bonds, stratum
from limpet.kernels.states import Outcome
from limpet.kernels.surface import MEASURES
from limpet.layout import Layout

STEP = 2e-3  # of the finite differences, in standard deviations of the noise
STENCIL = {-3: -1, -2: 9, -1: -45, 1: 45, 2: -9, 3: 1}  # sixth order; divide by 60


def bent(x):
    """Four constraints of different scales on six unknowns."""
    return jnp.stack(
        [
            (x @ x) / 2 + 0.3 * x[0] * x[1] - 1,
            2 * (x[3] + 0.5 * jnp.sin(x[1] + x[4])) + 0.3 * x[0] ** 2,
            x[2] + 0.2 * x[5] ** 2 + 0.4 * jnp.cos(x[0]),
            3 * (x[4] - 0.3 * x[2] * x[0]) + 0.5 * x[5],
        ]
    )


def leaning(x):
    """A log density that is not symmetric in anything."""
    return 0.4 * x[0] - 0.3 * x[1] ** 2 + 0.2 * jnp.sin(x[-1]) - 0.1 * (x @ x)


def half(x):
    """A wall."""
    return jnp.array([x[0] + 1.5, 2.0 - x[1]])


q_of, jacobian_of = jax.jit(bent), jax.jit(jax.jacrev(bent))
SLOPES = [1.3, 1.8, 0.9, 2.4]  # of where the chain began
EPS, KAPPA, REACH, ALWAYS = [0.2, 0.3, 0.25, 0.15], [0.7, 1.9, 0.4], [1.0, 0.7, 1.6], [0]
CASES = {
    "all": {},
    "two-sided": {"two_sided": [True, False, True]},
    "allowed": {"allowed": [[], [1], [1, 2], [1, 2, 3]]},
    "three at once": {"at_once": 3},
}
KERNEL = {"reach": 0.8, "spread": 0.45, "tolerance": 1e-14}


@functools.cache
def target_of(case: str) -> limpet.Strata:
    """A target of vectors: six coordinates, and three labels before them."""
    target = limpet.Strata(
        bent,
        EPS,
        KAPPA,
        always=ALWAYS,
        reach=REACH,
        log_density=leaning,
        inside=half,
        **CASES[case],
    )
    layout = Layout.of({"bonds": np.zeros(3), "x": np.zeros(6)})
    return target.on_vectors(layout).freeze(jnp.zeros(9))


class Pair(NamedTuple):
    """A slide and the way back, with what was longhand."""

    forms: np.ndarray
    met: np.ndarray
    log_ratio: np.ndarray
    back_met: np.ndarray
    back_log_ratio: np.ndarray
    miss: np.ndarray  # how far from the beginning the way back ended
    longhand: np.ndarray


@functools.cache
def _begins(case, rigid, count, seed):
    """Points, labels, constraints to change and random numbers."""
    rng = np.random.default_rng(seed)
    begins = [_begin(target_of(case), rigid, rng) for _ in range(count)]
    z, level, uniform = rng.normal(size=(count, 6)), rng.normal(size=count), rng.uniform(size=count)
    return *(np.array(part) for part in zip(*begins, strict=True)), z, level, uniform


def _mover(slide, kernel, case):
    """Slides of many pairs."""
    measure = None if kernel.measure is None else MEASURES[kernel.measure]
    return exact.mapped(functools.partial(_go, slide, kernel, target_of(case), measure))


def log_ratios(slide, kernel, case, count, seed) -> np.ndarray:
    """The log ratios of many slides; `slide` is `bonds.slide_to_level`, or a mutant's."""
    begins = _begins(case, kernel.measure is not None, count, seed)
    return np.asarray(_mover(slide, kernel, case)(*begins)[1])


def pairs(kernel, case, count, seed) -> Pair:
    """Many pairs of slides."""
    target, go = target_of(case), _mover(bonds.slide_to_level, kernel, case)
    rigid, hausdorff = kernel.measure is not None, kernel.measure == "hausdorff"
    x, holds, chosen, z, level, uniform = _begins(case, rigid, count, seed)
    forms = (chosen * holds).sum(1) == 0
    y, log_ratio, met = go(x, holds, chosen, z, level, uniform)
    # the random numbers of the way back
    q_x, q_y = (np.array([q_of(each) for each in p]) for p in (x, y))
    eps = np.array(EPS)
    s_x, s_y = ((chosen * q).sum(1) for q in (q_x, q_y))
    sigma = kernel.spread * np.abs(np.where(forms, s_x, s_y)) / (chosen * SLOPES).sum(1)
    sides = (chosen * ~target.walled).sum(1) > 0
    share = s_x / (kernel.reach * (chosen[:, 1:] * REACH).sum(1))
    back_uniform = np.where(sides, (share + 1) / 2, share)
    assert ((back_uniform > 0) & (back_uniform < 1))[forms].all()
    back_level = s_x / (chosen * eps).sum(1)
    back_holds = np.abs(holds - chosen)
    back_v = _tangent(y, np.maximum(holds, chosen), x - y)
    back_z = back_v / sigma[:, None]
    x_again, back_log_ratio, back_met = go(y, back_holds, chosen, back_z, back_level, back_uniform)
    longhand = (
        _log_density(y, back_holds, chosen, rigid, hausdorff)
        - _log_density(x, holds, chosen, rigid, hausdorff)
        + _log_tried(target, kernel, y, back_holds, chosen)
        - _log_tried(target, kernel, x, holds, chosen)
        + _log_proposal(go, rigid, y, back_holds, chosen, back_z, back_level, back_uniform)
        - _log_proposal(go, rigid, x, holds, chosen, z, level, uniform)
    )
    ends = (forms, met, log_ratio, back_met, back_log_ratio)
    miss = np.linalg.norm(x_again - x, axis=1)
    return Pair(*map(np.asarray, ends), miss, np.asarray(longhand))


def _go(slide, kernel, target, measure, x, holds, chosen, z, level, uniform):
    """One slide with given random numbers, of coordinates without labels."""
    full = jnp.concatenate([holds[1:], x])
    trial = bonds.Trial(chosen, jnp.concatenate([jnp.zeros(3), z]), level, uniform)
    here = bonds.place_at(target, full, holds)
    began = bonds.Began(jnp.asarray(1.5), jnp.array(SLOPES))
    rooms = target.rooms if stratum.has_rooms(target) else None
    below = bonds.surface_of_try(target, measure, trial, here, rooms)
    there, log_ratio, met = slide(kernel, below, kernel.reach, measure, trial, here, began)
    return there.x[3:], log_ratio, met


def _begin(target, rigid, rng):
    """A point, labels that it can have, and a constraint to change."""
    forms = rng.uniform() < 0.5
    for _ in range(1_000):
        x = rng.normal(size=6) * 0.8
        sets = target.allowed or [(1,), (2,), (3,), (), (1, 2), (1, 3), (2, 3), (1, 2, 3)]
        sets = [each for each in sets if len(each) < target.rooms]
        held = sets[rng.integers(len(sets))]
        holds = np.isin(np.arange(4), (0, *held)).astype(float)
        x = _landed(x, holds, rng, rigid)
        weights = np.asarray(_weights(target, x, holds)) * ((holds == 0) == forms)
        apart = (np.asarray(q_of(x)) > 0) | (holds > 0) | ~target.walled
        if weights.sum() and apart.all() and (np.asarray(half(x)) > 0).all():
            j = rng.choice(4, p=weights / weights.sum())
            return x, holds, np.eye(4)[j]
    raise AssertionError("no place to begin")


@jax.jit
def _weights(target, x, holds):
    place = bonds.place_at(target, jnp.concatenate([holds[1:], x]), holds)
    return bonds.try_weights(target, KERNEL["reach"], place)


def _landed(x, holds, rng, rigid):
    """A point where what holds is near its level."""
    level = holds * np.array(EPS) * rng.normal(size=4) * (not rigid)
    for _ in range(12):
        G = np.asarray(jacobian_of(x))[holds > 0]
        x = x - G.T @ np.linalg.solve(G @ G.T, (np.asarray(q_of(x)) - level)[holds > 0])
    return x


# Longhand.


def _basis(x, holds):
    """Orthonormal directions along the level of what holds, and the Gram matrix of that."""
    G = np.asarray(jacobian_of(x))[holds > 0]
    return np.linalg.qr(G.T, mode="complete")[0][:, len(G) :], G @ G.T


def _tangent(x, holds, v):
    bases = [_basis(*each)[0] for each in zip(x, holds, strict=True)]
    return np.array([T @ (T.T @ each) for T, each in zip(bases, v, strict=True)])


def _log_density(x, holds, chosen, rigid, hausdorff):
    """Log of the density per unit of area: of the surface, or of the level of what stays soft."""
    found, eps, kappa = [], np.array(EPS), np.array([1.0, *KAPPA])
    for point, held, one in zip(x, holds, chosen, strict=True):
        log = float(leaning(point)) + np.sum(held * np.log(kappa))
        if not rigid:
            whitened = np.asarray(q_of(point)) / eps
            log += np.sum(held * (-(whitened**2) / 2 - np.log(eps * np.sqrt(2 * np.pi))))
            held = np.minimum(held, 1 - one)
        found.append(log if hausdorff else log - np.linalg.slogdet(_basis(point, held)[1])[1] / 2)
    return np.array(found)


def _log_tried(target, kernel, x, holds, chosen):
    """Log of the probability that the constraint is tried."""
    found = []
    for point, held, one in zip(x, holds, chosen, strict=True):
        weights = np.zeros(4)
        for j in range(1, 4):
            q, wall = float(q_of(point)[j]), target.walled[j]
            reach = kernel.reach * REACH[j - 1]
            b, kappa = reach * (1 if wall else 2), KAPPA[j - 1]
            after = {k for k in range(1, 4) if (held[k] > 0) != (k == j)}
            if target.allowed is not None and after not in map(set, target.allowed):
                continue
            if len(after) >= target.rooms:  # one more holds always
                continue
            near = (0 < q < reach) if wall else abs(q) < reach
            weights[j] = (b if held[j] else kappa * near) / max(kappa, b)
        with np.errstate(divide="ignore"):  # a level out of reach
            found.append(np.log(np.sum(weights * one) / max(weights.sum(), 3**0.5)))
    return np.array(found)


def _log_proposal(go, rigid, x, holds, chosen, z, level, uniform):
    """Log density of the end, per unit of area of the larger of the two surfaces or levels.

    Forming a rigid constraint ends on the smaller one: no random number chooses the level.
    """
    forms = (chosen * holds).sum(1) == 0
    ends, size = [], len(x)
    bases = [_basis(*each)[0] for each in zip(x, np.maximum(holds, chosen), strict=True)]
    widest = max(T.shape[1] for T in bases)
    for i in range(widest):
        direction = np.array([T[:, i] if i < T.shape[1] else np.zeros(6) for T in bases])
        ends.append(
            _difference(lambda h, d=direction: go(x, holds, chosen, z + h * d, level, uniform))
        )
    ends.append(
        _difference(
            lambda h: go(x, holds, chosen, z, level + h * forms, uniform + 0.1 * h * ~forms)
        )
    )
    y = go(x, holds, chosen, z, level, uniform)[0]
    found = []
    for k in range(size):
        T, d = bases[k], bases[k].shape[1]
        columns = [ends[i][k] for i in range(d)]
        log = -np.sum((T.T @ z[k]) ** 2) / 2 - d * np.log(2 * np.pi) / 2
        after = np.maximum(holds[k], chosen[k])
        if not (rigid and forms[k]):
            after = after - chosen[k]
            columns.append(ends[-1][k] / (1 if forms[k] else 0.1))
            log += -(level[k] ** 2) / 2 - np.log(2 * np.pi) / 2 if forms[k] else 0.0
        there = _basis(y[k], after)[0]
        with np.errstate(invalid="ignore"):  # of differences that ran into a wall
            volume = np.linalg.slogdet(there.T @ np.stack(columns, axis=1))[1]
        found.append(log - volume)
    return np.array(found)


def _difference(move):
    """The derivative of where a slide ends, by finite differences; NaN where one failed."""
    total = 0.0
    for k, weight in STENCIL.items():
        y, _, met = move(k * STEP)
        fine = np.asarray(met == Outcome.ACCEPTED)[:, None]
        total = total + weight * np.where(fine, y, np.nan)
    return total / (60 * STEP)
