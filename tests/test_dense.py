"""A hundred unknowns in every constraint: identities, and limpet's compiler against XLA."""

import functools

import exact
import identities
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import limpet
from limpet import lanes
from limpet.engine.xla import RUN_ONCE
from limpet.kernels import noise
from limpet.run import tile

PAIRS = 4  # as many as there are lanes: each has some thousand finite differences
SIZE = 0.02  # of slides


def points(problem, count):
    return problem.draw(np.random.default_rng(problem.m), count, on=True)


def check(pairs):
    assert pairs.irreversible == 0
    assert len(pairs.errors) == PAIRS
    assert pairs.errors.max() <= 1e-8


@pytest.mark.slow
def test_lifted():
    problem = exact.dense_problem(1, seed=1)
    kernel = limpet.Lifted(steps=3, step_size=SIZE, tolerance=1e-14)
    begin = identities.on_states(kernel, problem.target, points(problem, PAIRS))
    z = np.random.default_rng(1).normal(size=(problem.n + 1, PAIRS))
    check(identities.lifted(kernel, problem.target, begin, z))


@pytest.mark.parametrize("m", [3, *(pytest.param(m, marks=pytest.mark.slow) for m in (33, 60))])
def test_slides_on_a_surface(m):
    problem = exact.dense_problem(m, seed=m)
    kernel = limpet.SurfaceSampler("soft", SIZE, 1, tolerance=1e-14)
    begin = identities.on_states(kernel, problem.target, points(problem, PAIRS))
    z = np.random.default_rng(2).normal(size=(problem.n, PAIRS))
    check(identities.hard(kernel, problem.target, begin, z))


@pytest.mark.slow  # XLA takes half a minute for it
@pytest.mark.parametrize("m", [1, 33, 60])
def test_a_step_is_that_of_xla(m):
    """A trajectory of two slides: where it ends, and what became of it."""
    problem = exact.dense_problem(m, seed=m)
    kernel, starts = limpet.Lifted(steps=2, step_size=2 * SIZE), points(problem, PAIRS)
    target = problem.target.freeze(jnp.asarray(starts[0]))
    carry = tile.first_states(kernel, target, starts), noise.generators(0, 0, PAIRS)
    sizes = {name: np.full((PAIRS, 1), size) for name, size in kernel.sizes(target).items()}
    constants = kernel, target
    one = [jax.tree.map(lambda leaf: leaf[0], carry), jax.tree.map(lambda a: a[0, 0], sizes)]
    ours = lanes.scan(tile.step, constants, *one)(constants, carry, sizes)

    @functools.partial(jax.jit, compiler_options=RUN_ONCE)
    def by_xla(carry, sizes):
        return jax.lax.map(lambda row: tile.step(constants, *row), (carry, sizes))

    theirs = by_xla(carry, jax.tree.map(lambda a: a[:, 0], sizes))
    np.testing.assert_array_equal(ours[1].code[:, 0], theirs[1].code)
    np.testing.assert_allclose(ours[1].x[:, 0], theirs[1].x, atol=1e-9)
    for a, b in zip(jax.tree.leaves(ours[0]), jax.tree.leaves(theirs[0]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
