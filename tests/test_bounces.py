"""Trajectories that bounce from constraints that do not hold: what they must satisfy exactly.

From the end of one, with the momentum turned round, the same steps must lead back to its beginning;
and the map from points and momenta to those at the end must keep volume, which finite differences
tell, in bases from a QR decomposition.
"""

import functools

import bond_identities as identities
import exact
import jax.numpy as jnp
import mutants
import numpy as np
import pytest

import limpet
from limpet.geometry.linalg import scaled, tangent
from limpet.kernels import stratum, trajectory
from limpet.kernels.bonds import place_at
from limpet.kernels.lifted import LiftedTarget
from limpet.kernels.states import Outcome, State
from limpet.kernels.surface import MEASURES

SLIDES, SIZE, COUNT = 3, 0.4, 60
CHANGES, STEP = 12, 2.5e-4  # directions of a point and of a momentum; of the finite differences


def _go(follow, kind, rigid, x, holds, z):
    """End, momentum there, and which slides ended behind a wall; of points without labels."""
    kernel = limpet.StrataSampler("soft" if rigid else None, tolerance=1e-14)
    target = identities.target_of("all")
    surface = stratum.Masked(target, holds, rigid)
    below, length = stratum.Bouncing(surface), jnp.asarray(0.7)
    lifted = stratum.RigidStratum(surface, 9, below) if rigid else LiftedTarget(below, 9, length)
    full = jnp.concatenate([holds[1:], x])
    place = place_at(target, full, holds)
    state = kernel.start(target, full)
    begin = lifted.raise_state(state._replace(normals=scaled(place.normals, holds)))
    begin, z = kind(*begin), jnp.concatenate([jnp.zeros(3), z])
    slide = tangent(begin.normals, begin.factor, z)
    measure = MEASURES[kernel.measure or "soft"]
    paths = [
        follow(
            kernel,
            lifted,
            begin,
            slide,
            SIZE,
            jnp.zeros(4),
            slides,
            True,
            measure=measure,
            wall=below.wall,
        )
        for slides in range(1, SLIDES + 1)
    ]
    met = jnp.stack([path.obstacle for path in paths])
    return paths[-1].state.x[3:], paths[-1].slide[3:], met


@functools.cache
def _begins(rigid):
    """Points, what holds there, and momenta."""
    x, holds, *_ = identities._begins("all", rigid, COUNT, 5)
    z = SIZE * np.random.default_rng(6).normal(size=(COUNT, 10))
    return x, holds, z * np.r_[np.ones(6), np.full(4, 1.0 - rigid)]


def _basis(x, holds, rigid):
    """Orthonormal directions of x and eta along the surface, longhand."""
    G = np.zeros((4, 10))
    G[:, :6] = (
        holds[:, None] * np.asarray(identities.jacobian_of(x)) / np.array(identities.EPS)[:, None]
    )
    G[:, 6:] = np.diag(-(1 - holds if rigid else np.ones(4)) / 0.7 ** (not rigid))
    if rigid:  # eta of what holds is no coordinate
        G = np.concatenate([G, np.eye(10)[6:][holds > 0]])
    return np.linalg.qr(G.T, mode="complete")[0][:, len(G) :]


def _log_volume(go, rigid, begins, ends):
    """Log of how the map from points and momenta changes volume; NaN where bounces differ."""
    x, holds, z = begins
    bases = [_basis(*each, rigid) for each in zip(x, holds, strict=True)]
    there = [_basis(y[:6], held, rigid) for y, held in zip(ends[0], holds, strict=True)]
    rng = np.random.default_rng(0)  # of levels, which are zero here
    columns, same = [], np.ones(len(x), bool)
    for i in range(CHANGES):
        total = 0.0
        for k, weight in identities.STENCIL.items():
            points, momenta = x.copy(), z.copy()
            for c, T in enumerate(bases):
                if i < T.shape[1]:
                    moved = x[c] + k * STEP * T[:6, i]
                    points[c] = identities._landed(moved, holds[c], rng, True) if rigid else moved
                elif i < 2 * T.shape[1]:
                    momenta[c] = z[c] + k * STEP * T[:, i - T.shape[1]]
            y, w, met = go(points, holds, momenta)
            same &= (met == ends[2]).all(axis=1)
            total = total + weight * np.concatenate([y, w], axis=1)
        columns.append(total / (60 * STEP))
    found = []
    for c, (T, U) in enumerate(zip(bases, there, strict=True)):
        changes = np.stack([columns[i][c] for i in range(2 * T.shape[1])], axis=1)
        inner = np.concatenate([U.T @ changes[:10], U.T @ changes[10:]])
        found.append(np.linalg.slogdet(inner)[1] if same[c] else np.nan)
    return np.array(found)


def _mover(rigid, follow=trajectory.follow, kind=State):
    """Trajectories of many chains; a mutant has a kind of state of its own."""
    return exact.mapped(functools.partial(_go, follow, kind, rigid))


def _errors(rigid, *mutant):
    """How far from its beginning the way back ends, and log of the change of volume, by pair.

    Of trajectories that bounced, and that a right one makes without a failure.
    """
    begins = _begins(rigid)
    met = np.asarray(_mover(rigid)(*begins)[2])
    some = (met[:, :-1] == Outcome.WALL).any(axis=1)
    some &= np.isin(met, (Outcome.ACCEPTED, Outcome.WALL)).all(axis=1)
    some &= met[:, -1] == Outcome.ACCEPTED
    begins = tuple(part[some] for part in begins)
    go = _mover(rigid, *mutant)
    ends = tuple(map(np.asarray, go(*begins)))
    x, holds, z = begins
    again, momentum, back = map(np.asarray, go(ends[0][:, :6], holds, -ends[1]))
    bases = [_basis(*each, rigid) for each in zip(x, holds, strict=True)]
    first = [T @ (T.T @ w) for T, w in zip(bases, z, strict=True)]
    miss = np.abs(again[:, :6] - x).max(axis=1) + np.abs(momentum + first).max(axis=1)
    miss = np.where(back[:, -1] == Outcome.ACCEPTED, miss, np.inf)
    return miss, _log_volume(go, rigid, begins, ends)


@pytest.mark.parametrize("rigid", [True, False])
def test_they_lead_back_and_keep_volume(rigid):
    miss, volume = _errors(rigid)
    assert len(miss) > 8
    assert miss.max() < 1e-8
    known = np.isfinite(volume)
    assert known.mean() > 0.7
    assert np.abs(volume[known]).max() < 1e-7


# of the text of `kernels/trajectory.py`: by name, what is changed, and what takes its place
MUTANTS = {
    "mirrored by half": ("slide - 2 * jnp.sum(slide * away)", "slide - jnp.sum(slide * away)"),
    "momentum is lost": ("slide - 2 * jnp.sum(slide * away)", "0 * slide - jnp.sum(slide * away)"),
    "away from the surface": (
        "away = tangent(state.normals, state.factor, gradient)",
        "away = gradient",
    ),
    "an end behind a wall": ("~inside & ((made >= slides)", "~inside & (False"),
}


@pytest.mark.slow  # each is compiled anew
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name):
    built = mutants.build(mutants.Mutant("kernels.trajectory", (MUTANTS[name],)))
    mutant = built["follow"], built["State"]
    if name == "an end behind a wall":
        right, wrong = (
            np.asarray(mover(*_begins(True))[2])[:, -1] == Outcome.WALL
            for mover in (_mover(True), _mover(True, *mutant))
        )
        assert right.any()
        assert not wrong.any()
    else:
        assert _errors(True, *mutant)[0].max() > 1e-4
