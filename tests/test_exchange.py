"""Ladders of eps: identities, invariance, mutants, truths, stores, and what is refused.

Invariance: chains start from exact draws of the law of every rung, and make some steps; then the
points of every rung are taken back to independent uniforms. There are 63 p-values, each at a level
of 1e-5 / 63, so that all of them together raise a false alarm in at most 1e-5 of all choices of
seeds. Truths are compared at 4 standard errors, 7 times: a false alarm in 4e-4 of all choices.
"""

import dataclasses
import warnings

import exact
import exchange_identities as identities
import jax
import jax.numpy as jnp
import mutants
import numpy as np
import pytest

import limpet
from limpet.kernels import rungs
from limpet.kernels.noise import draw, generators
from limpet.kernels.states import Above, Outcome

PAIRS = 40
LEVEL = 1e-5 / 63
# P(x1 > 0) by quadrature
PIECES = {0.1: 0.356156, 0.01: 0.353175, 1e-6: 0.353145}
STARTS = [[2.0, 0.0, 0.0, 0.0, 0.9], [-2.0, 0.0, 0.0, 0.0, 1.0]]


def two_pieces(x):
    """Two ellipsoids, nearly, of unequal weight."""
    return jnp.array([((x[0] ** 2 - 4) ** 2 + 0.1 * x[0] + jnp.sum(x[1:] ** 2) - 1) / 2])


def two_circles(x):
    """Two circles; the soft measure of one is its radius times that of 1 / |grad q|."""
    large, small = x - jnp.array([1.3, 0.0]), x + jnp.array([1.3, 0.0])
    return jnp.array([jnp.minimum(jnp.sqrt(large @ large) - 1.0, jnp.sqrt(small @ small) - 0.25)])


def test_exchanges_are_in_detailed_balance():
    found = identities.compare("bent", rungs.exchange, identities.SLIDES, PAIRS, seed=1)
    assert found.possible.mean() > 0.7
    assert found.outside == found.irreversible == 0
    assert len(found.errors) > 0.8 * found.possible.sum()
    assert np.abs(found.errors).max() < 1e-8


def test_swaps_are_in_detailed_balance():
    found = identities.compare("bent", rungs.exchange, identities.SWAPS, PAIRS, seed=2)
    assert found.possible.all()
    assert found.irreversible == 0
    assert np.abs(found.errors).max() < 1e-8


def test_what_does_not_lead_back_is_refused():
    found = identities.compare("pieces", rungs.exchange, identities.SLIDES, 3 * PAIRS, seed=3)
    assert found.reversed.sum() > 2
    assert found.irreversible == 0
    assert np.median(np.abs(found.errors)) < 1e-8


@pytest.mark.slow  # each is compiled anew
@pytest.mark.parametrize("name", mutants.EXCHANGE_MUTANTS)
def test_mutants_of_exchanges_are_caught(name):
    case, mutant = mutants.EXCHANGE_MUTANTS[name]
    uniform = identities.SWAPS if case == "swaps" else identities.SLIDES
    exchange = mutants.build(mutant)["exchange"]
    found = identities.compare("bent" if case == "swaps" else case, exchange, uniform, 3 * PAIRS, 3)
    fine = found.possible.mean() > 0.3 and not found.outside and not found.irreversible
    assert not fine or np.median(np.abs(found.errors)) > 1e-6


# Invariance.


def steps_on_ladder(kernel, problems, chains, steps, seed):
    """The points of all rungs after some steps from exact draws, and how exchanges went."""
    rng = np.random.default_rng(seed)
    points = np.stack([each.draw(rng, chains, on=False) for each in problems], axis=1)
    target = problems[-1].target.freeze(jnp.asarray(points[0, -1]))

    def go(points, generator):
        def step(carry, _):
            state, generator = carry
            generator, noise = draw(generator, kernel.noise_size(state))
            state, info = kernel.move(target, {}, noise, state)
            return (state, generator), info

        state = kernel.start(target, points[-1])
        state = state._replace(above=Above(points[:-1], state.above.stage))
        (state, _), info = jax.lax.scan(step, (state, generator), None, steps)
        return jnp.concatenate([state.above.x, state.x[None]]), info

    ends, info = jax.jit(jax.vmap(go))(points, generators(seed, 0, chains))
    return points, np.asarray(ends), info


def ladder_p_values(kind, chains=2_000):
    """P-values of a run from exact draws, with this kind of kernel; and that it moved."""
    bottom = exact.bent_problem(np.random.default_rng(7), (3, 2), 1, eps=(0.1, 0.2), half=True)
    eps = [(0.5, 0.6), (0.25, 0.4), bottom.eps]
    problems = [dataclasses.replace(bottom, eps=each) for each in eps]
    kernel = kind(eps, steps=2, step_size=0.25)
    points, ends, info = steps_on_ladder(kernel, problems, chains, 6, seed=8)
    found = {}
    for k, problem in enumerate(problems):
        found |= exact.uniformity(f"rung {k}", problem.uniforms(ends[:, k], on=False))
    return found, points, ends, info


def test_every_rung_keeps_its_law():
    found, points, ends, info = ladder_p_values(limpet.Exchange)
    assert len(found) == 33
    assert min(found.values()) > LEVEL, found
    assert np.mean(np.any(ends != points, axis=2)) > 0.95
    accepted = np.mean(np.asarray(info.exchanges.outcome) == Outcome.ACCEPTED, axis=(0, 1))
    assert accepted.min() > 0.3
    assert np.mean(np.asarray(info.exchanges.round_trip)) > 0.01


@pytest.mark.slow  # each is compiled anew
@pytest.mark.parametrize("name", mutants.LADDER_MUTANTS)
def test_mutants_of_ladders_are_caught(name):
    kind = mutants.build(mutants.LADDER_MUTANTS[name])["Exchange"]
    found, *_ = ladder_p_values(kind)
    assert min(found.values()) < LEVEL
